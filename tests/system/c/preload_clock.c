/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Preloaded, it gives a program clocks that a test moves while the program runs. Seconds in the file that
 * ROSTER_TEST_CLOCK names are added to the wall clock. Other clocks stay as they are, as when an administrator sets the
 * time of a host. Milliseconds in the file that ROSTER_TEST_MONOTONIC names are the monotonic clocks. They stand still
 * until the test writes another number. Files are mapped at the start, before a role gives up opening them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift, *monotonic;
static int (*real)(clockid_t, struct timespec *);

static const volatile int64_t *mapped(const char *variable)
{
	const char *path = getenv(variable);
	if (!path)
		return NULL;
	int file = open(path, O_RDONLY | O_CLOEXEC);
	void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(*shift), PROT_READ, MAP_SHARED, file, 0);
	if (page == MAP_FAILED) {
		fprintf(stderr, "clock: no file %s\n", variable);
		abort();
	}
	close(file);
	return page;
}

__attribute__((constructor)) static void start(void)
{
	real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	shift = mapped("ROSTER_TEST_CLOCK");
	monotonic = mapped("ROSTER_TEST_MONOTONIC");
	if (!real || (!shift && !monotonic)) {
		fprintf(stderr, "clock: neither ROSTER_TEST_CLOCK nor ROSTER_TEST_MONOTONIC\n");
		abort();
	}
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int result = real ? real(clock, now) : -1;

	if (result == 0 && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += *shift;
	if (result == 0 && monotonic && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE)) {
		int64_t ms = *monotonic;
		now->tv_sec = ms / 1000;
		now->tv_nsec = ms % 1000 * 1000000;
	}
	return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
	struct timespec exact;

	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
		return -1;
	now->tv_sec = exact.tv_sec;
	now->tv_usec = exact.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *now)
{
	struct timespec exact;

	if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
		return -1;
	if (now)
		*now = exact.tv_sec;
	return exact.tv_sec;
}
