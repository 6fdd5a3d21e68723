/*
 * Byte ranges. Both ends are inclusive. The last byte that a file can have, 2^63-1,
 * stands for "to the end of the file, however long it grows".
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HF_RANGE_EOF ((uint64_t)INT64_MAX)

struct hf_range {
	uint64_t start;
	uint64_t end;
};

enum {
	HF_RANGE_E_FBIG = 1, /* the range begins beyond the last byte that a file can have */
};

/* 0 or FBIG. A length of 0, or one that reaches beyond the last byte, means "to end of file". Windows asks
 * for 2^64-1 bytes and means that. */
static inline int hf_range_from_offset_len(struct hf_range *rangep, uint64_t offset, uint64_t len)
{
	if (offset > HF_RANGE_EOF)
		return HF_RANGE_E_FBIG;
	rangep->start = offset;
	if (len == 0 || len - 1 > HF_RANGE_EOF - offset)
		rangep->end = HF_RANGE_EOF;
	else
		rangep->end = offset + (len - 1);
	return 0;
}

/* The length as protocols write it: 0 means "to end of file". */
static inline uint64_t hf_range_len(struct hf_range range)
{
	return range.end == HF_RANGE_EOF ? 0 : range.end - range.start + 1;
}

static inline bool hf_range_is_valid(struct hf_range range)
{
	return range.start <= range.end && range.end <= HF_RANGE_EOF;
}

static inline bool hf_range_overlaps(struct hf_range a, struct hf_range b)
{
	return a.start <= b.end && b.start <= a.end;
}

static inline bool hf_range_contains(struct hf_range outer, struct hf_range inner)
{
	return outer.start <= inner.start && inner.end <= outer.end;
}

static inline bool hf_range_equal(struct hf_range a, struct hf_range b)
{
	return a.start == b.start && a.end == b.end;
}
