/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* as_exchange: the cost of a ticket from a KDC with a password, by libkrb5 and nothing else.
 *
 * Reads commands on standard input, one a line, fields separated by spaces, and answers each with one
 * line. Times are in nanoseconds. The library is ready before the first.
 *
 *   exchange NAME PASSWORD   from the name to the ticket; answers: nanoseconds, the library's error (0: there
 *                            is one)
 */

#define _GNU_SOURCE
#include <krb5.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LINE_BYTES 512

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static krb5_error_code exchange(krb5_context context, const char *name, const char *password) {
  krb5_principal client = NULL;
  krb5_get_init_creds_opt *options = NULL;
  krb5_init_creds_context asked = NULL;
  krb5_creds ticket;
  memset(&ticket, 0, sizeof ticket);
  krb5_error_code code = krb5_parse_name(context, name, &client);
  if (!code) code = krb5_get_init_creds_opt_alloc(context, &options);
  if (!code) code = krb5_init_creds_init(context, client, NULL, NULL, 0, options, &asked);
  if (!code) code = krb5_init_creds_set_password(context, asked, password);
  if (!code) code = krb5_init_creds_get(context, asked);
  if (!code) code = krb5_init_creds_get_creds(context, asked, &ticket);
  if (asked) krb5_init_creds_free(context, asked);
  krb5_free_cred_contents(context, &ticket);
  if (options) krb5_get_init_creds_opt_free(context, options);
  krb5_free_principal(context, client);
  return code;
}

int main(void) {
  krb5_context context;
  krb5_error_code code = krb5_init_context(&context);
  if (code) {
    fprintf(stderr, "as_exchange: libkrb5 does not start (%d)\n", (int)code);
    return 1;
  }
  char line[LINE_BYTES], name[LINE_BYTES], password[LINE_BYTES];
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "exchange %511s %511s", name, password) != 2) {
      fprintf(stderr, "as_exchange: what is this: %s", line);
      return 1;
    }
    long long begin = now_ns();
    code = exchange(context, name, password);
    printf("%lld %d\n", now_ns() - begin, (int)code);
    fflush(stdout);
  }
  krb5_free_context(context);
}
