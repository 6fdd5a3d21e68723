/*
 * Random operations by many owners on few small files. After each one, the test
 * compares answer, events and table with the model. The table is what the added and
 * removed events make of it, as in a store, so this tests the events, too. Now and
 * then the test also compares what the walks show, and checks all invariants.
 *
 * The kernel's own locks, on files of the same names, are a second judge. Before each
 * request the test asks the kernel for its answer. Then the kernel does what the engine
 * has done, by its own rules of merging and splitting. Now and then both are compared
 * byte by byte. The kernel does not know waiters, provisional locks and what a restart
 * leaves: the test takes these from the model, and the kernel must agree to each.
 *
 *	test_property [seed [steps]]    or HF_SEED, HF_STEPS in the environment
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "lock/lock.h"

#include "chance.h"
#include "kernel.h"
#include "model.h"

enum {
	RECORDS = FILES * OWNERS * BYTES,
	MAX_QUEUED = 12, /* in all; more are cancelled, so that the model stays fast */
};

struct record {
	int file, owner, from, to;
	uint32_t mode, state, epoch, flags; /* no holes: compared as bytes */
};

struct world {
	struct hf_locks *locks;
	struct hf_lock_client clients[CLIENTS];
	struct model model;
	struct record store[RECORDS];
	int n_store;
	uint64_t tags[RECORDS]; /* of the store's records */
	uint64_t last_tag;
	struct happening happened[EVENTS];
	int n_happened;
	int reservation_balance;
	uint64_t random, seed;
	long step;
	uint32_t epoch;
	char what[160];
	long answers[16];
	long n_grants, n_restarts, n_judged;
	struct kernel kernels[FILES];
	uint8_t there[FILES][OWNERS][BYTES]; /* what the kernel was asked for */
	bool is_plain;                       /* the kernel did this step by itself */
};

static struct world w;

static void fail(const char *why)
{
	fprintf(stderr, "FAILED: %s\n  step %ld: %s\n  again: test_property %llu %ld\n", why, w.step, w.what,
		(unsigned long long)w.seed, w.step + 1);
	exit(1);
}

static uint32_t chance(uint32_t n)
{
	return chance_below(&w.random, n);
}

/* NUMBERS TO REAL THINGS */

static const char *const handles[FILES] = { "file-zero", "f1",
					    "the-file-with-number-two-and-a-longer-handle" };
static const char *const ohs[OHS] = { "oh", "another" };

/* Where the first byte of the model is: at the beginning of a file, at the end of the largest there can be,
 * and where 32 bits end. */
static const uint64_t bases[FILES] = { 0, HF_RANGE_EOF - (BYTES - 1), (UINT64_C(1) << 32) - BYTES / 2 };

static struct hf_range range_of(int file, int from, int to)
{
	return (struct hf_range){ bases[file] + (uint64_t)from,
				  to == BYTES - 1 ? HF_RANGE_EOF : bases[file] + (uint64_t)to };
}

static struct hf_lock_target target_of(int file, int owner)
{
	return (struct hf_lock_target){
		.export = (uint32_t)file / 2,
		.handle = hf_bytes_of_str(handles[file]),
		.client = &w.clients[owner % CLIENTS],
		.owner_id = (uint64_t)owner / 2, /* together with the kind */
		.owner_kind = (uint8_t)(owner % 2),
		.oh = hf_bytes_of_str(handles[owner % FILES]),
	};
}

static int file_of(const struct hf_lock_target *who)
{
	for (int f = 0; f < FILES; f++)
		if (hf_bytes_equal(who->handle, hf_bytes_of_str(handles[f])))
			return f;
	fail("unknown file");
	return -1;
}

static int owner_of(const struct hf_lock_target *who)
{
	for (int o = 0; o < OWNERS; o++)
		if (who->owner_id == (uint64_t)o / 2 && who->owner_kind == o % 2 &&
		    who->client == &w.clients[o % CLIENTS])
			return o;
	fail("unknown owner");
	return -1;
}

