/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls a module's functions on command, in one long-lived process.
 *
 *     caller SERVICE
 *
 * One command a line on standard input, one line of answer each. A lookup answers with the status and either the entry
 * or, when there is none, the errno that the module left.
 */
#define _GNU_SOURCE
#include "nss.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* Room for the answers of the tests, and for walking lengths up to it. */
    BUFFER_BYTES = 64 << 10,
    /* After the first length that suffices, these many more must too. */
    LENGTHS_BEYOND = 64,
    DESCRIPTORS = 1024,
    /* Detects a module that leaves errno unchanged when it fails. */
    ERRNO_UNTOUCHED = 4242,
};

static struct nss nss;
static char room[BUFFER_BYTES];

/* One answer as text. */
static char answer[4 * BUFFER_BYTES];
static size_t answer_len;

static void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(answer + answer_len, sizeof answer - answer_len, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof answer - answer_len)
        abort();
    answer_len += (size_t)n;
}

static const char *null(const char *s)
{
    return s ? s : "(null)";
}

static void outcome(enum nss_status status, int error)
{
    static const char *const names[] = {"TRYAGAIN", "UNAVAIL", "NOTFOUND", "SUCCESS"};
    if (status < NSS_STATUS_TRYAGAIN || status > NSS_STATUS_SUCCESS)
        say("status %d", status);
    else
        say("%s", names[status - NSS_STATUS_TRYAGAIN]);
    if (status != NSS_STATUS_SUCCESS)
        say(" %s", error == ERRNO_UNTOUCHED ? "(errno not set)" : strerrorname_np(error));
}

static void user(const struct passwd *p)
{
    say(" %s:%s:%u:%u:%s:%s:%s", null(p->pw_name), null(p->pw_passwd), p->pw_uid, p->pw_gid,
        null(p->pw_gecos), null(p->pw_dir), null(p->pw_shell));
}

static void group(const struct group *g)
{
    say(" %s:%s:%u:", null(g->gr_name), null(g->gr_passwd), g->gr_gid);
    for (char **member = g->gr_mem; *member; member++)
        say("%s%s", member == g->gr_mem ? "" : ",", *member);
}

static void shadow(const struct spwd *s)
{
    say(" %s:%s:%ld:%ld:%ld:%ld:%ld:%ld:%ld", null(s->sp_namp), null(s->sp_pwdp), s->sp_lstchg,
        s->sp_min, s->sp_max, s->sp_warn, s->sp_inact, s->sp_expire, (long)s->sp_flag);
}

