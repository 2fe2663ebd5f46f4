/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* lookup KEYS [LIBRARY SERVICE]: times lookups inside one process.
 *
 * With LIBRARY and SERVICE it calls the functions of that module directly, as glibc would but without glibc around
 * them. Without them it calls getpwnam_r(3) and its kin, and nsswitch.conf (or nscd) selects the service.
 *
 * KEYS is a directory. A file in it is one series of lookups, one key a line, in the order of use. Its name before the
 * dot is the function: getpwnam, getpwuid, getgrnam, getgrgid, initgroups (each line "user<TAB>primary gid"). Reads
 * commands on standard input and answers each with one line:
 *
 *     time  SERIES COUNT   COUNT lookups from the end of the last ones on. Answers: nanoseconds that passed, and
 *                          nanoseconds that this process was on the processor.
 *     warm  SERIES COUNT   The same, but on a separate walk through all keys. So a daemon's memory does not have them
 *                          in the order in which they are timed.
 *     check SERIES COUNT   The first COUNT keys. Answers: the number of found ones, and the CRC-32 of the answers. An
 *                          answer is a line of passwd(5) or group(5), or "user gid gid…" of initgroups, sorted
 *                          and without the primary one. A missing entry is "-".
 *
 * The keys of a series lie in memory in the order of use, so that fetching them costs every module the same and little.
 * Buffers are large enough for every answer and reused: only the lookup is timed, not the growing. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <nss.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ANSWER_BYTES_MAX (64u << 20) /* a group of a million members and more */
#define GROUPS_MAX 65536             /* NGROUPS_MAX of Linux */
#define SERIES_MAX 16

typedef int user_by_name(const char *, struct passwd *, char *, size_t, int *);
typedef int user_by_id(uid_t, struct passwd *, char *, size_t, int *);
typedef int group_by_name(const char *, struct group *, char *, size_t, int *);
typedef int group_by_id(gid_t, struct group *, char *, size_t, int *);
typedef int groups_of_user(const char *, gid_t, long *, long *, gid_t **, long, int *);

enum function { GETPWNAM, GETPWUID, GETGRNAM, GETGRGID, INITGROUPS, FUNCTIONS };
static const char *const function_names[] = {"getpwnam", "getpwuid", "getgrnam", "getgrgid", "initgroups"};

struct key {
  const char *name; /* unused by functions with an id as key */
  uint32_t id;      /* the primary gid for initgroups */
};

struct series {
  char name[64];
  enum function function;
  struct key *keys;
  size_t count, next;
  struct {
    size_t next, stride;
  } walk; /* of `warm` */
};

static struct {
  user_by_name *getpwnam;
  user_by_id *getpwuid;
  group_by_name *getgrnam;
  group_by_id *getgrgid;
  groups_of_user *initgroups;
} call;

static struct series all_series[SERIES_MAX];
static char *buffer;
static gid_t *groups;
static long groups_size = GROUPS_MAX;
static struct passwd pw;
static struct group gr;

static void die(const char *what, const char *why) {
  fprintf(stderr, "lookup: %s: %s\n", what, why);
  exit(1);
}

/* --- through glibc, in the shape of a module's functions --- */

static int outcome(int error, const void *found, int *errnop) {
  *errnop = error;
  return found ? NSS_STATUS_SUCCESS : error ? NSS_STATUS_UNAVAIL : NSS_STATUS_NOTFOUND;
}

static int glibc_getpwnam(const char *name, struct passwd *into, char *buf, size_t len, int *errnop) {
  struct passwd *found = NULL;
  int error = getpwnam_r(name, into, buf, len, &found);
  return outcome(error, found, errnop);
}

static int glibc_getpwuid(uid_t uid, struct passwd *into, char *buf, size_t len, int *errnop) {
  struct passwd *found = NULL;
  int error = getpwuid_r(uid, into, buf, len, &found);
  return outcome(error, found, errnop);
}

static int glibc_getgrnam(const char *name, struct group *into, char *buf, size_t len, int *errnop) {
  struct group *found = NULL;
  int error = getgrnam_r(name, into, buf, len, &found);
  return outcome(error, found, errnop);
}

static int glibc_getgrgid(gid_t gid, struct group *into, char *buf, size_t len, int *errnop) {
  struct group *found = NULL;
  int error = getgrgid_r(gid, into, buf, len, &found);
  return outcome(error, found, errnop);
}

static int glibc_initgroups(const char *name, gid_t gid, long *start, long *size, gid_t **into, long limit,
                            int *errnop) {
  (void)limit;
  int count = *size;
  if (getgrouplist(name, gid, *into, &count) < 0) return outcome(ERANGE, NULL, errnop);
  *start = count;
  return count > 1 ? NSS_STATUS_SUCCESS : NSS_STATUS_NOTFOUND;
}

