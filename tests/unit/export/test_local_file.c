/*
 * Locks that are held in the kernel, too: a random sequence of requests to the
 * lock engine, whose outside is a real file, while a local process, played by
 * an open file description of its own, locks and unlocks it. After each step,
 * byte by byte: the kernel has of the engine's locks exactly what the engine says
 * is held, or all while the file is covered; the two sides never hold in
 * conflict; and no waiter waits for a free range.
 *
 *	HF_SEED and HF_STEPS change it.
 */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "export/local_file.h"

enum {
	OWNERS = 6,
	CLIENTS = 2,
	BYTES = 40,
	MAX_GRANTS = 64,
};

struct bed {
	struct hf_locks *locks;
	struct hf_lock_client clients[CLIENTS];
	struct hf_local_file ours;
	char path[32];
	int our_fd, local_fd;
	uint64_t base; /* where the bytes begin: at 0, or at the very end of what a file can be */
	uint64_t random;
	uint64_t grants[MAX_GRANTS];
	size_t n_grants;
	enum hf_lock_mode seen; /* of the engine's locks, when something was taken last */
	bool has_covers;        /* the file is covered now and then */
	long n_covers, n_uncovered;
	long n_granted, n_denied, n_blocked, n_local;
};

static const char handle[] = "the file";

static uint32_t draw(struct bed *bed, uint32_t n)
{
	bed->random = bed->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(bed->random >> 33) % n;
}

/* What the kernel has of byte @pos, as an open file description sees it that has none of it. */
static enum hf_lock_mode seen_by(int fd, uint64_t pos)
{
	struct flock flock = { .l_type = F_WRLCK, .l_start = (off_t)pos, .l_len = 1 };

	assert_int_equal(fcntl(fd, F_OFD_GETLK, &flock), 0);
	return flock.l_type == F_WRLCK   ? HF_LOCK_EXCLUSIVE
	       : flock.l_type == F_RDLCK ? HF_LOCK_SHARED
					 : HF_LOCK_NONE;
}

/* The outside */

static bool needed(void *user, uint64_t pos, struct hf_range *rangep, enum hf_lock_mode *modep)
{
	struct bed *bed = user;

	return hf_lock_next_locked(bed->locks, hf_bytes_of_str(handle), pos, rangep, modep);
}

static int take(void *context, const struct hf_lock_target *who, struct hf_range range,
		enum hf_lock_mode mode)
{
	struct bed *bed = context;

	bed->seen = seen_by(bed->local_fd, range.start);
	if (bed->has_covers && !bed->ours.is_covered && draw(bed, 8) == 0)
		bed->n_covers += hf_local_file_cover(&bed->ours, range);
	return hf_local_file_take(&bed->ours, range, mode);
}

static int test(void *context, const struct hf_lock_target *who, struct hf_range range,
		enum hf_lock_mode mode, struct hf_lock_view *conflictp)
{
	struct bed *bed = context;

	return hf_local_file_test(&bed->ours, range, mode, conflictp);
}

static void trim(void *context, struct hf_bytes key, struct hf_range range, size_t n_locks)
{
	struct bed *bed = context;

	assert_int_equal(hf_local_file_trim(&bed->ours, range, n_locks, needed, bed), 0);
}

static const struct hf_lock_outside outside = { .take = take, .test = test, .trim = trim };

static void on_granted(void *context, const struct hf_lock_view *waiter)
{
	struct bed *bed = context;

	assert_true(bed->n_grants < MAX_GRANTS);
	bed->grants[bed->n_grants++] = waiter->id;
}

static const struct hf_lock_events events = { .granted = on_granted };

/* The bed */

