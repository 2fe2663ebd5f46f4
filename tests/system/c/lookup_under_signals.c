/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Makes a lookup while signals come without pause. Prints its answer, its duration, and whether the thread's errno is
 * unchanged.
 *
 *     patient USER
 */
#define _GNU_SOURCE
#include "nss.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

/* No error number that the system uses. */
enum { ERRNO_BEFORE = 4242 };

static volatile sig_atomic_t signals;

static void count(int signal)
{
    (void)signal;
    signals++;
}

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: patient USER\n", stderr);
        return 2;
    }
    struct nss nss = nss_load("roster");
    struct sigaction action = {.sa_handler = count}; /* no SA_RESTART: calls end with EINTR */
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    struct passwd entry;
    char buffer[4096];
    int error = 0;
    sigaction(SIGALRM, &action, NULL);
    long start = milliseconds();
    setitimer(ITIMER_REAL, &often, NULL);
    errno = ERRNO_BEFORE;
    enum nss_status status = nss.getpwnam_r(argv[1], &entry, buffer, sizeof buffer, &error);
    int kept = errno == ERRNO_BEFORE;
    setitimer(ITIMER_REAL, &never, NULL);
    printf("%d %s %ld %s %s\n", status, status == NSS_STATUS_SUCCESS ? "0" : strerrorname_np(error),
           milliseconds() - start, kept ? "kept" : "changed", signals ? "interrupted" : "quiet");
    return 0;
}
