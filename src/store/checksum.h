/* XXH64: the checksum of whatever we write to a file. It finds torn and rotten data, not forgery. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t hf_checksum(const void *data, size_t len); /* seed 0 */
uint64_t hf_checksum_with(const void *data, size_t len, uint64_t seed);
