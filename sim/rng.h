/* Random numbers: splitmix64. Each part of the world has a stream of its own. So leaving out one part does
 * not change the numbers of another. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct rng {
	uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng)
{
	uint64_t z = rng->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static inline void rng_init(struct rng *rng, uint64_t seed, uint64_t stream)
{
	struct rng mix = { seed };

	rng->state = rng_next(&mix) ^ (stream * UINT64_C(0xd1342543de82ef95));
	rng_next(rng);
}

/* The upper half of a product, by hand: not every platform has 128-bit numbers, and all must give the same
 * result. */
static inline uint64_t rng_scale(uint64_t a, uint64_t b)
{
	uint64_t a_low = (uint32_t)a, a_high = a >> 32, b_low = (uint32_t)b, b_high = b >> 32;
	uint64_t middle = a_high * b_low + (a_low * b_low >> 32);

	return a_high * b_high + (middle >> 32) + (((uint32_t)middle + a_low * b_high) >> 32);
}

static inline uint64_t rng_below(struct rng *rng, uint64_t n) /* n > 0 */
{
	return rng_scale(rng_next(rng), n);
}

static inline uint64_t rng_between(struct rng *rng, uint64_t least, uint64_t most)
{
	return least + rng_below(rng, most - least + 1);
}

static inline bool rng_chance(struct rng *rng, unsigned int permille)
{
	return rng_below(rng, 1000) < permille;
}
