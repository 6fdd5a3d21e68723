/* Waiting for something to become so: the one loop in which tests in C ask again and again; and time that
 * merely passes. What tells when it is so is waited for instead. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define UNTIL_PATIENCE      20 /* seconds for anything that must happen */
#define UNTIL_LONGEST_PAUSE 10000000l

struct until {
	struct timespec end;
	long pause_ns;
};

static inline struct until until_begin(int seconds)
{
	struct until until = { .pause_ns = 100000 };

	clock_gettime(CLOCK_MONOTONIC, &until.end);
	until.end.tv_sec += seconds;
	return until;
}

/* To be asked after a look that showed nothing: the next looks follow soon, the later ones less so. False:
 * the time was over before that look. */
static inline bool until_again(struct until *until)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec > until->end.tv_sec ||
	    (now.tv_sec == until->end.tv_sec && now.tv_nsec >= until->end.tv_nsec))
		return false;
	nanosleep(&(struct timespec){ .tv_nsec = until->pause_ns }, NULL);
	if (until->pause_ns < UNTIL_LONGEST_PAUSE)
		until->pause_ns *= 2;
	return true;
}

/* Nothing is waited for: something happens at any moment. */
static inline void lapse(long ns)
{
	nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}
