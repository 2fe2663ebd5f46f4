/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* ask: the cost of one lookup, through glibc and straight at a directory; and many at once.
 *
 * Reads commands on standard input, one a line, fields separated by spaces, and answers each with one
 * line. Times are in nanoseconds.
 *
 *     connect PORT HEX         Connects to a directory on loopback, sends the bytes HEX (a bind) and awaits one answer.
 *                              Answers: nanoseconds.
 *     search HEX               Sends the bytes HEX (a search) there and awaits its end. Answers: nanoseconds, entries.
 *     bind HEX                 The same of a bind there. Answers: nanoseconds, result code.
 *     user NAME                getpwnam. Answers: nanoseconds, uid (-1: no such user), errno.
 *     groups NAME GID          getgrouplist. Answers: nanoseconds, number of groups, 0.
 *     crowd COUNT OTHER NAME   That many processes look NAME up at the same moment, each under a different uid if that
 *                              is allowed. Before, they look OTHER up to be ready. Answers: nanoseconds until the last
 *                              process has its answer, the number of processes that found the user.
 *     programs COUNT PROGRAM ARGUMENT…   Starts that many at once. Answers: nanoseconds until the last program has
 *                              ended, the number of programs that ended well.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <pwd.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CROWD_MAX 1000
#define FIRST_UID 50000
#define BUFFER_BYTES (1 << 20)
#define GROUPS_MAX 65536
#define WORDS_MAX 16
#define ENTRY 0x64
#define DONE 0x65

extern char **environ;

struct shared {
  pthread_barrier_t start, end;
  long long ended[CROWD_MAX];
  int found[CROWD_MAX];
};

static char buffer[BUFFER_BYTES];
static gid_t gids[GROUPS_MAX];
static int directory = -1;
static struct shared *shared;

static void die(const char *what) {
  fprintf(stderr, "ask: %s: %s\n", what, errno ? strerror(errno) : "unexpected answer");
  exit(1);
}

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static size_t bytes_of(const char *hex, unsigned char *bytes, size_t most) {
  size_t length = 0;
  unsigned byte;
  for (; length < most && sscanf(hex, "%2x", &byte) == 1; hex += 2) bytes[length++] = byte;
  return length;
}

static void send_all(const unsigned char *bytes, size_t length) {
  while (length) {
    ssize_t sent = send(directory, bytes, length, MSG_NOSIGNAL);
    if (sent <= 0) die("send");
    bytes += sent;
    length -= sent;
  }
}

/* Length of the BER element at the start of `length` bytes, or 0 when it is not whole. `header` gets the offset of its
 * contents. */
static size_t element(const unsigned char *at, size_t length, size_t *header) {
  if (length < 2) return 0;
  size_t body = at[1], octets = 0;
  if (body & 0x80) {
    octets = body & 0x7f;
    body = 0;
    if (octets > 4 || length < 2 + octets) return 0;
    for (size_t i = 0; i < octets; i++) body = body << 8 | at[2 + i];
  }
  *header = 2 + octets;
  return length >= *header + body ? *header + body : 0;
}

/* Reads messages until one that does not hold an entry. Returns the number of entries before it, and in `code` its
 * result code. */
static int await_end(int *code) {
  static unsigned char data[BUFFER_BYTES];
  size_t have = 0, header, inner;
  int entries = 0;
  for (;;) {
    ssize_t more = recv(directory, data + have, sizeof data - have, 0);
    if (more <= 0) die("receive");
    have += more;
    size_t at = 0, whole;
    while ((whole = element(data + at, have - at, &header))) {
      const unsigned char *message = data + at + header;
      size_t number = element(message, whole - header, &inner);
      int operation = message[number];
      at += whole;
      if (operation != ENTRY) {
        if (!element(message + number, whole - header - number, &inner)) die("receive");
        /* ENUMERATED, one octet. */
        *code = message[number + inner + 2];
        return entries;
      }
      entries++;
    }
    memmove(data, data + at, have -= at);
  }
}

