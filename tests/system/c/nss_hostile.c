/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* libnss_hostile.so.2: a compromised module in the helper of `roster nscd`.
 *
 * The user "attack-PID-DIRECTORY" exists, with the process's own uid and gid. DIRECTORY is the path of the maps with
 * "+" for "/". GECOS lists the result of each attack as NAME=ERRNO; 0 is a success. "starter" exists, with the parent's
 * process id in GECOS. "crash" ends the process. "hang" is never answered, by a process of the name "hanging".
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <nss.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

static char *told;
static size_t room;

static void tell(const char *what, int failed)
{
    int error = failed ? errno : 0;
    int length = snprintf(told, room, "%s=%d;", what, error);
    if (length < 0 || (size_t)length >= room)
        abort();
    told += length;
    room -= length;
}

static int opened(const char *path, int how)
{
    int file = open(path, how | O_CLOEXEC);
    if (file >= 0)
        close(file);
    return file;
}

/* Whether any file with a map's name that the kernel lists in a directory below /proc can be opened for writing. */
static int any_link(const char *folder)
{
    int failed = -1, error = EACCES;
    DIR *links = opendir(folder);
    if (links == NULL)
        return -1;
    for (struct dirent *link; (link = readdir(links)) != NULL;) {
        char path[4096], target[4096] = "";
        snprintf(path, sizeof path, "%s/%s", folder, link->d_name);
        if (readlink(path, target, sizeof target - 1) < 0 || !(strstr(target, "/passwd.") || strstr(target, "/group.")))
            continue;
        if (opened(path, O_RDWR) >= 0)
            failed = 0;
    }
    closedir(links);
    errno = error;
    return failed;
}

/* The same for every process. */
static int any_process(const char *name)
{
    int failed = -1;
    DIR *processes = opendir("/proc");
    if (processes == NULL)
        return -1;
    for (struct dirent *process; (process = readdir(processes)) != NULL;) {
        char folder[512];
        snprintf(folder, sizeof folder, "/proc/%s/%s", process->d_name, name);
        if (any_link(folder) == 0)
            failed = 0;
    }
    closedir(processes);
    errno = EACCES;
    return failed;
}

/* The map of users that every program receives. */
static int handed(void)
{
    struct { int version, kind, bytes; char key[7]; } request = {2, 11, 7, "passwd"};
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "/run/nscd/socket"};
    union { struct cmsghdr header; char bytes[CMSG_SPACE(sizeof(int))]; } control = {0};
    char reply[64];
    struct iovec into = {reply, sizeof reply};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), map = -1;
    if (server < 0 || connect(server, (struct sockaddr *)&at, sizeof at) < 0)
        return -1;
    if (send(server, &request, 19, MSG_NOSIGNAL) == 19 && recvmsg(server, &message, MSG_CMSG_CLOEXEC) > 0 && CMSG_FIRSTHDR(&message))
        memcpy(&map, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof map);
    close(server);
    return map;
}

/* Starts a process in a new user namespace, which ends at once. */
static int in_namespace(void)
{
    long child = syscall(__NR_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    return child;
}

static void attack(pid_t server, const char *maps)
{
    char path[4096];
    int failed = -1;
    long landlock = syscall(__NR_landlock_create_ruleset, NULL, 0, 1);
    errno = landlock;
    tell("landlock", landlock > 0);
    if (landlock >= 1)
        tell("tmp", opened("/tmp/hostile", O_RDWR | O_CREAT) < 0);
    /* Same user: only Landlock's scope of signals denies this. */
    if (landlock >= 6)
        tell("starter_kill", kill(getppid(), SIGKILL) < 0);
    tell("folder", opened(maps, O_RDONLY | O_DIRECTORY) < 0);
    for (int number = 0; number < 100; number++) {
        snprintf(path, sizeof path, "%s/passwd.%d", maps, number);
        failed = opened(path, O_RDWR) < 0 && truncate(path, 0) < 0 && failed;
    }
    tell("name", failed);
    snprintf(path, sizeof path, "%s/passwd.1000", maps);
    tell("create", opened(path, O_RDWR | O_CREAT) < 0);
    snprintf(path, sizeof path, "/proc/%d/fd", server);
    tell("fd", any_link(path));
    tell("fds", any_process("fd"));
    tell("map_files", any_process("map_files"));
    snprintf(path, sizeof path, "/proc/%d/mem", server);
    tell("mem", opened(path, O_RDWR) < 0);
    snprintf(path, sizeof path, "/proc/%d/mem", getppid());
    tell("starter_mem", opened(path, O_RDWR) < 0);
    tell("ptrace", ptrace(PTRACE_SEIZE, server, 0, 0) < 0);
    tell("starter_ptrace", ptrace(PTRACE_SEIZE, getppid(), 0, 0) < 0);
    char byte = 0;
    struct iovec local = {&byte, 1}, remote = {told, 1};
    tell("vm_write", process_vm_writev(server, &local, 1, &remote, 1, 0) < 0);
    tell("kill", kill(server, SIGKILL) < 0);
    tell("root", setuid(0) < 0);
    tell("namespace", in_namespace() < 0);
    tell("netfilter", socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER) < 0);
    int map = handed();
    tell("handed", map < 0);
    if (map < 0)
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", map);
    tell("write", pwrite(map, "", 1, 0) < 0);
    tell("cut", ftruncate(map, 0) < 0);
    tell("mmap", mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0) == MAP_FAILED);
    tell("reopen", opened(path, O_RDWR) < 0);
    tell("reopen_cut", truncate(path, 0) < 0);
    tell("chmod", fchmod(map, 0666) < 0);
    void *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, map, 0);
    tell("mapped", mapped == MAP_FAILED);
    tell("mprotect", mprotect(mapped, 4096, PROT_READ | PROT_WRITE) < 0);
    tell("own_map_files", any_link("/proc/self/map_files"));
    close(map);
}

enum nss_status _nss_hostile_getpwnam_r(const char *name, struct passwd *out, char *buffer, size_t buflen, int *errnop)
{
    static char nothing[] = "";
    int server, at = 0;
    if (strcmp(name, "crash") == 0)
        abort();
    if (strcmp(name, "hang") == 0)
        prctl(PR_SET_NAME, "hanging");
    while (strcmp(name, "hang") == 0)
        pause();
    size_t length = strlen(name) + 1;
    if (buflen < length + 2048) {
        *errnop = ERANGE;
        return NSS_STATUS_TRYAGAIN;
    }
    memset(out, 0, sizeof *out);
    out->pw_name = memcpy(buffer, name, length);
    out->pw_passwd = out->pw_dir = out->pw_shell = nothing;
    out->pw_uid = getuid();
    out->pw_gid = getgid();
    out->pw_gecos = told = buffer + length;
    room = buflen - length;
    *told = 0;
    if (strcmp(name, "starter") == 0) {
        snprintf(told, room, "%d", getppid());
        return NSS_STATUS_SUCCESS;
    }
    if (sscanf(name, "attack-%d-%n", &server, &at) != 1 || at == 0) {
        *errnop = ENOENT;
        return NSS_STATUS_NOTFOUND;
    }
    char maps[1024];
    snprintf(maps, sizeof maps, "%s", name + at);
    for (char *sign = maps; *sign; sign++)
        if (*sign == '+')
            *sign = '/';
    attack(server, maps);
    return NSS_STATUS_SUCCESS;
}
