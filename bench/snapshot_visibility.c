/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* fresh ROSTER WORK SNAPSHOT PUBLICATIONS CALLS: is a running process up to date, and never wrong?
 *
 * Publishes generations of a small set of users and groups with `ROSTER compile --output SNAPSHOT`. Threads of this
 * process look them up meanwhile, directly in libnss_roster.so.2 and through glibc. Every string and number of
 * generation G is derived from G. So each answer shows whether it is whole, and whether it is older than one that the
 * same thread saw before.
 *
 * First part: PUBLICATIONS of them with a pause of random length after each, one reader. The delay of each runs from
 * the rename (the inotify event) to the first lookup that shows it. On a busy machine that includes the time for which
 * the reader was not on its processor. So the output also has the start of the last lookup that did not show it.
 *
 * Second part: publications without a pause, a reader on every processor, until CALLS lookups are done.
 *
 * Writes text files into the directory WORK, and one JSON object to standard output. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <nss.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define USERS 64
#define GROUPS 16
#define MEMBERS 40
#define READERS_MAX 16
#define GENERATIONS_MAX 100000
#define FIRST_UID 100000
#define FIRST_GID 1000000 /* the gid of group I in generation G is FIRST_GID + G * GROUPS + I */
#define SEEN_WITHIN_MS 5000
#define UNSEEN_MAX 3 /* generations that no reader saw, after which waiting for more is idle */
#define BUFFER_BYTES 8192

extern char **environ;

enum verdict { WHOLE, TORN, MISSING };

struct reader {
  pthread_t thread;
  int processor, through_glibc, timed;
  uint32_t last;
  atomic_ullong calls;
  unsigned long long torn, missing, backwards;
  char first_fault[256];
};

static int (*module_getpwnam)(const char *, struct passwd *, char *, size_t, int *);
static int (*module_getpwuid)(uid_t, struct passwd *, char *, size_t, int *);
static int (*module_getgrnam)(const char *, struct group *, char *, size_t, int *);
static int (*module_initgroups)(const char *, gid_t, long *, long *, gid_t **, long, int *);

static atomic_int stopping;
/* By the timed reader: when a lookup first showed a generation, and when the one before began. */
static atomic_llong seen_at[GENERATIONS_MAX], unseen_at[GENERATIONS_MAX];
static const char *roster, *work, *snapshot;
static int watch;

