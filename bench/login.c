/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* log_in: the cost of a login for a program, and of a bare verification of Argon2id beside it.
 *
 * Reads commands on standard input, one a line, fields separated by spaces, and answers each with one
 * line. Times are in nanoseconds.
 *
 *     service NAME PASSWORD    Sets the service of PAM, and the password of all users. Its modules are loaded now, and
 *                              stay. Answers: 0.
 *     authenticate USER        pam_authenticate. Answers: nanoseconds, PAM's status, messages shown.
 *     account USER             pam_acct_mgmt. The same answers.
 *     crowd COUNT MS USERS     That many processes log u0, u1, … in, each its own share of so many. Each runs from
 *                              pam_start to pam_end with both of the above, again and again for so many
 *                              milliseconds. Answers: nanoseconds until the last process has ended, logins,
 *                              failed logins, and their median and 99th percentile.
 *     verify HASH              Verifies the hash with the password, by the reference implementation of Argon2.
 *                              Answers: nanoseconds, its status (0: the password is right).
 */

#define _GNU_SOURCE
#include <argon2.h>
#include <errno.h>
#include <sched.h>
#include <security/pam_appl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CROWD_MAX 256
#define LOG_INS_MAX 20000
#define NAME_BYTES 256
#define WORDS_MAX 4
/* Until all of a crowd are there. */
#define GATHER_NS 100000000LL

enum { AUTHENTICATE = 1, ACCOUNT = 2 };

struct member {
  long long ended;
  int log_ins, failed;
  long long took[LOG_INS_MAX];
};

static char service[NAME_BYTES], password[NAME_BYTES];
static struct member *members;
static int shown;

static void die(const char *what) {
  fprintf(stderr, "log_in: %s: %s\n", what, errno ? strerror(errno) : "it failed");
  exit(1);
}

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int converse(int count, const struct pam_message **messages, struct pam_response **responses, void *data) {
  (void)data;
  if (count < 1 || count > PAM_MAX_NUM_MSG) return PAM_CONV_ERR;
  *responses = calloc(count, sizeof **responses);
  if (!*responses) return PAM_BUF_ERR;
  for (int i = 0; i < count; i++)
    if (messages[i]->msg_style == PAM_PROMPT_ECHO_OFF)
      (*responses)[i].resp = strdup(password);
    else
      shown++;
  return PAM_SUCCESS;
}

static const struct pam_conv conversation = {converse, NULL};

static pam_handle_t *begin_log_in(const char *user) {
  pam_handle_t *handle;
  shown = 0;
  if (pam_start(service, user, &conversation, &handle) != PAM_SUCCESS) die("pam_start");
  return handle;
}

static int carry_out(pam_handle_t *handle, int steps) {
  int status = PAM_SUCCESS;
  if (steps & AUTHENTICATE) status = pam_authenticate(handle, 0);
  if (status == PAM_SUCCESS && steps & ACCOUNT) status = pam_acct_mgmt(handle, 0);
  return status;
}

static void use_service(const char *name, const char *secret) {
  snprintf(service, sizeof service, "%s", name);
  snprintf(password, sizeof password, "%s", secret);
  /* Never ended: a program that logs users in has its modules in memory. */
  begin_log_in("nobody");
  printf("0\n");
}

static void one(const char *user, int steps) {
  pam_handle_t *handle = begin_log_in(user);
  long long begin = now_ns();
  int status = carry_out(handle, steps);
  long long end = now_ns();
  pam_end(handle, status);
  printf("%lld %d %d\n", end - begin, status, shown);
}

/* A host's programs are spread over its processors; single logins are measured on one of them. */
static void on_all_processors(void) {
  cpu_set_t all;
  memset(&all, 0xff, sizeof all);
  sched_setaffinity(0, sizeof all, &all);
}

static void wait_until(long long ns) {
  struct timespec t = {ns / 1000000000LL, ns % 1000000000LL};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
}

static void one_of_crowd(int number, int count, int users, long long begin, long long until) {
  struct member *self = &members[number];
  char user[NAME_BYTES];
  int next = number % users;
  on_all_processors();
  wait_until(begin);
  do {
    snprintf(user, sizeof user, "u%d", next);
    next = next + count < users ? next + count : number % users;
    long long start = now_ns();
    pam_handle_t *handle = begin_log_in(user);
    int status = carry_out(handle, AUTHENTICATE | ACCOUNT);
    pam_end(handle, status);
    self->ended = now_ns();
    self->took[self->log_ins++] = self->ended - start;
    self->failed += status != PAM_SUCCESS;
  } while (self->ended < until && self->log_ins < LOG_INS_MAX);
}

static int by_size(const void *one, const void *other) {
  long long a = *(const long long *)one, b = *(const long long *)other;
  return (a > b) - (a < b);
}

static void crowd(int count, int ms, int users) {
  if (count < 1 || count > CROWD_MAX || users < 1) die("crowd");
  memset(members, 0, count * sizeof *members);
  long long begin = now_ns() + GATHER_NS, last = begin;
  for (int i = 0; i < count; i++) {
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
      one_of_crowd(i, count, users, begin, begin + ms * 1000000LL);
      _exit(0);
    }
  }
  for (int i = 0; i < count; i++) {
    int status;
    while (wait(&status) < 0 && errno == EINTR) {}
    if (status != 0) die("one of the crowd");
  }
  long long *took = malloc(sizeof *took * count * LOG_INS_MAX);
  if (!took) die("crowd");
  int log_ins = 0, failed = 0;
  for (int i = 0; i < count; i++) {
    memcpy(took + log_ins, members[i].took, sizeof *took * members[i].log_ins);
    log_ins += members[i].log_ins;
    failed += members[i].failed;
    if (members[i].ended > last) last = members[i].ended;
  }
  qsort(took, log_ins, sizeof *took, by_size);
  printf("%lld %d %d %lld %lld\n", last - begin, log_ins, failed, took[log_ins / 2], took[log_ins - 1 - log_ins / 100]);
  free(took);
}

static void verify(const char *hash) {
  long long begin = now_ns();
  int status = argon2id_verify(hash, password, strlen(password));
  printf("%lld %d\n", now_ns() - begin, status);
}

int main(void) {
  char *line = NULL;
  size_t size = 0;
  members = mmap(NULL, CROWD_MAX * sizeof *members, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (members == MAP_FAILED) die("mmap");
  while (getline(&line, &size, stdin) > 0) {
    char *word[WORDS_MAX];
    int words = 0;
    for (char *next = strtok(line, " \n"); next && words < WORDS_MAX; next = strtok(NULL, " \n")) word[words++] = next;
    errno = 0;
    if (words == 3 && strcmp(word[0], "service") == 0) {
      use_service(word[1], word[2]);
    } else if (words == 2 && strcmp(word[0], "authenticate") == 0) {
      one(word[1], AUTHENTICATE);
    } else if (words == 2 && strcmp(word[0], "account") == 0) {
      one(word[1], ACCOUNT);
    } else if (words == 4 && strcmp(word[0], "crowd") == 0) {
      crowd(atoi(word[1]), atoi(word[2]), atoi(word[3]));
    } else if (words == 2 && strcmp(word[0], "verify") == 0) {
      verify(word[1]);
    } else {
      fprintf(stderr, "log_in: unknown command: %s\n", words ? word[0] : "");
      return 2;
    }
    fflush(stdout);
  }
  return 0;
}
