/*
 * Random valid calls into the lock engine: each call takes a few bytes of the
 * input, and every invariant is checked after it. What the engine told the
 * store must be what it has, and no owner has what a process outside holds.
 *
 * Built twice: as it is, and with the narrow nodes of the tests, so that the
 * locks of a file are a tree of several levels after a few calls.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lock/lock.h"

enum {
	CLIENTS = 3,
	STEPS_MAX = 300,
	LOCKS_PER_CLIENT = 60, /* wider than a leaf as it is, many leaves where they are narrow */
	PLACES = 128,
};

struct input {
	const uint8_t *data;
	size_t len;
};

struct fuzz {
	struct hf_locks *locks;
	struct hf_lock_client clients[CLIENTS];
	uint64_t grants[16]; /* the last ones in flight */
	unsigned int n_grants;
	int64_t n_records; /* added - removed + restored */
	int64_t n_waiters; /* queued - gone */
	struct {
		unsigned int file;
		struct hf_range range;
		enum hf_lock_mode mode; /* NONE: nothing */
	} outside;                      /* what a local process holds */
};

static const char *const handles[] = { "one", "another" };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static uint8_t next(struct input *input)
{
	if (!input->len)
		return 0;
	input->len--;
	return *input->data++;
}

static void die(const char *why)
{
	fprintf(stderr, "lock engine: %s\n", why);
	abort();
}

/* EVENTS */

static uint64_t on_added(void *context, const struct hf_lock_change *lock)
{
	((struct fuzz *)context)->n_records++;
	return 0;
}

static void on_removed(void *context, const struct hf_lock_change *lock)
{
	((struct fuzz *)context)->n_records--;
}

static void on_granted(void *context, const struct hf_lock_view *waiter)
{
	struct fuzz *fuzz = context;

	fuzz->grants[fuzz->n_grants++ % HF_ARRAY_SIZE(fuzz->grants)] = waiter->id;
}

static void on_waiter_gone(void *context, const struct hf_lock_view *waiter, enum hf_lock_end why)
{
	((struct fuzz *)context)->n_waiters--;
}

static const struct hf_lock_events events = {
	.added = on_added,
	.removed = on_removed,
	.granted = on_granted,
	.waiter_gone = on_waiter_gone,
};

/* OUTSIDE */

static bool is_outside(const struct fuzz *fuzz, struct hf_bytes handle, struct hf_range range,
		       enum hf_lock_mode mode)
{
	return hf_bytes_equal(handle, hf_bytes_of_str(handles[fuzz->outside.file])) &&
	       (mode == HF_LOCK_EXCLUSIVE ? fuzz->outside.mode != HF_LOCK_NONE
					  : fuzz->outside.mode == HF_LOCK_EXCLUSIVE) &&
	       hf_range_overlaps(fuzz->outside.range, range);
}

static int on_take(void *context, const struct hf_lock_target *who, struct hf_range range,
		   enum hf_lock_mode mode)
{
	return is_outside(context, who->handle, range, mode) ? HF_LOCK_E_CONFLICT : HF_LOCK_OK;
}

static int on_test(void *context, const struct hf_lock_target *who, struct hf_range range,
		   enum hf_lock_mode mode, struct hf_lock_view *conflictp)
{
	const struct fuzz *fuzz = context;

	if (!is_outside(fuzz, who->handle, range, mode))
		return HF_LOCK_OK;
	*conflictp = (struct hf_lock_view){ .range = fuzz->outside.range, .mode = fuzz->outside.mode };
	return HF_LOCK_E_CONFLICT;
}

static void on_trim(void *context, struct hf_bytes handle, struct hf_range range, size_t n_locks)
{
}

static const struct hf_lock_outside outside = {
	.take = on_take,
	.test = on_test,
	.trim = on_trim,
};

/* Does an owner hold what the process outside has? The pieces come in order, and without gaps between calls.
 */
static bool is_held_inside(const struct fuzz *fuzz)
{
	struct hf_bytes handle = hf_bytes_of_str(handles[fuzz->outside.file]);
	struct hf_range range;
	enum hf_lock_mode mode;

	for (uint64_t pos = 0; hf_lock_next_locked(fuzz->locks, handle, pos, &range, &mode);
	     pos = range.end + 1) {
		if (range.start < pos || range.end < range.start)
			die("pieces that are held are out of order");
		if (is_outside(fuzz, handle, range, mode))
			return true;
	}
	return false;
}