/* --- set-up --- */

static void *function_of(void *module, const char *service, const char *function, const char *suffix) {
  char symbol[128];
  snprintf(symbol, sizeof symbol, "_nss_%s_%s%s", service, function, suffix);
  return dlsym(module, symbol); /* NULL: the module lacks this function */
}

static void use_module(const char *library, const char *service) {
  void *module = dlopen(library, RTLD_NOW);
  if (!module) die(library, dlerror());
  call.getpwnam = (user_by_name *)function_of(module, service, "getpwnam", "_r");
  call.getpwuid = (user_by_id *)function_of(module, service, "getpwuid", "_r");
  call.getgrnam = (group_by_name *)function_of(module, service, "getgrnam", "_r");
  call.getgrgid = (group_by_id *)function_of(module, service, "getgrgid", "_r");
  call.initgroups = (groups_of_user *)function_of(module, service, "initgroups", "_dyn");
}

static void use_glibc(void) {
  call.getpwnam = glibc_getpwnam;
  call.getpwuid = glibc_getpwuid;
  call.getgrnam = glibc_getgrnam;
  call.getgrgid = glibc_getgrgid;
  call.initgroups = glibc_initgroups;
}

static char *whole(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file || fseek(file, 0, SEEK_END) != 0) die(path, strerror(errno));
  long size = ftell(file);
  rewind(file);
  char *data = malloc(size + 1);
  if (!data || fread(data, 1, size, file) != (size_t)size) die(path, "cannot be read");
  fclose(file);
  data[size] = '\0';
  return data;
}

static void load(struct series *s, const char *folder, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  snprintf(s->name, sizeof s->name, "%s", name);
  for (s->function = 0; s->function < FUNCTIONS; s->function++) {
    size_t length = strlen(function_names[s->function]);
    if (strncmp(name, function_names[s->function], length) == 0 && strchr(".", name[length])) break;
  }
  if (s->function == FUNCTIONS) die(name, "a series is named after a look-up function");

  char *text = whole(path);
  size_t lines = 0;
  for (char *c = text; *c; c++) lines += *c == '\n';
  if (lines == 0) die(path, "no keys");
  s->keys = calloc(lines, sizeof *s->keys);
  if (!s->keys) die(path, strerror(errno));
  for (char *rest = text; s->count < lines; s->count++) {
    struct key *key = &s->keys[s->count];
    char *line = strsep(&rest, "\n");
    if (s->function == GETPWUID || s->function == GETGRGID) key->id = strtoul(line, NULL, 10);
    else key->name = strsep(&line, "\t");
    if (s->function == INITGROUPS && line) key->id = strtoul(line, NULL, 10);
  }
}

static struct series *series_named(const char *folder, const char *name) {
  for (int i = 0; i < SERIES_MAX; i++) {
    struct series *s = &all_series[i];
    if (s->count == 0) load(s, folder, name);
    if (strcmp(s->name, name) == 0) return s;
  }
  die(name, "too many series");
  return NULL;
}

static int can(enum function function) {
  void *functions[] = {call.getpwnam, call.getpwuid, call.getgrnam, call.getgrgid, call.initgroups};
  return functions[function] != NULL;
}

/* --- timing --- */

static long long now_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int groups_of(const struct key *key, int *errnop) {
  long start = 1;
  groups[0] = key->id;
  int status = call.initgroups(key->name, key->id, &start, &groups_size, &groups, -1, errnop);
  return status == NSS_STATUS_SUCCESS ? (int)start : status == NSS_STATUS_NOTFOUND ? 1 : -1;
}

#define EACH_KEY(lookup)                                  \
  for (size_t i = 0; i < count; i++) {                    \
    const struct key *key = &s->keys[*next];              \
    if ((*next += stride) >= s->count) *next -= s->count; \
    lookup;                                               \
  }                                                       \
  break

static void run(struct series *s, size_t count, size_t *next, size_t stride) {
  int error;
  switch (s->function) {
    case GETPWNAM: EACH_KEY(call.getpwnam(key->name, &pw, buffer, ANSWER_BYTES_MAX, &error));
    case GETPWUID: EACH_KEY(call.getpwuid(key->id, &pw, buffer, ANSWER_BYTES_MAX, &error));
    case GETGRNAM: EACH_KEY(call.getgrnam(key->name, &gr, buffer, ANSWER_BYTES_MAX, &error));
    case GETGRGID: EACH_KEY(call.getgrgid(key->id, &gr, buffer, ANSWER_BYTES_MAX, &error));
    case INITGROUPS: EACH_KEY(groups_of(key, &error));
    case FUNCTIONS: break;
  }
}

