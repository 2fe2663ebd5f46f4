/* Preloaded, it gives a program a wall clock that a test moves while the program runs: seconds that stand in
 * the file that ROSTER_TEST_CLOCK names are added to the real time. Other clocks stay as they are, as when
 * somebody sets the time of a host. The file is mapped at the start, before a role gives up opening files. */
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

static const volatile int64_t *shift;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("ROSTER_TEST_CLOCK");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(*shift), PROT_READ, MAP_SHARED, file, 0);

	real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	if (page == MAP_FAILED || !real) {
		fprintf(stderr, "clock: no file ROSTER_TEST_CLOCK\n");
		abort();
	}
	close(file);
	shift = page;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int result = real ? real(clock, now) : -1;

	if (result == 0 && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += *shift;
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