static struct record record_of(const struct hf_lock_view *lock)
{
	int file = file_of(&lock->who);

	return (struct record){
		.file = file,
		.owner = owner_of(&lock->who),
		.from = (int)(lock->range.start - bases[file]),
		.to = lock->range.end == HF_RANGE_EOF ? BYTES - 1 : (int)(lock->range.end - bases[file]),
		.mode = lock->mode,
		.state = lock->client_state,
		.epoch = lock->epoch,
		.flags = lock->flags & ~(uint32_t)HF_LOCK_GHOST, /* that it became one is not told */
	};
}

/* EVENTS */

static struct record changed_record(const struct hf_lock_change *change)
{
	struct hf_lock_view lock;

	hf_lock_show(change, &lock);
	return record_of(&lock);
}

static uint64_t on_added(void *context, const struct hf_lock_change *lock)
{
	struct record record = changed_record(lock);

	for (int i = 0; i < w.n_store; i++) {
		const struct record *other = &w.store[i];

		if (other->file == record.file && other->owner == record.owner && other->from <= record.to &&
		    record.from <= other->to)
			fail("added over an existing record");
	}
	if (w.n_store == RECORDS)
		fail("too many records");
	w.tags[w.n_store] = ++w.last_tag;
	w.store[w.n_store++] = record;
	return w.last_tag;
}

static void on_removed(void *context, const struct hf_lock_change *lock)
{
	struct record record = changed_record(lock);

	for (int i = 0; i < w.n_store; i++) {
		const struct record *other = &w.store[i];

		if (other->file != record.file || other->owner != record.owner || other->from != record.from)
			continue;
		if (memcmp(other, &record, sizeof(record)) != 0)
			fail("removed what is not quite the record");
		if (w.tags[i] != lock->tag)
			fail("removed with another's tag");
		w.store[i] = w.store[--w.n_store];
		w.tags[i] = w.tags[w.n_store];
		return;
	}
	fail("removed an unknown record");
}

static void happen(const struct hf_lock_view *waiter, int why)
{
	if (w.n_happened == EVENTS)
		fail("too many events");
	w.happened[w.n_happened++] =
		(struct happening){ waiter->id, file_of(&waiter->who), why, (uintptr_t)waiter->user };
}

static void on_granted(void *context, const struct hf_lock_view *waiter)
{
	w.n_grants++;
	happen(waiter, -1);
}

static void on_waiter_gone(void *context, const struct hf_lock_view *waiter, enum hf_lock_end why)
{
	happen(waiter, (int)why);
}

static uint64_t on_reservation_added(void *context, const struct hf_lock_reservation_view *reservation)
{
	w.reservation_balance++;
	return 0;
}

