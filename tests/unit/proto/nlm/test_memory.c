/*
 * The lock manager when memory is wanting. Two functions below it fail when
 * told to (ld --wrap), and a call back to a client is counted, not sent.
 */
#include "../../memory.h"
#include "../../recovery/world.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/nlm/internal.h"
#include "proto/nlm/op.h"
#include "rpc/client.h"
#include "rpc/server_internal.h"

static struct {
	struct world world;
	struct hf_nlm *nlm;
	int n_failures; /* of what fails, from now on */
	unsigned int n_called;
	hf_rpc_done_fn done; /* of the last call */
	void *user;
} bed;

static bool fails(void)
{
	return bed.n_failures > 0 && bed.n_failures-- > 0;
}

int __real_hf_rpc_call_suspend(struct hf_rpc_call *call);
int __wrap_hf_rpc_call_suspend(struct hf_rpc_call *call);
int __wrap_hf_rpc_call_suspend(struct hf_rpc_call *call)
{
	return fails() ? -ENOMEM : __real_hf_rpc_call_suspend(call);
}

int __real_hf_lock_grant_confirm(struct hf_locks *locks, uint64_t id);
int __wrap_hf_lock_grant_confirm(struct hf_locks *locks, uint64_t id);
int __wrap_hf_lock_grant_confirm(struct hf_locks *locks, uint64_t id)
{
	return fails() ? -ENOMEM : __real_hf_lock_grant_confirm(locks, id);
}

int __real_hf_lock_grant_assume(struct hf_locks *locks, uint64_t id);
int __wrap_hf_lock_grant_assume(struct hf_locks *locks, uint64_t id);
int __wrap_hf_lock_grant_assume(struct hf_locks *locks, uint64_t id)
{
	return fails() ? -ENOMEM : __real_hf_lock_grant_assume(locks, id);
}

int __wrap_hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
			      const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user);
int __wrap_hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
			      const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user)
{
	bed.n_called++;
	bed.done = done;
	bed.user = user;
	return 0;
}

static int setup(void **state)
{
	struct hf_nlm_options options = { .server_name = "server" };

	memset(&bed, 0, sizeof(bed));
	world_init(&bed.world);
	world_up(&bed.world);
	world_turn(&bed.world);
	options.loop = bed.world.loop;
	options.recovery = bed.world.recovery;
	assert_int_equal(hf_nlm_new(&bed.nlm, &options), 0);
	return 0;
}

static int teardown(void **state)
{
	bed.nlm = hf_nlm_free(bed.nlm);
	world_deinit(&bed.world);
	return 0;
}

/* A waiter gets its lock, and is called. */
static void grant_one(void)
{
	struct hf_client *holder = world_client(&bed.world, "10.0.0.1", "one");
	struct hf_client *other = world_client(&bed.world, "10.0.0.2", "two");
	struct hf_lock_request request = world_request(other, 2, "f", 0, 9);

	assert_int_equal(world_lock(&bed.world, holder, 1, "f", 0, 9), HF_LOCK_OK);
	request.wait = true;
	request.user = hf_nlm_route_pack((struct hf_nlm_route){ .version = 4 });
	assert_int_equal(hf_lock_acquire(bed.nlm->locks, &request, NULL), HF_LOCK_E_QUEUED);
	world_unlock(&bed.world, holder, 1, "f", 0, 9);
	world_until(&bed.world, bed.n_called == 1);
}

static void answer(enum hf_nlm_stat stat, unsigned int n_sent)
{
	uint8_t bytes[64];
	struct hf_xdr_out out;
	struct hf_xdr_in in;

	hf_xdr_out_init(&out, bytes, sizeof(bytes));
	hf_nlm_put_res(&out, 4, (struct hf_bytes){ 0 }, stat);
	hf_xdr_in_init(&in, bytes, (size_t)(out.p - bytes));
	bed.done(bed.user,
		 &(struct hf_rpc_result){ .outcome = HF_RPC_OUTCOME_OK, .n_sent = n_sent, .results = &in });
}