static int setup(void **state)
{
	struct bed *bed = calloc(1, sizeof(*bed));
	struct hf_locks_options options = {
		.events = &events, .context = bed, .outside = &outside, .outside_context = bed
	};

	strcpy(bed->path, "/tmp/hf-local-XXXXXX");
	bed->our_fd = mkstemp(bed->path);
	bed->local_fd = open(bed->path, O_RDWR | O_CLOEXEC);
	assert_true(bed->our_fd >= 0 && bed->local_fd >= 0);
	hf_local_file_init(&bed->ours, bed->our_fd);
	assert_int_equal(hf_locks_new(&bed->locks, &options), 0);
	for (int i = 0; i < CLIENTS; i++)
		hf_lock_client_init(bed->locks, &bed->clients[i]);
	*state = bed;
	return 0;
}

static int teardown(void **state)
{
	struct bed *bed = *state;

	hf_locks_free(bed->locks);
	hf_local_file_deinit(&bed->ours);
	close(bed->our_fd);
	close(bed->local_fd);
	unlink(bed->path);
	free(bed);
	return 0;
}

static struct hf_lock_target target(struct bed *bed, int owner)
{
	return (struct hf_lock_target){
		.handle = hf_bytes_of_str(handle),
		.client = &bed->clients[owner % CLIENTS],
		.owner_id = (uint64_t)owner,
	};
}

/* As the lock manager does: what an owner asked for since a grant shows that it knows of the grant. */
static void keep_changed(struct bed *bed, int owner)
{
	struct hf_lock_target who = target(bed, owner);

	assert_int_equal(hf_lock_assume_changed(bed->locks, &who), HF_LOCK_OK);
}

static int lock(struct bed *bed, int owner, uint64_t start, uint64_t end, enum hf_lock_mode mode, bool wait)
{
	struct hf_lock_request request = {
		.who = target(bed, owner), .range = { start, end }, .mode = mode, .wait = wait
	};

	int r = hf_lock_acquire(bed->locks, &request, NULL);

	keep_changed(bed, owner);
	return r;
}

static void unlock(struct bed *bed, int owner, uint64_t start, uint64_t end)
{
	struct hf_lock_target who = target(bed, owner);

	assert_int_equal(hf_lock_release(bed->locks, &who, (struct hf_range){ start, end }), HF_LOCK_OK);
	keep_changed(bed, owner);
}

static bool local(struct bed *bed, uint64_t start, uint64_t end, short type)
{
	struct flock flock = { .l_type = type,
			       .l_start = (off_t)start,
			       .l_len = (off_t)hf_range_len((struct hf_range){ start, end }) };

	return fcntl(bed->local_fd, F_OFD_SETLK, &flock) == 0;
}

/* Checking */

static enum hf_lock_mode held(struct bed *bed, uint64_t pos)
{
	enum hf_lock_mode mode = HF_LOCK_NONE;
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view view;

	while (hf_lock_next_lock(bed->locks, NULL, &cursor, &view))
		if (view.range.start <= pos && view.range.end >= pos)
			mode = HF_MAX(mode, view.mode);
	return mode;
}

static void check(struct bed *bed)
{
	const char *broken = hf_locks_check(bed->locks);

	if (broken)
		fail_msg("%s", broken);
	for (uint64_t pos = bed->base; pos - bed->base < BYTES; pos++) {
		enum hf_lock_mode mode = held(bed, pos), foreign = seen_by(bed->our_fd, pos);
		struct hf_range range;
		enum hf_lock_mode asked = HF_LOCK_NONE;

		assert_int_equal(seen_by(bed->local_fd, pos),
				 bed->ours.is_covered ? HF_LOCK_EXCLUSIVE : mode);
		if (hf_lock_next_locked(bed->locks, hf_bytes_of_str(handle), pos, &range, &asked) &&
		    range.start > pos)
			asked = HF_LOCK_NONE;
		assert_int_equal(asked, mode);
		assert_false(foreign && mode && (foreign | mode) & HF_LOCK_EXCLUSIVE);
	}
}

/* After they were served: the first waiter in the queue is blocked by a holder or by the local process.
 */
