/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* dlopen LIBRARY SERVICE: the cost of the first lookup in a fresh process.
 *
 * Prints two numbers, in nanoseconds: dlopen(3) of the module as glibc does it, and the first getpwnam (of a name that
 * no user has) after it. One measurement a process: a second dlopen would find the loader, the page tables and the
 * file's pages warm. */

#include <dlfcn.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int getpwnam_fn(const char *, struct passwd *, char *, size_t, int *);

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: dlopen LIBRARY SERVICE\n");
    return 2;
  }
  char symbol[128], buffer[4096];
  snprintf(symbol, sizeof symbol, "_nss_%s_getpwnam_r", argv[2]);
  now_ns(); /* the clock's own first call is not the module's cost */

  long long begin = now_ns();
  void *module = dlopen(argv[1], RTLD_LAZY);
  long long loaded = now_ns();
  if (!module) {
    fprintf(stderr, "dlopen: %s\n", dlerror());
    return 1;
  }
  long long asked = now_ns();
  getpwnam_fn *getpwnam_of_module = (getpwnam_fn *)dlsym(module, symbol);
  if (!getpwnam_of_module) {
    fprintf(stderr, "dlopen: %s\n", dlerror());
    return 1;
  }
  struct passwd pw;
  int error = 0;
  getpwnam_of_module("no-such-user", &pw, buffer, sizeof buffer, &error);
  printf("%lld %lld\n", loaded - begin, now_ns() - asked);
  return 0;
}
