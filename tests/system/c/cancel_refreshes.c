/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Cancels threads asynchronously in the middle of refreshes. The clock of this program moves on by 60 ms with each
 * reading, so that each lookup looks for a new snapshot.
 *
 *     cancel_refreshes ROUNDS USER
 *
 * Then it reads commands: each line makes it look USER up and print the GECOS field.
 */
#define _GNU_SOURCE
#include "nss.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct nss nss;
static const char *user_name;
static atomic_long readings;

/* Found by the module, because the program is linked with -rdynamic. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    long ms = 60 * atomic_fetch_add(&readings, 1);
    now->tv_sec = 1000 + ms / 1000;
    now->tv_nsec = ms % 1000 * 1000000;
    return 0;
}

static int look_up(struct passwd *entry, char *buffer, size_t len)
{
    int error;
    return nss.getpwnam_r(user_name, entry, buffer, len, &error) == NSS_STATUS_SUCCESS;
}

static void *endless(void *unused)
{
    struct passwd entry;
    char buffer[4096];
    (void)unused;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;;)
        if (!look_up(&entry, buffer, sizeof buffer))
            _exit(12);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: cancel_refreshes ROUNDS USER\n", stderr);
        return 2;
    }
    user_name = argv[2];
    nss = nss_load("roster");
    for (int i = 0; i < atoi(argv[1]); i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, endless, NULL) != 0)
            abort();
        usleep(i % 7 * 30);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    printf("%ld readings\n", atomic_load(&readings));
    fflush(stdout);
    char line[64], buffer[4096];
    struct passwd entry;
    while (fgets(line, sizeof line, stdin)) {
        puts(look_up(&entry, buffer, sizeof buffer) ? entry.pw_gecos : "not found");
        fflush(stdout);
    }
    return 0;
}