static void check_waiters(struct bed *bed)
{
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view waiter, unused;
	size_t n = 0, n_blocked = 0;

	hf_lock_serve_file(bed->locks, hf_bytes_of_str(handle));
	while (hf_lock_next_waiter(bed->locks, NULL, &cursor, &waiter)) {
		n++;
		n_blocked += hf_lock_test(bed->locks, &waiter.who, waiter.range, waiter.mode, &unused) ==
			     HF_LOCK_E_CONFLICT;
	}
	assert_true(n == 0 || n_blocked > 0);
}

/* Steps */

static void step_ours(struct bed *bed, uint64_t start, uint64_t end)
{
	int owner = (int)draw(bed, OWNERS);
	enum hf_lock_mode mode = draw(bed, 2) ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED;
	int r = lock(bed, owner, start, end, mode, draw(bed, 3) == 0);

	bed->n_granted += r == HF_LOCK_OK;
	bed->n_denied += r == HF_LOCK_E_CONFLICT;
	bed->n_blocked += r == HF_LOCK_E_QUEUED;
	assert_true(r == HF_LOCK_OK || r == HF_LOCK_E_CONFLICT || r == HF_LOCK_E_QUEUED ||
		    r == HF_LOCK_E_DEADLOCK);
}

static void step_grant(struct bed *bed)
{
	uint64_t id;

	if (!bed->n_grants)
		return;
	id = bed->grants[--bed->n_grants];
	if (draw(bed, 2))
		hf_lock_grant_confirm(bed->locks, id);
	else
		hf_lock_grant_refuse(bed->locks, id);
}

static void step_uncover(struct bed *bed)
{
	if (!bed->ours.is_covered || draw(bed, 10))
		return;
	assert_int_equal(hf_local_file_uncover(&bed->ours, needed, bed), 0);
	assert_false(bed->ours.is_covered);
	bed->n_uncovered++;
}

static void step(struct bed *bed)
{
	uint64_t start = bed->base + draw(bed, BYTES), end = start + draw(bed, BYTES / 3);
	static const short types[] = { F_RDLCK, F_WRLCK, F_UNLCK, F_UNLCK };

	end = HF_MIN(end, bed->base + BYTES - 1);
	switch (draw(bed, 12)) {
	case 0:
	case 1:
		bed->n_local += local(bed, start, end, types[draw(bed, 4)]);
		break;
	case 2:
		local(bed, bed->base, HF_RANGE_EOF, F_UNLCK);
		check_waiters(bed);
		break;
	case 3:
	case 4:
	case 5:
		unlock(bed, (int)draw(bed, OWNERS), start, end);
		break;
	case 6:
		unlock(bed, (int)draw(bed, OWNERS), 0, HF_RANGE_EOF);
		break;
	case 7:
		step_grant(bed);
		break;
	case 8:
		if (draw(bed, 10) == 0)
			hf_lock_client_purge(bed->locks, &bed->clients[draw(bed, CLIENTS)]);
		break;
	default:
		step_ours(bed, start, end);
	}
	while (bed->n_grants > MAX_GRANTS / 2)
		step_grant(bed);
}

static long number(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text ? strtol(text, NULL, 10) : otherwise;
}

static void test_random(void **state)
{
	struct bed *bed = *state;
	long seed = number("HF_SEED", 1), steps = number("HF_STEPS", 20000);

	print_message("seed %ld\n", seed);
	bed->random = (uint64_t)seed;
	for (long i = 0; i < steps; i++) {
		if (i == steps / 2) {
			unlock(bed, 0, 0, HF_RANGE_EOF);
			for (int j = 0; j < CLIENTS; j++)
				hf_lock_client_purge(bed->locks, &bed->clients[j]);
			if (bed->ours.is_covered)
				assert_int_equal(hf_local_file_uncover(&bed->ours, needed, bed), 0);
			local(bed, 0, HF_RANGE_EOF, F_UNLCK);
			bed->base = HF_RANGE_EOF - BYTES + 1;
		}
		step(bed);
		step_uncover(bed);
		check(bed);
	}
	assert_true(bed->n_granted > steps / 20 && bed->n_denied > steps / 100 &&
		    bed->n_blocked > steps / 100 && bed->n_local > steps / 100);
}

