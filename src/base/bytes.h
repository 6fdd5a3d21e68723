/* A view of bytes that somebody else owns. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct hf_bytes {
	const uint8_t *data;
	uint32_t len;
};

static inline struct hf_bytes hf_bytes_of(const void *data, uint32_t len)
{
	return (struct hf_bytes){ data, len };
}

static inline struct hf_bytes hf_bytes_of_str(const char *text)
{
	return (struct hf_bytes){ (const uint8_t *)text, (uint32_t)strlen(text) };
}

static inline bool hf_bytes_equal(struct hf_bytes a, struct hf_bytes b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}
