/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* watch DIRECTORY…: when does a running process see a change?
 *
 * Looks a user or a group up through glibc again and again, and records when each value was first seen. The value of a
 * user is the number at the end of GECOS, that of a group the number of members. It also records when a file was
 * renamed into a DIRECTORY, from inotify events.
 *
 * Reads commands on standard input, one a line, and answers each with one line:
 *
 *     user NAME | group NAME   Watches that from now on. Answers: its value, -1 when there is no such user or group.
 *     gone NAME                The same. The value is 1 when there is no such user, 0 when there is.
 *     has GROUP USER           The same. The value is 1 when the user is a member of the group, else 0.
 *     lacks GROUP USER         The same. The value is 1 when the user is not a member, else 0.
 *     seen VALUE MS            Waits until VALUE or a greater one was seen, at most MS milliseconds. Answers: the
 *                              time, or 0; lookups, absences, errors and values smaller than one before, all
 *                              since the start.
 *     renamed FILE SINCE MS    Waits until FILE was renamed into a DIRECTORY after SINCE. Answers: the time, or 0.
 *     renames FILE SINCE       Answers: the number of such renames after SINCE.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC. */

#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_US 200 /* between two lookups: the error of a time */
#define VALUES_MAX 100000
#define RENAMES_MAX 100000
#define FILE_NAME_MAX 64
#define BUFFER_BYTES (1 << 22) /* a group of many members */