/* CALLS */

static struct hf_lock_target draw_target(struct fuzz *fuzz, struct input *input)
{
	static const uint8_t oh[HF_LOCK_OH_MAX];
	uint8_t b = next(input);

	return (struct hf_lock_target){
		.handle = hf_bytes_of_str(handles[b & 1]),
		.client = &fuzz->clients[(b >> 1) % CLIENTS],
		.owner_id = (b >> 4) & 3,
		.owner_kind = b >> 7,
		.oh = hf_bytes_of(oh, b % 5 ? b % 8 : 100u + b),
	};
}

static struct hf_range draw_range(struct input *input)
{
	uint8_t offset = next(input), len = next(input);
	struct hf_range range;

	/* Small ones meet; now and then at the end of all files. */
	hf_range_from_offset_len(&range, offset & 0x80 ? HF_RANGE_EOF - (offset & 31) : offset % PLACES,
				 len & 31);
	return range;
}

static enum hf_lock_mode draw_mode(uint8_t b)
{
	return b & 1 ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED;
}

static void acquire(struct fuzz *fuzz, struct input *input)
{
	struct hf_lock_request request = { .who = draw_target(fuzz, input), .range = draw_range(input) };
	uint8_t b = next(input);
	struct hf_lock_counters before, after;
	struct hf_lock_before held;
	struct hf_lock_view conflict;

	request.mode = draw_mode(b);
	request.reclaim = b & 2;
	request.wait = !request.reclaim && b & 4;
	request.backed_only = b & 8;
	request.is_volatile = b & 16;
	request.client_state = b >> 6;
	request.no_downgrade = b & 32;
	request.before = &held;
	hf_lock_count(fuzz->locks, &before);
	if (hf_lock_acquire(fuzz->locks, &request, &conflict) == HF_LOCK_E_QUEUED) {
		hf_lock_count(fuzz->locks, &after);
		fuzz->n_waiters += (int64_t)(after.waiters - before.waiters);
	}
}

/* Many at once, side by side but for a gap: a program that locks records of a file. */
static void fill(struct fuzz *fuzz, struct input *input)
{
	struct hf_lock_request request = { .who = draw_target(fuzz, input) };
	uint8_t first = next(input), b = next(input);
	uint64_t stride = 2 + (b >> 6);

	request.mode = draw_mode(b);
	request.client_state = 1;
	for (uint64_t i = 0; i < (b >> 1 & 31); i++) {
		request.range.start = request.range.end = first % PLACES + i * stride;
		hf_lock_acquire(fuzz->locks, &request, NULL);
	}
}

static void give_back(struct fuzz *fuzz, struct input *input)
{
	struct hf_lock_target who = draw_target(fuzz, input);
	struct hf_range range = draw_range(input);
	uint8_t b = next(input);

	if (b & 2)
		hf_lock_release(fuzz->locks, &who, range);
	else if (b & 4)
		(b & 8 ? hf_lock_cancel : hf_lock_leave_queue)(fuzz->locks, &who, range, draw_mode(b));
	else
		hf_lock_test(fuzz->locks, &who, range, draw_mode(b), NULL);
}

static void settle(struct fuzz *fuzz, struct input *input)
{
	uint8_t b = next(input);
	uint64_t id = fuzz->grants[(b >> 1) % HF_ARRAY_SIZE(fuzz->grants)];

	switch (b >> 5 & 3) {
	case 0:
		hf_lock_grant_confirm(fuzz->locks, id);
		break;
	case 1:
		hf_lock_grant_refuse(fuzz->locks, id);
		break;
	default:
		hf_lock_grant_assume(fuzz->locks, id);
		break;
	}
}

/* A process outside takes a range that no owner has, or gives it back; or changed grants of an owner are
 * assumed. */
static void stand_outside(struct fuzz *fuzz, struct input *input)
{
	struct hf_lock_target who = draw_target(fuzz, input);
	struct hf_range range = draw_range(input);
	uint8_t b = next(input);

	if (b & 1) {
		hf_lock_assume_changed(fuzz->locks, &who);
		return;
	}
	fuzz->outside.mode = HF_LOCK_NONE;
	hf_lock_serve_file(fuzz->locks, hf_bytes_of_str(handles[fuzz->outside.file]));
	if (b & 2)
		return;
	fuzz->outside.file = b >> 2 & 1;
	fuzz->outside.range = range;
	fuzz->outside.mode = draw_mode(b >> 3);
	if (is_held_inside(fuzz))
		fuzz->outside.mode = HF_LOCK_NONE;
}

