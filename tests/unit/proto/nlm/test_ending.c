/*
 * Calls whose end waits for the store, and what has become of their owner by
 * then. They come from nowhere (there is no server), and their replies go there;
 * what they say is taken from what the meters are told, and nobody is called back
 * but on paper (ld --wrap).
 */
#include "../../recovery/world.h"

#include <string.h>

#include "proto/nlm/internal.h"
#include "rpc/client.h"
#include "rpc/server_internal.h"

#define HOST "10.0.0.9" /* where two clients are */

static struct {
	struct world world;
	struct hf_rpc_lane lane;
	struct hf_nlm *nlm;
	uint32_t n_calls;
	const char *said[16]; /* by number of the call */
	struct hf_rpc_connection connection;
	size_t n_left; /* bytes by that, in all */
	unsigned int n_granted;
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
	call->held = 0;
	hf_list_push_back(&bed.lane.kept, &call->in_kept);
	if (call->connection)
		call->connection->n_kept++;
	return 0;
}

int __wrap_hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
			      const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user);
int __wrap_hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
			      const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user)
{
	bed.n_granted++;
	return 0;
}

static void flush(struct hf_task *task)
{
	while (hf_list_pop_front(&bed.lane.flushable)) {
		assert_null(bed.connection.hold);
		bed.n_left += bed.connection.out.n_bytes;
		hf_outqueue_clear(&bed.connection.out, &bed.lane.segments);
	}
}

static void make_connection(void)
{
	struct hf_rpc_connection *c = &bed.connection;

	hf_list_init(&bed.lane.flushable);
	hf_segment_pool_init(&bed.lane.segments);
	hf_task_init(&bed.lane.flush, flush);
	c->lane = &bed.lane;
	c->socket = (struct hf_socket *)&bed; /* nobody uses it */
	hf_link_init(&c->flush_link);
	hf_link_init(&c->hold_link);
	hf_outqueue_init(&c->out);
	assert_true(hf_addr_parse(&c->peer, HOST) && hf_addr_parse(&c->local, "10.0.0.1"));
}

static int set_up_with(uint32_t locks_per_client)
{
	struct hf_nlm_options options = { .server_name = "server" };

	memset(&bed, 0, sizeof(bed));
	world_init(&bed.world);
	bed.world.options.lock_limits.locks_per_client = locks_per_client;
	world_up(&bed.world);
	world_turn(&bed.world);
	bed.lane.loop = options.loop = bed.world.loop;
	hf_list_init(&bed.lane.kept);
	make_connection();
	options.recovery = bed.world.recovery;
	assert_int_equal(hf_nlm_new(&bed.nlm, &options), 0);
	return 0;
}

static int setup(void **state)
{
	return set_up_with(0);
}

static int setup_for_one(void **state)
{
	return set_up_with(1);
}

static int teardown(void **state)
{
	bed.nlm = hf_nlm_free(bed.nlm);
	world_deinit(&bed.world);
	hf_rpc_calls_deinit(&bed.lane);
	hf_outqueue_clear(&bed.connection.out, &bed.lane.segments);
	hf_segment_pool_deinit(&bed.lane.segments);
	return 0;
}

/* What is asked for, by process 7. */
struct ask {
	enum hf_nlm_proc procedure;
	const char *host; /* NULL: HOST */
	const char *name;
	const char *file; /* NULL: "f" */
	uint64_t offset;
	uint64_t len; /* 0: 10 */
	bool is_shared;
	bool block;
	bool by_tcp;
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
	hf_xdr_put_u64(out, ask->len ? ask->len : 10);
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
	call->connection = ask.by_tcp ? &bed.connection : NULL;
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

/* Of one lock a client could make as many as it likes. */
static void test_an_unlock_that_makes_too_many(void **state)
{
	lock((struct ask){ .name = "x", .len = 100 });
	expect(call_up((struct ask){ HF_NLM_UNLOCK, .name = "x", .offset = 10 }), "GRANTED");
	assert_has("x", 2);
	expect(call_up((struct ask){ HF_NLM_UNLOCK, .name = "x", .offset = 30 }), "DENIED_NOLOCKS");
	assert_has("x", 2);
	expect(call_up((struct ask){ HF_NLM_UNLOCK, .name = "x", .len = 100 }), "GRANTED");
	assert_has("x", 0);
}

/* A client that has not read that it waits does not know what it is granted. */
static void test_granted_comes_after_blocked(void **state)
{
	struct hf_client *other = world_client(&bed.world, "10.0.0.5", "z");
	uint32_t waiting, holding;

	lock((struct ask){ .name = "x", .file = "g" });
	assert_int_equal(world_lock(&bed.world, other, 7, "f", 0, 9), HF_LOCK_OK);
	world_turn(&bed.world);
	bed.world.disk.is_slow = true;
	world_lock(&bed.world, other, 7, "1", 0, 9);
	world_turn(&bed.world); /* on its way */
	world_lock(&bed.world, other, 7, "2", 0, 9);
	waiting = call_up((struct ask){ HF_NLM_LOCK, .name = "x", .block = true, .by_tcp = true });
	world_unlock(&bed.world, other, 7, "f", 0, 9);
	disk_let_go(&bed.world.disk);
	world_turn(&bed.world); /* now this is on its way */
	assert_null(bed.said[waiting]);
	holding = call_up((struct ask){ HF_NLM_LOCK, .name = "x", .file = "h", .by_tcp = true });
	disk_let_go(&bed.world.disk);
	world_until(&bed.world, bed.n_granted);
	assert_string_equal(bed.said[waiting], "BLOCKED");
	assert_true(bed.n_left > 0);
	bed.world.disk.is_slow = false;
	disk_let_go(&bed.world.disk);
	expect(holding, "GRANTED");
	world_until(&bed.world, bed.n_left == 2 * (4 + HF_RPC_REPLY_LEN + 4 + 8 + 4));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_lowering_is_of_nobody_else),
		T(test_what_is_taken_back_is_nobody_elses),
		T(test_who_is_refused_ends_nobody_elses_wait),
		T(test_granted_comes_after_blocked),
		cmocka_unit_test_setup_teardown(test_an_unlock_that_makes_too_many, setup_for_one, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
