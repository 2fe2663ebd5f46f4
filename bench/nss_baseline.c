/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* libnss_floor.so.2: the lowest cost of a lookup through glibc.
 *
 * Every answer lies ready in a mapped file (made by harness/nss_baseline.py). Strings are handed out straight from the
 * mapping and groups have no members, so a lookup is one probe and a few stores. It checks nothing, never notices a new
 * file and answers half of each request. It is a reference for the other modules, not a module to install. It exports
 * the functions that libnss_roster exports, so it is also the C module that loading times are compared with. */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <nss.h>
#include <pwd.h>
#include <shadow.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef FLOOR_FILE
#define FLOOR_FILE "/var/lib/roster/floor.bin"
#endif

typedef enum nss_status status;

/* Start of the file; every `…_at` is bytes from here. */
struct header {
  uint32_t users, groups;
  uint32_t first_uid, uids, first_gid, gids;
  uint32_t name_slots; /* of each name table; a power of two */
  uint32_t users_at, groups_at;
  uint32_t user_by_name_at, user_by_uid_at, group_by_name_at, group_by_gid_at;
};

struct user_record {
  uint32_t name_at, passwd_at, gecos_at, dir_at, shell_at;
  uint32_t uid, gid, gids_at, gids;
};

struct group_record {
  uint32_t name_at, passwd_at, gid;
};

static const char *base;
static char *no_members[] = {NULL};
static uint32_t next_user, next_group;

static const struct header *opened(int *errnop) {
  if (__builtin_expect(base != NULL, 1)) return (const void *)base;
  int fd = open(FLOOR_FILE, O_RDONLY | O_CLOEXEC);
  struct stat st;
  void *map = MAP_FAILED;
  if (fd >= 0 && fstat(fd, &st) == 0) map = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (fd >= 0) close(fd);
  *errnop = ENOENT;
  return map == MAP_FAILED ? NULL : (const void *)(base = map);
}

static status absent(int *errnop) {
  *errnop = ENOENT;
  return NSS_STATUS_NOTFOUND;
}

/* FNV-1a, as harness/nss_baseline.py computes it. */
static uint32_t hash(const char *name) {
  uint32_t h = 2166136261u;
  for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
  return h;
}

/* Number + 1 of the record with this name, or 0. Every record starts with the place of its name. */
static uint32_t named(uint32_t slots_at, uint32_t slots, uint32_t records_at, size_t size, const char *name) {
  const uint32_t *table = (const void *)(base + slots_at);
  for (uint32_t i = hash(name) & (slots - 1); table[i]; i = (i + 1) & (slots - 1)) {
    uint32_t name_at = *(const uint32_t *)(base + records_at + (table[i] - 1) * size);
    if (strcmp(base + name_at, name) == 0) return table[i];
  }
  return 0;
}

/* Number + 1 of the record with this id, or 0. */
static uint32_t numbered(uint32_t table_at, uint32_t first, uint32_t span, uint32_t id) {
  return id - first < span ? ((const uint32_t *)(base + table_at))[id - first] : 0;
}

static char *text(uint32_t offset) { return (char *)base + offset; }

static status give_user(uint32_t number, struct passwd *pw, int *errnop) {
  if (number == 0) return absent(errnop);
  const struct header *h = (const void *)base;
  const struct user_record *u = (const struct user_record *)(base + h->users_at) + number - 1;
  pw->pw_name = text(u->name_at);
  pw->pw_passwd = text(u->passwd_at);
  pw->pw_uid = u->uid;
  pw->pw_gid = u->gid;
  pw->pw_gecos = text(u->gecos_at);
  pw->pw_dir = text(u->dir_at);
  pw->pw_shell = text(u->shell_at);
  return NSS_STATUS_SUCCESS;
}

static status give_group(uint32_t number, struct group *gr, int *errnop) {
  if (number == 0) return absent(errnop);
  const struct header *h = (const void *)base;
  const struct group_record *g = (const struct group_record *)(base + h->groups_at) + number - 1;
  gr->gr_name = text(g->name_at);
  gr->gr_passwd = text(g->passwd_at);
  gr->gr_gid = g->gid;
  gr->gr_mem = no_members;
  return NSS_STATUS_SUCCESS;
}

