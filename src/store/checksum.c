#include "store/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t hf_checksum_with(const void *data, size_t len, uint64_t seed)
{
	return XXH64(data, len, seed);
}

uint64_t hf_checksum(const void *data, size_t len)
{
	return hf_checksum_with(data, len, 0);
}
