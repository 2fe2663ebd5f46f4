/* A name service that never answers about one uid, and knows nobody else. */

#include <nss.h>
#include <pwd.h>
#include <stddef.h>
#include <unistd.h>

enum nss_status _nss_stuck_getpwuid_r(uid_t uid, struct passwd *user, char *buffer, size_t size, int *error)
{
	(void)user, (void)buffer, (void)size, (void)error;
	while (uid == 60606)
		pause();
	return NSS_STATUS_NOTFOUND;
}
