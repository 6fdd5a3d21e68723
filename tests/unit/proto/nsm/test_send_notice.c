/* Under which names a client is told of a restart. The notices are written down, not sent (ld --wrap). */
#include "../../recovery/world.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "proto/nsm/internal.h"

#define STATE     7
#define MAX_NAMES 64
#define N_USED    (1 + HF_CLIENT_OTHER_LOCALS) /* addresses of the server: as many as are kept */

static struct world w;
static struct hf_nsm *nsm;
static struct hf_client *client;
static char names[MAX_NAMES][HF_ADDR_TEXT]; /* in the order of the notices */
static size_t n_names;
static hf_rpc_done_fn answered;
static void *teller;
static bool was_told;

int __wrap_hf_rpc_client_call(struct hf_rpc_client *rpc, struct hf_rpc_pending **pendingp,
			      const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user);
int __wrap_hf_rpc_client_call(struct hf_rpc_client *rpc, struct hf_rpc_pending **pendingp,
			      const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user)
{
	uint32_t len;

	assert_int_equal(request->procedure, HF_NSM_NOTIFY);
	assert_true(n_names < MAX_NAMES);
	memcpy(&len, request->args, sizeof(len));
	snprintf(names[n_names++], HF_ADDR_TEXT, "%.*s", (int)ntohl(len),
		 (const char *)request->args + sizeof(len));
	answered = done;
	teller = user;
	*pendingp = user;
	return 0;
}

static void on_done(void *context, bool told, const char *why_not)
{
	was_told = told;
	answered = NULL;
}

static void use(unsigned int i)
{
	struct hf_addr local = { .family = AF_INET, .ip = { 10, 0, 1, (uint8_t)i } };

	assert_int_equal(hf_client_use(client, &local, true), 0);
	assert_int_equal(hf_client_register(client), 0);
}

static bool was_named(unsigned int i)
{
	char text[HF_ADDR_TEXT];

	snprintf(text, sizeof(text), "10.0.1.%u", i);
	for (size_t n = 0; n < n_names; n++)
		if (strcmp(names[n], text) == 0)
			return true;
	return false;
}

static void answer(void)
{
	assert_non_null(answered);
	answered(teller, &(struct hf_rpc_result){ .outcome = HF_RPC_OUTCOME_OK });
}

static int setup(void **state)
{
	struct hf_nsm_options options = { .server_name = "server" };

	n_names = 0;
	was_told = false;
	world_init(&w);
	world_up(&w);
	world_turn(&w);
	options.loop = w.loop;
	options.recovery = w.recovery;
	if (hf_nsm_new(&nsm, &options) < 0)
		return -1;
	client = world_client(&w, "10.0.0.1", "client");
	for (unsigned int i = 0; i < N_USED; i++)
		use(i);
	return hf_nsm_teller.tell(nsm, client, STATE, HF_NS_PER_S, on_done, NULL);
}

static int teardown(void **state)
{
	hf_nsm_free(nsm);
	world_deinit(&w);
	return 0;
}

static void test_each_address_is_named_once(void **state)
{
	while (answered)
		answer();
	assert_true(was_told);
	assert_int_equal(n_names, 1 + N_USED);
	assert_string_equal(names[0], "server");
	for (unsigned int i = 0; i < N_USED; i++)
		assert_true(was_named(i));
}

/* The client locks through a further address while it is told. The oldest one leaves, and those after it have
 * other numbers. */
static void expect_all_named(int n_answers)
{
	for (int i = 0; i < n_answers; i++)
		answer();
	use(N_USED);
	while (answered)
		answer();
	assert_true(was_told);
	for (unsigned int i = 1; i < N_USED; i++) /* but for the one that left */
		assert_true(was_named(i));
}

static void test_an_address_leaves_that_was_named(void **state)
{
	expect_all_named(3);
}

static void test_an_address_leaves_that_is_being_named(void **state)
{
	expect_all_named(2);
}

static void test_an_address_leaves_that_was_not_named_yet(void **state)
{
	expect_all_named(1);
}

static void test_an_address_leaves_before_the_last_one_is_named(void **state)
{
	expect_all_named(N_USED);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_each_address_is_named_once),
		T(test_an_address_leaves_that_was_named),
		T(test_an_address_leaves_that_is_being_named),
		T(test_an_address_leaves_that_was_not_named_yet),
		T(test_an_address_leaves_before_the_last_one_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