static void reserve(struct fuzz *fuzz, struct input *input)
{
	struct hf_lock_target who = draw_target(fuzz, input);
	uint8_t b = next(input);

	if (b & 1)
		hf_lock_reserve(fuzz->locks, &who, b >> 1 & 3, b >> 3 & 3, b >> 5, b & 32);
	else
		hf_lock_unreserve(fuzz->locks, &who, b >> 1 & 3, b >> 3 & 3);
}

static void restore(struct fuzz *fuzz, struct input *input)
{
	hf_cleanup(hf_lock_load_freep) struct hf_lock_load *load = NULL;
	uint8_t b;

	if (hf_lock_load_new(&load, fuzz->locks) < 0)
		return;
	fuzz->outside.mode = HF_LOCK_NONE; /* which is not asked */
	do {
		struct hf_lock_view lock = { .who = draw_target(fuzz, input), .range = draw_range(input) };

		b = next(input);
		lock.mode = draw_mode(b);
		lock.client_state = b >> 4;
		if (hf_lock_load_add(load, &lock) == HF_LOCK_OK)
			fuzz->n_records++;
	} while (b & 8);
}

static void crash(struct fuzz *fuzz, struct input *input)
{
	uint8_t b = next(input);
	struct hf_lock_client *client = &fuzz->clients[(b >> 2) % CLIENTS];

	switch (b & 3) {
	case 0:
		hf_lock_client_purge(fuzz->locks, client);
		break;
	case 1:
		hf_lock_client_purge_older(fuzz->locks, client, b >> 5);
		break;
	case 2:
		hf_lock_client_release_reclaimable(fuzz->locks, client);
		break;
	default:
		hf_lock_set_grace(fuzz->locks, b & 4);
		break;
	}
}

static void step(struct fuzz *fuzz, struct input *input)
{
	uint8_t b = next(input) & 15;

	if (b < 5)
		acquire(fuzz, input);
	else if (b < 6)
		stand_outside(fuzz, input);
	else if (b < 7)
		fill(fuzz, input);
	else if (b < 11)
		give_back(fuzz, input);
	else if (b < 13)
		settle(fuzz, input);
	else if (b < 14)
		reserve(fuzz, input);
	else if (b < 15)
		restore(fuzz, input);
	else
		crash(fuzz, input);
}

static void check(struct fuzz *fuzz)
{
	const char *why = hf_locks_check(fuzz->locks);
	struct hf_lock_counters n;

	if (why)
		die(why);
	hf_lock_count(fuzz->locks, &n);
	if (fuzz->n_records != (int64_t)(n.locks + n.ghosts))
		die("the store has other records");
	if (fuzz->n_waiters != (int64_t)(n.waiters + n.grants))
		die("a waiter ended without a word, or twice");
	if (fuzz->outside.mode && is_held_inside(fuzz))
		die("an owner has what the process outside has locked");
}

static void end(struct fuzz *fuzz)
{
	struct hf_lock_counters n;

	for (int c = 0; c < CLIENTS; c++)
		hf_lock_client_purge(fuzz->locks, &fuzz->clients[c]);
	hf_lock_count(fuzz->locks, &n);
	if (n.locks || n.ghosts || n.waiters || n.grants || n.reservations || n.files || n.owners)
		die("something is left of purged clients");
	check(fuzz);
	hf_locks_free(fuzz->locks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz fuzz = { 0 };
	struct input input = { data, len };
	struct hf_locks_options options = {
		.key = { 1, 2 },
		.events = &events,
		.context = &fuzz,
		.outside = &outside,
		.outside_context = &fuzz,
		.limits = { .locks_per_client = LOCKS_PER_CLIENT,
			    .waiters_per_file = 8,
			    .reservations_per_file = 4 },
	};

	if (hf_locks_new(&fuzz.locks, &options) < 0)
		return 0;
	for (int c = 0; c < CLIENTS; c++)
		hf_lock_client_init(fuzz.locks, &fuzz.clients[c]);
	for (int i = 0; input.len && i < STEPS_MAX; i++) {
		step(&fuzz, &input);
		check(&fuzz);
	}
	end(&fuzz);
	return 0;
}
