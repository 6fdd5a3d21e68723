#include "export/seal.h"

#include <endian.h>
#include <string.h>

#define ROTL(x, n) ((x) << (n) | (x) >> (64 - (n)))

struct state {
	uint64_t v0, v1, v2, v3;
};

static inline void rounds(struct state *s, int n)
{
	while (n--) {
		s->v0 += s->v1;
		s->v1 = ROTL(s->v1, 13) ^ s->v0;
		s->v0 = ROTL(s->v0, 32);
		s->v2 += s->v3;
		s->v3 = ROTL(s->v3, 16) ^ s->v2;
		s->v0 += s->v3;
		s->v3 = ROTL(s->v3, 21) ^ s->v0;
		s->v2 += s->v1;
		s->v1 = ROTL(s->v1, 17) ^ s->v2;
		s->v2 = ROTL(s->v2, 32);
	}
}

static uint64_t load(const uint8_t *p, size_t len)
{
	uint64_t word = 0;

	memcpy(&word, p, len);
	return le64toh(word);
}

static inline void absorb(struct state *s, uint64_t word)
{
	s->v3 ^= word;
	rounds(s, 2);
	s->v0 ^= word;
}

uint64_t hf_seal(const struct hf_seal_key *key, const void *data, size_t len)
{
	uint64_t k0 = load(key->bytes, 8), k1 = load(key->bytes + 8, 8);
	struct state s = { k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d),
			   k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573) };
	const uint8_t *p = data;
	size_t left = len;

	for (; left >= 8; p += 8, left -= 8)
		absorb(&s, load(p, 8));
	absorb(&s, load(p, left) | (uint64_t)len << 56);
	s.v2 ^= 0xff;
	rounds(&s, 4);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
