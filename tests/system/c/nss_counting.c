/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* libnss_counting.so.2: a module that counts its calls. Tests compare this with the number that a caller reports.
 *
 * The file that ROSTER_CALLS names gets a byte a call. Users and groups "u0" to "u99" exist, with ids from 1000 on.
 * "gone" is UNAVAIL, "later" TRYAGAIN. A name with the prefix "big" takes more room than a caller has at first. "u1000"
 * is never answered.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <nss.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BIG_BYTES = 100 << 10, GROUPS = 100 };

static void count(void)
{
    int file = open(getenv("ROSTER_CALLS"), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0 || write(file, ".", 1) != 1)
        abort();
    close(file);
}

static enum nss_status miss(enum nss_status status, int error, int *errnop)
{
    *errnop = error;
    return status;
}

static enum nss_status find(const char *name, size_t buflen, int *errnop)
{
    if (strcmp(name, "gone") == 0)
        return miss(NSS_STATUS_UNAVAIL, ENOENT, errnop);
    if (strcmp(name, "later") == 0)
        return miss(NSS_STATUS_TRYAGAIN, EAGAIN, errnop);
    while (strcmp(name, "u1000") == 0)
        pause();
    if (strncmp(name, "big", 3) == 0) {
        if (buflen < BIG_BYTES)
            return miss(NSS_STATUS_TRYAGAIN, ERANGE, errnop);
        count();
        return NSS_STATUS_SUCCESS;
    }
    count();
    return name[0] == 'u' ? NSS_STATUS_SUCCESS : miss(NSS_STATUS_NOTFOUND, ENOENT, errnop);
}

static enum nss_status find_id(unsigned id, int *errnop)
{
    count();
    return id >= 1000 && id < 1100 ? NSS_STATUS_SUCCESS : miss(NSS_STATUS_NOTFOUND, ENOENT, errnop);
}

enum nss_status _nss_counting_getpwnam_r(const char *name, struct passwd *out, char *buffer, size_t buflen, int *errnop)
{
    (void)buffer;
    memset(out, 0, sizeof *out);
    return find(name, buflen, errnop);
}

enum nss_status _nss_counting_getpwuid_r(uid_t uid, struct passwd *out, char *buffer, size_t buflen, int *errnop)
{
    (void)buffer, (void)buflen;
    memset(out, 0, sizeof *out);
    return find_id(uid, errnop);
}

enum nss_status _nss_counting_getgrnam_r(const char *name, struct group *out, char *buffer, size_t buflen, int *errnop)
{
    (void)buffer;
    memset(out, 0, sizeof *out);
    return find(name, buflen, errnop);
}

enum nss_status _nss_counting_getgrgid_r(gid_t gid, struct group *out, char *buffer, size_t buflen, int *errnop)
{
    (void)buffer, (void)buflen;
    memset(out, 0, sizeof *out);
    return find_id(gid, errnop);
}

enum nss_status _nss_counting_initgroups_dyn(const char *user, gid_t skip, long *start, long *size, gid_t **list, long limit, int *errnop)
{
    enum nss_status status = find(user, BIG_BYTES, errnop);
    (void)skip, (void)limit;
    if (status != NSS_STATUS_SUCCESS)
        return status;
    /* More than fit at first. */
    if (*size < *start + GROUPS) {
        *list = realloc(*list, (*start + GROUPS) * sizeof **list);
        if (*list == NULL)
            abort();
        *size = *start + GROUPS;
    }
    for (int at = 0; at < GROUPS; at++)
        (*list)[(*start)++] = 5000 + at;
    return NSS_STATUS_SUCCESS;
}