/* Runs one lookup with the given room and leaves its outcome in `answer`. */
static enum nss_status look_up(const char *function, const char *key, char *buffer, size_t len)
{
    int error = ERRNO_UNTOUCHED;
    enum nss_status status;
    uid_t id = (uid_t)strtoul(key, NULL, 10);
    answer_len = 0;
    answer[0] = '\0';
#define CASE(name, type, show, ...)                                                                \
    if (strcmp(function, #name) == 0) {                                                            \
        struct type entry;                                                                         \
        memset(&entry, 0x5a, sizeof entry);                                                        \
        status = nss.name##_r(__VA_ARGS__ &entry, buffer, len, &error);                            \
        outcome(status, error);                                                                    \
        if (status == NSS_STATUS_SUCCESS)                                                          \
            show(&entry);                                                                          \
        return status;                                                                             \
    }
#define KEY key,
#define ID id,
#define NONE
    CASE(getpwnam, passwd, user, KEY)
    CASE(getpwuid, passwd, user, ID)
    CASE(getgrnam, group, group, KEY)
    CASE(getgrgid, group, group, ID)
    CASE(getspnam, spwd, shadow, KEY)
    CASE(getpwent, passwd, user, NONE)
    CASE(getgrent, group, group, NONE)
    CASE(getspent, spwd, shadow, NONE)
    fprintf(stderr, "caller: unknown function %s\n", function);
    exit(2);
}

/* Returns a buffer with an inaccessible page behind it. */
static char *guarded(void)
{
    long page = sysconf(_SC_PAGESIZE);
    char *start = mmap(NULL, BUFFER_BYTES + (size_t)page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || mprotect(start + BUFFER_BYTES, (size_t)page, PROT_NONE) != 0)
        abort();
    return start;
}

/* Makes the lookup with every buffer length from 0 to more than enough. Each time the result is the right answer or
 * ERANGE. A larger buffer than a sufficient one suffices, and nothing is written outside. */
static void every_length(const char *function, const char *key)
{
    static char wanted[sizeof answer];
    static char *start;
    if (!start)
        start = guarded();
    if (look_up(function, key, room, sizeof room) != NSS_STATUS_SUCCESS)
        return;
    strcpy(wanted, answer);
    size_t enough = 0, served = 0;
    for (size_t len = 0; served <= LENGTHS_BEYOND; len++) {
        if (len > BUFFER_BYTES / 2) {
            answer_len = 0;
            say("never enough");
            return;
        }
        char *buffer = start + BUFFER_BYTES - len;
        memset(start, 0xa5, BUFFER_BYTES);
        look_up(function, key, buffer, len);
        if (strcmp(answer, wanted) == 0) {
            enough = served++ ? enough : len;
        } else if (strcmp(answer, "TRYAGAIN ERANGE") != 0 || served) {
            say(" with %zu bytes", len);
            return;
        }
        for (char *byte = start; byte < buffer; byte++)
            if (*byte != (char)0xa5) {
                answer_len = 0;
                say("wrote %td bytes before a buffer of %zu", buffer - byte, len);
                return;
            }
    }
    answer_len = 0;
    say("enough from %zu", enough);
}

static void groups_of(const char *name, gid_t gid, long size, long limit)
{
    int error = ERRNO_UNTOUCHED;
    long start = 1;
    gid_t *gids = malloc((size_t)size * sizeof *gids);
    gids[0] = gid;
    enum nss_status status = nss.initgroups_dyn(name, gid, &start, &size, &gids, limit, &error);
    answer_len = 0;
    outcome(status, error);
    for (long i = 0; i < start; i++)
        say(" %u", gids[i]);
    free(gids);
}

static void count_maps(const char *word)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char *line = NULL;
    size_t size = 0;
    int count = 0;
    while (getline(&line, &size, maps) > 0)
        count += strstr(line, word) != NULL;
    free(line);
    fclose(maps);
    answer_len = 0;
    say("%d", count);
}

static void count_descriptors(void)
{
    int count = 0;
    for (int fd = 3; fd < DESCRIPTORS; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    answer_len = 0;
    say("%d", count);
}

/* Reuses descriptors, as a daemon does on start. A descriptor that the module retained would refer to another file. */
static void reuse_descriptors(void)
{
    int null_fd = open("/dev/null", O_RDWR);
    for (int fd = 3; fd < DESCRIPTORS; fd++)
        if (fd != null_fd)
            dup2(null_fd, fd);
    answer_len = 0;
    say("done");
}

static void close_descriptors(void)
{
    for (int fd = 3; fd < DESCRIPTORS; fd++)
        close(fd);
    answer_len = 0;
    say("done");
}

static void status_only(enum nss_status status)
{
    answer_len = 0;
    outcome(status, ERRNO_UNTOUCHED);
}

static void obey(const char *command, const char *a, long b, long c, long d)
{
#define IS(word) (strcmp(command, word) == 0)
    if (IS("initgroups"))
        groups_of(a, (gid_t)b, c ? c : 1, d ? d : -1);
    else if (IS("maps"))
        count_maps(a);
    else if (IS("descriptors"))
        count_descriptors();
    else if (IS("reuse-descriptors"))
        reuse_descriptors();
    else if (IS("close-descriptors"))
        close_descriptors();
    else if (IS("setpwent"))
        status_only(nss.setpwent(0));
    else if (IS("setgrent"))
        status_only(nss.setgrent(0));
    else if (IS("setspent"))
        status_only(nss.setspent(0));
    else if (IS("endpwent"))
        status_only(nss.endpwent());
    else if (IS("endgrent"))
        status_only(nss.endgrent());
    else if (IS("endspent"))
        status_only(nss.endspent());
    else if (strncmp(command, "lengths-", 8) == 0)
        every_length(command + 8, a);
    else
        look_up(command, a, room, sizeof room);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: caller SERVICE < commands\n", stderr);
        return 2;
    }
    nss = nss_load(argv[1]);
    static char line[8192];
    while (fgets(line, sizeof line, stdin)) {
        char command[64] = "", a[4096] = "";
        long b = 0, c = 0, d = 0;
        sscanf(line, "%63s %4095s %ld %ld %ld", command, a, &b, &c, &d);
        obey(command, a, b, c, d);
        puts(answer);
        fflush(stdout);
    }
    return 0;
}
