/*
 * The seal on handles: SipHash-2-4 of 64 bits, keyed, so that nobody can make
 * a handle for a file that we did not hand out. (base/siphash.h is the faster
 * variant for tables.)
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hf_seal_key {
	uint8_t bytes[16];
};

uint64_t hf_seal(const struct hf_seal_key *key, const void *data, size_t len);

/* What tells a key from another, and tells nothing else about it; never 0. */
uint64_t hf_seal_key_print(const struct hf_seal_key *key);

struct hf_loop;

/* The key in @dir/handle.key; made there, of @loop's random bytes, if the file is not there yet. */
int hf_seal_key_load(struct hf_seal_key *keyp, const char *dir, struct hf_loop *loop);
