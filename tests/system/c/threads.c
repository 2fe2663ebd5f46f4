/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Many threads look up while generations are replaced: no answer may be wrong, torn or missing.
 *
 *     threads SECONDS [MILLISECONDS [THREADS]]
 *
 * Expects the users u0…u9 and the groups of `generation()` in the tests. Every answer names its generation in several
 * places, which must agree. A thread must never see an older generation than before. With a second number the threads
 * begin that far apart. Even threads call the module directly, odd ones through glibc. With a third number there are
 * that many threads, all through glibc. Stops early when standard input ends, or when a thread has seen the generation
 * of a number there. Prints the calls made, and fails with the first wrong answer.
 */
#define _GNU_SOURCE
#include "nss.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 32, THREADS_MAX = 64, BUFFER_BYTES = 16 << 10, GROUPS_MAX = 64, MEMBERS = 50, LISTED = 10 };

static struct nss nss;
static atomic_bool stop;
static atomic_long calls;
static atomic_int failures;
/* The newest generation that any thread has seen. */
static atomic_ulong newest;

struct caller {
    pthread_t thread;
    int direct;
    unsigned dice;
    /* The newest generation that this thread has seen. For threads through glibc it is that of users, and
     * `seen_of_groups` that of groups: each has its own map. */
    unsigned long seen, seen_of_groups;
};

static void fail(const char *format, ...)
{
    va_list args;
    if (atomic_fetch_add(&failures, 1) < 5) {
        va_start(args, format);
        flockfile(stderr);
        vfprintf(stderr, format, args);
        fputc('\n', stderr);
        funlockfile(stderr);
        va_end(args);
    }
}

static void saw(struct caller *me, const char *what, unsigned long generation)
{
    unsigned long *seen = me->direct || *what == 'u' ? &me->seen : &me->seen_of_groups;
    if (generation < *seen)
        fail("%s: generation %lu after %lu", what, generation, *seen);
    else
        *seen = generation;
    unsigned long before = atomic_load_explicit(&newest, memory_order_relaxed);
    while (before < generation && !atomic_compare_exchange_weak(&newest, &before, generation))
        ;
}

/* Module status to glibc's two values. */
static int missing(struct caller *me, const char *what, int direct_status, int error)
{
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (me->direct ? direct_status == NSS_STATUS_SUCCESS : error == 0)
        return 0;
    fail("%s: status %d, %s", what, direct_status, strerrorname_np(error));
    return 1;
}

static void check_user(struct caller *me, unsigned i, const struct passwd *p)
{
    unsigned long in_gecos, in_dir;
    char name[16];
    snprintf(name, sizeof name, "u%u", i);
    if (strcmp(p->pw_name, name) != 0 || p->pw_uid != 1000 + i)
        fail("asked for %s, got %s with uid %u", name, p->pw_name, p->pw_uid);
    else if (sscanf(p->pw_gecos, "generation %lu", &in_gecos) != 1 ||
             sscanf(p->pw_dir, "/home/%lu", &in_dir) != 1 || in_gecos != in_dir ||
             p->pw_gid != 1000000 + in_gecos)
        fail("torn: %s:%u:%s:%s", p->pw_name, p->pw_gid, p->pw_gecos, p->pw_dir);
    else
        saw(me, "user", in_gecos);
}

static void check_group(struct caller *me, unsigned i, const struct group *g)
{
    char name[16], wanted[32];
    snprintf(name, sizeof name, "g%u", i);
    if (strcmp(g->gr_name, name) != 0 || g->gr_gid != 5000 + i) {
        fail("asked for %s, got %s with gid %u", name, g->gr_name, g->gr_gid);
        return;
    }
    unsigned long generation = strtoul(g->gr_passwd, NULL, 10);
    unsigned count = 0;
    for (char **member = g->gr_mem; *member; member++, count++) {
        snprintf(wanted, sizeof wanted, "m%lu.%u", generation, count);
        if (strcmp(*member, wanted) != 0) {
            fail("torn: %s of generation %lu has the member %s", name, generation, *member);
            return;
        }
    }
    if (count != MEMBERS)
        fail("torn: %s has %u members", name, count);
    saw(me, "group", generation);
}

static void user_by(struct caller *me, unsigned i, int by_name)
{
    struct passwd entry, *result = NULL;
    char buffer[BUFFER_BYTES], name[16];
    int error = 0, status = 0;
    snprintf(name, sizeof name, "u%u", i);
    if (me->direct)
        status = by_name ? nss.getpwnam_r(name, &entry, buffer, sizeof buffer, &error)
                         : nss.getpwuid_r(1000 + i, &entry, buffer, sizeof buffer, &error);
    else {
        error = by_name ? getpwnam_r(name, &entry, buffer, sizeof buffer, &result)
                        : getpwuid_r(1000 + i, &entry, buffer, sizeof buffer, &result);
        if (!error && !result)
            error = ENOENT;
    }
    if (!missing(me, "user", status, error))
        check_user(me, i, &entry);
}

