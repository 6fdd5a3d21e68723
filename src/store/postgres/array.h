/*
 * PostgreSQL's binary form of arrays, so that one statement takes many rows:
 *
 *	i32 dimensions (1)   i32 has NULLs (0)   u32 element type   i32 count   i32 first index (1)
 *	then each element: i32 length, bytes; all big-endian
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

enum hf_pg_type { /* PostgreSQL's type numbers */
	HF_PG_BOOL = 16,
	HF_PG_BYTEA = 17,
	HF_PG_INT8 = 20,
	HF_PG_INT2 = 21,
	HF_PG_INT4 = 23,
	HF_PG_TEXT = 25,
	HF_PG_TIME = 1184,
};

struct hf_pg_array {
	enum hf_pg_type type;
	uint8_t *data;
	size_t len;
	size_t capacity;
	bool is_broken; /* memory ran out: elements are missing */
};

/* Empties the array, reuses its memory. */
void hf_pg_array_begin(struct hf_pg_array *array, enum hf_pg_type type);
void hf_pg_array_end(struct hf_pg_array *array, uint32_t n);
void hf_pg_array_deinit(struct hf_pg_array *array);

void hf_pg_array_add(struct hf_pg_array *array, const void *data, size_t len);
void hf_pg_array_add_int(struct hf_pg_array *array, int64_t value); /* in the type's width */
void hf_pg_array_add_escaped(struct hf_pg_array *array, struct hf_bytes bytes);
void hf_pg_array_add_time(struct hf_pg_array *array, uint64_t wall_ns);

/* Conversions for single values in results. */
uint64_t hf_pg_time_to_wall(int64_t microseconds);
int64_t hf_pg_time_from_wall(uint64_t wall_ns);
