/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A name service that never answers about some uids and one group, and has no other entry. */

#include <grp.h>
#include <nss.h>
#include <pwd.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum nss_status _nss_stuck_getpwuid_r(uid_t uid, struct passwd *user, char *buffer, size_t size, int *error)
{
	(void)user, (void)buffer, (void)size, (void)error;
	while (uid == 60606 || (uid >= 600000 && uid < 665536))
		pause();
	return NSS_STATUS_NOTFOUND;
}

enum nss_status _nss_stuck_getgrnam_r(const char *name, struct group *group, char *buffer, size_t size, int *error)
{
	(void)group, (void)buffer, (void)size, (void)error;
	while (strcmp(name, "stuck") == 0)
		pause();
	return NSS_STATUS_NOTFOUND;
}
