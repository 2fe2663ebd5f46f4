/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Looks users up through glibc, as any program does: dynamic, static or set-uid.
 *
 *     lookup [--effective UID] [--filter NUMBER,NUMBER…] NAME…
 *
 * --effective makes real and effective user differ first. --filter first installs a seccomp filter. The filter kills
 * the process on any system call with a number outside the list. With `all` the program only reports where the filter
 * would stand. The module is loaded before, because the loader needs more system calls than lookups do.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { GROUPS_MAX = 1024, NUMBERS_MAX = 200 };

static void show(const char *name)
{
    static gid_t gids[GROUPS_MAX];
    int count = GROUPS_MAX;
    errno = 0;
    const struct passwd *user = getpwnam(name);
    if (!user) {
        printf("%s: %s\n", name, errno ? strerrorname_np(errno) : "no such user");
        return;
    }
    printf("%s:%u:%u:%s:", user->pw_name, user->pw_uid, user->pw_gid, user->pw_gecos);
    if (getgrouplist(name, user->pw_gid, gids, &count) < 0)
        printf("more than %d groups", GROUPS_MAX);
    else
        for (int i = 0; i < count; i++) {
            const struct group *group = getgrgid(gids[i]);
            printf("%s%s", i ? "," : "", group ? group->gr_name : "?");
        }
    putchar('\n');
}

static struct sock_filter program[3 + 2 * NUMBERS_MAX + 1];
static unsigned short program_len;

static void add(struct sock_filter instruction)
{
    program[program_len++] = instruction;
}

static void install_filter(char *list)
{
    if (strcmp(list, "all") == 0)
        return;
    add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    int count = 0;
    for (char *number = strtok(list, ","); number; number = strtok(NULL, ",")) {
        if (++count > NUMBERS_MAX)
            abort();
        unsigned nr = (unsigned)strtoul(number, NULL, 10);
        add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1));
        add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    struct sock_fprog filter = {program_len, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        perror("seccomp");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    int i = 1;
    if (i + 1 < argc && strcmp(argv[i], "--effective") == 0) {
        if (seteuid((uid_t)strtoul(argv[i + 1], NULL, 10)) != 0) {
            perror("seteuid");
            return 2;
        }
        i += 2;
    }
    if (i + 1 < argc && strcmp(argv[i], "--filter") == 0) {
        dlopen("libnss_roster.so.2", RTLD_NOW);
        /* stdio makes its buffer and checks its descriptor before the filter stands. */
        puts("filtered");
        fflush(stdout);
        install_filter(argv[i + 1]);
        i += 2;
    }
    for (; i < argc; i++)
        show(argv[i]);
    return 0;
}
