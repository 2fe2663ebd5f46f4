/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Makes all calls of a module on a forged snapshot, each time in a fresh process.
 *
 *     forged SERVICE
 *
 * One line a snapshot on standard input: a number for random lengths, 1 if the snapshot has a floor, and words to look
 * up, names and ids. The answer is one line: "served USERS GROUPS GIDS SHADOWS", "wrong: WHAT", or "died: SIGNAL". Each
 * buffer and each list of gids ends at the beginning of an inaccessible page.
 */
#define _GNU_SOURCE
#include "nss.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ROOM = 64 << 10,
    WORDS_MAX = 256,
    /* More than any list has: the snapshots are small. */
    ENTRIES_MAX = 4096,
    /* A lookup takes well under a millisecond, so a longer one loops. */
    SECONDS_MAX = 60,
};

static const unsigned char UNTOUCHED = 0xa5;
static struct nss nss;
static char *room;
static uint64_t state;
static int has_floor;
static unsigned users, groups, gids, shadows;

static void wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("wrong: ");
    vprintf(format, args);
    puts("");
    fflush(stdout);
    _exit(0);
}

static size_t below(size_t bound)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % bound;
}

/* Returns so many whole pages between two inaccessible ones. */
static char *guarded(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *start = mmap(NULL, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || mprotect(start + page, bytes, PROT_READ | PROT_WRITE) != 0)
        abort();
    return start + page;
}

/* The present list of gids, which ends at the beginning of an inaccessible page. */
static char *list;
static size_t list_bytes;

static gid_t *new_list(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (bytes + page - 1) / page * page;
    list = guarded(room) + room - bytes;
    list_bytes = bytes;
    return (gid_t *)list;
}

/* Replaces the C library's function, also for the module, which grows lists of gids with it. */
void *realloc(void *old, size_t bytes)
{
    static void *(*of_libc)(void *, size_t);
    if (old && old == list) {
        size_t kept = list_bytes < bytes ? list_bytes : bytes;
        return memcpy(new_list(bytes), old, kept);
    }
    if (!of_libc)
        of_libc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    return of_libc(old, bytes);
}

/* A buffer of that length at the end of the room. */
static char *buffer_of(size_t len)
{
    memset(room, UNTOUCHED, ROOM);
    return room + ROOM - len;
}

static void untouched_before(const char *buffer)
{
    for (const char *byte = room; byte < buffer; byte++)
        if ((unsigned char)*byte != UNTOUCHED)
            wrong("wrote %td bytes before the buffer", buffer - byte);
}

/* A text in the buffer, with its end. */
static void is_inside(const char *what, const char *text, const char *buffer)
{
    if (text < buffer || text >= room + ROOM)
        wrong("%s lies outside of the buffer", what);
    if (!memchr(text, 0, (size_t)(room + ROOM - text)))
        wrong("%s does not end in the buffer", what);
}

static void is_inside_or_null(const char *what, const char *text, const char *buffer)
{
    if (text)
        is_inside(what, text, buffer);
}

static void may_serve(const char *what, unsigned id)
{
    if (has_floor && (id < 1000 || id == 65534 || id == 65535 || id == UINT32_MAX))
        wrong("serves %s %u", what, id);
}

static void hides(const char *password)
{
    if (has_floor && (!password || strcmp(password, "*") != 0))
        wrong("serves the password %s", password ? password : "(null)");
}

static void user(const struct passwd *p, const char *buffer)
{
    is_inside("a user's name", p->pw_name, buffer);
    is_inside_or_null("a user's password", p->pw_passwd, buffer);
    is_inside_or_null("a GECOS", p->pw_gecos, buffer);
    is_inside_or_null("a home folder", p->pw_dir, buffer);
    is_inside_or_null("a shell", p->pw_shell, buffer);
    may_serve("uid", p->pw_uid);
    may_serve("primary gid", p->pw_gid);
    hides(p->pw_passwd);
    users++;
}

static void group(const struct group *g, const char *buffer)
{
    is_inside("a group's name", g->gr_name, buffer);
    is_inside_or_null("a group's password", g->gr_passwd, buffer);
    for (char **member = g->gr_mem;; member++) {
        if ((char *)member < buffer || (char *)(member + 1) > room + ROOM)
            wrong("a list of members leaves the buffer");
        if (!*member)
            break;
        is_inside("a member", *member, buffer);
    }
    may_serve("gid", g->gr_gid);
    hides(g->gr_passwd);
    groups++;
}