static void test_random_with_covers(void **state)
{
	struct bed *bed = *state;

	bed->has_covers = true;
	test_random(state);
	assert_true(bed->n_covers > 100 && bed->n_uncovered > 100);
}

/* The ones that a client asks for in the midst of everything else */

static void test_served_when_the_local_process_lets_go(void **state)
{
	struct bed *bed = *state;

	assert_true(local(bed, 0, 9, F_WRLCK));
	assert_int_equal(lock(bed, 1, 5, 20, HF_LOCK_EXCLUSIVE, false), HF_LOCK_E_CONFLICT);
	assert_int_equal(lock(bed, 1, 5, 20, HF_LOCK_EXCLUSIVE, true), HF_LOCK_E_QUEUED);
	hf_lock_serve_file(bed->locks, hf_bytes_of_str(handle));
	assert_int_equal(bed->n_grants, 0);
	assert_true(local(bed, 0, 9, F_UNLCK));
	hf_lock_serve_file(bed->locks, hf_bytes_of_str(handle));
	assert_int_equal(bed->n_grants, 1);
	assert_false(local(bed, 20, 20, F_RDLCK));
}

static void test_handed_over_without_a_gap(void **state)
{
	struct bed *bed = *state;

	assert_int_equal(lock(bed, 1, 0, 9, HF_LOCK_EXCLUSIVE, false), HF_LOCK_OK);
	assert_int_equal(lock(bed, 2, 0, 9, HF_LOCK_EXCLUSIVE, true), HF_LOCK_E_QUEUED);
	unlock(bed, 1, 0, 9);
	assert_int_equal(bed->n_grants, 1);
	assert_int_equal(bed->seen, HF_LOCK_EXCLUSIVE);
	unlock(bed, 2, 0, 9);
	assert_int_equal(seen_by(bed->local_fd, 0), HF_LOCK_NONE);
}

static void test_the_local_holder_is_shown(void **state)
{
	struct bed *bed = *state;
	struct hf_lock_target who = target(bed, 1);
	struct hf_lock_view view;

	assert_true(local(bed, 10, HF_RANGE_EOF, F_RDLCK));
	assert_int_equal(hf_lock_test(bed->locks, &who, (struct hf_range){ 0, 20 }, HF_LOCK_SHARED, &view),
			 HF_LOCK_OK);
	assert_int_equal(hf_lock_test(bed->locks, &who, (struct hf_range){ 0, 20 }, HF_LOCK_EXCLUSIVE, &view),
			 HF_LOCK_E_CONFLICT);
	assert_null(view.who.client);
	assert_int_equal(view.mode, HF_LOCK_SHARED);
	assert_int_equal(view.range.start, 10);
	assert_int_equal(view.range.end, HF_RANGE_EOF);
}

static void test_many_are_taken_as_a_whole(void **state)
{
	struct bed *bed = *state;
	const uint64_t n = 4 * HF_LOCAL_MAX_RANGES;

	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(lock(bed, 1, 10 * i, 10 * i + 4, HF_LOCK_EXCLUSIVE, false), HF_LOCK_OK);
	assert_true(bed->ours.ranges.n <= HF_LOCAL_MAX_RANGES);
	for (uint64_t i = 0; i < n; i++)
		assert_false(local(bed, 10 * i, 10 * i, F_RDLCK));
	assert_true(local(bed, 10 * n, HF_RANGE_EOF, F_WRLCK));
	unlock(bed, 1, 0, 10 * (n - 100) - 1);
	assert_int_equal(bed->ours.ranges.n, 100);
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(local(bed, 10 * i, 10 * i + 4, F_RDLCK), i < n - 100);
	unlock(bed, 1, 0, HF_RANGE_EOF);
	assert_int_equal(bed->ours.ranges.n, 0);
	assert_true(local(bed, 0, HF_RANGE_EOF, F_WRLCK));
}