static size_t common_divisor(size_t a, size_t b) { return b ? common_divisor(b, a % b) : a; }

/* Comes by every key once before it comes by one again. */
static void warm(struct series *s, size_t count) {
  if (s->walk.stride == 0) {
    s->walk.stride = s->count * 0.381966 + 1; /* neighbours are far apart for long */
    while (common_divisor(s->walk.stride, s->count) > 1) s->walk.stride++;
    s->walk.stride %= s->count;
  }
  run(s, count, &s->walk.next, s->walk.stride);
}

/* --- checking --- */

static uint32_t crc;

static void add(const char *text) {
  static uint32_t table[256];
  if (!table[1])
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
      table[i] = c;
    }
  for (; *text; text++) crc = table[(crc ^ (unsigned char)*text) & 255] ^ crc >> 8;
}

static void add_number(uint32_t number) {
  char text[16];
  snprintf(text, sizeof text, "%u", number);
  add(text);
}

static void add_user(void) {
  add(pw.pw_name), add(":"), add(pw.pw_passwd), add(":");
  add_number(pw.pw_uid), add(":"), add_number(pw.pw_gid), add(":");
  add(pw.pw_gecos), add(":"), add(pw.pw_dir), add(":"), add(pw.pw_shell);
}

static void add_group(void) {
  add(gr.gr_name), add(":"), add(gr.gr_passwd), add(":"), add_number(gr.gr_gid), add(":");
  for (char **member = gr.gr_mem; *member; member++) {
    if (member != gr.gr_mem) add(",");
    add(*member);
  }
}

static int by_number(const void *a, const void *b) {
  gid_t x = *(const gid_t *)a, y = *(const gid_t *)b;
  return (x > y) - (x < y);
}

/* The primary gid stands first, but nscd's lists have it anywhere. */
static void add_groups_of(const struct key *key, int count) {
  qsort(groups, count, sizeof *groups, by_number);
  add(key->name);
  for (int i = 0; i < count; i++)
    if (groups[i] != key->id) add(" "), add_number(groups[i]);
}

static size_t check(const struct series *s, size_t count) {
  size_t found = 0;
  crc = ~0u;
  for (size_t i = 0; i < count && i < s->count; i++) {
    const struct key *key = &s->keys[i];
    int status = 0, error = 0, many = 0;
    switch (s->function) {
      case GETPWNAM: status = call.getpwnam(key->name, &pw, buffer, ANSWER_BYTES_MAX, &error); break;
      case GETPWUID: status = call.getpwuid(key->id, &pw, buffer, ANSWER_BYTES_MAX, &error); break;
      case GETGRNAM: status = call.getgrnam(key->name, &gr, buffer, ANSWER_BYTES_MAX, &error); break;
      case GETGRGID: status = call.getgrgid(key->id, &gr, buffer, ANSWER_BYTES_MAX, &error); break;
      case INITGROUPS: many = groups_of(key, &error), status = many > 1; break;
      case FUNCTIONS: break;
    }
    if (status != NSS_STATUS_SUCCESS) add("-");
    else if (s->function == INITGROUPS) add_groups_of(key, many);
    else if (s->function == GETPWNAM || s->function == GETPWUID) add_user();
    else add_group();
    add("\n");
    found += status == NSS_STATUS_SUCCESS;
  }
  return found;
}

int main(int argc, char **argv) {
  if (argc != 2 && argc != 4) {
    fprintf(stderr, "usage: lookup KEYS [LIBRARY SERVICE]\n");
    return 2;
  }
  if (argc == 4) use_module(argv[2], argv[3]);
  else use_glibc();
  buffer = malloc(ANSWER_BYTES_MAX);
  groups = malloc(groups_size * sizeof *groups);
  if (!buffer || !groups) die("buffers", strerror(errno));
  setvbuf(stdout, NULL, _IOLBF, 0);

  char line[256], what[16], name[64];
  size_t count;
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "%15s %63s %zu", what, name, &count) != 3) die(line, "not a command");
    struct series *s = series_named(argv[1], name);
    if (!can(s->function)) {
      puts("cannot");
    } else if (strcmp(what, "check") == 0) {
      size_t found = check(s, count);
      printf("%zu %u\n", found, ~crc);
    } else {
      long long begin = now_ns(CLOCK_MONOTONIC), begin_on = now_ns(CLOCK_PROCESS_CPUTIME_ID);
      if (strcmp(what, "warm") == 0) warm(s, count);
      else run(s, count, &s->next, 1);
      long long on = now_ns(CLOCK_PROCESS_CPUTIME_ID) - begin_on;
      printf("%lld %lld\n", now_ns(CLOCK_MONOTONIC) - begin, on);
    }
  }
  return 0;
}