static void shadow(const struct spwd *s, const char *buffer)
{
    is_inside("a shadow entry's name", s->sp_namp, buffer);
    is_inside_or_null("a password hash", s->sp_pwdp, buffer);
    if (has_floor)
        wrong("serves a password hash of the publisher's");
    shadows++;
}

/* One call with a buffer of that length. */
#define CALL(function, type, show, len, ...)                                                       \
    ({                                                                                             \
        struct type entry;                                                                         \
        int error = 0;                                                                             \
        size_t length = (len);                                                                     \
        char *buffer = buffer_of(length);                                                          \
        enum nss_status status = nss.function(__VA_ARGS__ &entry, buffer, length, &error);         \
        untouched_before(buffer);                                                                  \
        if (status == NSS_STATUS_SUCCESS)                                                          \
            show(&entry, buffer);                                                                  \
        status;                                                                                    \
    })
#define KEY word,
#define ID id,
#define NONE

static void groups_of(const char *name, long limit)
{
    long start = 1, size = limit > 0 ? limit : 1;
    int error = 0;
    gid_t *given = new_list((size_t)size * sizeof *given);
    given[0] = 5000;
    nss.initgroups_dyn(name, 5000, &start, &size, &given, limit, &error);
    if ((char *)given != list || start < 1 || start > size || (limit > 0 && size > limit))
        wrong("a list of %ld gids counts %ld, with a limit of %ld", size, start, limit);
    for (long i = 1; i < start; i++, gids++)
        may_serve("supplementary gid", given[i]);
}

static void ask_for(const char *word)
{
    size_t lens[] = {below(300), below(8192), ROOM};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        if (isdigit((unsigned char)*word)) {
            uid_t id = (uid_t)strtoul(word, NULL, 10);
            CALL(getpwuid_r, passwd, user, lens[i], ID);
            CALL(getgrgid_r, group, group, lens[i], ID);
        } else {
            CALL(getpwnam_r, passwd, user, lens[i], KEY);
            CALL(getgrnam_r, group, group, lens[i], KEY);
            CALL(getspnam_r, spwd, shadow, lens[i], KEY);
        }
    }
    if (!isdigit((unsigned char)*word)) {
        groups_of(word, -1);
        groups_of(word, (long)(1 + below(40)));
    }
}

#define LIST(database, type, show)                                                                 \
    do {                                                                                           \
        int count = 0;                                                                             \
        nss.set##database(0);                                                                      \
        CALL(get##database##_r, type, show, below(300), NONE);                                     \
        while (CALL(get##database##_r, type, show, (size_t)ROOM, NONE) == NSS_STATUS_SUCCESS)      \
            if (++count > ENTRIES_MAX)                                                             \
                wrong("get" #database " lists without end");                                       \
        nss.end##database();                                                                       \
    } while (0)

static void ask_everything(char **words, int count)
{
    alarm(SECONDS_MAX);
    for (int i = 0; i < count; i++)
        ask_for(words[i]);
    LIST(pwent, passwd, user);
    LIST(grent, group, group);
    LIST(spent, spwd, shadow);
    printf("served %u %u %u %u\n", users, groups, gids, shadows);
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: forged SERVICE < snapshots\n", stderr);
        return 2;
    }
    nss = nss_load(argv[1]);
    room = guarded(ROOM);
    static char line[32768];
    while (fgets(line, sizeof line, stdin)) {
        char *words[WORDS_MAX];
        int count = 0;
        for (char *word = strtok(line, " \n"); word && count < WORDS_MAX; word = strtok(NULL, " \n"))
            words[count++] = word;
        if (count < 2)
            return 2;
        state = strtoull(words[0], NULL, 10);
        has_floor = *words[1] == '1';
        pid_t child = fork();
        if (child == 0)
            ask_everything(words + 2, count - 2);
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child)
            abort();
        if (WIFSIGNALED(status)) {
            printf("died: signal %d\n", WTERMSIG(status));
            fflush(stdout);
        }
    }
    return 0;
}
