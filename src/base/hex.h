/* Bytes as hexadecimal text. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Writes two characters for each byte, without a NUL. Returns the end of the text. */
static inline char *hf_hex_put(char *out, const void *data, size_t len)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++) {
		*out++ = digits[bytes[i] >> 4];
		*out++ = digits[bytes[i] & 15];
	}
	return out;
}
