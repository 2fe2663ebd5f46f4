/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* spawn: runs programs and times each from its start to its end.
 *
 * Reads commands on standard input, one a line, fields separated by tabs, and answers each with one line. It is a tiny
 * separate process, because the starter counts in the measured time (vfork of a small image). It also counts in
 * ru_maxrss (which remembers the image before exec).
 *
 *     run    OUTPUT PROGRAM ARGUMENT…   Waits. Answers: nanoseconds, user and system microseconds, peak kilobytes,
 *                                       exit status (128 + signal when killed).
 *     start  OUTPUT PROGRAM ARGUMENT…   Does not wait. Answers: pid.
 *     stop   PID                        SIGTERM to a started program, waits. Answers: 0.
 *
 * OUTPUT takes standard output; standard error is inherited. Programs that were started and not stopped are stopped
 * when standard input ends. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#define FIELDS_MAX 64
#define STARTED_MAX 8

extern char **environ;

static pid_t started[STARTED_MAX];

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long long micros(struct timeval t) { return t.tv_sec * 1000000LL + t.tv_usec; }

static pid_t spawned(const char *output, char **argv) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = -1;
  int error = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error) {
    fprintf(stderr, "spawn: %s: %s\n", argv[0], strerror(error));
    return -1;
  }
  return pid;
}

static void run(const char *output, char **argv) {
  struct rusage usage = {0};
  int status = 127 << 8;
  long long begin = now_ns();
  pid_t pid = spawned(output, argv);
  if (pid > 0)
    while (wait4(pid, &status, 0, &usage) < 0 && errno == EINTR) {}
  long long ns = now_ns() - begin;
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  printf("%lld %lld %lld %ld %d\n", ns, micros(usage.ru_utime), micros(usage.ru_stime), usage.ru_maxrss, code);
}

static void start(const char *output, char **argv) {
  for (int i = 0; i < STARTED_MAX; i++) {
    if (started[i] > 0) continue;
    printf("%d\n", started[i] = spawned(output, argv));
    return;
  }
  fprintf(stderr, "spawn: more than %d programs started\n", STARTED_MAX);
  exit(2);
}

static void stop(pid_t pid) {
  for (int i = 0; i < STARTED_MAX; i++) {
    if (started[i] != pid || pid <= 0) continue;
    started[i] = 0;
    kill(pid, SIGTERM);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
  }
}

int main(void) {
  char *line = NULL;
  size_t size = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  while (getline(&line, &size, stdin) > 0) {
    char *field[FIELDS_MAX + 1] = {NULL}, *rest = line;
    int fields = 0;
    line[strcspn(line, "\n")] = '\0';
    while (rest && fields < FIELDS_MAX) field[fields++] = strsep(&rest, "\t");
    if (fields >= 3 && strcmp(field[0], "run") == 0) {
      run(field[1], field + 2);
    } else if (fields >= 3 && strcmp(field[0], "start") == 0) {
      start(field[1], field + 2);
    } else if (fields == 2 && strcmp(field[0], "stop") == 0) {
      stop(atoi(field[1]));
      puts("0");
    } else {
      fprintf(stderr, "spawn: unknown command: %s\n", field[0]);
      return 2;
    }
  }
  for (int i = 0; i < STARTED_MAX; i++) stop(started[i]);
  return 0;
}