static void test_many_around_local_locks(void **state)
{
	struct bed *bed = *state;
	const uint64_t n = 4 * HF_LOCAL_MAX_RANGES, every = 100;

	for (uint64_t i = 0; i < n; i += every)
		assert_true(local(bed, 10 * i + 7, 10 * i + 7, i % 200 ? F_RDLCK : F_WRLCK));
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(lock(bed, 1, 10 * i, 10 * i + 4, HF_LOCK_EXCLUSIVE, false), HF_LOCK_OK);
	assert_true(bed->ours.ranges.n <= HF_LOCAL_MAX_RANGES + n / every);
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(seen_by(bed->local_fd, 10 * i + 4), HF_LOCK_EXCLUSIVE);
	for (uint64_t i = 0; i < n; i += every) {
		assert_int_equal(seen_by(bed->local_fd, 10 * i + 7), HF_LOCK_NONE);
		assert_int_equal(lock(bed, 1, 10 * i + 6, 10 * i + 8, HF_LOCK_EXCLUSIVE, false),
				 HF_LOCK_E_CONFLICT);
	}
	unlock(bed, 1, 0, 10 * (n - 100) - 1);
	assert_int_equal(bed->ours.ranges.n, 100);
	unlock(bed, 1, 0, HF_RANGE_EOF);
	assert_int_equal(bed->ours.ranges.n, 0);
	assert_true(local(bed, 0, HF_RANGE_EOF, F_WRLCK));
}

/* A shared lock of a local process covers shared locks of clients. Those stay as they are. */
static void test_many_under_a_local_lock(void **state)
{
	struct bed *bed = *state;
	const uint64_t n = 2 * HF_LOCAL_MAX_RANGES;

	assert_true(local(bed, 0, 10 * n / 2 - 1, F_RDLCK));
	assert_int_equal(lock(bed, 1, 20 * n, 20 * n, HF_LOCK_EXCLUSIVE, false), HF_LOCK_OK);
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(lock(bed, 2, 10 * i, 10 * i + 4, HF_LOCK_SHARED, false), HF_LOCK_OK);
	for (uint64_t i = 0; i < n; i++)
		assert_true(seen_by(bed->local_fd, 10 * i) >= HF_LOCK_SHARED);
	for (uint64_t i = 0; i < n / 2; i++)
		assert_int_equal(seen_by(bed->local_fd, 10 * i + 7), HF_LOCK_NONE);
	assert_int_equal(seen_by(bed->local_fd, 20 * n), HF_LOCK_EXCLUSIVE);
	unlock(bed, 2, 0, HF_RANGE_EOF);
	assert_int_equal(bed->ours.ranges.n, 1);
}

static size_t n_needed_by(struct bed *bed)
{
	struct hf_range range;
	enum hf_lock_mode mode;
	size_t n = 0;

	for (uint64_t pos = 0; needed(bed, pos, &range, &mode); pos = range.end + 1)
		n++;
	return n;
}

static void test_a_cover_ends_at_what_is_needed(void **state)
{
	struct bed *bed = *state;

	assert_true(hf_local_file_cover(&bed->ours, (struct hf_range){ 10, 19 }));
	assert_int_equal(lock(bed, 1, 10, 19, HF_LOCK_EXCLUSIVE, false), HF_LOCK_OK);
	assert_int_equal(lock(bed, 2, 30, 39, HF_LOCK_SHARED, false), HF_LOCK_OK);
	assert_int_equal(lock(bed, 3, 50, HF_RANGE_EOF, HF_LOCK_EXCLUSIVE, false), HF_LOCK_OK);
	unlock(bed, 1, 15, 19);
	assert_false(local(bed, 0, 0, F_RDLCK));
	assert_int_equal(bed->ours.ranges.n, 1);
	assert_int_equal(hf_local_file_uncover(&bed->ours, needed, bed), 0);
	assert_int_equal(bed->ours.ranges.n, 3);
	assert_true(local(bed, 0, 9, F_WRLCK) && local(bed, 15, 29, F_WRLCK) && local(bed, 30, 39, F_RDLCK) &&
		    local(bed, 40, 49, F_WRLCK));
	assert_false(local(bed, 14, 14, F_RDLCK) || local(bed, 30, 30, F_WRLCK) ||
		     local(bed, HF_RANGE_EOF, HF_RANGE_EOF, F_RDLCK));
}

