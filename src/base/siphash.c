#include "base/siphash.h"

#include <endian.h>
#include <string.h>

struct state {
	uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate(uint64_t x, unsigned int bits)
{
	return x << bits | x >> (64 - bits);
}

static inline void mix(struct state *s)
{
	s->v0 += s->v1;
	s->v1 = rotate(s->v1, 13) ^ s->v0;
	s->v0 = rotate(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = rotate(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = rotate(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = rotate(s->v1, 17) ^ s->v2;
	s->v2 = rotate(s->v2, 32);
}

static inline void absorb(struct state *s, uint64_t word)
{
	s->v3 ^= word;
	mix(s);
	s->v0 ^= word;
}

uint64_t hf_siphash(const struct hf_siphash_key *key, const void *data, size_t len)
{
	const uint8_t *p = data;
	struct state s = {
		.v0 = key->k0 ^ UINT64_C(0x736f6d6570736575),
		.v1 = key->k1 ^ UINT64_C(0x646f72616e646f6d),
		.v2 = key->k0 ^ UINT64_C(0x6c7967656e657261),
		.v3 = key->k1 ^ UINT64_C(0x7465646279746573),
	};
	uint64_t tail = (uint64_t)len << 56;
	uint64_t word;
	size_t rest = len;

	for (; rest >= 8; rest -= 8, p += 8) {
		memcpy(&word, p, 8);
		absorb(&s, le64toh(word));
	}
	for (size_t i = 0; i < rest; i++)
		tail |= (uint64_t)p[i] << (8 * i);
	absorb(&s, tail);

	s.v2 ^= 0xff;
	mix(&s);
	mix(&s);
	mix(&s);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
