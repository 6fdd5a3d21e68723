/*
 * Calls whose end waits for the store, and what has become of their owner by
 * then. They come from nowhere (there is no server), and their replies go there;
 * what they say is taken from what the meters are told (ld --wrap).
 */
#include "../../recovery/world.h"

#include <string.h>

#include "proto/nlm/internal.h"
#include "rpc/server_internal.h"

#define HOST "10.0.0.9" /* where two clients are */

static struct {
	struct world world;
	struct hf_rpc_lane lane;
	struct hf_nlm *nlm;
	uint32_t n_calls;
	const char *said[16]; /* by number of the call */
} bed;

void __wrap_hf_rpc_call_note(struct hf_rpc_call *call, const char *result);
void __wrap_hf_rpc_call_note(struct hf_rpc_call *call, const char *result)
{
	bed.said[call->header.xid] = result;
}

int __wrap_hf_rpc_call_keep(struct hf_rpc_call *call);
int __wrap_hf_rpc_call_keep(struct hf_rpc_call *call)
{
	if (call->is_kept)
		return 0;
	call->is_kept = true; /* its message is its own */
	hf_list_push_back(&bed.lane.kept, &call->in_kept);
	return 0;
}

static int setup(void **state)
{
	struct hf_nlm_options options = { .server_name = "server" };

	memset(&bed, 0, sizeof(bed));
	world_init(&bed.world);
	world_up(&bed.world);
	world_turn(&bed.world);
	bed.lane.loop = options.loop = bed.world.loop;
	hf_list_init(&bed.lane.kept);
	options.recovery = bed.world.recovery;
	assert_int_equal(hf_nlm_new(&bed.nlm, &options), 0);
	return 0;
}

static int teardown(void **state)
{
	bed.nlm = hf_nlm_free(bed.nlm);
	world_deinit(&bed.world);
	hf_rpc_calls_deinit(&bed.lane);
	return 0;
}

/* What is asked for, of bytes 0 to 9 by process 7. */
struct ask {
	enum hf_nlm_proc procedure;
	const char *host; /* NULL: HOST */
	const char *name;
	const char *file; /* NULL: "f" */
	uint64_t offset;
	bool is_shared;
	bool block;
};

static void put_args(struct hf_xdr_out *out, const struct ask *ask)
{
	hf_xdr_put_opaque(out, hf_bytes_of_str("cookie"));
	if (ask->procedure == HF_NLM_LOCK)
		hf_xdr_put_bool(out, ask->block);
	if (ask->procedure == HF_NLM_LOCK)
		hf_xdr_put_bool(out, !ask->is_shared);
	hf_xdr_put_opaque(out, hf_bytes_of_str(ask->name));
	hf_xdr_put_opaque(out, hf_bytes_of_str(ask->file ? ask->file : "f"));
	hf_xdr_put_opaque(out, hf_bytes_of_str("oh"));
	hf_xdr_put_i32(out, 7);
	hf_xdr_put_u64(out, ask->offset);
	hf_xdr_put_u64(out, 10);
	if (ask->procedure == HF_NLM_LOCK) {
		hf_xdr_put_bool(out, false); /* reclaim */
		hf_xdr_put_i32(out, 3);      /* state */
	}
}

/* The number of the call. */
static uint32_t call_up(struct ask ask)
{
	uint8_t *message = malloc(256);
	struct hf_xdr_out out;
	struct hf_rpc_call *call;

	hf_xdr_out_init(&out, message, 256);
	put_args(&out, &ask);
	assert_true(hf_xdr_out_is_ok(&out));
	call = hf_rpc_call_new(&bed.lane, hf_bytes_of(message, (uint32_t)(out.p - message)));
	call->own = message;
	call->header = (struct hf_rpc_header){
		.program = HF_NLM_PROGRAM, .version = 4, .procedure = ask.procedure, .xid = bed.n_calls
	};
	call->args_at = 0;
	assert_true(hf_addr_parse(&call->peer, ask.host ? ask.host : HOST));
	assert_true(hf_addr_parse(&call->local, "10.0.0.1"));
	hf_rpc_call_rewind(call);
	if (ask.procedure == HF_NLM_LOCK)
		hf_nlm_proc_lock(bed.nlm, call);
	else
		hf_nlm_proc_unlock(bed.nlm, call);
	assert_true(bed.n_calls < HF_ARRAY_SIZE(bed.said));
	return bed.n_calls++;
}

