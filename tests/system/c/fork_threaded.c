/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A threaded process forks while its threads look up and generations are replaced: the children
 * look up too, and neither side keeps old mappings.
 *
 *     forks CHILDREN NAME
 *
 * After the last child it reads commands: each line makes it look NAME up and print the number of
 * snapshot mappings of the parent and of a fresh child.
 */
#define _GNU_SOURCE
#include "nss.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, LOOK_UPS = 100, CHILD_SECONDS_MAX = 20 };

static struct nss nss;
static const char *user_name;
static atomic_bool stop;

static int found(void)
{
    struct passwd entry;
    char buffer[4096];
    int error;
    return nss.getpwnam_r(user_name, &entry, buffer, sizeof buffer, &error) == NSS_STATUS_SUCCESS &&
           strcmp(entry.pw_name, user_name) == 0;
}

static void *run(void *unused)
{
    while (!atomic_load(&stop))
        if (!found())
            _exit(10);
    return unused;
}

static int mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096];
    int count = 0;
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "roster.v3.snap") != NULL;
    fclose(maps);
    return count;
}

/* Exit status of a child that runs `work`. An alarm ends a child that hangs. */
static int in_child(int (*work)(void))
{
    pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_SECONDS_MAX);
        _exit(work());
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int look_up_often(void)
{
    for (int i = 0; i < LOOK_UPS; i++)
        if (!found())
            return 1;
    return 0;
}

/* A child may hold one generation, and a second one while it moves to it. */
static int count_after_look_up(void)
{
    return found() ? mappings() : 100;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: forks CHILDREN NAME\n", stderr);
        return 2;
    }
    user_name = argv[2];
    nss = nss_load("roster");
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, NULL) != 0)
            abort();
    for (int i = 0; i < atoi(argv[1]); i++) {
        int status = in_child(look_up_often);
        if (status != 0) {
            printf("child %d ended with %d\n", i, status);
            return 1;
        }
    }
    puts("forked");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        int mine = found() ? mappings() : -1;
        printf("%d %d\n", mine, in_child(count_after_look_up));
        fflush(stdout);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
