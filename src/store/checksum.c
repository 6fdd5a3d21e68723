#include "store/checksum.h"

#include <endian.h>
#include <string.h>

#define PRIME1 UINT64_C(0x9e3779b185ebca87)
#define PRIME2 UINT64_C(0xc2b2ae3d27d4eb4f)
#define PRIME3 UINT64_C(0x165667b19e3779f9)
#define PRIME4 UINT64_C(0x85ebca77c2b2ae63)
#define PRIME5 UINT64_C(0x27d4eb2f165667c5)

static uint64_t rotate(uint64_t x, int n)
{
	return x << n | x >> (64 - n);
}

static uint64_t load64(const uint8_t *p)
{
	uint64_t x;

	memcpy(&x, p, sizeof(x));
	return le64toh(x);
}

static uint32_t load32(const uint8_t *p)
{
	uint32_t x;

	memcpy(&x, p, sizeof(x));
	return le32toh(x);
}

static uint64_t mix(uint64_t lane, uint64_t input)
{
	return rotate(lane + input * PRIME2, 31) * PRIME1;
}

static uint64_t merge(uint64_t hash, uint64_t lane)
{
	return (hash ^ mix(0, lane)) * PRIME1 + PRIME4;
}

/* The blocks of 32 bytes, in four lanes that do not wait for each other. */
static uint64_t hash_blocks(const uint8_t **pp, const uint8_t *end, uint64_t seed)
{
	uint64_t a = seed + PRIME1 + PRIME2, b = seed + PRIME2, c = seed, d = seed - PRIME1;
	const uint8_t *p = *pp;
	uint64_t hash;

	for (; end - p >= 32; p += 32) {
		a = mix(a, load64(p));
		b = mix(b, load64(p + 8));
		c = mix(c, load64(p + 16));
		d = mix(d, load64(p + 24));
	}
	hash = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
	hash = merge(merge(merge(merge(hash, a), b), c), d);
	*pp = p;
	return hash;
}

uint64_t hf_checksum_with(const void *data, size_t len, uint64_t seed)
{
	const uint8_t *p = data, *end = p + len;
	uint64_t hash = len >= 32 ? hash_blocks(&p, end, seed) : seed + PRIME5;

	hash += len;
	for (; end - p >= 8; p += 8)
		hash = rotate(hash ^ mix(0, load64(p)), 27) * PRIME1 + PRIME4;
	if (end - p >= 4) {
		hash = rotate(hash ^ load32(p) * PRIME1, 23) * PRIME2 + PRIME3;
		p += 4;
	}
	for (; p < end; p++)
		hash = rotate(hash ^ *p * PRIME5, 11) * PRIME1;
	hash = (hash ^ hash >> 33) * PRIME2;
	hash = (hash ^ hash >> 29) * PRIME3;
	return hash ^ hash >> 32;
}

uint64_t hf_checksum(const void *data, size_t len)
{
	return hf_checksum_with(data, len, 0);
}
