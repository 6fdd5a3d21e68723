/*
 * A lock or waiter went away: which waiters get their lock now?
 *
 * Only waiters that overlap the touched range are candidates. One pass in queue
 * order is enough: a grant unblocks no other waiter, since whatever conflicts with
 * the waiter conflicts with its lock.
 *
 * No waiter is granted a lock in grace, nor while grants are paused because the
 * store cannot write: the server promises nothing then.
 */
#include "lock/serve.h"

#include "lock/steps.h"

enum {
	FEW = 32, /* so many candidates are sorted; if there are more, the whole queue is walked */
};

static struct hf_waiter *queued(struct hf_link *link)
{
	return hf_list_entry(link, struct hf_waiter, in_queue);
}

void hf_serve_touch_all(struct hf_locks *locks)
{
	for (struct hf_rb_node *node = hf_rb_first(&locks->waiting); node; node = hf_rb_next(node))
		hf_waiters_touch(locks, hf_rb_entry(node, struct hf_lock_file, in_waiting),
				 (struct hf_range){ 0, HF_RANGE_EOF });
}

static bool can_run(struct hf_locks *locks, const struct hf_waiter *waiter)
{
	const struct hf_lock_file *file = waiter->holding->file;
	struct hf_range range = hf_waiter_range(waiter);
	enum hf_lock_mode mode = (enum hf_lock_mode)waiter->mode;

	return !hf_lock_file_conflict(file, waiter->holding, range, mode) &&
	       !hf_waiters_conflict(locks, file, waiter->holding, range, mode, waiter->order);
}

/* Inserts @waiter into @list in queue order. */
static void add_candidate(struct hf_waiter **list, struct hf_waiter *waiter)
{
	while (*list && (*list)->order < waiter->order)
		list = &(*list)->scan_next;
	waiter->scan_next = *list;
	*list = waiter;
}

/* The waiters that overlap @range, in queue order. False: they are more than FEW. */
static bool find_candidates(const struct hf_lock_file *file, struct hf_range range, struct hf_waiter **listp)
{
	unsigned int n = 0;

	*listp = NULL;
	for (unsigned int i = 0; i < HF_ARRAY_SIZE(file->waiting); i++) {
		struct hf_waiter *waiter = hf_waiters_first_in(&file->waiting[i], range);

		for (; waiter; waiter = hf_waiters_next_in(waiter, range)) {
			if (n++ == FEW)
				return false;
			add_candidate(listp, waiter);
		}
	}
	return true;
}

/*
 * Grants @waiter its lock if it can run. @donep: the waiters behind it cannot run, because this one, granted
 * or not, wants the whole of @range exclusively. It does not block other waiters of its own holding.
 */
static int serve_waiter(struct hf_locks *locks, struct hf_waiter *waiter, struct hf_range range, bool *donep)
{
	struct hf_holding *holding = waiter->holding;
	bool is_alone = holding->waiters.head.next == holding->waiters.head.prev;
	int r;

	*donep = is_alone && waiter->mode == HF_LOCK_EXCLUSIVE &&
		 hf_range_contains(hf_waiter_range(waiter), range);
	if (!can_run(locks, waiter))
		return 0;
	r = hf_grant_waiter(locks, waiter);
	return r < 0 ? r : 0; /* blocked outside: it stays queued */
}

static int serve_file(struct hf_locks *locks, struct hf_lock_file *file, struct hf_range range)
{
	struct hf_waiter *waiter, *next;
	bool is_done = false;
	int r = 0;

	if (find_candidates(file, range, &waiter)) {
		for (; waiter && !is_done && !r; waiter = next) {
			next = waiter->scan_next;
			r = serve_waiter(locks, waiter, range, &is_done);
		}
		return r;
	}
	hf_list_for_each_safe(pos, &file->queue) {
		locks->n_steps++;
		if (hf_range_overlaps(hf_waiter_range(queued(pos)), range))
			r = serve_waiter(locks, queued(pos), range, &is_done);
		if (is_done || r)
			break;
	}
	return r;
}

void hf_serve_touched(struct hf_locks *locks)
{
	struct hf_list starved = HF_LIST_INIT(starved);
	struct hf_link *link;

	while ((link = hf_list_pop_front(&locks->dirty))) {
		struct hf_lock_file *file = hf_list_entry(link, struct hf_lock_file, in_dirty);

		/* Without memory for the grant the file stays touched: the next operation tries again. */
		if (!locks->is_grace && !locks->is_paused && serve_file(locks, file, file->dirty_range) < 0)
			hf_list_push_back(&starved, link);
		hf_outside_trim(locks, file, file->dirty_range);
	}
	hf_list_splice(&locks->dirty, &starved);
}

/* PUBLIC */

void hf_lock_pause_grants(struct hf_locks *locks, bool is_on)
{
	bool was_on = locks->is_paused;

	locks->is_paused = is_on;
	if (!was_on || is_on)
		return;
	assert(!locks->in_event);
	hf_serve_touch_all(locks);
	hf_serve_waiters(locks);
	hf_steps_charge(locks, NULL);
}

void hf_lock_serve_file(struct hf_locks *locks, struct hf_bytes handle)
{
	struct hf_lock_file *file = hf_lock_file_of(locks, handle);

	assert(!locks->in_event);
	if (!file || !file->n_waiters)
		return;
	hf_waiters_touch(locks, file, (struct hf_range){ 0, HF_RANGE_EOF });
	hf_serve_waiters(locks);
	hf_steps_charge(locks, NULL);
}
