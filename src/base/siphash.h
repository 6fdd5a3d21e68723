/*
 * SipHash-1-3: the keyed hash for tables whose keys a peer chooses. Without the
 * key, a peer cannot make entries collide.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hf_siphash_key {
	uint64_t k0;
	uint64_t k1;
};

uint64_t hf_siphash(const struct hf_siphash_key *key, const void *data, size_t len);
