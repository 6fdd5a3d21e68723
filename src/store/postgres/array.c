#include "store/postgres/array.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "store/postgres/internal.h"

#define HEAD            20
#define SECONDS_TO_2000 INT64_C(946684800)

static uint8_t *reserve(struct hf_pg_array *array, size_t len)
{
	if (array->capacity - array->len < len) {
		size_t capacity = HF_MAX(array->capacity * 2, array->len + len + 4096);
		uint8_t *data = realloc(array->data, capacity);

		if (!data) {
			array->is_broken = true;
			return NULL;
		}
		array->data = data;
		array->capacity = capacity;
	}
	return array->data + array->len;
}

static void put32(uint8_t *p, uint32_t x)
{
	x = htobe32(x);
	memcpy(p, &x, sizeof(x));
}

void hf_pg_array_begin(struct hf_pg_array *array, enum hf_pg_type type)
{
	array->type = type;
	array->len = 0;
	array->is_broken = false;
	if (reserve(array, HEAD))
		array->len = HEAD;
}

void hf_pg_array_end(struct hf_pg_array *array, uint32_t n)
{
	if (array->is_broken)
		return;
	put32(array->data, 1);
	put32(array->data + 4, 0);
	put32(array->data + 8, (uint32_t)array->type);
	put32(array->data + 12, n);
	put32(array->data + 16, 1);
}

void hf_pg_array_deinit(struct hf_pg_array *array)
{
	free(array->data);
	*array = (struct hf_pg_array){ 0 };
}

void hf_pg_array_add(struct hf_pg_array *array, const void *data, size_t len)
{
	uint8_t *p = reserve(array, 4 + len);

	if (!p)
		return;
	put32(p, (uint32_t)len);
	if (len)
		memcpy(p + 4, data, len);
	array->len += 4 + len;
}

static size_t width_of(enum hf_pg_type type)
{
	switch (type) {
	case HF_PG_BOOL:
		return 1;
	case HF_PG_INT2:
		return 2;
	case HF_PG_INT4:
		return 4;
	default:
		return 8;
	}
}

void hf_pg_array_add_int(struct hf_pg_array *array, int64_t value)
{
	uint64_t be = htobe64((uint64_t)value);
	size_t width = width_of(array->type);

	hf_pg_array_add(array, (uint8_t *)&be + 8 - width, width);
}

void hf_pg_array_add_escaped(struct hf_pg_array *array, struct hf_bytes bytes)
{
	uint8_t *p = reserve(array, 4 + HF_PG_MAX_TEXT(bytes.len));
	size_t len;

	if (!p)
		return;
	len = hf_pg_escape((char *)p + 4, bytes);
	put32(p, (uint32_t)len);
	array->len += 4 + len;
}

/* PostgreSQL counts microseconds since 2000; finer parts are lost. */
int64_t hf_pg_time_from_wall(uint64_t wall_ns)
{
	return (int64_t)(wall_ns / 1000) - SECONDS_TO_2000 * 1000000;
}

uint64_t hf_pg_time_to_wall(int64_t microseconds)
{
	return (uint64_t)(microseconds + SECONDS_TO_2000 * 1000000) * 1000;
}

void hf_pg_array_add_time(struct hf_pg_array *array, uint64_t wall_ns)
{
	hf_pg_array_add_int(array, hf_pg_time_from_wall(wall_ns));
}
