/* Calls that wait until a host has confirmed or denied them. The host is asked only on paper. */
#include "on_paper.h"

#include "rpc/server_internal.h"

/* A call that is resumed lets the next one of its owner be served, which tells of another restart. */
struct caller {
	struct hf_rpc_call call;
	struct hf_nsm_asker asker;
	struct hf_nsm_guest guest;
	struct caller *next;
	int r;
	int n_told;
	enum hf_nsm_verdict verdict;
};

static void on_verdict(struct hf_nsm_asker *asker, struct hf_client *client, enum hf_nsm_verdict verdict);
static void on_met(struct hf_nsm_guest *guest, bool has_answered);

static void caller_init(struct caller *caller, const char *address)
{
	*caller = (struct caller){ .asker.fn = on_verdict, .guest.fn = on_met, .r = 1 };
	assert_true(hf_addr_parse(&caller->call.peer, address));
	hf_link_init(&caller->asker.link);
	hf_link_init(&caller->guest.link);
}

static void doubt(struct caller *caller, struct hf_client *client, int32_t state)
{
	caller->r = hf_nsm_doubt(nsm, &caller->call, client, state, &caller->asker);
}

static void on_verdict(struct hf_nsm_asker *asker, struct hf_client *client, enum hf_nsm_verdict verdict)
{
	struct caller *caller = hf_container_of(asker, struct caller, asker);

	caller->n_told++;
	caller->verdict = verdict;
	if (caller->next)
		doubt(caller->next, client, 9);
}

static void on_met(struct hf_nsm_guest *guest, bool has_answered)
{
	struct caller *caller = hf_container_of(guest, struct caller, guest);

	caller->n_told++;
	if (caller->next)
		doubt(caller->next, world_client(&w, "10.0.0.1", "client"), 9);
}

static int teardown(void **state)
{
	world_deinit(&w);
	return 0;
}

static void test_nothing_is_doubted_while_the_monitor_ends(void **state)
{
	struct hf_client *client = world_client(&w, "10.0.0.1", "client");
	struct caller first, next;

	caller_init(&first, "10.0.0.1");
	caller_init(&next, "10.0.0.1");
	first.next = &next;
	doubt(&first, client, 7);
	assert_int_equal(first.r, 0);
	assert_int_equal(n_asked, 1);
	nsm = hf_nsm_free(nsm);
	assert_int_equal(first.n_told, 1);
	assert_int_equal(first.verdict, HF_NSM_UNSURE);
	assert_true(next.r < 0);
	assert_int_equal(next.n_told, 0);
	assert_int_equal(n_asked, 1);
}

static void test_nothing_is_doubted_when_the_last_guests_leave(void **state)
{
	struct caller first, next;

	caller_init(&first, "10.0.0.1");
	caller_init(&next, "10.0.0.1");
	first.next = &next;
	assert_int_equal(hf_nsm_meet(nsm, &first.call, &first.guest), 0);
	nsm = hf_nsm_free(nsm);
	assert_int_equal(first.n_told, 1);
	assert_true(next.r < 0);
	assert_int_equal(n_asked, 0);
}

/* Silence of a host is believed to be its restart. That the server could not ask is not silence. */
static void test_nothing_is_believed_of_a_host_that_was_not_asked(void **state)
{
	static const struct {
		enum hf_rpc_outcome outcome;
		enum hf_nsm_verdict verdict;
	} rows[] = {
		{ HF_RPC_OUTCOME_TIMEOUT, HF_NSM_BELIEVED },
		{ HF_RPC_OUTCOME_UNREACHABLE, HF_NSM_BELIEVED },
		{ HF_RPC_OUTCOME_NO_ROOM, HF_NSM_UNSURE },
	};
	struct hf_client *client = world_client(&w, "10.0.0.1", "client");

	for (size_t i = 0; i < HF_ARRAY_SIZE(rows); i++) {
		struct caller caller;

		caller_init(&caller, "10.0.0.1");
		doubt(&caller, client, 7);
		assert_int_equal(caller.r, 0);
		on_paper_end(rows[i].outcome);
		assert_int_equal(caller.n_told, 1);
		assert_int_equal(caller.verdict, rows[i].verdict);
	}
	nsm = hf_nsm_free(nsm);
}

#define T(f) cmocka_unit_test_setup_teardown(f, on_paper_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_nothing_is_doubted_while_the_monitor_ends),
		T(test_nothing_is_doubted_when_the_last_guests_leave),
		T(test_nothing_is_believed_of_a_host_that_was_not_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
