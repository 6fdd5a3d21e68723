/*
 * No memory: at each place where some is asked for, once, and from there on until
 * all is over. No client gets what another one holds, nothing breaks, and when
 * there is memory again nothing is left behind.
 *
 * Everything that allocates is replaced (ld --wrap), and so is where the disk of
 * the test begins and ends, which has all it wants.
 */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>

#define OTHER "10.0.0.5"

static long n_asked, first, last; /* what is refused, by number; first is 0: nothing */

static bool is_wanting(void)
{
	if (!first || calls.is_ours)
		return false;
	n_asked++;
	return n_asked >= first && n_asked <= last;
}

/* Stand-ins */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
	return is_wanting() ? NULL : __real_malloc(size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return is_wanting() ? NULL : __real_calloc(n, size);
}

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size)
{
	return is_wanting() ? NULL : __real_realloc(memory, size);
}

void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size)
{
	return is_wanting() ? NULL : __real_aligned_alloc(align, size);
}

struct hf_bytes __real_hf_batch_bytes(struct hf_store_batch *batch);
struct hf_bytes __wrap_hf_batch_bytes(struct hf_store_batch *batch);
struct hf_bytes __wrap_hf_batch_bytes(struct hf_store_batch *batch)
{
	calls.is_ours = true;
	return __real_hf_batch_bytes(batch);
}

void __real_hf_store_batch_done(struct hf_store_batch *batch, int r);
void __wrap_hf_store_batch_done(struct hf_store_batch *batch, int r);
void __wrap_hf_store_batch_done(struct hf_store_batch *batch, int r)
{
	calls.is_ours = false;
	__real_hf_store_batch_done(batch, r);
}

/* The play */

static void check(void)
{
	const char *broken = hf_locks_check(calls.nlm->locks);

	if (broken)
		fail_msg("from %ld to %ld: %s", first, last, broken);
}

static void turn(void)
{
	world_turn(&calls.world);
	check();
}

static void ask(struct ask what)
{
	call_up(what);
	check();
}

#define LOCK(...)   ask((struct ask){ HF_NLM_LOCK, __VA_ARGS__ })
#define UNLOCK(...) ask((struct ask){ HF_NLM_UNLOCK, __VA_ARGS__ })

/* Two wait for a third, and each hears of it: one polls meanwhile, one does not want it any more. */
static void wait_and_be_granted(void)
{
	LOCK(.name = "z", .host = OTHER);
	turn();
	LOCK(.name = "x", .block = true);
	LOCK(.name = "y", .block = true, .is_shared = true, .by_tcp = true);
	turn();
	UNLOCK(.name = "z", .host = OTHER, .offset = 2, .len = 3);
	UNLOCK(.name = "z", .host = OTHER);
	turn();
	LOCK(.name = "x", .block = true);
	calls_answer(HF_NLM_GRANTED_STAT);
	turn();
	UNLOCK(.name = "x");
	turn();
	calls_answer(HF_NLM_DENIED);
	turn();
}

/* An upgrade, and a downgrade that waits for the disk, with others of its owner behind it. */
static void change(void)
{
	LOCK(.name = "x", .file = "2", .is_shared = true);
	turn();
	LOCK(.name = "x", .file = "2");
	turn();
	calls.world.disk.is_slow = true;
	LOCK(.name = "z", .file = "3", .host = OTHER);
	LOCK(.name = "x", .file = "2", .is_shared = true);
	UNLOCK(.name = "x", .file = "2", .offset = 3, .len = 2);
	LOCK(.name = "x", .file = "2", .offset = 3, .len = 2);
	turn();
	calls.world.disk.is_slow = false;
	disk_let_go(&calls.world.disk);
	turn();
}

/* A downgrade before GRANTED is answered: it is, or something else comes first. */
static void lower_what_was_granted(bool is_answered)
{
	LOCK(.name = "z", .file = "5", .host = OTHER);
	LOCK(.name = "x", .file = "5", .block = true);
	turn();
	UNLOCK(.name = "z", .file = "5", .host = OTHER);
	turn();
	LOCK(.name = "x", .file = "5", .is_shared = true);
	turn();
	if (is_answered)
		calls_answer(HF_NLM_GRANTED_STAT);
	turn();
	UNLOCK(.name = "x", .file = "5");
	turn();
}

/* A client that was not known, and one that dies while it holds locks. */
static void come_and_go(void)
{
	LOCK(.name = "q", .file = "9", .by_tcp = true);
	LOCK(.name = "q", .file = "9", .by_tcp = true, .is_shared = true);
	LOCK(.name = "x", .file = "9", .block = true);
	turn();
	UNLOCK(.name = "q", .file = "9", .by_tcp = true);
	turn();
	calls_answer(HF_NLM_GRANTED_STAT);
	turn();
	calls_kill(CALLS_HOST, "x");
	turn();
}

static void end_all(void)
{
	static const char *const names[] = { "x", "y", "q" };
	struct hf_lock_counters n;

	for (size_t i = 0; i < HF_ARRAY_SIZE(names); i++)
		calls_kill(CALLS_HOST, names[i]);
	calls_kill(OTHER, "z");
	for (int i = 0; i < 5; i++)
		turn();
	hf_lock_count(calls.nlm->locks, &n);
	if (n.locks + n.waiters + n.grants + n.files + n.owners + calls.nlm->counts.grants_in_flight +
		    calls.nlm->owners.n ||
	    !hf_list_is_empty(&calls.nlm->suspended) || !hf_list_is_empty(&calls.lane.suspended))
		fail_msg("from %ld to %ld something is left", first, last);
}

/* False: there was nothing to refuse any more. */
static bool play(long from, long to)
{
	bool was_refused;

	calls_setup(0, false);
	calls.is_wanting = is_wanting;
	n_asked = 0;
	first = from;
	last = to;
	wait_and_be_granted();
	change();
	lower_what_was_granted(true);
	lower_what_was_granted(false);
	come_and_go();
	was_refused = n_asked >= first;
	first = 0;
	end_all();
	calls_teardown(NULL);
	return was_refused;
}

static void test_none_once(void **state)
{
	long at = 1;

	while (play(at, at))
		at++;
	assert_in_range(at, 30, 1000);
}

static void test_none_any_more(void **state)
{
	for (long at = 1; play(at, 1000000);)
		at++;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none_once),
		cmocka_unit_test(test_none_any_more),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
