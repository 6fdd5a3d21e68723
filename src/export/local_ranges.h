/*
 * What this server holds in the kernel of one file: disjoint ranges in order,
 * each shared or exclusive. Ranges that touch and have the same mode are
 * merged. They are few (export/local_file.h), so an array is enough.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock/lock.h"

struct hf_local_range {
	struct hf_range range;
	enum hf_lock_mode mode;
};

struct hf_local_ranges {
	struct hf_local_range *items;
	size_t n;
	size_t room;
};

void hf_local_ranges_deinit(struct hf_local_ranges *ranges);
/* Memory for @n calls of hf_local_ranges_set(). */
int hf_local_ranges_reserve(struct hf_local_ranges *ranges, size_t n);
void hf_local_ranges_set(struct hf_local_ranges *ranges, struct hf_range range, enum hf_lock_mode mode);
/* The mode at @pos, and the end of the stretch with that mode. */
enum hf_lock_mode hf_local_ranges_at(const struct hf_local_ranges *ranges, uint64_t pos, uint64_t *endp);
/* Is every byte of @range held in @mode or a stronger one? */
bool hf_local_ranges_cover(const struct hf_local_ranges *ranges, struct hf_range range,
			   enum hf_lock_mode mode);
