/* Little-endian numbers in a buffer, for everything that the server writes to files. */
#pragma once

#include <endian.h>
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"

/* Putting: each returns the place after the number. */

static inline uint8_t *hf_le_put8(uint8_t *p, uint8_t x)
{
	*p = x;
	return p + 1;
}

static inline uint8_t *hf_le_put16(uint8_t *p, uint16_t x)
{
	x = htole16(x);
	memcpy(p, &x, sizeof(x));
	return p + sizeof(x);
}

static inline uint8_t *hf_le_put32(uint8_t *p, uint32_t x)
{
	x = htole32(x);
	memcpy(p, &x, sizeof(x));
	return p + sizeof(x);
}

static inline uint8_t *hf_le_put64(uint8_t *p, uint64_t x)
{
	x = htole64(x);
	memcpy(p, &x, sizeof(x));
	return p + sizeof(x);
}

static inline uint8_t *hf_le_put_bytes(uint8_t *p, struct hf_bytes bytes)
{
	if (bytes.len)
		memcpy(p, bytes.data, bytes.len);
	return p + bytes.len;
}

/* Getting */

static inline uint16_t hf_le_get16(const uint8_t *p)
{
	uint16_t x;

	memcpy(&x, p, sizeof(x));
	return le16toh(x);
}

static inline uint32_t hf_le_get32(const uint8_t *p)
{
	uint32_t x;

	memcpy(&x, p, sizeof(x));
	return le32toh(x);
}

static inline uint64_t hf_le_get64(const uint8_t *p)
{
	uint64_t x;

	memcpy(&x, p, sizeof(x));
	return le64toh(x);
}