static void die(const char *what, const char *why) {
  fprintf(stderr, "fresh: %s: %s\n", what, why);
  exit(1);
}

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void pin(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/* --- readers --- */

/* The generation that "WORD…-G" ends with. */
static uint32_t generation_of(const char *text) {
  const char *dash = strrchr(text, '-');
  return dash ? strtoul(dash + 1, NULL, 10) : UINT32_MAX;
}

static enum verdict judge_user(const struct passwd *pw, uint32_t user, uint32_t *generation) {
  *generation = pw->pw_gid;
  if (pw->pw_uid != FIRST_UID + user || generation_of(pw->pw_gecos) != *generation ||
      generation_of(pw->pw_dir) != *generation || generation_of(pw->pw_shell) != *generation)
    return TORN;
  return WHOLE;
}

static enum verdict judge_group(const struct group *gr, uint32_t group, uint32_t *generation) {
  *generation = (gr->gr_gid - FIRST_GID) / GROUPS;
  if ((gr->gr_gid - FIRST_GID) % GROUPS != group) return TORN;
  int members = 0;
  for (; gr->gr_mem[members]; members++)
    if (gr->gr_mem[members][0] == 'm' && generation_of(gr->gr_mem[members]) != *generation) return TORN;
  return members == MEMBERS + USERS ? WHOLE : TORN;
}

static enum verdict judge_groups(const gid_t *gids, long count, uint32_t *generation) {
  if (count != GROUPS) return TORN;
  *generation = (gids[0] - FIRST_GID) / GROUPS;
  for (uint32_t i = 0; i < GROUPS; i++)
    if (gids[i] != FIRST_GID + *generation * GROUPS + i) return TORN;
  return WHOLE;
}

/* One lookup, the kind and the key chosen by `turn`. */
static enum verdict ask(const struct reader *r, unsigned turn, uint32_t *generation) {
  static __thread char buffer[BUFFER_BYTES];
  static __thread gid_t room[GROUPS * 2 + 1];
  uint32_t user = turn / 4 % USERS, group = turn / 4 % GROUPS;
  char name[16];
  struct passwd pw, *found_user = NULL;
  struct group gr, *found_group = NULL;
  int error = 0;
  switch (turn % 4) {
    case 0:
      snprintf(name, sizeof name, "u%u", user);
      if (r->through_glibc) getpwnam_r(name, &pw, buffer, sizeof buffer, &found_user);
      else if (module_getpwnam(name, &pw, buffer, sizeof buffer, &error) == NSS_STATUS_SUCCESS) found_user = &pw;
      return found_user ? judge_user(&pw, user, generation) : MISSING;
    case 1:
      if (r->through_glibc) getpwuid_r(FIRST_UID + user, &pw, buffer, sizeof buffer, &found_user);
      else if (module_getpwuid(FIRST_UID + user, &pw, buffer, sizeof buffer, &error) == NSS_STATUS_SUCCESS)
        found_user = &pw;
      return found_user ? judge_user(&pw, user, generation) : MISSING;
    case 2:
      snprintf(name, sizeof name, "g%u", group);
      if (r->through_glibc) getgrnam_r(name, &gr, buffer, sizeof buffer, &found_group);
      else if (module_getgrnam(name, &gr, buffer, sizeof buffer, &error) == NSS_STATUS_SUCCESS) found_group = &gr;
      return found_group ? judge_group(&gr, group, generation) : MISSING;
    default: {
      long count = 1, size = GROUPS * 2 + 1;
      gid_t *gids = room;
      snprintf(name, sizeof name, "u%u", user);
      if (r->through_glibc) {
        int many = size;
        count = getgrouplist(name, 0, room, &many) < 0 ? 1 : many;
      } else if (module_initgroups(name, 0, &count, &size, &gids, -1, &error) != NSS_STATUS_SUCCESS) {
        return MISSING;
      }
      return count > 1 ? judge_groups(gids + 1, count - 1, generation) : MISSING;
    }
  }
}

static void fault(struct reader *r, const char *what, unsigned turn, uint32_t generation) {
  if (!r->first_fault[0])
    snprintf(r->first_fault, sizeof r->first_fault, "%s: look-up kind %u %s, generation %u after %u", what, turn % 4,
             r->through_glibc ? "through glibc" : "in the module", generation, r->last);
}

static void *read_until_stopped(void *argument) {
  struct reader *r = argument;
  long long began = 0, previous = 0;
  pin(r->processor);
  for (unsigned turn = 0; !atomic_load_explicit(&stopping, memory_order_relaxed); turn++) {
    uint32_t generation = UINT32_MAX;
    if (r->timed) previous = began, began = now_ns();
    enum verdict verdict = ask(r, turn, &generation);
    atomic_fetch_add_explicit(&r->calls, 1, memory_order_relaxed);
    if (verdict == MISSING) {
      r->missing++, fault(r, "missing", turn, generation);
    } else if (verdict == TORN || generation >= GENERATIONS_MAX) {
      r->torn++, fault(r, "torn", turn, generation);
    } else if (generation < r->last) {
      r->backwards++, fault(r, "backwards", turn, generation);
    } else if (generation > r->last) {
      r->last = generation;
      if (!r->timed) continue;
      atomic_store(&unseen_at[generation], previous);
      atomic_store(&seen_at[generation], now_ns());
    }
  }
  return NULL;
}

/* --- the publisher --- */

static void write_text(const char *path, uint32_t generation, int of_groups) {
  FILE *file = fopen(path, "w");
  if (!file) die(path, strerror(errno));
  for (uint32_t i = 0; !of_groups && i < USERS; i++)
    fprintf(file, "u%u:x:%u:%u:number-%u:/home/u%u-%u:/bin/shell-%u\n", i, FIRST_UID + i, generation, generation, i,
            generation, generation);
  for (uint32_t i = 0; of_groups && i < GROUPS; i++) {
    fprintf(file, "g%u:x:%u:", i, FIRST_GID + generation * GROUPS + i);
    for (uint32_t m = 0; m < MEMBERS; m++) fprintf(file, "m%u-%u,", m, generation);
    for (uint32_t u = 0; u < USERS; u++) fprintf(file, "u%u%s", u, u + 1 < USERS ? "," : "\n");
  }
  if (fclose(file) != 0) die(path, strerror(errno));
}

/* When the snapshot was renamed into place. */
static long long renamed_at(void) {
  char path[4096], events[8192] __attribute__((aligned(__alignof__(struct inotify_event))));
  snprintf(path, sizeof path, "%s", snapshot);
  const char *name = basename(path);
  struct pollfd ready = {.fd = watch, .events = POLLIN};
  while (poll(&ready, 1, SEEN_WITHIN_MS) > 0) {
    long long now = now_ns();
    ssize_t length = read(watch, events, sizeof events);
    for (char *at = events; at < events + length;) {
      struct inotify_event *event = (struct inotify_event *)at;
      if (event->len && strcmp(event->name, name) == 0) return now;
      at += sizeof *event + event->len;
    }
  }
  die(snapshot, "was not renamed into place by `roster compile`");
  return 0;
}

static long long publish(uint32_t generation) {
  char passwd[4096], group[4096];
  snprintf(passwd, sizeof passwd, "%s/passwd", work);
  snprintf(group, sizeof group, "%s/group", work);
  write_text(passwd, generation, 0);
  write_text(group, generation, 1);
  char *argv[] = {(char *)roster, "compile", "--passwd", passwd, "--group", group, "--output", (char *)snapshot, NULL};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  pid_t pid;
  int error = posix_spawn(&pid, roster, &actions, NULL, argv, environ), status = 0;
  posix_spawn_file_actions_destroy(&actions);
  if (error) die(roster, strerror(error));
  long long at = renamed_at();
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  if (status) die(roster, "compile failed");
  return at;
}

static void pause_ns(long long ns) {
  struct timespec t = {ns / 1000000000, ns % 1000000000};
  nanosleep(&t, NULL);
}

static void start(struct reader *r, int processor, int through_glibc, uint32_t generation) {
  r->processor = processor;
  r->through_glibc = through_glibc;
  r->last = generation;
  if (pthread_create(&r->thread, NULL, read_until_stopped, r) != 0) die("thread", strerror(errno));
}

static unsigned long long calls_of(struct reader *readers) {
  unsigned long long calls = 0;
  for (int i = 0; i < READERS_MAX; i++) calls += atomic_load(&readers[i].calls);
  return calls;
}

static int mappings_of_snapshot(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[4096];
  int count = 0;
  while (maps && fgets(line, sizeof line, maps)) count += strstr(line, "/roster.v3.snap") != NULL;
  if (maps) fclose(maps);
  return count;
}

static void *function(void *module, const char *symbol) {
  void *found = dlsym(module, symbol);
  if (!found) die(symbol, dlerror());
  return found;
}

int main(int argc, char **argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: fresh ROSTER WORK SNAPSHOT PUBLICATIONS CALLS\n");
    return 2;
  }
  roster = argv[1], work = argv[2], snapshot = argv[3];
  uint32_t publications = strtoul(argv[4], NULL, 10), generation = 1;
  unsigned long long calls = strtoull(argv[5], NULL, 10);
  int processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (processors < 2) die("processors", "two are needed: one publishes while the other reads");
  if (processors > READERS_MAX) processors = READERS_MAX;
  if (publications + 2 >= GENERATIONS_MAX) die(argv[4], "too many publications");

  char folder[4096];
  snprintf(folder, sizeof folder, "%s", snapshot);
  watch = inotify_init1(IN_CLOEXEC);
  if (watch < 0 || inotify_add_watch(watch, dirname(folder), IN_MOVED_TO) < 0) die(folder, strerror(errno));
  pin(0);
  publish(generation);

  void *module = dlopen("libnss_roster.so.2", RTLD_NOW);
  if (!module) die("libnss_roster.so.2", dlerror());
  module_getpwnam = function(module, "_nss_roster_getpwnam_r");
  module_getpwuid = function(module, "_nss_roster_getpwuid_r");
  module_getgrnam = function(module, "_nss_roster_getgrnam_r");
  module_initgroups = function(module, "_nss_roster_initgroups_dyn");

  static struct reader readers[READERS_MAX];
  readers[0].timed = 1;
  start(&readers[0], 1, 0, generation);
  printf("{\"delays_ns\": [");
  unsigned seed = 1;
  for (uint32_t i = 0, never = 0; i < publications && never < UNSEEN_MAX; i++) {
    pause_ns(1000000LL * (rand_r(&seed) % 150)); /* past any 100 ms rhythm of the reader */
    long long at = publish(++generation), deadline = at + SEEN_WITHIN_MS * 1000000LL;
    while (!atomic_load(&seen_at[generation]) && now_ns() < deadline) pause_ns(200000);
    long long seen = atomic_load(&seen_at[generation]);
    long long unseen_ns = atomic_load(&unseen_at[generation]) - at;
    printf("%s[%lld, %lld]", i ? ", " : "", seen ? seen - at : -1, unseen_ns > 0 ? unseen_ns : 0);
    never += !seen;
  }
  unsigned long long total = 0, torn = 0, missing = 0, backwards = 0;
  uint32_t published = generation;
  for (int i = 1; i < processors * 2; i++)
    if (i < READERS_MAX) start(&readers[i], i % processors, i >= processors, generation);
  unsigned long long before = atomic_load(&readers[0].calls);
  long long begin = now_ns();
  int most_mappings = 0;
  while (total < calls && generation + 1 < GENERATIONS_MAX) {
    publish(++generation);
    int mappings = mappings_of_snapshot();
    if (mappings > most_mappings) most_mappings = mappings;
    total = calls_of(readers) - before;
  }
  double seconds = (now_ns() - begin) / 1e9;
  atomic_store(&stopping, 1);
  const char *first_fault = "";
  for (int i = 0; i < READERS_MAX; i++) {
    if (!readers[i].thread) continue;
    pthread_join(readers[i].thread, NULL);
    torn += readers[i].torn, missing += readers[i].missing, backwards += readers[i].backwards;
    if (readers[i].first_fault[0]) first_fault = readers[i].first_fault;
  }
  total = calls_of(readers) - before;
  printf("], \"calls\": %llu, \"torn\": %llu, \"missing\": %llu, \"backwards\": %llu, \"first_fault\": \"%s\", "
         "\"publications\": %u, \"storm_publications\": %u, \"storm_seconds\": %.3f, \"most_mappings\": %d}\n",
         total, torn, missing, backwards, first_fault, publications, generation - published, seconds, most_mappings);
  return 0;
}
