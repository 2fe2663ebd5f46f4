/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Cancels threads and interrupts them by signals in the middle of lookups. The next lookup must still answer.
 *
 *     interrupted ROUNDS USER
 *
 * Then it reads commands: each line makes it look USER up and print the GECOS field.
 */
#define _GNU_SOURCE
#include "nss.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static struct nss nss;
static const char *user_name;
static atomic_long in_handler;

static int look_up(struct passwd *entry, char *buffer, size_t len)
{
    int error;
    return nss.getpwnam_r(user_name, entry, buffer, len, &error) == NSS_STATUS_SUCCESS &&
           strcmp(entry->pw_name, user_name) == 0;
}

static int found(void)
{
    struct passwd entry;
    char buffer[4096];
    return look_up(&entry, buffer, sizeof buffer);
}

/* A module that held a lock across the interrupted lookup would stop for ever here. */
static void handler(int signal)
{
    (void)signal;
    if (!found())
        _exit(11);
    atomic_fetch_add(&in_handler, 1);
}

static void *endless(void *asynchronous)
{
    if (asynchronous)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;;) {
        if (!found())
            _exit(12);
        /* A deferred cancellation needs a cancellation point. The lookup has none. */
        if (!asynchronous)
            pthread_testcancel();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: interrupted ROUNDS USER\n", stderr);
        return 2;
    }
    user_name = argv[2];
    nss = nss_load("roster");
    alarm(60);
    for (int i = 0; i < atoi(argv[1]); i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, endless, i % 2 ? &thread : NULL) != 0)
            abort();
        usleep(i % 7 * 300);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
        if (!found())
            return 13;
    }
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
    while (atomic_load(&in_handler) < 200)
        if (!found())
            return 14;
    setitimer(ITIMER_PROF, &never, NULL);
    puts("found every time");
    fflush(stdout);
    char line[64], buffer[4096];
    struct passwd entry;
    while (fgets(line, sizeof line, stdin)) {
        puts(look_up(&entry, buffer, sizeof buffer) ? entry.pw_gecos : "not found");
        fflush(stdout);
    }
    return 0;
}
