/* Connections to the rpcbinds of hosts. Each is made only on paper (ld --wrap). */
#include "../../recovery/world.h"

#include <errno.h>

#include "proto/nsm/internal.h"

enum {
	MANY = 300,
	MOST = 64, /* under way at once */
	TURN_MS = 50,
};

struct paper {
	hf_rpc_done_fn done; /* NULL: not under way */
	struct hf_nsm_attempt *attempt;
};

static struct world w;
static struct hf_nsm *nsm;
static struct paper papers[MANY];
static struct hf_nsm_attempt attempts[MANY];
static size_t n_begun, n_under_way, n_answers[HF_NSM_ATTEMPT_REFUSED + 1];
static struct hf_nsm_attempt *begun[MANY];
static int call_error;

static struct paper *paper_of(const struct hf_nsm_attempt *attempt)
{
	return &papers[attempt - attempts];
}

int __wrap_hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
			      const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user);
int __wrap_hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
			      const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user)
{
	struct paper *paper = paper_of(user);

	assert_int_equal(request->path, HF_RPC_TCP_ONLY);
	assert_int_equal(request->remote.port, 111);
	if (call_error)
		return call_error;
	*paper = (struct paper){ .done = done, .attempt = user };
	*pendingp = (struct hf_rpc_pending *)paper;
	begun[n_begun++] = user;
	n_under_way++;
	assert_in_range(n_under_way, 1, MOST);
	return 0;
}

struct hf_rpc_pending *__wrap_hf_rpc_pending_cancel(struct hf_rpc_pending *pending);
struct hf_rpc_pending *__wrap_hf_rpc_pending_cancel(struct hf_rpc_pending *pending)
{
	struct paper *paper = (struct paper *)pending;

	n_under_way -= paper && paper->done;
	if (paper)
		paper->done = NULL;
	return NULL;
}

uint16_t __wrap_hf_rpc_client_rpcbind_port(const struct hf_rpc_client *client);
uint16_t __wrap_hf_rpc_client_rpcbind_port(const struct hf_rpc_client *client)
{
	return 111;
}

static void finish(struct hf_nsm_attempt *attempt, enum hf_rpc_outcome outcome, enum hf_rpc_stage stage)
{
	struct hf_rpc_result result = { .outcome = outcome, .stage = stage };
	struct paper *paper = paper_of(attempt);
	hf_rpc_done_fn done = paper->done;

	assert_non_null(done);
	paper->done = NULL;
	n_under_way--;
	done(attempt, &result);
}

static void on_answer(struct hf_nsm_attempt *attempt, enum hf_nsm_attempt_answer answer)
{
	assert_false(hf_nsm_attempt_is_under_way(attempt));
	n_answers[answer]++;
}

static void begin_all(size_t n)
{
	struct hf_addr host, local = { 0 };

	assert_true(hf_addr_parse(&host, "10.0.0.1"));
	for (size_t i = 0; i < n; i++) {
		hf_nsm_attempt_init(&attempts[i], nsm, on_answer);
		assert_int_equal(hf_nsm_attempt_start(&attempts[i], &host, &local, 50 * MS), 0);
	}
}

static void pass(uint64_t ms)
{
	uint64_t end = hf_loop_now(w.loop) + ms * MS;

	world_until(&w, hf_loop_now(w.loop) >= end);
}

static int setup(void **state)
{
	struct hf_nsm_options options = { .server_name = "server" };

	n_begun = n_under_way = 0;
	call_error = 0;
	memset(papers, 0, sizeof(papers));
	memset(n_answers, 0, sizeof(n_answers));
	world_init(&w);
	world_up(&w);
	world_turn(&w);
	options.loop = w.loop;
	options.recovery = w.recovery;
	return hf_nsm_new(&nsm, &options);
}

static int teardown(void **state)
{
	hf_nsm_free(nsm);
	world_deinit(&w);
	return 0;
}

static void cancel_all(size_t n)
{
	for (size_t i = 0; i < n; i++)
		hf_nsm_attempt_cancel(&attempts[i]);
	assert_int_equal(n_under_way, 0);
	assert_int_equal(nsm->n_attempting, 0);
}

