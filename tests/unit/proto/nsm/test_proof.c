/* Notices in the name of clients that use exports that demand TLS: believed with a new connection of theirs.
 */
#include "../../recovery/world.h"
#include "../../turn.h"

#include <stdio.h>

#include "base/log.h"
#include "proto/nsm/internal.h"
#include "rpc/presence.h"
#include "rpc/server_internal.h"

#define HOST "10.0.0.1"

static struct world w;
static struct hf_nsm *nsm;
static struct hf_rpc_presence *presence;
static bool is_demanded;
static char alpha_name[] = "alpha", beta_name[] = "beta";
static const struct hf_tls_peer alpha = { .is_authenticated = true, .n_names = 1, .names = { alpha_name } };
static const struct hf_tls_peer beta = { .is_authenticated = true, .n_names = 1, .names = { beta_name } };
static const struct hf_tls_peer nameless = { 0 };

bool __wrap_hf_rpc_client_is_superuser(struct hf_rpc_client *client, const struct hf_rpc_call *call);
bool __wrap_hf_rpc_client_is_superuser(struct hf_rpc_client *client, const struct hf_rpc_call *call)
{
	return false;
}

static bool demands_tls(void *user)
{
	return is_demanded;
}

static int setup(void **state)
{
	struct hf_nsm_options options = { .server_name = "server", .demands_tls = demands_tls };

	is_demanded = true;
	world_init(&w);
	world_up(&w);
	world_turn(&w);
	assert_int_equal(hf_rpc_presence_new(&presence, w.loop, 60 * HF_NS_PER_S), 0);
	options.loop = w.loop;
	options.recovery = w.recovery;
	options.presence = presence;
	return hf_nsm_new(&nsm, &options);
}

static int teardown(void **state)
{
	hf_nsm_free(nsm);
	world_turn(&w);
	world_deinit(&w);
	hf_rpc_presence_free(presence);
	return 0;
}

static void connect_as(const struct hf_tls_peer *peer, const char *from)
{
	struct hf_addr address;

	assert_true(hf_addr_parse(&address, from));
	hf_rpc_presence_end(hf_rpc_presence_begin(presence, &address, peer));
}

/* A client with a lock, bound to @identity. */
static struct hf_client *client_of(const char *identity)
{
	struct hf_client *client = world_client(&w, HOST, "client");

	client->sm_state = 3;
	client->is_state_proven = true;
	client->lock_state = 3;
	assert_int_equal(hf_client_bind(client, identity), 0);
	client->vouched = hf_rpc_presence_count(presence);
	assert_int_equal(world_lock(&w, client, 1, "f", 0, 9), HF_LOCK_OK);
	world_turn(&w);
	return client;
}

static bool has_proof(struct hf_client *client)
{
	struct hf_rpc_call call = { .header = { .program = HF_NSM_PROGRAM } };

	return hf_nsm_has_proof(nsm, &call, client);
}

static size_t n_locks(const struct hf_client *client)
{
	return client->locking.n_locks;
}

static void test_what_proves(void **state)
{
	struct hf_client *client = client_of("alpha");

	assert_false(has_proof(client));
	connect_as(&beta, HOST);
	connect_as(&nameless, HOST);
	connect_as(&alpha, "10.0.0.2");
	assert_false(has_proof(client));
	connect_as(&alpha, HOST);
	assert_true(has_proof(client));
	client->vouched = hf_rpc_presence_count(presence); /* a call of the client was served */
	assert_false(has_proof(client));
	connect_as(&alpha, HOST);
	assert_true(has_proof(client));
}

static void test_who_needs_no_proof(void **state)
{
	struct hf_client *client = client_of("alpha"), *other = world_client(&w, HOST, "other");

	assert_true(has_proof(other));
	assert_false(has_proof(client));
	is_demanded = false; /* by any export */
	assert_true(has_proof(client));
}

static void test_tls_without_a_certificate(void **state)
{
	struct hf_client *client = client_of(NULL);

	assert_false(has_proof(client));
	connect_as(&nameless, HOST);
	assert_true(has_proof(client));
}

static void test_an_unproven_notice_becomes_true(void **state)
{
	struct hf_client *client = client_of("alpha");

	hf_nsm_remember_unproven(nsm, client, 5);
	hf_nsm_remember_unproven(nsm, client, 5);
	assert_int_equal(nsm->n_unproven, 1);
	connect_as(&beta, HOST);
	world_turn(&w);
	assert_int_equal(n_locks(client), 1);
	connect_as(&alpha, HOST);
	world_turn(&w);
	assert_int_equal(n_locks(client), 0);
	assert_int_equal(client->sm_state, 5);
	assert_int_equal(nsm->n_unproven, 0);
	assert_int_equal(client->doubted_state, 0);
}

/* What the client takes while the notice waits is of its new life. */
static void test_later_locks_stay(void **state)
{
	struct hf_client *client = client_of("alpha");
	struct hf_lock_request request = world_request(client, 2, "g", 0, 9);

	hf_nsm_remember_unproven(nsm, client, 5);
	request.client_state = (uint32_t)hf_client_state_for(client, 0, 0);
	assert_int_equal(hf_lock_acquire(hf_recovery_locks(w.recovery), &request, NULL), HF_LOCK_OK);
	connect_as(&alpha, HOST);
	world_turn(&w);
	assert_int_equal(n_locks(client), 1);
}

static void test_unproven_notices_end(void **state)
{
	struct hf_client *client = client_of("alpha");

	hf_nsm_remember_unproven(nsm, client, 5);
	assert_int_not_equal(client->doubted_state, 0);
	turn_for(w.loop, 15 * 60 * HF_NS_PER_S);
	assert_int_equal(nsm->n_unproven, 0);
	assert_int_equal(client->doubted_state, 0);
	assert_int_equal(client->doubt_tag, 0);
	connect_as(&alpha, HOST);
	world_turn(&w);
	assert_int_equal(n_locks(client), 1);
}

static void test_unproven_notices_are_bounded(void **state)
{
	struct hf_client *client = client_of("alpha");
	char name[16];

	for (int32_t i = 0; i < 20; i++)
		hf_nsm_remember_unproven(nsm, client, 5 + 2 * i);
	assert_int_equal(nsm->n_unproven, 4);
	for (int i = 0; i < 300; i++) {
		struct hf_client *other;

		snprintf(name, sizeof(name), "other%d", i);
		other = world_client(&w, "10.0.0.3", name);
		hf_client_bind(other, "alpha");
		hf_nsm_remember_unproven(nsm, other, 5);
	}
	assert_int_equal(nsm->n_unproven, 256);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_what_proves),
		T(test_who_needs_no_proof),
		T(test_tls_without_a_certificate),
		T(test_an_unproven_notice_becomes_true),
		T(test_later_locks_stay),
		T(test_unproven_notices_end),
		T(test_unproven_notices_are_bounded),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
