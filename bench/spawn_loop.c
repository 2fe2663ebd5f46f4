/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* spawn_loop SECONDS PROCESSES PROGRAM ARGUMENT…: the highest rate of starts on a machine. Each process starts the
 * program, waits for its end, and starts it again. Prints how often all of them did. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static long loop(double seconds, char **argv) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  long count = 0;
  for (double end = now() + seconds; now() < end; count++) {
    pid_t pid;
    int status;
    if (posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ) || waitpid(pid, &status, 0) != pid || status)
      exit(1);
  }
  return count;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  int processes = atoi(argv[2]), ends[2];
  if (pipe(ends)) return 1;
  for (int i = 0; i < processes; i++)
    if (fork() == 0) {
      long count = loop(atof(argv[1]), argv + 3);
      _exit(write(ends[1], &count, sizeof count) != sizeof count);
    }
  long sum = 0, count;
  for (int i = 0; i < processes; i++) {
    if (read(ends[0], &count, sizeof count) != sizeof count) return 1;
    sum += count;
  }
  printf("%ld\n", sum);
}
