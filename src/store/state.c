/* What a start concludes from the state that the last run stored. */
#include "store/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"

#define LOST_SM_STATES 1000 /* even; as many restarts may be missing in each promoted replica */

int32_t hf_store_next_sm_state(int32_t before)
{
	if (before <= 0)
		return 3;
	if (before > INT32_MAX - 2)
		return 1;
	return (before + 2) | 1;
}

/* "" where none is named: an older release did not. */
static const char *history_of(const char *medium)
{
	const char *slash = strchr(medium, '/');

	return slash ? slash : "";
}

static bool has_same_history(const struct hf_store_state *before, const struct hf_store_state *now)
{
	const char *history = history_of(before->medium);

	return !*history || strcmp(history, history_of(now->medium)) == 0;
}

bool hf_store_is_intact(const struct hf_store_state *before, const struct hf_store_state *now)
{
	switch (before->durability) {
	case HF_STORE_MACHINE:
		return before->is_replicated || has_same_history(before, now);
	case HF_STORE_PROCESS:
		if (*before->medium)
			return strcmp(before->medium, now->medium) == 0;
		return !*now->medium && strcmp(before->boot_id, now->boot_id) == 0;
	case HF_STORE_NONE:
		break;
	}
	return false;
}

/* The histories of a database are numbered, in hexadecimal digits: each promotion begins the next one. */
static int64_t count_promotions(const struct hf_store_state *before, const struct hf_store_state *now)
{
	long first = strtol(history_of(before->medium) + 1, NULL, 16);
	long last = strtol(history_of(now->medium) + (*history_of(now->medium) != '\0'), NULL, 16);

	return last > first ? HF_MIN(last - first, 1000L) : 1;
}

/* Clients were told state numbers that a replica may lack. So each promotion of a replica may lose
 * LOST_SM_STATES of them: skips that many for each promotion since the last run. */
int32_t hf_store_skip_lost(const struct hf_store_state *before, const struct hf_store_state *now)
{
	int64_t state = before->sm_state;

	if (before->is_replicated || has_same_history(before, now))
		return before->sm_state;
	state += LOST_SM_STATES * count_promotions(before, now);
	return state > INT32_MAX - 2 ? before->sm_state : (int32_t)state;
}

/* @known is of a later history than @before. Counted from @known, the promotions before it would count twice,
 * and the number would be above the one that another node, which does not know @known, counts the next time.
 */
static int32_t last_sm_state(const struct hf_store_state *before, const struct hf_store_state *now,
			     int32_t known)
{
	return before ? HF_MAX(hf_store_skip_lost(before, now), known) : known;
}

void hf_store_judge(const struct hf_store_state *before, struct hf_store_state *next, int32_t known_state,
		    bool continues, struct hf_store_start *start)
{
	bool intact = before && hf_store_is_intact(before, next);

	next->epoch = before ? before->epoch + 1 : 1;
	next->is_clean = false;
	next->handle_key = before ? before->handle_key : 0;
	/* An incomplete list stays incomplete until a grace period ends. Otherwise, after a crash within
	 * grace, the few locks reclaimed so far would look like the complete list. */
	next->is_complete = intact && before->is_complete;
	/* A run in whose grace period clients were still reclaiming cannot be continued: what they had not
	 * reclaimed is neither theirs nor free. */
	next->is_settled =
		continues && next->is_complete && before->is_settled && next->durability != HF_STORE_NONE;
	if (next->is_settled)
		next->sm_state = HF_MAX(before->sm_state, known_state);
	else
		next->sm_state = hf_store_next_sm_state(last_sm_state(before, next, known_state));

	*start = (struct hf_store_start){
		.epoch = next->epoch,
		.sm_state = next->sm_state,
		.is_first = !before,
		.was_clean = before && before->is_clean,
		.has_other_boot = before && strcmp(before->boot_id, next->boot_id) != 0,
		.continues = next->is_settled,
		.has_all_locks = next->is_complete && next->durability != HF_STORE_NONE,
		/* Not only grants but also releases may be missing. A stored lock whose release was lost
		 * would refuse the reclaim of the client that got the lock next. And a run that stores no
		 * locks must not leave old ones. */
		.dropped_locks = before && (!intact || next->durability == HF_STORE_NONE),
	};
}

int hf_store_read_boot_id(char out[HF_STORE_MAX_BOOT_ID + 1])
{
	hf_cleanup(hf_closep) int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return hf_trace(-errno);
	n = read(fd, out, HF_STORE_MAX_BOOT_ID);
	if (n < 0)
		return hf_trace(-errno);
	out[n] = '\0';
	out[strcspn(out, "\n")] = '\0';
	return 0;
}