static void test_only_so_many_are_under_way(void **state)
{
	begin_all(MANY);
	world_until(&w, n_begun >= MOST);
	pass(TURN_MS - 10);
	assert_int_equal(n_begun, MOST);
	cancel_all(MANY);
	pass(10 * TURN_MS);
	assert_int_equal(n_begun, MOST);
	assert_int_equal(n_answers[HF_NSM_ATTEMPT_SILENT], 0);
}

static void test_silent_ones_give_way(void **state)
{
	begin_all(MANY);
	world_until(&w, n_begun == MANY);
	assert_int_equal(n_answers[HF_NSM_ATTEMPT_SILENT], MANY - MOST);
	pass(10 * TURN_MS); /* no other one waits */
	assert_int_equal(n_under_way, MOST);
	cancel_all(MANY);
}

static void test_an_answer_makes_room(void **state)
{
	begin_all(MOST + 2);
	world_until(&w, n_begun == MOST);
	finish(begun[0], HF_RPC_OUTCOME_REFUSED, HF_RPC_STAGE_CONNECT);
	world_until(&w, n_begun == MOST + 1);
	hf_nsm_attempt_cancel(begun[1]);
	world_until(&w, n_begun == MOST + 2);
	assert_int_equal(n_answers[HF_NSM_ATTEMPT_SILENT], 0);
	assert_int_equal(n_answers[HF_NSM_ATTEMPT_REFUSED], 1);
	cancel_all(MOST + 2);
}

static void test_the_newest_is_next(void **state)
{
	begin_all(MOST + 2);
	world_until(&w, n_begun == MOST + 2);
	assert_ptr_equal(begun[MOST], &attempts[MOST + 1]);
	assert_ptr_equal(begun[MOST + 1], &attempts[MOST]);
	cancel_all(MOST + 2);
}

static void test_answers(void **state)
{
	static const struct {
		enum hf_rpc_outcome outcome;
		enum hf_rpc_stage stage;
		enum hf_nsm_attempt_answer answer;
	} cases[] = {
		{ HF_RPC_OUTCOME_OK, HF_RPC_STAGE_REPLY, HF_NSM_ATTEMPT_ACCEPTED },
		{ HF_RPC_OUTCOME_TIMEOUT, HF_RPC_STAGE_REPLY, HF_NSM_ATTEMPT_ACCEPTED },
		{ HF_RPC_OUTCOME_NO_PROGRAM, HF_RPC_STAGE_REPLY, HF_NSM_ATTEMPT_ACCEPTED },
		{ HF_RPC_OUTCOME_REFUSED, HF_RPC_STAGE_CONNECT, HF_NSM_ATTEMPT_REFUSED },
		{ HF_RPC_OUTCOME_TIMEOUT, HF_RPC_STAGE_CONNECT, HF_NSM_ATTEMPT_SILENT },
		{ HF_RPC_OUTCOME_UNREACHABLE, HF_RPC_STAGE_CONNECT, HF_NSM_ATTEMPT_SILENT },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t before = n_answers[cases[i].answer];

		n_begun = 0;
		begin_all(1);
		world_until(&w, n_begun == 1);
		finish(&attempts[0], cases[i].outcome, cases[i].stage);
		assert_int_equal(n_answers[cases[i].answer], before + 1);
	}
}

static void test_a_call_that_cannot_be_made_is_no_answer(void **state)
{
	call_error = -EBUSY;
	begin_all(MANY);
	world_until(&w, n_answers[HF_NSM_ATTEMPT_SILENT] == MANY);
	assert_int_equal(nsm->n_attempting, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_only_so_many_are_under_way, setup, teardown),
		cmocka_unit_test_setup_teardown(test_silent_ones_give_way, setup, teardown),
		cmocka_unit_test_setup_teardown(test_an_answer_makes_room, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_newest_is_next, setup, teardown),
		cmocka_unit_test_setup_teardown(test_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_call_that_cannot_be_made_is_no_answer, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
