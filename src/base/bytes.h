/*
 * A view of bytes that another object owns.
 *
 * The length is 64 bits wide although no view is that long. With 32 bits,
 * reading the struct as a whole register just after writing the length would
 * stall on the store.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct hf_bytes {
	const uint8_t *data;
	size_t len;
};

static inline struct hf_bytes hf_bytes_of(const void *data, size_t len)
{
	return (struct hf_bytes){ data, len };
}

static inline struct hf_bytes hf_bytes_of_str(const char *text)
{
	return (struct hf_bytes){ (const uint8_t *)text, strlen(text) };
}

static inline bool hf_bytes_equal(struct hf_bytes a, struct hf_bytes b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}
