#include "export/local_ranges.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"

#define GROWTH 2 /* items that one change can add: it splits one in two and adds itself */

void hf_local_ranges_deinit(struct hf_local_ranges *ranges)
{
	free(ranges->items);
	*ranges = (struct hf_local_ranges){ 0 };
}

int hf_local_ranges_reserve(struct hf_local_ranges *ranges, size_t n)
{
	size_t wanted = ranges->n + GROWTH * n;
	struct hf_local_range *items;

	if (wanted <= ranges->room)
		return 0;
	wanted = HF_MAX(wanted, 2 * ranges->room);
	items = realloc(ranges->items, wanted * sizeof(*items));
	if (!items)
		return hf_trace(-ENOMEM);
	ranges->items = items;
	ranges->room = wanted;
	return 0;
}

/* The first item that ends at @pos or after it. */
static size_t find(const struct hf_local_ranges *ranges, uint64_t pos)
{
	size_t from = 0, to = ranges->n;

	while (from < to) {
		size_t middle = from + (to - from) / 2;

		if (ranges->items[middle].range.end < pos)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static void put(struct hf_local_range *items, size_t *n, struct hf_range range, enum hf_lock_mode mode)
{
	if (mode != HF_LOCK_NONE && range.start <= range.end)
		items[(*n)++] = (struct hf_local_range){ range, mode };
}

void hf_local_ranges_set(struct hf_local_ranges *ranges, struct hf_range range, enum hf_lock_mode mode)
{
	struct hf_local_range made[3];
	size_t first, behind, n = 0;
	struct hf_range left = { 1, 0 }, right = { 1, 0 };
	enum hf_lock_mode left_mode = HF_LOCK_NONE, right_mode = HF_LOCK_NONE;

	/* Include neighbours that touch the range: they may merge with it. */
	first = find(ranges, range.start ? range.start - 1 : 0);
	behind = first;
	while (behind < ranges->n && ranges->items[behind].range.start <= range.end + 1) {
		const struct hf_local_range *item = &ranges->items[behind];

		if (item->range.start < range.start) {
			left = (struct hf_range){ item->range.start, range.start - 1 };
			left_mode = item->mode;
		}
		if (item->range.end > range.end) {
			right = (struct hf_range){ HF_MAX(item->range.start, range.end + 1),
						   item->range.end };
			right_mode = item->mode;
		}
		behind++;
	}
	if (mode != HF_LOCK_NONE && left_mode == mode) {
		range.start = left.start;
		left_mode = HF_LOCK_NONE;
	}
	if (mode != HF_LOCK_NONE && right_mode == mode) {
		range.end = right.end;
		right_mode = HF_LOCK_NONE;
	}
	put(made, &n, left, left_mode);
	put(made, &n, range, mode);
	put(made, &n, right, right_mode);
	assert(ranges->n - (behind - first) + n <= ranges->room || n == 0);
	if (behind < ranges->n)
		memmove(ranges->items + first + n, ranges->items + behind,
			(ranges->n - behind) * sizeof(*ranges->items));
	if (n)
		memcpy(ranges->items + first, made, n * sizeof(*made));
	ranges->n = ranges->n - (behind - first) + n;
}

enum hf_lock_mode hf_local_ranges_at(const struct hf_local_ranges *ranges, uint64_t pos, uint64_t *endp)
{
	size_t i = find(ranges, pos);

	if (i == ranges->n) {
		*endp = HF_RANGE_EOF;
		return HF_LOCK_NONE;
	}
	if (ranges->items[i].range.start > pos) {
		*endp = ranges->items[i].range.start - 1;
		return HF_LOCK_NONE;
	}
	*endp = ranges->items[i].range.end;
	return ranges->items[i].mode;
}

bool hf_local_ranges_cover(const struct hf_local_ranges *ranges, struct hf_range range,
			   enum hf_lock_mode mode)
{
	uint64_t end;

	for (uint64_t pos = range.start; pos <= range.end; pos = end + 1)
		if (hf_local_ranges_at(ranges, pos, &end) < mode)
			return false;
	return true;
}
