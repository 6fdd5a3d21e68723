/*
 * The seal on handles: keyed SipHash-2-4 of 64 bits, so that a client cannot
 * make a handle for a file that the server did not give it. (base/siphash.h is
 * the faster variant for tables.)
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hf_seal_key {
	uint8_t bytes[16];
};

uint64_t hf_seal(const struct hf_seal_key *key, const void *data, size_t len);

/* Identifies a key without revealing anything else about it; never 0. */
uint64_t hf_seal_key_print(const struct hf_seal_key *key);

struct hf_loop;

/* Reads the key from @dir/handle.key. -ENOENT: there is none. Other errors are logged. */
int hf_seal_key_find(struct hf_seal_key *keyp, const char *dir);
/* Loads the key from @dir/handle.key. If the file is missing, creates it from @loop's random bytes. */
int hf_seal_key_load(struct hf_seal_key *keyp, const char *dir, struct hf_loop *loop);