static bool is_settled(void)
{
	struct hf_lock_counters n;

	hf_lock_count(bed.nlm->locks, &n);
	return n.grants == 0 && n.locks == 1;
}

static void test_a_grant_is_confirmed_when_there_is_memory(void **state)
{
	grant_one();
	bed.n_failures = 2;
	answer(HF_NLM_GRANTED_STAT, 1);
	assert_false(is_settled());
	world_until(&bed.world, is_settled());
	assert_int_equal(bed.n_called, 1); /* the client has answered, and is not asked again */
}

static void test_a_doubtful_grant_is_kept_when_there_is_memory(void **state)
{
	grant_one();
	bed.n_failures = 1;
	answer(HF_NLM_DENIED, 2);
	world_until(&bed.world, is_settled());
	assert_int_equal(bed.n_called, 1);
	assert_int_equal(bed.nlm->counts.grants_kept, 1);
}

/* A client that waited and is left with nothing is not told of each restart of the server for ever. */
static void test_a_client_that_refused_a_grant_may_be_unregistered(void **state)
{
	struct hf_client *waiter;

	grant_one();
	waiter = world_client(&bed.world, "10.0.0.2", "two");
	answer(HF_NLM_DENIED, 1);
	assert_int_equal(bed.nlm->counts.grants_refused, 1);
	assert_true(hf_lock_client_is_idle(&waiter->locking));
	assert_true(hf_link_is_linked(&waiter->idle_link));
}

/* A _MSG whose operation could not be suspended has ended without a _RES: a copy of it is served. */
static void test_a_message_that_is_not_suspended_is_forgotten(void **state)
{
	static const struct hf_nlm_kind kind = { .is_msg = true };
	static const uint8_t bytes[64] = "a message";
	struct hf_rpc_call call = {
		.header = { .program = HF_NLM_PROGRAM, .version = 4, .procedure = HF_NLM_LOCK_MSG },
		.message = hf_bytes_of(bytes, sizeof(bytes)),
		.peer = { .family = AF_INET },
	};
	const struct hf_nlm_op first = { .nlm = bed.nlm, .call = &call, .kind = &kind };
	struct hf_nlm_op op = first, copy = first;

	assert_false(hf_nlm_msg_is_repeat(bed.nlm, &call, &op.repeat));
	assert_non_null(op.repeat);
	bed.n_failures = 1;
	assert_null(hf_nlm_op_suspend(&op, HF_NLM_QUEUED, NULL));
	assert_false(hf_nlm_msg_is_repeat(bed.nlm, &call, &copy.repeat));
	hf_replay_forget(bed.nlm->repeats, copy.repeat);
}

/* Each of its allocations fails once: it is not made, and what was made of it is freed. */
static void test_a_lock_manager_is_made_or_not(void **state)
{
	static const struct hf_nlm_files files; /* no exports */
	const struct hf_nlm_options options = {
		.server_name = "server",
		.loop = bed.world.loop,
		.recovery = bed.world.recovery,
		.files = &files,
	};
	int n_failed = 0, r;

	bed.nlm = hf_nlm_free(bed.nlm); /* a recovery has one lock manager */
	do {
		memory_until_failure = n_failed + 1;
		memory_may_fail = true;
		r = hf_nlm_new(&bed.nlm, &options);
		memory_may_fail = false;
		assert_true(r == 0 || r == -ENOMEM);
		n_failed += r < 0;
	} while (r < 0);
	assert_true(n_failed > 5);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_grant_is_confirmed_when_there_is_memory),
		T(test_a_doubtful_grant_is_kept_when_there_is_memory),
		T(test_a_client_that_refused_a_grant_may_be_unregistered),
		T(test_a_message_that_is_not_suspended_is_forgotten),
		T(test_a_lock_manager_is_made_or_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
