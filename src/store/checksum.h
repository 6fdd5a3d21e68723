/* XXH64: the checksum of everything that the server writes to a file. It detects torn and decayed data, not
 * forgery. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t hf_checksum(const void *data, size_t len); /* with seed 0 */
uint64_t hf_checksum_with(const void *data, size_t len, uint64_t seed);
