/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Looks users and groups up as any program does, linked to any C library. A line of standard input is a request,
 * answered by a line:
 *
 *     u NAME | U UID | g NAME | G GID    getpwnam, getpwuid, getgrnam, getgrgid
 *     i NAME                             the groups of a user in their order, behind them one that stands for
 *                                        none, wherever the C library has it
 *     maps TEXT                          how many mappings of the process have TEXT in their line
 *     fork QUESTION                      the same by a child
 *     close                              closes all descriptors but the first three
 *     repeat COUNT QUESTION              nanoseconds that the question takes, on average
 *
 * Names are in hexadecimal digits, and so are strings in answers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 16384, GROUPS_MAX = 70000 };

static void put(const char *text)
{
    putchar(' ');
    if (!text) {
        fputs("NULL", stdout);
        return;
    }
    putchar('"');
    for (; *text; text++)
        printf("%02x", (unsigned char)*text);
    putchar('"');
}

static void put_user(const struct passwd *user)
{
    if (!user) {
        printf("none %d", errno);
        return;
    }
    put(user->pw_name);
    put(user->pw_passwd);
    printf(" %u %u", user->pw_uid, user->pw_gid);
    put(user->pw_gecos);
    put(user->pw_dir);
    put(user->pw_shell);
}

static void put_group(const struct group *group)
{
    if (!group) {
        printf("none %d", errno);
        return;
    }
    put(group->gr_name);
    put(group->gr_passwd);
    printf(" %u", group->gr_gid);
    for (char **member = group->gr_mem; *member; member++)
        put(*member);
}

static void put_groups(const char *name)
{
    static gid_t gids[GROUPS_MAX];
    int count = GROUPS_MAX;
    /* No group has this number, so none is left out. */
    const gid_t none = (gid_t)-2;
    int nones = 0;
    if (getgrouplist(name, none, gids, &count) < 0) {
        printf("more than %d", GROUPS_MAX);
        return;
    }
    for (int i = 0; i < count; i++)
        if (gids[i] != none)
            printf(" %u", gids[i]);
        else
            nones++;
    while (nones--)
        printf(" %u", none);
}

/* The name in these digits, in the same place. */
static char *name_of(char *digits)
{
    size_t length = strlen(digits) / 2;
    for (size_t i = 0; i < length; i++) {
        char pair[3] = {digits[2 * i], digits[2 * i + 1], 0};
        digits[i] = (char)strtoul(pair, NULL, 16);
    }
    digits[length] = 0;
    return digits;
}

static void put_maps(const char *text)
{
    char line[LINE_BYTES];
    unsigned count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        count += strstr(line, text) != NULL;
    if (maps)
        fclose(maps);
    printf("%u", count);
}

static int answer(char *line);

static void put_time(char *rest)
{
    struct timespec start, end;
    char *question;
    unsigned long count = strtoul(rest, &question, 10);
    char kind = question[1], *key = question + 3;
    unsigned id = (unsigned)strtoul(key, NULL, 10);
    if (kind == 'u' || kind == 'g' || kind == 'i')
        name_of(key);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (unsigned long i = 0; i < count; i++) {
        static gid_t gids[GROUPS_MAX];
        int room = GROUPS_MAX;
        switch (kind) {
        case 'u': getpwnam(key); break;
        case 'U': getpwuid(id); break;
        case 'g': getgrnam(key); break;
        case 'G': getgrgid(id); break;
        case 'i': getgrouplist(key, (gid_t)-2, gids, &room); break;
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double spent = (end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec);
    printf("%.1f", spent / count);
}

static int answer(char *line)
{
    errno = 0;
    if (strncmp(line, "u ", 2) == 0)
        put_user(getpwnam(name_of(line + 2)));
    else if (strncmp(line, "U ", 2) == 0)
        put_user(getpwuid((uid_t)strtoul(line + 2, NULL, 10)));
    else if (strncmp(line, "g ", 2) == 0)
        put_group(getgrnam(name_of(line + 2)));
    else if (strncmp(line, "G ", 2) == 0)
        put_group(getgrgid((gid_t)strtoul(line + 2, NULL, 10)));
    else if (strncmp(line, "i ", 2) == 0)
        put_groups(name_of(line + 2));
    else if (strncmp(line, "maps ", 5) == 0)
        put_maps(line + 5);
    else if (strncmp(line, "repeat ", 7) == 0)
        put_time(line + 7);
    else if (strncmp(line, "fork ", 5) == 0) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            answer(line + 5);
            fflush(stdout);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status)
            printf(" child ended with %d", status);
    } else if (strcmp(line, "close") == 0)
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
    else
        return 1;
    return 0;
}

int main(void)
{
    static char line[LINE_BYTES];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (answer(line)) {
            fprintf(stderr, "no question: %s\n", line);
            return 2;
        }
        putchar('\n');
        fflush(stdout);
    }
    return 0;
}