static void group_by(struct caller *me, unsigned i, int by_name)
{
    struct group entry, *result = NULL;
    char buffer[BUFFER_BYTES], name[16];
    int error = 0, status = 0;
    snprintf(name, sizeof name, "g%u", i);
    if (me->direct)
        status = by_name ? nss.getgrnam_r(name, &entry, buffer, sizeof buffer, &error)
                         : nss.getgrgid_r(5000 + i, &entry, buffer, sizeof buffer, &error);
    else {
        error = by_name ? getgrnam_r(name, &entry, buffer, sizeof buffer, &result)
                        : getgrgid_r(5000 + i, &entry, buffer, sizeof buffer, &result);
        if (!error && !result)
            error = ENOENT;
    }
    if (!missing(me, "group", status, error))
        check_group(me, i, &entry);
}

static void groups_of(struct caller *me, unsigned i)
{
    char name[16];
    gid_t fixed[GROUPS_MAX], *gids = fixed;
    long start = 1, size = 8;
    int count = GROUPS_MAX, error = 0, status = 0;
    snprintf(name, sizeof name, "u%u", i);
    if (me->direct) {
        gids = malloc((size_t)size * sizeof *gids);
        gids[0] = 1;
        status = nss.initgroups_dyn(name, 1, &start, &size, &gids, -1, &error);
        count = (int)start;
    } else if (getgrouplist(name, 1, gids, &count) < 0)
        error = ERANGE;
    /* glibc's client of nscd adds the caller's own group at the end. */
    if (count > 1 && gids[0] != 1 && gids[count - 1] == 1) {
        memmove(gids + 1, gids, (size_t)(count - 1) * sizeof *gids);
        gids[0] = 1;
    }
    if (!missing(me, "initgroups", status, error)) {
        unsigned long generation = count > 1 ? (gids[1] - 10000000) / 100 : 0;
        for (int j = 1; j < count; j++)
            if (gids[j] != 10000000 + generation * 100 + (unsigned)j - 1)
                fail("torn: gid %u in the list of generation %lu", gids[j], generation);
        if (count != 1 + LISTED)
            fail("torn: %s is in %d groups", name, count - 1);
        saw(me, "initgroups", generation);
    }
    if (me->direct)
        free(gids);
}

static void *run(void *argument)
{
    struct caller *me = argument;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        me->dice = me->dice * 1664525 + 1013904223;
        unsigned i = (me->dice >> 16) % 10;
        switch ((me->dice >> 8) % 5) {
        case 0: user_by(me, i, 1); break;
        case 1: user_by(me, i, 0); break;
        case 2: group_by(me, i, 1); break;
        case 3: group_by(me, i, 0); break;
        default: groups_of(me, i);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static struct caller callers[THREADS_MAX];
    int threads = argc == 4 ? atoi(argv[3]) : THREADS;
    if (argc < 2 || argc > 4 || threads > THREADS_MAX) {
        fputs("usage: threads SECONDS [MILLISECONDS [THREADS]]\n", stderr);
        return 2;
    }
    if (argc < 4)
        nss = nss_load("roster");
    for (int i = 0; i < threads; i++) {
        callers[i].direct = argc < 4 && i % 2 == 0;
        callers[i].dice = (unsigned)i;
        if (pthread_create(&callers[i].thread, NULL, run, &callers[i]) != 0)
            abort();
        if (argc > 2)
            usleep(1000 * (useconds_t)atoi(argv[2]));
    }
    struct pollfd input = {0, POLLIN, 0};
    time_t end = time(NULL) + atoi(argv[1]);
    poll(&input, 1, 1000 * atoi(argv[1]));
    char line[32] = "";
    ssize_t length = read(0, line, sizeof line - 1);
    unsigned long last = length > 0 ? strtoul(line, NULL, 10) : 0;
    while (atomic_load(&newest) < last && !atomic_load(&failures) && time(NULL) < end)
        usleep(1000);
    atomic_store(&stop, 1);
    for (int i = 0; i < threads; i++)
        pthread_join(callers[i].thread, NULL);
    printf("%ld calls, newest generation %lu, %d wrong\n", atomic_load(&calls), atomic_load(&newest),
           atomic_load(&failures));
    return failures != 0;
}
