/*
 * The table beside ours: when it is asked, and what it may ask.
 *
 * It is asked last, when everything else allows a grant and all memory is there,
 * so that what it took is never to be given back for a reason of our own. It
 * is told at the end of an operation, after the waiters were served: what one
 * gives back and the next gets is not let go of in between.
 */
#include "lock/internal.h"

int hf_outside_take(struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		    enum hf_lock_mode mode)
{
	int r;

	if (!locks->outside)
		return HF_LOCK_OK;
	locks->in_event = true;
	r = locks->outside->take(locks->outside_context, who, range, mode);
	locks->in_event = false;
	return r;
}

int hf_outside_test(const struct hf_locks *locks, const struct hf_lock_target *who, struct hf_range range,
		    enum hf_lock_mode mode, struct hf_lock_view *conflictp)
{
	struct hf_lock_view unwanted;

	if (!locks->outside)
		return HF_LOCK_OK;
	return locks->outside->test(locks->outside_context, who, range, mode,
				    conflictp ? conflictp : &unwanted);
}

void hf_outside_settle(struct hf_locks *locks, const struct hf_file *file, struct hf_range range)
{
	if (!locks->outside)
		return;
	locks->in_event = true;
	locks->outside->settle(locks->outside_context, hf_bytes_of(file->handle, file->handle_len), range,
			       (size_t)file->n_locks + file->n_ghosts);
	locks->in_event = false;
}

/* FACE */

static struct hf_file *find(const struct hf_locks *locks, struct hf_bytes handle)
{
	return hf_file_find(locks, hf_file_hash(locks, handle), handle);
}

bool hf_lock_next_held(const struct hf_locks *locks, struct hf_bytes handle, uint64_t pos,
		       struct hf_range *rangep, enum hf_lock_mode *modep)
{
	const struct hf_file *file = pos <= HF_RANGE_EOF ? find(locks, handle) : NULL;
	const struct hf_lock *exclusive = file ? hf_file_from(file, pos, HF_LOCK_EXCLUSIVE) : NULL;
	const struct hf_lock *shared = file ? hf_file_from(file, pos, HF_LOCK_SHARED) : NULL;

	if (exclusive && (exclusive->start <= pos || !shared || exclusive->start <= shared->start)) {
		*rangep = (struct hf_range){ HF_MAX(exclusive->start, pos), exclusive->end };
		*modep = HF_LOCK_EXCLUSIVE;
		return true;
	}
	if (!shared)
		return false;
	*rangep = (struct hf_range){ HF_MAX(shared->start, pos), shared->end };
	*modep = HF_LOCK_SHARED;
	if (exclusive && exclusive->start <= rangep->end)
		rangep->end = exclusive->start - 1;
	return true;
}

bool hf_lock_knows_file(const struct hf_locks *locks, struct hf_bytes handle)
{
	return find(locks, handle) != NULL;
}

void hf_lock_serve_file(struct hf_locks *locks, struct hf_bytes handle)
{
	struct hf_file *file = find(locks, handle);

	assert(!locks->in_event);
	if (!file || !file->n_waiters)
		return;
	hf_waiters_touch(locks, file, (struct hf_range){ 0, HF_RANGE_EOF });
	hf_waiters_serve(locks);
	hf_work_charge(locks, NULL);
}
