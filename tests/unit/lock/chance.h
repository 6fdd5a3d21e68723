/* Random sequences that a seed repeats, and how one is asked for. */
#pragma once

#include <stdint.h>
#include <stdlib.h>

/* xorshift64*: good in its upper bits. */
static inline uint64_t chance_next(uint64_t *random)
{
	*random ^= *random >> 12;
	*random ^= *random << 25;
	*random ^= *random >> 27;
	return *random * UINT64_C(0x2545F4914F6CDD1D);
}

static inline uint32_t chance_below(uint64_t *random, uint32_t n)
{
	return (uint32_t)(chance_next(random) >> 33) % n;
}

/* An argument, else of the environment, else the standard. */
static inline uint64_t chance_setting(int argc, char **argv, int at, const char *name, uint64_t standard)
{
	if (argc > at)
		return strtoull(argv[at], NULL, 0);
	return getenv(name) ? strtoull(getenv(name), NULL, 0) : standard;
}
