#include "bed.h"

#include <stdlib.h>

static const char *const handles[] = { "handle of file 0", "handle of file 1", "handle of file 2" };

/* DIARY */

static void note(struct bed *bed, const char *text)
{
	size_t used = strlen(bed->diary);

	if (bed->is_silent)
		return;
	assert_true(used + strlen(text) + 3 < sizeof(bed->diary));
	snprintf(bed->diary + used, sizeof(bed->diary) - used, "%s%s", used ? ", " : "", text);
}

static int owner_of(const struct hf_lock_view *view)
{
	return (int)view->who.owner_id;
}

static void describe(char *text, size_t size, const struct hf_lock_view *lock)
{
	char end[24] = "eof";

	if (lock->range.end != TO_EOF)
		snprintf(end, sizeof(end), "%llu", (unsigned long long)lock->range.end);
	snprintf(text, size, "%c[%llu,%s]%s%s%s", lock->mode == E ? 'E' : 'S',
		 (unsigned long long)lock->range.start, end, lock->flags & HF_LOCK_PROVISIONAL ? "?" : "",
		 lock->flags & HF_LOCK_UNRECLAIMED ? "~" : "", lock->flags & HF_LOCK_VOLATILE ? "!" : "");
}

static void note_change(struct bed *bed, char sign, const struct hf_lock_change *change)
{
	char what[64], text[96];
	struct hf_lock_view lock;

	hf_lock_show(change, &lock);
	assert_int_equal(change->tag, lock.tag);
	assert_ptr_equal(change->client, lock.who.client);
	assert_int_equal(change->export, lock.who.export);
	assert_int_equal(change->flags, lock.flags);
	describe(what, sizeof(what), &lock);
	snprintf(text, sizeof(text), "%co%d %s%s", sign, owner_of(&lock), what,
		 change->cause == HF_LOCK_CAUSE_ORDER ? " by order" : "");
	note(bed, text);
}

static uint64_t on_added(void *context, const struct hf_lock_change *lock)
{
	note_change(context, '+', lock);
	return ++((struct bed *)context)->last_tag;
}

static void on_removed(void *context, const struct hf_lock_change *lock)
{
	note_change(context, '-', lock);
}

static void on_granted(void *context, const struct hf_lock_view *waiter)
{
	struct bed *bed = context;
	char text[32];

	snprintf(text, sizeof(text), "grant o%d", owner_of(waiter));
	note(bed, text);
	bed->last_grant = waiter->id;
}

static void on_waiter_gone(void *context, const struct hf_lock_view *waiter, enum hf_lock_end why)
{
	static const char *const ends[] = { "cancelled", "released", "purged",
					    "confirmed", "refused",  "put back" };
	char text[48];

	snprintf(text, sizeof(text), "gone o%d %s", owner_of(waiter), ends[why]);
	note(context, text);
}

static uint64_t on_reservation_added(void *context, const struct hf_lock_reservation_view *reservation)
{
	char text[48];

	snprintf(text, sizeof(text), "+reservation a%d d%d n%u", reservation->access, reservation->deny,
		 reservation->count);
	note(context, text);
	return 0;
}

static uint64_t on_reservation_removed(void *context, const struct hf_lock_reservation_view *reservation,
				       uint32_t n, enum hf_lock_cause cause)
{
	char text[48];

	snprintf(text, sizeof(text), "-reservation a%d d%d n%u%s", reservation->access, reservation->deny,
		 reservation->count, cause == HF_LOCK_CAUSE_EXPIRY ? " expired" : "");
	note(context, text);
	return 0;
}

static const struct hf_lock_events events = {
	.added = on_added,
	.removed = on_removed,
	.granted = on_granted,
	.waiter_gone = on_waiter_gone,
	.reservation_added = on_reservation_added,
	.reservation_removed = on_reservation_removed,
};

const char *bed_told(struct bed *bed)
{
	static char told[sizeof(bed->diary)];

	memcpy(told, bed->diary, sizeof(told));
	bed->diary[0] = '\0';
	return told;
}

/* MAKING AND FREEING */

static void open_as(struct bed *bed, struct hf_locks_options options)
{
	options.key = (struct hf_siphash_key){ 1, 2 };
	options.events = &events;
	options.context = bed;
	options.epoch = 7;
	memset(bed, 0, sizeof(*bed));
	assert_int_equal(hf_locks_new(&bed->locks, &options), 0);
	for (int c = 0; c < BED_CLIENTS; c++)
		hf_lock_client_init(bed->locks, &bed->clients[c]);
	bed->state = 1;
}

void bed_open_with(struct bed *bed, const struct hf_lock_limits *limits)
{
	open_as(bed, (struct hf_locks_options){ .limits = *limits });
}

void bed_open_beside(struct bed *bed, const struct hf_lock_outside *outside, void *context)
{
	open_as(bed, (struct hf_locks_options){ .outside = outside, .outside_context = context });
}

void bed_open(struct bed *bed)
{
	bed_open_with(bed, &(struct hf_lock_limits){ 0 });
}