struct rename {
  long long ns;
  char file[FILE_NAME_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char kind[8], name[256], member[256];
static int chosen; /* counts up when something else is to be watched */
static long long seen_at[VALUES_MAX];
static int greatest;
static atomic_ullong calls, absences, errors, backwards;
static struct rename renames[RENAMES_MAX];
static int renamed;
static char *buffer;

static void die(const char *what) {
  fprintf(stderr, "watch: %s: %s\n", what, strerror(errno));
  exit(1);
}

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* The value, -1 when there is no such entry, -2 on an error. */
static int look(const char *what, const char *key, const char *user) {
  int gone = strcmp(what, "gone") == 0;
  if (gone || strcmp(what, "user") == 0) {
    struct passwd pw, *found;
    int error = getpwnam_r(key, &pw, buffer, BUFFER_BYTES, &found);
    if (gone && (found || !error)) return !found;
    if (!found) return error ? -2 : -1;
    const char *space = strrchr(pw.pw_gecos, ' ');
    return space ? atoi(space + 1) : 0;
  }
  struct group gr, *found;
  int error = getgrnam_r(key, &gr, buffer, BUFFER_BYTES, &found), members = 0;
  if (!found) return error ? -2 : -1;
  int is_member = 0;
  for (; gr.gr_mem[members]; members++) is_member |= strcmp(gr.gr_mem[members], user) == 0;
  if (strcmp(what, "has") == 0) return is_member;
  if (strcmp(what, "lacks") == 0) return !is_member;
  return members;
}

static void *watch(void *unused) {
  (void)unused;
  int watched = 0;
  char what[sizeof kind], key[sizeof name], user[sizeof member];
  for (;; usleep(PAUSE_US)) {
    pthread_mutex_lock(&lock);
    int turn = chosen;
    memcpy(what, kind, sizeof what);
    memcpy(key, name, sizeof key);
    memcpy(user, member, sizeof user);
    pthread_mutex_unlock(&lock);
    if (!turn) continue;
    int value = look(what, key, user);
    long long when = now_ns();
    pthread_mutex_lock(&lock);
    if (turn == chosen) {
      calls++;
      if (watched != turn) {
        memset(seen_at, 0, sizeof seen_at);
        greatest = -1;
        watched = turn;
      }
      if (value == -1) absences++;
      if (value == -2) errors++;
      if (value >= 0 && value < greatest) backwards++;
      for (; value > greatest && greatest + 1 < VALUES_MAX; greatest++) seen_at[greatest + 1] = when;
    }
    pthread_mutex_unlock(&lock);
  }
  return NULL;
}

static void *follow(void *folders) {
  char events[64 << 10] __attribute__((aligned(8)));
  int watch = inotify_init1(IN_CLOEXEC);
  if (watch < 0) die("inotify");
  for (char **folder = folders; *folder; folder++)
    if (inotify_add_watch(watch, *folder, IN_MOVED_TO) < 0) die(*folder);
  for (;;) {
    ssize_t length = read(watch, events, sizeof events);
    long long when = now_ns();
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) die("inotify");
    pthread_mutex_lock(&lock);
    for (char *at = events; at < events + length;) {
      struct inotify_event *event = (struct inotify_event *)at;
      if (event->len && renamed < RENAMES_MAX) {
        renames[renamed].ns = when;
        snprintf(renames[renamed++].file, FILE_NAME_MAX, "%.*s", FILE_NAME_MAX - 1, event->name);
      }
      at += sizeof *event + event->len;
    }
    pthread_mutex_unlock(&lock);
  }
  return NULL;
}

static void choose(const char *what, const char *key, const char *user) {
  pthread_mutex_lock(&lock);
  snprintf(kind, sizeof kind, "%s", what);
  snprintf(name, sizeof name, "%s", key);
  snprintf(member, sizeof member, "%s", user);
  chosen++;
  greatest = -1;
  unsigned long long before = calls;
  pthread_mutex_unlock(&lock);
  while (calls == before) usleep(PAUSE_US);
  pthread_mutex_lock(&lock);
  printf("%d\n", greatest);
  pthread_mutex_unlock(&lock);
}

static void seen(int value, long long ms) {
  long long deadline = now_ns() + ms * 1000000, when = 0;
  for (;; usleep(PAUSE_US)) {
    pthread_mutex_lock(&lock);
    if (value >= 0 && value < VALUES_MAX && greatest >= value) when = seen_at[value];
    pthread_mutex_unlock(&lock);
    if (when || now_ns() > deadline) break;
  }
  printf("%lld %llu %llu %llu %llu\n", when, calls, absences, errors, backwards);
}

/* The first rename after `since`, 0 when there was none yet; `count` of all of them. */
static long long rename_of(const char *file, long long since, int *count) {
  long long first = 0;
  *count = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < renamed; i++) {
    if (renames[i].ns <= since || strcmp(renames[i].file, file) != 0) continue;
    if (!first) first = renames[i].ns;
    ++*count;
  }
  pthread_mutex_unlock(&lock);
  return first;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: watch FOLDER…\n");
    return 2;
  }
  pthread_t thread;
  buffer = malloc(BUFFER_BYTES);
  if (!buffer || pthread_create(&thread, NULL, follow, argv + 1) || pthread_create(&thread, NULL, watch, NULL))
    die("threads");
  setvbuf(stdout, NULL, _IOLBF, 0);
  char line[600], file[FILE_NAME_MAX], key[256], user[256];
  long long since, ms;
  int value, count;
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "user %255s", key) == 1) {
      choose("user", key, "");
    } else if (sscanf(line, "group %255s", key) == 1) {
      choose("group", key, "");
    } else if (sscanf(line, "gone %255s", key) == 1) {
      choose("gone", key, "");
    } else if (sscanf(line, "has %255s %255s", key, user) == 2) {
      choose("has", key, user);
    } else if (sscanf(line, "lacks %255s %255s", key, user) == 2) {
      choose("lacks", key, user);
    } else if (sscanf(line, "seen %d %lld", &value, &ms) == 2) {
      seen(value, ms);
    } else if (sscanf(line, "renamed %63s %lld %lld", file, &since, &ms) == 3) {
      long long deadline = now_ns() + ms * 1000000, when;
      while (!(when = rename_of(file, since, &count)) && now_ns() < deadline) usleep(PAUSE_US);
      printf("%lld\n", when);
    } else if (sscanf(line, "renames %63s %lld", file, &since) == 2) {
      rename_of(file, since, &count);
      printf("%d\n", count);
    } else {
      fprintf(stderr, "watch: unknown command: %s", line);
      return 2;
    }
  }
  return 0;
}
