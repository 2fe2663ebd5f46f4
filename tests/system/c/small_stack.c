/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Looks up on a thread with a stack of 64 KiB, all of which is measured. Prints the answer and how many bytes of the
 * stack were used beyond those of an empty call.
 *
 *     stack USER GROUP
 */
#define _GNU_SOURCE
#include "nss.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { STACK_BYTES = 64 << 10, BUFFER_BYTES = 8 << 20, PATTERN = 0x7b };

static struct nss nss;
static char buffer[BUFFER_BYTES];
static const char *user_name, *group_name;
static int failed;

static void *nothing(void *unused)
{
    return unused;
}

static void *look_up(void *unused)
{
    struct passwd user;
    struct group group;
    struct spwd shadow;
    int error;
    long start = 1, size = 1;
    gid_t *gids = malloc(sizeof *gids);
    gids[0] = 0;
    failed |= nss.getpwnam_r(user_name, &user, buffer, sizeof buffer, &error) != NSS_STATUS_SUCCESS;
    failed |= nss.getpwuid_r(user.pw_uid, &user, buffer, sizeof buffer, &error) != NSS_STATUS_SUCCESS;
    failed |= nss.getgrnam_r(group_name, &group, buffer, sizeof buffer, &error) != NSS_STATUS_SUCCESS;
    failed |= nss.getgrgid_r(group.gr_gid, &group, buffer, sizeof buffer, &error) != NSS_STATUS_SUCCESS;
    failed |= nss.initgroups_dyn(user_name, 0, &start, &size, &gids, -1, &error) != NSS_STATUS_SUCCESS;
    nss.getspnam_r(user_name, &shadow, buffer, sizeof buffer, &error);
    nss.setgrent(0);
    while (nss.getgrent_r(&group, buffer, sizeof buffer, &error) == NSS_STATUS_SUCCESS)
        ;
    nss.endgrent();
    free(gids);
    return unused;
}

/* Bytes of a fresh 64 kB stack that a thread with this body touches. */
static size_t used_by(void *(*body)(void *))
{
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    if (stack == MAP_FAILED)
        abort();
    memset(stack, PATTERN, STACK_BYTES);
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, stack, STACK_BYTES) != 0 ||
        pthread_create(&thread, &attributes, body, NULL) != 0)
        abort();
    pthread_join(thread, NULL);
    size_t untouched = 0;
    while (untouched < STACK_BYTES && stack[untouched] == PATTERN)
        untouched++;
    return STACK_BYTES - untouched;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: stack USER GROUP\n", stderr);
        return 2;
    }
    user_name = argv[1];
    group_name = argv[2];
    nss = nss_load("roster");
    size_t idle = used_by(nothing);
    size_t busy = used_by(look_up);
    printf("%s %zu\n", failed ? "failed" : "found", busy > idle ? busy - idle : 0);
    return failed;
}
