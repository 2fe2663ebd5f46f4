/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Many processes that look a user up at the same moment, each under another uid if root starts them.
 *
 *     crowd COUNT FIRST_UID PATTERN
 *
 * Process i looks up the user with the name that PATTERN makes of i: `%d` in it gives each another name. Prints the
 * numbers of found, missing and failed users, and the longest wait in microseconds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The result of one process. */
struct report {
    int outcome; /* 0 found, 1 not there, 2 failed */
    int32_t microseconds;
};

static struct report ask(const char *name)
{
    static char buffer[64 << 10];
    struct passwd entry, *found = NULL;
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    int error = getpwnam_r(name, &entry, buffer, sizeof buffer, &found);
    clock_gettime(CLOCK_MONOTONIC, &end);
    int outcome = found ? 0 : error == 0 || error == ENOENT ? 1 : 2;
    if (found && strcmp(found->pw_name, name) != 0)
        outcome = 2;
    long long waited = (end.tv_sec - start.tv_sec) * 1000000LL + (end.tv_nsec - start.tv_nsec) / 1000;
    return (struct report){outcome, (int32_t)waited};
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fputs("usage: crowd COUNT FIRST_UID PATTERN\n", stderr);
        return 2;
    }
    int count = atoi(argv[1]);
    uid_t first = (uid_t)strtoul(argv[2], NULL, 10);
    int gate[2], reports[2];
    if (pipe(gate) != 0 || pipe(reports) != 0)
        return 1;
    for (int i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return 1;
        if (pid > 0)
            continue;
        char name[256], closed;
        snprintf(name, sizeof name, argv[3], i);
        uid_t uid = first + (uid_t)i;
        if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setgid(uid) != 0 || setuid(uid) != 0))
            _exit(1);
        close(gate[1]);
        /* All go when the parent closes its end. */
        if (read(gate[0], &closed, 1) != 0)
            _exit(1);
        struct report report = ask(name);
        _exit(write(reports[1], &report, sizeof report) != sizeof report);
    }
    /* All are at the gate soon; a late process only starts late. */
    usleep(300000);
    close(gate[0]);
    close(gate[1]);
    close(reports[1]);
    int outcomes[3] = {0}, longest = 0;
    struct report report;
    while (read(reports[0], &report, sizeof report) == sizeof report) {
        outcomes[report.outcome]++;
        longest = report.microseconds > longest ? report.microseconds : longest;
    }
    while (wait(NULL) > 0)
        ;
    printf("found %d absent %d failed %d longest %d\n", outcomes[0], outcomes[1], outcomes[2], longest);
    return 0;
}
