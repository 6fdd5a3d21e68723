/*
 * How often the kernel is asked about one file, and whether the server may take
 * the whole file for a moment instead of asking again and again. See
 * docs/decisions/0029-busy-files.md.
 *
 *	calm ── HF_LOCAL_BUSY_CALLS exclusive locks within HF_LOCAL_BUSY_NS ──► covered
 *	covered ── hf_local_pace_cover_ns() are over ──► resting, HF_LOCAL_REST_NS;
 *	        if the cover saved few questions, HF_LOCAL_SHY_NS
 *	any ── a local process is in the way ──► resting, HF_LOCAL_SHY_NS
 *	resting ── the time is over ──► calm
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "loop/loop.h"

#define HF_LOCAL_BUSY_CALLS 32
#define HF_LOCAL_BUSY_NS    (4 * HF_NS_PER_MS)
#define HF_LOCAL_COVER_NS   (8 * HF_NS_PER_MS)
#define HF_LOCAL_RANGE_NS   (HF_NS_PER_MS / 8) /* more for each range */
#define HF_LOCAL_MOST_NS    (40 * HF_NS_PER_MS)
#define HF_LOCAL_REST_NS    (2 * HF_NS_PER_MS)
#define HF_LOCAL_SHY_NS     (1 * HF_NS_PER_S)

/* All zero: calm. */
struct hf_local_pace {
	uint64_t since;      /* the beginning of the time in which n_calls were made */
	uint64_t rests_till; /* until then no cover is taken */
	uint32_t n_calls;
	uint32_t n_saved; /* questions that the present cover has saved */
};

/* The kernel is about to be asked for an exclusive lock. @turn: the time of this turn of the loop; all calls
 * of a turn came together, however long it takes to serve them. @now: the time. True: the file is busy, so
 * cover it. */
static inline bool hf_local_pace_ask(struct hf_local_pace *pace, uint64_t turn, uint64_t now)
{
	if (turn - pace->since > HF_LOCAL_BUSY_NS) {
		pace->since = turn;
		pace->n_calls = 0;
	}
	pace->n_calls++;
	return pace->n_calls > HF_LOCAL_BUSY_CALLS && now >= pace->rests_till;
}

/* The cover is over, and the kernel has @n_ranges again: so many questions did it take to give the rest back.
 * How long no cover is taken now. */
static inline uint64_t hf_local_pace_rest_ns(const struct hf_local_pace *pace, size_t n_ranges)
{
	return pace->n_saved < 2 * n_ranges ? HF_LOCAL_SHY_NS : HF_LOCAL_REST_NS;
}

/* No cover for so long. A longer rest is not shortened. */
static inline void hf_local_pace_rest(struct hf_local_pace *pace, uint64_t now, uint64_t ns)
{
	pace->rests_till = HF_MAX(pace->rests_till, now + ns);
}

/* How long a file is covered in which the kernel has @n_ranges: to give the rest back takes about a
 * microsecond for each. */
static inline uint64_t hf_local_pace_cover_ns(size_t n_ranges)
{
	return HF_MIN(HF_LOCAL_COVER_NS + n_ranges * HF_LOCAL_RANGE_NS, HF_LOCAL_MOST_NS);
}