static uint32_t user_named(const struct header *h, const char *name) {
  return named(h->user_by_name_at, h->name_slots, h->users_at, sizeof(struct user_record), name);
}

status _nss_floor_getpwnam_r(const char *name, struct passwd *pw, char *buffer, size_t len, int *errnop) {
  const struct header *h = opened(errnop);
  return h ? give_user(user_named(h, name), pw, errnop) : NSS_STATUS_UNAVAIL;
}

status _nss_floor_getpwuid_r(uid_t uid, struct passwd *pw, char *buffer, size_t len, int *errnop) {
  const struct header *h = opened(errnop);
  if (!h) return NSS_STATUS_UNAVAIL;
  return give_user(numbered(h->user_by_uid_at, h->first_uid, h->uids, uid), pw, errnop);
}

status _nss_floor_getgrnam_r(const char *name, struct group *gr, char *buffer, size_t len, int *errnop) {
  const struct header *h = opened(errnop);
  if (!h) return NSS_STATUS_UNAVAIL;
  uint32_t number = named(h->group_by_name_at, h->name_slots, h->groups_at, sizeof(struct group_record), name);
  return give_group(number, gr, errnop);
}

status _nss_floor_getgrgid_r(gid_t gid, struct group *gr, char *buffer, size_t len, int *errnop) {
  const struct header *h = opened(errnop);
  if (!h) return NSS_STATUS_UNAVAIL;
  return give_group(numbered(h->group_by_gid_at, h->first_gid, h->gids, gid), gr, errnop);
}

/* The lists leave out the primary group already. */
status _nss_floor_initgroups_dyn(const char *name, gid_t primary, long *start, long *size, gid_t **groups,
                                 long limit, int *errnop) {
  const struct header *h = opened(errnop);
  if (!h) return NSS_STATUS_UNAVAIL;
  uint32_t number = user_named(h, name);
  if (number == 0) return absent(errnop);
  const struct user_record *u = (const struct user_record *)(base + h->users_at) + number - 1;
  long count = u->gids;
  if (limit > 0 && *start + count > limit) count = limit - *start;
  if (count <= 0) return absent(errnop);
  if (*start + count > *size) {
    gid_t *grown = realloc(*groups, (*start + count) * sizeof(gid_t));
    if (!grown) {
      *errnop = ENOMEM;
      return NSS_STATUS_TRYAGAIN;
    }
    *groups = grown;
    *size = *start + count;
  }
  memcpy(*groups + *start, base + u->gids_at, count * sizeof(gid_t));
  *start += count;
  return NSS_STATUS_SUCCESS;
}

status _nss_floor_setpwent(int stayopen) {
  next_user = 0;
  return NSS_STATUS_SUCCESS;
}

status _nss_floor_endpwent(void) { return _nss_floor_setpwent(0); }

status _nss_floor_getpwent_r(struct passwd *pw, char *buffer, size_t len, int *errnop) {
  const struct header *h = opened(errnop);
  if (!h) return NSS_STATUS_UNAVAIL;
  return give_user(next_user < h->users ? ++next_user : 0, pw, errnop);
}

status _nss_floor_setgrent(int stayopen) {
  next_group = 0;
  return NSS_STATUS_SUCCESS;
}

status _nss_floor_endgrent(void) { return _nss_floor_setgrent(0); }

status _nss_floor_getgrent_r(struct group *gr, char *buffer, size_t len, int *errnop) {
  const struct header *h = opened(errnop);
  if (!h) return NSS_STATUS_UNAVAIL;
  return give_group(next_group < h->groups ? ++next_group : 0, gr, errnop);
}

/* Nothing is measured of shadow: these only complete the function set. */
status _nss_floor_getspnam_r(const char *name, struct spwd *sp, char *buffer, size_t len, int *errnop) {
  return absent(errnop);
}

status _nss_floor_setspent(int stayopen) { return NSS_STATUS_SUCCESS; }
status _nss_floor_endspent(void) { return NSS_STATUS_SUCCESS; }

status _nss_floor_getspent_r(struct spwd *sp, char *buffer, size_t len, int *errnop) { return absent(errnop); }