void bed_close(struct bed *bed)
{
	const char *why = hf_locks_check(bed->locks);

	if (why)
		fail_msg("broken: %s", why);
	for (int c = 0; c < BED_CLIENTS; c++) {
		hf_lock_client_purge(bed->locks, &bed->clients[c]);
		assert_true(hf_lock_client_is_idle(&bed->clients[c]));
	}
	assert_int_equal(bed_count(bed).files, 0);
	assert_int_equal(bed_count(bed).owners, 0);
	hf_locks_free(bed->locks);
}

int bed_setup(void **state)
{
	struct bed *bed = malloc(sizeof(*bed));

	if (!bed)
		return -1;
	bed_open(bed);
	*state = bed;
	return 0;
}

int bed_teardown(void **state)
{
	bed_close(*state);
	free(*state);
	return 0;
}

/* DO */

struct hf_lock_target bed_target(struct bed *bed, int owner)
{
	return (struct hf_lock_target){
		.export = 1,
		.handle = hf_bytes_of_str(handles[bed->file]),
		.client = &bed->clients[owner / 10],
		.owner_id = (uint64_t)owner,
		.oh = hf_bytes_of_str("oh"),
	};
}

static int request(struct bed *bed, int owner, enum hf_lock_mode mode, struct hf_range range,
		   struct hf_lock_request *how)
{
	how->who = bed_target(bed, owner);
	how->range = range;
	how->offset = range.start;
	how->len = hf_range_len(range);
	how->mode = mode;
	how->client_state = bed->state;
	how->is_volatile = bed->is_volatile;
	how->no_downgrade = bed->no_downgrade;
	memset(&bed->conflict, 0, sizeof(bed->conflict));
	return hf_lock_acquire(bed->locks, how, &bed->conflict);
}

int bed_lock(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end)
{
	return request(bed, owner, mode, (struct hf_range){ start, end }, &(struct hf_lock_request){ 0 });
}

int bed_wait(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end)
{
	return request(bed, owner, mode, (struct hf_range){ start, end },
		       &(struct hf_lock_request){ .wait = true });
}

int bed_reclaim(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end,
		bool backed_only)
{
	return request(bed, owner, mode, (struct hf_range){ start, end },
		       &(struct hf_lock_request){ .reclaim = true, .backed_only = backed_only });
}

int bed_test(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end)
{
	struct hf_lock_target who = bed_target(bed, owner);

	return hf_lock_test(bed->locks, &who, (struct hf_range){ start, end }, mode, &bed->conflict);
}

void bed_unlock(struct bed *bed, int owner, uint64_t start, uint64_t end)
{
	struct hf_lock_target who = bed_target(bed, owner);

	assert_int_equal(hf_lock_release(bed->locks, &who, (struct hf_range){ start, end }), HF_LOCK_OK);
}

int bed_revoke(struct bed *bed, int owner, uint64_t start, uint64_t end)
{
	struct hf_lock_target who = bed_target(bed, owner);

	return hf_lock_revoke(bed->locks, &who, (struct hf_range){ start, end });
}

int bed_cancel(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end)
{
	struct hf_lock_target who = bed_target(bed, owner);

	return hf_lock_cancel(bed->locks, &who, (struct hf_range){ start, end }, mode);
}

int bed_restore(struct bed *bed, int owner, enum hf_lock_mode mode, uint64_t start, uint64_t end)
{
	const struct hf_lock_view lock = {
		.tag = ++bed->last_tag,
		.who = bed_target(bed, owner),
		.range = { start, end },
		.mode = mode,
		.client_state = bed->state,
		.epoch = 6,
		.flags = bed->is_volatile ? HF_LOCK_VOLATILE : 0,
	};

	hf_cleanup(hf_lock_load_freep) struct hf_lock_load *load = NULL;

	assert_int_equal(hf_lock_load_new(&load, bed->locks), 0);
	return hf_lock_load_add(load, &lock);
}

/* SEE */

const char *bed_locked(struct bed *bed, int owner)
{
	static char text[1024];
	struct hf_lock_scope scope = { .client = &bed->clients[owner / 10] };
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;
	size_t used = 0;

	text[0] = '\0';
	while (hf_lock_next_lock(bed->locks, &scope, &cursor, &view)) {
		char what[64];

		if (owner_of(&view) != owner ||
		    !hf_bytes_equal(view.who.handle, hf_bytes_of_str(handles[bed->file])))
			continue;
		describe(what, sizeof(what), &view);
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", used ? " " : "", what);
	}
	return text;
}

int bed_waiters(struct bed *bed)
{
	struct hf_lock_target who = bed_target(bed, 0);
	struct hf_lock_scope scope = { .file = &who };
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;
	int n = 0;

	while (hf_lock_next_waiter(bed->locks, &scope, &cursor, &view))
		n++;
	return n;
}

struct hf_lock_counters bed_count(struct bed *bed)
{
	struct hf_lock_counters n;

	hf_lock_count(bed->locks, &n);
	return n;
}