static void expect(uint32_t n, const char *result)
{
	world_until(&bed.world, bed.said[n]);
	assert_string_equal(bed.said[n], result);
}

static void lock(struct ask ask)
{
	ask.procedure = HF_NLM_LOCK;
	expect(call_up(ask), "GRANTED");
}

/* Does the client have bytes 0 to 9, and how many locks has he? */
static void assert_has(const char *name, uint32_t n_locks)
{
	struct hf_client *client = world_client(&bed.world, HOST, name);

	assert_int_equal(client->holds.n_locks, n_locks);
}

static void kill_client(const char *name)
{
	hf_recovery_client_freed(bed.world.recovery, world_client(&bed.world, HOST, name), 0);
}

/* Whoever has the same process number at the same address, in the same file, and was not heard of since,
 * would be taken for the one that is no more. */

static void test_a_lowering_is_of_nobody_else(void **state)
{
	uint32_t lowering;

	lock((struct ask){ .name = "x", .offset = 100 });
	lock((struct ask){ .name = "y" });
	bed.world.disk.is_slow = true;
	call_up((struct ask){ HF_NLM_LOCK, .host = "10.0.0.5", .name = "z", .file = "g" });
	lowering = call_up((struct ask){ HF_NLM_LOCK, .name = "y", .is_shared = true });
	assert_null(bed.said[lowering]);
	kill_client("y");
	bed.world.disk.is_slow = false;
	disk_let_go(&bed.world.disk);
	expect(lowering, "GRANTED");
	assert_has("y", 0);
	assert_has("x", 1);
}

static void test_what_is_taken_back_is_nobody_elses(void **state)
{
	uint32_t taking, giving;

	lock((struct ask){ .name = "x", .is_shared = true });
	lock((struct ask){ .name = "y", .file = "g" });
	bed.world.disk.is_slow = true;
	taking = call_up((struct ask){ HF_NLM_LOCK, .name = "y", .is_shared = true });
	world_turn(&bed.world); /* it is on its way to the disk */
	giving = call_up((struct ask){ HF_NLM_UNLOCK, .name = "y" });
	assert_null(bed.said[taking]);
	bed.world.disk.is_broken = true;
	disk_let_go(&bed.world.disk);
	expect(taking, "DENIED_NOLOCKS");
	expect(giving, "GRANTED");
	assert_has("x", 1);
	bed.world.disk.is_broken = false;
}

/* He who asks and is refused for good waits no longer; another one does. */
static void test_who_is_refused_ends_nobody_elses_wait(void **state)
{
	struct hf_client *waiter;

	lock((struct ask){ .host = "10.0.0.5", .name = "z" });
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "x", .block = true }), "BLOCKED");
	waiter = world_client(&bed.world, HOST, "x");
	assert_int_equal(waiter->holds.n_waiters, 1);
	bed.world.disk.is_broken = true;
	call_up((struct ask){ HF_NLM_LOCK, .name = "y", .file = "g" });
	world_until(&bed.world, !hf_recovery_can_promise(bed.world.recovery));
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "y", .block = true }), "DENIED_NOLOCKS");
	assert_int_equal(waiter->holds.n_waiters, 1);
	expect(call_up((struct ask){ HF_NLM_LOCK, .name = "x", .block = true }), "DENIED_NOLOCKS");
	assert_int_equal(waiter->holds.n_waiters, 0);
	bed.world.disk.is_broken = false;
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_lowering_is_of_nobody_else),
		T(test_what_is_taken_back_is_nobody_elses),
		T(test_who_is_refused_ends_nobody_elses_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
