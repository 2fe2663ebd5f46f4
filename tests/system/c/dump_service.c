/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Dumps everything that one NSS service answers, through glibc's own interface.
 *
 *     probe SERVICE < keys
 *
 * Keys end with a NUL byte: `n` and a name, or `i` and a decimal id. Every answer is one line with
 * return code and every field; NULL and the empty string differ, bytes outside printable ASCII are
 * written as \xHH. Two services that answer alike print the same bytes. Never judges an answer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <nss.h>
#include <pwd.h>
#include <shadow.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No stored answer is larger than this; a service that needs more is broken. */
enum { BUFFER_BYTES_MAX = 256 << 20 };
/* Looking up every entry between two steps of an enumeration is quadratic for `files`. */
enum { INTERLEAVED_MAX = 500 };

static char *buffer;
static size_t buffer_len;

static void start_with_a_small_buffer(void)
{
    buffer_len = 8;
}

static int grow(int code)
{
    if (code != ERANGE)
        return 0;
    if (buffer_len >= BUFFER_BYTES_MAX) {
        printf(" (asks for more than %d bytes)", BUFFER_BYTES_MAX);
        return 0;
    }
    /* Not a power of two, so that misaligned lengths are met as well. */
    buffer_len = buffer_len * 2 + 1;
    buffer = realloc(buffer, buffer_len);
    if (!buffer)
        abort();
    return 1;
}

static void text(const char *s)
{
    if (!s) {
        fputs(" NULL", stdout);
        return;
    }
    fputs(" \"", stdout);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c > 0x7e || c == '"' || c == '\\')
            printf("\\x%02x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void user(int code, const struct passwd *p)
{
    printf(" -> %d", code);
    if (p) {
        text(p->pw_name);
        text(p->pw_passwd);
        printf(" %u %u", p->pw_uid, p->pw_gid);
        text(p->pw_gecos);
        text(p->pw_dir);
        text(p->pw_shell);
    }
    putchar('\n');
}

static void group(int code, const struct group *g)
{
    printf(" -> %d", code);
    if (g) {
        text(g->gr_name);
        text(g->gr_passwd);
        printf(" %u", g->gr_gid);
        if (!g->gr_mem)
            fputs(" (no list)", stdout);
        else
            for (char **member = g->gr_mem; *member; member++)
                text(*member);
    }
    putchar('\n');
}

static void shadow(int code, const struct spwd *s)
{
    printf(" -> %d", code);
    if (s) {
        text(s->sp_namp);
        text(s->sp_pwdp);
        printf(" %ld %ld %ld %ld %ld %ld %lu", s->sp_lstchg, s->sp_min, s->sp_max, s->sp_warn,
               s->sp_inact, s->sp_expire, s->sp_flag);
    }
    putchar('\n');
}

/* One lookup, repeated with a growing buffer. */
#define LOOK_UP(type, show, call)                                                                  \
    do {                                                                                           \
        struct type entry, *result;                                                                \
        int code;                                                                                  \
        do {                                                                                       \
            result = NULL;                                                                         \
            code = call;                                                                           \
        } while (grow(code));                                                                      \
        show(code, result);                                                                        \
    } while (0)

static void grouplist(const char *name, gid_t gid)
{
    printf("getgrouplist");
    text(name);
    int room = 1;
    for (;;) {
        gid_t *gids = malloc((size_t)room * sizeof *gids);
        int count = room;
        int code = getgrouplist(name, gid, gids, &count);
        if (code < 0 && count > room) {
            room = count;
            free(gids);
            continue;
        }
        printf(" %d ->", (int)gid);
        for (int i = 0; i < count; i++)
            printf(" %u", gids[i]);
        putchar('\n');
        free(gids);
        return;
    }
}

static void by_name(const char *name)
{
    printf("getpwnam");
    text(name);
    LOOK_UP(passwd, user, getpwnam_r(name, &entry, buffer, buffer_len, &result));
    printf("getgrnam");
    text(name);
    LOOK_UP(group, group, getgrnam_r(name, &entry, buffer, buffer_len, &result));
    printf("getspnam");
    text(name);
    LOOK_UP(spwd, shadow, getspnam_r(name, &entry, buffer, buffer_len, &result));
    grouplist(name, (gid_t)-1);
    struct passwd *p = getpwnam(name);
    if (p)
        grouplist(name, p->pw_gid);
}

static void by_id(unsigned id)
{
    printf("getpwuid %u", id);
    LOOK_UP(passwd, user, getpwuid_r(id, &entry, buffer, buffer_len, &result));
    printf("getgrgid %u", id);
    LOOK_UP(group, group, getgrgid_r(id, &entry, buffer, buffer_len, &result));
}

/* An enumeration that is started, abandoned, rewound and run to its end. Lookups of the same map in between must not
 * move it. */
#define ENUMERATE(type, show, step, set, end, look_up)                                             \
    do {                                                                                           \
        struct type entry, *result;                                                                \
        int code;                                                                                  \
        set();                                                                                     \
        for (int i = 0; i < 3; i++)                                                                \
            (void)step(&entry, buffer, buffer_len, &result);                                       \
        set();                                                                                     \
        for (long count = 0;; count++) {                                                           \
            start_with_a_small_buffer();                                                           \
            printf(#step " %ld", count);                                                           \
            do {                                                                                   \
                result = NULL;                                                                     \
                code = step(&entry, buffer, buffer_len, &result);                                  \
            } while (grow(code));                                                                  \
            show(code, result);                                                                    \
            if (code)                                                                              \
                break;                                                                             \
            if (count < INTERLEAVED_MAX)                                                           \
                look_up(count % 2 ? "root" : "no such name");                                      \
        }                                                                                          \
        end();                                                                                     \
    } while (0)

static int read_keys(void (*name)(const char *), void (*id)(unsigned))
{
    char *key = NULL;
    size_t room = 0;
    while (getdelim(&key, &room, '\0', stdin) > 0) {
        start_with_a_small_buffer();
        if (key[0] == 'n')
            name(key + 1);
        else
            id((unsigned)strtoul(key + 1, NULL, 10));
    }
    free(key);
    return ferror(stdin);
}

int main(int argc, char **argv)
{
    static const char *const maps[] = {"passwd", "group", "shadow", "initgroups"};
    if (argc != 2) {
        fputs("usage: probe SERVICE < keys\n", stderr);
        return 2;
    }
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (__nss_configure_lookup(maps[i], argv[1]) != 0) {
            perror("__nss_configure_lookup");
            return 2;
        }
    start_with_a_small_buffer();
    buffer = malloc(buffer_len);
    if (read_keys(by_name, by_id))
        return 2;
    ENUMERATE(passwd, user, getpwent_r, setpwent, endpwent, getpwnam);
    ENUMERATE(group, group, getgrent_r, setgrent, endgrent, getgrnam);
    ENUMERATE(spwd, shadow, getspent_r, setspent, endspent, getspnam);
    return fflush(stdout) != 0;
}
