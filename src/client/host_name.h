/*
 * Names of hosts as indexes order them.
 *
 * A host may give its name with its domain or without, in any case of letters, and a
 * registration may add a port: "a", "A.example.org" and "a:4045" may all be one host. The
 * hash of a name is of its stem, the part that these have in common, so an index by this
 * hash finds all of them. The caller compares the names that it finds. An address has no
 * parts: its stem is the whole of it, or all hosts of one network would share a stem.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/siphash.h"

bool hf_host_name_is_address(struct hf_bytes name);
uint64_t hf_host_name_hash(const struct hf_siphash_key *key, struct hf_bytes name);
