/*
 * What we hold of one file in the kernel: disjoint ranges in order, each shared
 * or exclusive; those that touch and are alike are one. They are few
 * (export/local.h), so an array will do.
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
/* What is held at @pos, and up to where it is the same. */
enum hf_lock_mode hf_local_ranges_at(const struct hf_local_ranges *ranges, uint64_t pos, uint64_t *endp);
/* Is every byte of it held in that mode or more? */
bool hf_local_ranges_cover(const struct hf_local_ranges *ranges, struct hf_range range,
			   enum hf_lock_mode mode);