static uint64_t on_reservation_removed(void *context, const struct hf_lock_reservation_view *reservation,
				       uint32_t n, enum hf_lock_cause cause)
{
	w.reservation_balance--;
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

/* COMPARE */

/* Ends in any order; grants in the order of their file. */
static int compare_happenings(const void *a, const void *b)
{
	const struct happening *x = a, *y = b;

	if ((x->why < 0) != (y->why < 0))
		return x->why < 0 ? 1 : -1;
	if (x->why < 0)
		return x->file != y->file ? x->file - y->file : x < y ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

static void sort(struct happening *happened, int n)
{
	/* Stable, and short. */
	for (int i = 1; i < n; i++)
		for (int j = i; j > 0 && compare_happenings(&happened[j - 1], &happened[j]) > 0; j--) {
			struct happening swap = happened[j];

			happened[j] = happened[j - 1];
			happened[j - 1] = swap;
		}
}

static void compare_events(void)
{
	struct model *m = &w.model;

	if (w.n_happened != m->n_happened)
		fail("number of grants and ends");
	sort(w.happened, w.n_happened);
	sort(m->happened, m->n_happened);
	for (int i = 0; i < w.n_happened; i++)
		if (w.happened[i].id != m->happened[i].id || w.happened[i].why != m->happened[i].why ||
		    w.happened[i].user != m->happened[i].user)
			fail("grants and ends");
	w.n_happened = m->n_happened = 0;
}

static uint32_t flags_of(const struct cell *cell)
{
	return (cell->is_provisional ? HF_LOCK_PROVISIONAL : 0u) |
	       (cell->is_unreclaimed ? HF_LOCK_UNRECLAIMED : 0u) |
	       (cell->is_volatile ? HF_LOCK_VOLATILE : 0u);
}

/* @seen: the records as they are known; ghosts among them if @with_ghosts. */
static void compare_records(const struct record *seen, int n, bool with_ghosts)
{
	long n_bytes = 0, n_expected = 0;

	for (int i = 0; i < n; i++) {
		const struct record *record = &seen[i];

		for (int b = record->from; b <= record->to; b++) {
			const struct cell *cell = &w.model.cells[record->file][record->owner][b];

			n_bytes++;
			if (cell->mode != record->mode || cell->state != record->state ||
			    flags_of(cell) != record->flags || (cell->is_ghost && !with_ghosts))
				fail("the table");
		}
	}
	for (int f = 0; f < FILES; f++)
		for (int o = 0; o < OWNERS; o++)
			for (int b = 0; b < BYTES; b++)
				n_expected += w.model.cells[f][o][b].mode &&
					      (with_ghosts || !w.model.cells[f][o][b].is_ghost);
	if (n_bytes != n_expected)
		fail("the table lacks something");
}

static void compare_locks(const struct hf_lock_scope *scope, struct record *seen, int *n)
{
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;

	while (hf_lock_next_lock(w.locks, scope, &cursor, &view)) {
		if (*n == RECORDS)
			fail("a walk without end");
		seen[(*n)++] = record_of(&view);
	}
}

static void compare_walks(void)
{
	static struct record seen[RECORDS];
	int n = 0;

	compare_locks(NULL, seen, &n);
	compare_records(seen, n, false);
	n = 0;
	for (int c = 0; c < CLIENTS; c++)
		compare_locks(&(struct hf_lock_scope){ .client = &w.clients[c] }, seen, &n);
	compare_records(seen, n, false);
	n = 0;
	for (int f = 0; f < FILES; f++) {
		struct hf_lock_target who = target_of(f, 0);

		compare_locks(&(struct hf_lock_scope){ .file = &who }, seen, &n);
	}
	compare_records(seen, n, false);
}

static bool is_queued(uint64_t id)
{
	for (int f = 0; f < FILES; f++)
		for (int i = 0; i < w.model.queues[f].n; i++)
			if (w.model.queues[f].at[i].id == id)
				return true;
	return false;
}

static int count_waiters(const struct hf_lock_scope *scope)
{
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;
	int n = 0;

	while (hf_lock_next_waiter(w.locks, scope, &cursor, &view)) {
		if (!view.waits || !is_queued(view.id))
			fail("a walk shows a waiter that is none");
		n++;
	}
	return n;
}

static void compare_waiters(void)
{
	int n = 0, n_clients = 0, n_files = 0;

	for (int f = 0; f < FILES; f++) {
		struct hf_lock_target who = target_of(f, 0);

		n += w.model.queues[f].n;
		n_files += count_waiters(&(struct hf_lock_scope){ .file = &who });
	}
	for (int c = 0; c < CLIENTS; c++)
		n_clients += count_waiters(&(struct hf_lock_scope){ .client = &w.clients[c] });
	if (count_waiters(NULL) != n || n_clients != n || n_files != n)
		fail("walks over waiters");
}

static void compare_counters(void)
{
	struct hf_lock_counters n;
	uint64_t reservations = 0, waiters = 0;

	hf_lock_count(w.locks, &n);
	for (int f = 0; f < FILES; f++) {
		waiters += (uint64_t)w.model.queues[f].n;
		for (int i = 0; i < CLIENTS * OHS * 16; i++)
			reservations +=
				w.model.reservations[f][i / 16 % CLIENTS][i / 16 / CLIENTS][i / 4 % 4][i % 4];
	}
	if (n.waiters != waiters || n.grants != (uint64_t)w.model.grants.n || n.reservations != reservations)
		fail("counters");
	if (n.locks + n.ghosts != (uint64_t)w.n_store)
		fail("counter of locks");
}

/* Which owner has anything in which file? */
static void compare_involved(void)
{
	for (int f = 0; f < FILES; f++) {
		for (int o = 0; o < OWNERS; o++) {
			struct hf_lock_target who = target_of(f, o);

			if (hf_lock_is_involved(w.locks, &who) != model_is_involved(&w.model, f, o))
				fail("who is involved");
		}
	}
}

/* THE KERNEL */

/* The request as it is. The kernel's own rules decide what becomes of the owner's other ranges. */
static void kernel_does(const struct model_request *r, uint8_t mode)
{
	if (!kernel_set(&w.kernels[r->file], r->owner, (enum hf_lock_mode)mode,
			range_of(r->file, r->from, r->to)))
		fail("the kernel refuses it");
	memset(&w.there[r->file][r->owner][r->from], mode, (size_t)(r->to - r->from + 1));
	w.is_plain = true;
}

/* Brings one byte of the kernel's locks in line with the model: to a weaker mode, or else to a stronger one.
 */
static void follow_byte(int file, int owner, int at, bool is_less)
{
	uint8_t mode = w.model.cells[file][owner][at].mode, *there = &w.there[file][owner][at];

	if (mode == *there || (mode < *there) != is_less)
		return;
	if (w.is_plain)
		fail("the kernel would have something else");
	if (!kernel_set(&w.kernels[file], owner, (enum hf_lock_mode)mode, range_of(file, at, at)))
		fail("the kernel would not have granted it");
	*there = mode;
}

static bool is_there(int file, int owner)
{
	for (int b = 0; b < BYTES; b++)
		if (w.model.cells[file][owner][b].mode != w.there[file][owner][b])
			return false;
	return true;
}

/* Brings the kernel's locks in line with the engine's: first the releases and downgrades. */
static void kernel_follows(void)
{
	for (int i = 0; i < 2 * FILES * OWNERS; i++) {
		int file = i / OWNERS % FILES, owner = i % OWNERS;

		for (int b = 0; b < BYTES && !is_there(file, owner); b++)
			follow_byte(file, owner, b, i < FILES * OWNERS);
	}
}

static void judge(bool agrees)
{
	w.n_judged++;
	if (!agrees)
		fail("the kernel says something else");
}

static bool kernel_agrees(int file, int owner, int from, int to, uint8_t mode)
{
	struct model_request r = { .file = file, .owner = owner, .from = from, .to = to, .mode = mode };
	bool is_grace = w.model.is_grace;
	int answer;

	w.model.is_grace = false; /* which the kernel does not know of */
	answer = model_test(&w.model, &r);
	w.model.is_grace = is_grace;
	return (answer == HF_LOCK_OK) ==
	       kernel_is_free(&w.kernels[file], owner, (enum hf_lock_mode)mode, range_of(file, from, to));
}

static void compare_kernel(void)
{
	for (int i = 0; i < FILES * OWNERS * BYTES; i++) {
		int file = i / BYTES / OWNERS, owner = i / BYTES % OWNERS, at = i % BYTES;

		if (!kernel_agrees(file, owner, at, at, HF_LOCK_SHARED) ||
		    !kernel_agrees(file, owner, at, at, HF_LOCK_EXCLUSIVE))
			fail("the kernel's table");
	}
}

static void compare(void)
{
	w.is_plain = w.is_plain && !w.n_happened; /* otherwise a waiter was served too */
	compare_events();
	compare_records(w.store, w.n_store, true);
	kernel_follows();
	w.is_plain = false;
	compare_counters();
	if (w.step % 16 == 0) {
		const char *why = hf_locks_check(w.locks);

		if (why)
			fail(why);
	}
	if (w.step % 64 == 0) {
		compare_walks();
		compare_waiters();
		compare_involved();
	}
	if (w.step % 512 == 0)
		compare_kernel();
}

static void expect(int got, int expected)
{
	char text[64];

	if (got >= 0 && got < 16)
		w.answers[got]++;
	if (got == expected)
		return;
	snprintf(text, sizeof(text), "answer %d, the model says %d", got, expected);
	fail(text);
}

/* OPERATIONS */

static void draw_range(int *from, int *to)
{
	*from = (int)chance(BYTES);
	*to = *from + (int)chance(chance(3) ? 4 : BYTES);
	if (*to >= BYTES)
		*to = BYTES - 1;
}

static uint32_t draw_state(void)
{
	return chance(8) ? 1 + 2 * chance(2) : 0;
}

/* Now and then a range that an owner holds or waits for, instead of a random one. */
static void draw_request(struct model_request *r)
{
	*r = (struct model_request){
		.file = (int)chance(FILES),
		.owner = (int)chance(OWNERS),
		.mode = (uint8_t)(1 + chance(2)),
		.wait = chance(2),
		.is_volatile = chance(16) == 0,
		.no_downgrade = chance(2),
		.state = draw_state(),
		.user = chance(1000),
	};
	draw_range(&r->from, &r->to);
	if (chance(8) == 0 && w.model.queues[r->file].n) {
		struct model_queue *queue = &w.model.queues[r->file];
		struct model_waiter *waiter = &queue->at[chance((uint32_t)queue->n)];

		r->owner = waiter->owner;
		r->from = waiter->from;
		r->to = waiter->to;
		r->mode = waiter->mode;
	} else if (chance(8) == 0 && w.model.grants.n) {
		struct model_waiter *grant = &w.model.grants.at[chance((uint32_t)w.model.grants.n)];

		r->file = grant->file;
		r->owner = grant->owner;
		r->from = grant->from;
		r->to = grant->to;
		r->mode = chance(4) ? grant->mode : HF_LOCK_SHARED + HF_LOCK_EXCLUSIVE - grant->mode;
	}
	if (w.model.is_grace && chance(4)) {
		r->reclaim = true;
		r->wait = false;
		r->backed_only = chance(2);
	} else if (chance(8) == 0) {
		r->is_due = true;
		r->wait = false;
	}
}

static int n_queued(void)
{
	int n = 0;

	for (int f = 0; f < FILES; f++)
		n += w.model.queues[f].n;
	return n;
}

/* As a protocol does after a request of the owner's own. */
static void keep_changed(int file, int owner)
{
	struct hf_lock_target who = target_of(file, owner);

	expect(hf_lock_assume_changed(w.locks, &who), HF_LOCK_OK);
	model_stay_changed(&w.model, file, owner);
}

static void do_acquire(void)
{
	struct model_request r;
	struct hf_lock_request request;
	struct hf_lock_before before;
	struct hf_lock_view view;
	bool is_free;
	uint8_t most;
	int answer;

	draw_request(&r);
	if (n_queued() >= MAX_QUEUED)
		r.wait = false;
	snprintf(
		w.what, sizeof(w.what),
		"acquire file %d owner %d [%d,%d] mode %d wait %d reclaim %d due %d no_downgrade %d state %u",
		r.file, r.owner, r.from, r.to, r.mode, r.wait, r.reclaim, r.is_due, r.no_downgrade, r.state);
	request = (struct hf_lock_request){
		.who = target_of(r.file, r.owner),
		.range = range_of(r.file, r.from, r.to),
		.mode = (enum hf_lock_mode)r.mode,
		.client_state = r.state,
		.wait = r.wait,
		.reclaim = r.reclaim,
		.backed_only = r.backed_only,
		.is_due = r.is_due,
		.is_volatile = r.is_volatile,
		.no_downgrade = r.no_downgrade,
		.before = &before,
		.user = (void *)r.user,
	};
	is_free = kernel_is_free(&w.kernels[r.file], r.owner, request.mode, request.range);
	most = model_most_locked(&w.model, r.file, r.owner, r.from, r.to);
	answer = hf_lock_acquire(w.locks, &request, &view);
	if (answer != HF_LOCK_E_GRACE && answer != HF_LOCK_E_NOT_BACKED &&
	    (before.has_any != (most != 0) || before.stays_exclusive != (r.no_downgrade && most > r.mode)))
		fail("what was held before");
	if (answer == HF_LOCK_E_CONFLICT && !view.waits) {
		struct record record = record_of(&view);

		if (record.owner == r.owner || record.to < r.from || record.from > r.to)
			fail("shows a holder that is not in the way");
	}
	expect(answer, model_acquire(&w.model, &r));
	if (answer == HF_LOCK_OK)
		judge(is_free);
	else if (answer == HF_LOCK_E_CONFLICT || answer == HF_LOCK_E_QUEUED || answer == HF_LOCK_E_DEADLOCK)
		judge(is_free == view.waits);
	/* Where the owner keeps an exclusive lock, the kernel's locks follow byte by byte. */
	if (answer == HF_LOCK_OK && model_most_locked(&w.model, r.file, r.owner, r.from, r.to) <= r.mode)
		kernel_does(&r, r.mode);
	if (chance(4))
		keep_changed(r.file, r.owner);
}

static void do_test(void)
{
	struct model_request r;
	struct hf_lock_target who;

	draw_request(&r);
	snprintf(w.what, sizeof(w.what), "test file %d owner %d [%d,%d] mode %d", r.file, r.owner, r.from,
		 r.to, r.mode);
	who = target_of(r.file, r.owner);
	expect(hf_lock_test(w.locks, &who, range_of(r.file, r.from, r.to), (enum hf_lock_mode)r.mode, NULL),
	       model_test(&w.model, &r));
	judge(kernel_agrees(r.file, r.owner, r.from, r.to, r.mode));
}

static void do_release(void)
{
	struct model_request r;
	struct hf_lock_target who;

	draw_request(&r);
	/* Preferably by an owner that has something. */
	for (int i = 0; i < 8 && !model_is_locked(&w.model, r.file, r.owner); i++)
		r.owner = (int)chance(OWNERS);
	if (chance(4) == 0)
		r.from = 0, r.to = BYTES - 1;
	snprintf(w.what, sizeof(w.what), "release file %d owner %d [%d,%d]", r.file, r.owner, r.from, r.to);
	who = target_of(r.file, r.owner);
	expect(hf_lock_release(w.locks, &who, range_of(r.file, r.from, r.to)), HF_LOCK_OK);
	model_release(&w.model, r.file, r.owner, r.from, r.to);
	kernel_does(&r, HF_LOCK_NONE);
	if (chance(4))
		keep_changed(r.file, r.owner);
}

/* A lock that is in the table; or, now and then, a range that is not quite one. */
static void do_revoke(void)
{
	const struct record *record;
	struct model_request r;
	struct hf_lock_target who;
	bool is_lock;

	if (!w.n_store)
		return;
	record = &w.store[chance((uint32_t)w.n_store)];
	r = (struct model_request){
		.file = record->file, .owner = record->owner, .from = record->from, .to = record->to
	};
	is_lock = chance(4) || r.from == r.to;
	r.to -= !is_lock;
	snprintf(w.what, sizeof(w.what), "revoke file %d owner %d [%d,%d]", r.file, r.owner, r.from, r.to);
	who = target_of(r.file, r.owner);
	expect(hf_lock_revoke(w.locks, &who, range_of(r.file, r.from, r.to)),
	       is_lock ? HF_LOCK_OK : HF_LOCK_E_NOTHING);
	if (!is_lock)
		return;
	model_revoke(&w.model, r.file, r.owner, r.from, r.to);
	kernel_does(&r, HF_LOCK_NONE);
}

static void do_cancel(void)
{
	struct model_request r;
	struct hf_lock_target who;

	draw_request(&r);
	snprintf(w.what, sizeof(w.what), "cancel file %d owner %d [%d,%d] mode %d", r.file, r.owner, r.from,
		 r.to, r.mode);
	who = target_of(r.file, r.owner);
	expect(hf_lock_cancel(w.locks, &who, range_of(r.file, r.from, r.to), (enum hf_lock_mode)r.mode),
	       model_cancel(&w.model, r.file, r.owner, r.from, r.to, r.mode));
}

static void do_settle(void)
{
	static const struct {
		const char *name;
		int (*fn)(struct hf_locks *locks, uint64_t id);
		int (*model_fn)(struct model *m, uint64_t id);
	} ways[] = {
		{ "confirm", hf_lock_grant_confirm, model_confirm },
		{ "refuse", hf_lock_grant_refuse, model_refuse },
		{ "keep", hf_lock_grant_assume, model_stay },
	};
	uint32_t way = chance(HF_ARRAY_SIZE(ways));
	uint64_t id = chance(20);

	if (w.model.grants.n)
		id = w.model.grants.at[chance((uint32_t)w.model.grants.n)].id;
	snprintf(w.what, sizeof(w.what), "%s %llu", ways[way].name, (unsigned long long)id);
	expect(ways[way].fn(w.locks, id), ways[way].model_fn(&w.model, id));
}

static void do_purge(void)
{
	int client = (int)chance(CLIENTS);
	bool all = chance(4) == 0;
	uint32_t state = draw_state();

	snprintf(w.what, sizeof(w.what), "purge client %d all %d state %u", client, all, state);
	if (all)
		hf_lock_client_purge(w.locks, &w.clients[client]);
	else
		hf_lock_client_purge_older(w.locks, &w.clients[client], state);
	model_purge(&w.model, client, all, state);
	w.reservation_balance = 0; /* counted one by one, purged in bulk; the counters tell */
	if (all && !hf_lock_client_is_idle(&w.clients[client]))
		fail("something of a purged client is left");
}

static void do_reserve(void)
{
	int file = (int)chance(FILES), client = (int)chance(CLIENTS), oh = (int)chance(OHS);
	uint8_t access = (uint8_t)chance(4), deny = (uint8_t)chance(4);
	uint32_t state = draw_state();
	struct hf_lock_target who = target_of(file, client);

	who.oh = hf_bytes_of_str(ohs[oh]);
	snprintf(w.what, sizeof(w.what), "reservation file %d client %d oh %d access %d deny %d", file,
		 client, oh, access, deny);
	if (chance(2))
		deny = 0;
	if (chance(2)) {
		bool reclaim = chance(4) == 0;

		expect(hf_lock_reserve(w.locks, &who, access, deny, state, reclaim),
		       model_reserve(&w.model, file, client, oh, access, deny, state, reclaim));
	} else {
		expect(hf_lock_unreserve(w.locks, &who, access, deny), HF_LOCK_OK);
		model_unreserve(&w.model, file, client, oh, access, deny);
	}
}

/* MAKING AND FREEING */

static void begin(void)
{
	struct hf_locks_options options = {
		.key = { w.seed, 2 },
		.events = &events,
		.epoch = ++w.epoch,
	};

	if (hf_locks_new(&w.locks, &options) < 0)
		fail("no memory");
	for (int c = 0; c < CLIENTS; c++)
		hf_lock_client_init(w.locks, &w.clients[c]);
}

static void restore(void)
{
	hf_cleanup(hf_lock_load_freep) struct hf_lock_load *load = NULL;
	int n = 0;

	expect(hf_lock_load_new(&load, w.locks), 0);
	for (int i = 0; i < w.n_store; i++) {
		struct record record = w.store[i];
		struct hf_lock_view view = {
			.tag = w.tags[i],
			.who = target_of(record.file, record.owner),
			.range = range_of(record.file, record.from, record.to),
			.mode = (enum hf_lock_mode)record.mode,
			.client_state = record.state,
			.epoch = record.epoch,
			.flags = record.flags,
		};

		expect(hf_lock_load_add(load, &view), HF_LOCK_OK);
		if (hf_lock_load_add(load, &view) != HF_LOCK_E_CONFLICT && !(record.flags & HF_LOCK_VOLATILE))
			fail("restored twice");
		if (record.flags & HF_LOCK_VOLATILE)
			continue;
		record.flags = HF_LOCK_UNRECLAIMED;
		w.tags[n] = w.tags[i];
		w.store[n++] = record;
	}
	w.n_store = n;
}

static void do_restart(void)
{
	snprintf(w.what, sizeof(w.what), "restart");
	hf_locks_free(w.locks);
	begin();
	restore();
	hf_lock_set_grace(w.locks, true);
	model_restart(&w.model);
	model_set_grace(&w.model, true);
	w.n_restarts++;
}

static void do_grace(void)
{
	bool is_on = w.model.is_grace ? false : chance(4) == 0;

	snprintf(w.what, sizeof(w.what), "grace %d", is_on);
	hf_lock_set_grace(w.locks, is_on);
	model_set_grace(&w.model, is_on);
}

static void do_haunt(void)
{
	int client = (int)chance(CLIENTS);

	snprintf(w.what, sizeof(w.what), "release reclaimable of client %d", client);
	hf_lock_client_release_reclaimable(w.locks, &w.clients[client]);
	model_release_reclaimable(&w.model, client);
}

static void do_something(void)
{
	uint32_t n = chance(1000);

	if (n < 500)
		do_acquire();
	else if (n < 715)
		do_release();
	else if (n < 720)
		do_revoke();
	else if (n < 770)
		do_cancel();
	else if (n < 880)
		do_settle();
	else if (n < 930)
		do_test();
	else if (n < 980)
		do_reserve();
	else if (n < 986)
		do_purge();
	else if (n < (w.model.is_grace ? 996 : 989))
		do_grace();
	else if (n < 998)
		do_haunt();
	else
		do_restart();
}

int main(int argc, char **argv)
{
	long steps;

	w.seed = chance_setting(argc, argv, 1, "HF_SEED", 20250101);
	steps = (long)chance_setting(argc, argv, 2, "HF_STEPS", 1000000);
	w.random = w.seed * 2654435761u + 88172645463325252u;
	begin();
	for (int f = 0; f < FILES; f++)
		if (!kernel_open(&w.kernels[f], OWNERS))
			fail("no file");
	for (w.step = 0; w.step < steps; w.step++) {
		do_something();
		compare();
	}
	hf_locks_free(w.locks);
	for (int f = 0; f < FILES; f++)
		kernel_close(&w.kernels[f]);
	printf("seed %llu, %ld steps: ok %ld conflict %ld queued %ld grace %ld deadlock %ld not-backed %ld "
	       "held %ld "
	       "nothing %ld; %ld grants, %ld restarts; the kernel judged %ld requests\n",
	       (unsigned long long)w.seed, steps, w.answers[HF_LOCK_OK], w.answers[HF_LOCK_E_CONFLICT],
	       w.answers[HF_LOCK_E_QUEUED], w.answers[HF_LOCK_E_GRACE], w.answers[HF_LOCK_E_DEADLOCK],
	       w.answers[HF_LOCK_E_NOT_BACKED], w.answers[HF_LOCK_E_LOCKED], w.answers[HF_LOCK_E_NOTHING],
	       w.n_grants, w.n_restarts, w.n_judged);
	return 0;
}