static void test_a_local_lock_anywhere_refuses_a_cover(void **state)
{
	struct bed *bed = *state;

	assert_int_equal(lock(bed, 1, 10, 19, HF_LOCK_SHARED, false), HF_LOCK_OK);
	assert_true(local(bed, HF_RANGE_EOF, HF_RANGE_EOF, F_RDLCK));
	assert_false(hf_local_file_cover(&bed->ours, (struct hf_range){ 20, 29 }));
	assert_false(bed->ours.is_covered);
	check(bed);
}

static void test_many_stay_one_range_after_a_cover(void **state)
{
	struct bed *bed = *state;
	const uint64_t n = 2 * HF_LOCAL_MAX_RANGES;

	assert_int_equal(lock(bed, 1, 105, 109, HF_LOCK_EXCLUSIVE, false), HF_LOCK_OK);
	assert_true(hf_local_file_cover(&bed->ours, (struct hf_range){ 200, 204 }));
	for (uint64_t i = n; i > 0; i--)
		assert_int_equal(lock(bed, 1, 100 + 10 * i, 104 + 10 * i, HF_LOCK_EXCLUSIVE, false),
				 HF_LOCK_OK);
	assert_int_equal(hf_local_file_uncover(&bed->ours, needed, bed), 0);
	assert_true(bed->ours.is_whole && !bed->ours.is_covered);
	assert_int_equal(bed->ours.ranges.n, 1);
	assert_true(local(bed, 0, 104, F_WRLCK) && local(bed, 105 + 10 * n, HF_RANGE_EOF, F_WRLCK));
	assert_false(local(bed, 105, 105, F_RDLCK) || local(bed, 104 + 10 * n, 104 + 10 * n, F_RDLCK));
	unlock(bed, 1, 0, 10 * n);
	assert_int_equal(bed->ours.ranges.n, n_needed_by(bed));
	assert_true(local(bed, 105, 10 * n, F_WRLCK));
}

static void test_a_descriptor_for_reading(void **state)
{
	struct bed *bed = *state;
	struct hf_local_file file;
	int fd = open(bed->path, O_RDONLY | O_CLOEXEC);

	hf_local_file_init(&file, fd);
	assert_true(local(bed, 0, 9, F_RDLCK));
	assert_int_equal(hf_local_file_take(&file, (struct hf_range){ 0, 9 }, HF_LOCK_SHARED), HF_LOCK_OK);
	assert_int_equal(hf_local_file_take(&file, (struct hf_range){ 0, 9 }, HF_LOCK_EXCLUSIVE),
			 HF_LOCK_E_CONFLICT);
	assert_true(local(bed, 0, 9, F_UNLCK));
	assert_int_equal(hf_local_file_take(&file, (struct hf_range){ 0, 9 }, HF_LOCK_EXCLUSIVE), HF_LOCK_OK);
	assert_false(local(bed, 0, 9, F_WRLCK));
	hf_local_file_deinit(&file);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_served_when_the_local_process_lets_go, setup, teardown),
		cmocka_unit_test_setup_teardown(test_handed_over_without_a_gap, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_local_holder_is_shown, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_are_taken_as_a_whole, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_around_local_locks, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_under_a_local_lock, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_cover_ends_at_what_is_needed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_local_lock_anywhere_refuses_a_cover, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_stay_one_range_after_a_cover, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_descriptor_for_reading, setup, teardown),
		cmocka_unit_test_setup_teardown(test_random, setup, teardown),
		cmocka_unit_test_setup_teardown(test_random_with_covers, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