static void connect_to(int port, const char *hex) {
  static unsigned char request[4096];
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (directory >= 0) close(directory);
  directory = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int on = 1;
  long long begin = now_ns();
  if (directory < 0 || connect(directory, (struct sockaddr *)&address, sizeof address) != 0) die("connect");
  setsockopt(directory, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  int code;
  send_all(request, bytes_of(hex, request, sizeof request));
  await_end(&code);
  printf("%lld\n", now_ns() - begin);
}

/* Answers with the entries that were found, or with how a bind went. */
static void exchange(const char *hex, int is_bind) {
  static unsigned char request[4096];
  size_t length = bytes_of(hex, request, sizeof request);
  int code;
  long long begin = now_ns();
  send_all(request, length);
  int entries = await_end(&code);
  printf("%lld %d\n", now_ns() - begin, is_bind ? code : entries);
}

static void user(const char *name) {
  struct passwd pw, *found;
  long long begin = now_ns();
  int error = getpwnam_r(name, &pw, buffer, sizeof buffer, &found);
  long long end = now_ns();
  printf("%lld %lld %d\n", end - begin, found ? (long long)pw.pw_uid : -1, found ? 0 : error);
}

static void groups(const char *name, gid_t gid) {
  int count = GROUPS_MAX;
  long long begin = now_ns();
  getgrouplist(name, gid, gids, &count);
  printf("%lld %d 0\n", now_ns() - begin, count);
}

static int one_of_crowd(int number, const char *other, const char *name) {
  struct passwd pw, *found;
  if (geteuid() == 0 && setuid(FIRST_UID + number) != 0) die("setuid");
  getpwnam_r(other, &pw, buffer, sizeof buffer, &found);
  pthread_barrier_wait(&shared->start);
  getpwnam_r(name, &pw, buffer, sizeof buffer, &found);
  shared->ended[number] = now_ns();
  shared->found[number] = found != NULL;
  /* The end of a process costs more than its lookup, and would delay the waiting processes. */
  pthread_barrier_wait(&shared->end);
  return 0;
}

static int between_processes(pthread_barrier_t *barrier, int count) {
  pthread_barrierattr_t shared_by_all;
  pthread_barrierattr_init(&shared_by_all);
  pthread_barrierattr_setpshared(&shared_by_all, PTHREAD_PROCESS_SHARED);
  return pthread_barrier_init(barrier, &shared_by_all, count);
}

/* A host's programs are spread over its processors; this one measures single lookups on one of them. */
static void on_all_processors(void) {
  cpu_set_t all;
  memset(&all, 0xff, sizeof all);
  sched_setaffinity(0, sizeof all, &all);
}

static void crowd(int count, const char *other, const char *name) {
  if (count < 1 || count > CROWD_MAX || between_processes(&shared->start, count + 1) ||
      between_processes(&shared->end, count + 1))
    die("crowd");
  pid_t children[CROWD_MAX];
  for (int i = 0; i < count; i++) {
    children[i] = fork();
    if (children[i] < 0) die("fork");
    if (children[i] == 0) {
      on_all_processors();
      _exit(one_of_crowd(i, other, name));
    }
  }
  /* The last to come to the barrier begins; all that are still on their way to it would be late. */
  usleep(20000 + 2000 * count);
  long long begin = now_ns(), last = 0;
  pthread_barrier_wait(&shared->start);
  pthread_barrier_wait(&shared->end);
  int found = 0;
  for (int i = 0; i < count; i++) {
    while (waitpid(children[i], NULL, 0) < 0 && errno == EINTR) {}
    if (shared->ended[i] > last) last = shared->ended[i];
    found += shared->found[i];
  }
  pthread_barrier_destroy(&shared->start);
  pthread_barrier_destroy(&shared->end);
  printf("%lld %d\n", last - begin, found);
}

static void programs(int count, char **argv) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  long long begin = now_ns();
  int well = 0, started = 0;
  for (pid_t pid; started < count; started++)
    if (posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ) != 0) break;
  for (int i = 0; i < started; i++) {
    int status;
    while (wait(&status) < 0 && errno == EINTR) {}
    well += WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  printf("%lld %d\n", now_ns() - begin, well);
  posix_spawn_file_actions_destroy(&actions);
}

int main(void) {
  char *line = NULL;
  size_t size = 0;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) die("mmap");
  while (getline(&line, &size, stdin) > 0) {
    char *word[WORDS_MAX + 1] = {NULL}, *rest = line;
    int words = 0;
    line[strcspn(line, "\n")] = '\0';
    while (rest && words < WORDS_MAX) word[words++] = strsep(&rest, " ");
    if (words == 3 && strcmp(word[0], "connect") == 0) {
      connect_to(atoi(word[1]), word[2]);
    } else if (words == 2 && strcmp(word[0], "search") == 0) {
      exchange(word[1], 0);
    } else if (words == 2 && strcmp(word[0], "bind") == 0) {
      exchange(word[1], 1);
    } else if (words == 2 && strcmp(word[0], "user") == 0) {
      user(word[1]);
    } else if (words == 3 && strcmp(word[0], "groups") == 0) {
      groups(word[1], strtoul(word[2], NULL, 10));
    } else if (words == 4 && strcmp(word[0], "crowd") == 0) {
      crowd(atoi(word[1]), word[2], word[3]);
    } else if (words >= 3 && strcmp(word[0], "programs") == 0) {
      programs(atoi(word[1]), word + 2);
    } else {
      fprintf(stderr, "ask: unknown command: %s\n", word[0]);
      return 2;
    }
    fflush(stdout);
  }
  return 0;
}
