/*
 * The kernel as judge over long ranges of few owners: the same random, non-blocking
 * sequence of requests to the engine and to fcntl OFD locks on a file. After
 * each step the answers are compared, and now and then the whole table, byte by
 * byte: both say which lock is in the way of another owner.
 *
 *	test_kernel_oracle [seed [steps]]    or HF_SEED, HF_STEPS
 *
 * No request waits here, since the kernel has no queue; test_property has the
 * kernel beside its own sequences, with everything that happens there.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "lock/lock.h"

#include "chance.h"
#include "kernel.h"

enum {
	OWNERS = 6,
	STRANGER = OWNERS, /* holds nothing */
	BYTES = 40,
};

static const uint64_t far =
	HF_RANGE_EOF - BYTES; /* every second time at the very end of what a file can be */

struct oracle {
	struct hf_locks *locks;
	struct hf_lock_client client;
	struct kernel kernel;
	uint64_t random, seed;
	long step;
	long n_ok, n_conflict;
};

static struct oracle o;

static void fail(const char *why)
{
	fprintf(stderr, "FAILED: %s\n  again: test_kernel_oracle %llu %ld\n", why, (unsigned long long)o.seed,
		o.step + 1);
	exit(1);
}

static uint32_t chance(uint32_t n)
{
	return chance_below(&o.random, n);
}

static struct hf_lock_target target_of(int owner)
{
	return (struct hf_lock_target){
		.handle = hf_bytes_of_str("the file"),
		.client = &o.client,
		.owner_id = (uint64_t)owner,
	};
}

static struct hf_range draw_range(void)
{
	struct hf_range range;
	uint64_t base = chance(2) ? far : 0;
	uint64_t len = chance(8) == 0 ? 0 : 1 + chance(chance(2) ? 4 : BYTES);

	if (hf_range_from_offset_len(&range, base + chance(BYTES), len))
		fail("range");
	return range;
}

static void do_lock(void)
{
	struct hf_lock_request request = { .range = draw_range(),
					   .mode = (enum hf_lock_mode)(1 + chance(2)) };
	int owner = (int)chance(OWNERS);
	int answer;

	request.who = target_of(owner);
	answer = hf_lock_acquire(o.locks, &request, NULL);
	if (answer != HF_LOCK_OK && answer != HF_LOCK_E_CONFLICT)
		fail("answer");
	if (kernel_set(&o.kernel, owner, request.mode, request.range) != (answer == HF_LOCK_OK))
		fail("lock");
	o.n_ok += answer == HF_LOCK_OK;
	o.n_conflict += answer != HF_LOCK_OK;
}

static void do_unlock(void)
{
	struct hf_range range = draw_range();
	int owner = (int)chance(OWNERS);
	struct hf_lock_target who = target_of(owner);

	if (hf_lock_release(o.locks, &who, range) || !kernel_set(&o.kernel, owner, HF_LOCK_NONE, range))
		fail("unlock");
}

static void test(int owner, enum hf_lock_mode mode, struct hf_range range)
{
	struct hf_lock_target who = target_of(owner);

	if (kernel_is_free(&o.kernel, owner, mode, range) !=
	    (hf_lock_test(o.locks, &who, range, mode, NULL) == HF_LOCK_OK))
		fail("test");
}

static void compare_bytes(uint64_t base)
{
	for (uint64_t at = base; at <= base + BYTES; at++) {
		for (int owner = 0; owner <= STRANGER; owner++) {
			test(owner, HF_LOCK_SHARED, (struct hf_range){ at, at });
			test(owner, HF_LOCK_EXCLUSIVE, (struct hf_range){ at, at });
		}
	}
}

static void begin(void)
{
	struct hf_locks_options options = { .key = { o.seed, 1 } };

	if (!kernel_open(&o.kernel, OWNERS + 1) || hf_locks_new(&o.locks, &options) < 0)
		fail("begin");
	hf_lock_client_init(o.locks, &o.client);
}

int main(int argc, char **argv)
{
	long steps;

	o.seed = chance_setting(argc, argv, 1, "HF_SEED", 20250101);
	steps = (long)chance_setting(argc, argv, 2, "HF_STEPS", 200000);
	if (steps > 200000 && argc <= 2)
		steps = 200000; /* system calls: HF_STEPS is meant for the property test, too */
	o.random = o.seed * 2654435761u + 88172645463325252u;
	begin();
	for (o.step = 0; o.step < steps; o.step++) {
		uint32_t n = chance(10);

		if (n < 5)
			do_lock();
		else if (n < 8)
			do_unlock();
		else
			test((int)chance(OWNERS + 1), (enum hf_lock_mode)(1 + chance(2)), draw_range());
		if (o.step % 500 == 0) {
			compare_bytes(0);
			compare_bytes(far);
			if (hf_locks_check(o.locks))
				fail(hf_locks_check(o.locks));
		}
	}
	printf("seed %llu, %ld steps: %ld granted, %ld refused, all as the kernel says\n",
	       (unsigned long long)o.seed, steps, o.n_ok, o.n_conflict);
	hf_locks_free(o.locks);
	kernel_close(&o.kernel);
	return 0;
}
