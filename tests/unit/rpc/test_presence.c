/* Which addresses have TLS connections, of whom, and until when? */
#include "../turn.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "rpc/presence.h"
#include "tls/tls.h"

#define GRACE_NS (10 * HF_NS_PER_S)
#define MANY     17000 /* more than are remembered without a connection */

static struct hf_loop *loop;
static struct hf_rpc_presence *presence;
static char alpha_name[] = "alpha.example", beta_name[] = "beta", loud_name[] = "ALPHA.example";
static const struct hf_tls_peer nameless = { 0 };
static const struct hf_tls_peer alpha = { .is_authenticated = true, .n_names = 1, .names = { alpha_name } };
static const struct hf_tls_peer beta = { .is_authenticated = true, .n_names = 1, .names = { beta_name } };
static const struct hf_tls_peer loud = { .is_authenticated = true, .n_names = 1, .names = { loud_name } };
static size_t n_told;

static void listener(void *user)
{
	n_told++;
}

static int setup(void **state)
{
	n_told = 0;
	assert_int_equal(hf_loop_new(&loop), 0);
	assert_int_equal(hf_rpc_presence_new(&presence, loop, GRACE_NS), 0);
	hf_rpc_presence_listen(presence, listener, NULL);
	return 0;
}

static int teardown(void **state)
{
	hf_loop_free(loop);
	hf_rpc_presence_free(presence);
	return 0;
}

static struct hf_addr address_of(const char *text)
{
	struct hf_addr address;

	assert_true(hf_addr_parse(&address, text));
	address.port = 700; /* does not count */
	return address;
}

static struct hf_rpc_presence_link *begin(const char *text, const struct hf_tls_peer *peer)
{
	struct hf_addr address = address_of(text);
	struct hf_rpc_presence_link *link = hf_rpc_presence_begin(presence, &address, peer);

	assert_non_null(link);
	return link;
}

struct seen {
	size_t n;
	const struct hf_tls_peer *wanted; /* the search ends there; NULL: nowhere */
	uint64_t newest;
};

static bool see(void *user, const struct hf_tls_peer *peer, uint64_t newest)
{
	struct seen *seen = user;

	seen->n++;
	seen->newest = newest;
	return seen->wanted && hf_tls_peer_equal(peer, seen->wanted);
}

static size_t count(const char *text)
{
	struct hf_addr address = address_of(text);
	struct seen seen = { 0 };

	assert_false(hf_rpc_presence_find(presence, &address, see, &seen));
	return seen.n;
}

static size_t count_connected(const char *text)
{
	struct hf_addr address = address_of(text);
	struct seen seen = { 0 };

	assert_false(hf_rpc_presence_find_connected(presence, &address, see, &seen));
	return seen.n;
}

/* The number of its latest connection; 0: it does not count there. */
static uint64_t newest_of(const char *text, const struct hf_tls_peer *peer)
{
	struct hf_addr address = address_of(text);
	struct seen seen = { .wanted = peer };

	return hf_rpc_presence_find(presence, &address, see, &seen) ? seen.newest : 0;
}

static void test_a_connection_counts_at_once(void **state)
{
	struct hf_rpc_presence_link *link;

	assert_int_equal(count("10.0.0.1"), 0);
	link = begin("10.0.0.1", &nameless);
	assert_int_equal(count("10.0.0.1"), 1);
	assert_int_equal(count("10.0.0.2"), 0);
	turn_for(loop, 100 * GRACE_NS);
	assert_int_equal(count("10.0.0.1"), 1);
	hf_rpc_presence_end(link);
}

static void test_it_counts_for_a_while_after_its_end(void **state)
{
	struct hf_rpc_presence_link *one = begin("10.0.0.1", &alpha), *two = begin("10.0.0.1", &alpha);

	hf_rpc_presence_end(one);
	turn_for(loop, 2 * GRACE_NS);
	assert_int_equal(count("10.0.0.1"), 1); /* the other one is still there */
	assert_int_equal(count_connected("10.0.0.1"), 1);
	assert_int_equal(count_connected("10.0.0.2"), 0);
	hf_rpc_presence_end(two);
	assert_int_equal(count_connected("10.0.0.1"), 0);
	turn_for(loop, GRACE_NS - HF_NS_PER_S);
	assert_int_equal(count("10.0.0.1"), 1);
	turn_for(loop, HF_NS_PER_S);
	assert_int_equal(count("10.0.0.1"), 0);
}

static void test_one_that_begins_and_ends_at_once(void **state)
{
	hf_rpc_presence_end(begin("10.0.0.1", &alpha));
	assert_int_equal(newest_of("10.0.0.1", &alpha), 1);
	turn_for(loop, GRACE_NS);
	assert_int_equal(count("10.0.0.1"), 0);
}

static void test_identities_at_one_address(void **state)
{
	struct hf_rpc_presence_link *links[] = { begin("10.0.0.1", &alpha), begin("10.0.0.1", &beta),
						 begin("10.0.0.1", &nameless), begin("10.0.0.2", &beta) };

	assert_int_equal(count("10.0.0.1"), 3);
	assert_int_equal(newest_of("10.0.0.1", &beta), 2);
	assert_int_equal(newest_of("10.0.0.2", &alpha), 0);
	/* Names have no case. */
	hf_rpc_presence_end(begin("10.0.0.1", &loud));
	assert_int_equal(count("10.0.0.1"), 3);
	assert_int_equal(newest_of("10.0.0.1", &alpha), 5);
	assert_int_equal(hf_rpc_presence_count(presence), 5);
	for (size_t i = 0; i < 4; i++)
		hf_rpc_presence_end(links[i]);
	/* Each has a grace of its own. */
	turn_for(loop, GRACE_NS / 2);
	links[0] = begin("10.0.0.1", &beta);
	turn_for(loop, GRACE_NS / 2);
	assert_int_equal(count("10.0.0.1"), 1);
	hf_rpc_presence_end(links[0]);
}

static void *begin_elsewhere(void *user)
{
	struct hf_rpc_presence_link **linkp = user;

	*linkp = begin("10.0.0.1", &alpha);
	return NULL;
}

/* A client calls in the clear when its connection on another loop is open. */
static void test_another_thread(void **state)
{
	struct hf_rpc_presence_link *link = NULL;
	pthread_t thread;

	for (uint64_t i = 1; i <= 100; i++) {
		assert_int_equal(pthread_create(&thread, NULL, begin_elsewhere, &link), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(newest_of("10.0.0.1", &alpha), i);
		hf_rpc_presence_end(link);
	}
}

static void test_the_listener(void **state)
{
	struct hf_rpc_presence_link *one = begin("10.0.0.1", &alpha), *two = begin("10.0.0.2", &beta);

	assert_int_equal(count("10.0.0.1"), 1);
	assert_int_equal(n_told, 0); /* not from within a question */
	turn_for(loop, 1);
	assert_int_equal(n_told, 1);
	hf_rpc_presence_end(one);
	turn_for(loop, 1);
	assert_int_equal(n_told, 1); /* it ends: no news */
	hf_rpc_presence_listen(presence, NULL, NULL);
	hf_rpc_presence_end(begin("10.0.0.3", &alpha));
	turn_for(loop, 1);
	assert_int_equal(n_told, 1);
	hf_rpc_presence_end(two);
}

static void test_the_start(void **state)
{
	assert_true(hf_rpc_presence_is_young(presence));
	turn_for(loop, GRACE_NS);
	assert_false(hf_rpc_presence_is_young(presence));
}

/* What is over does not begin again with a longer grace; what is not over ends with a shorter one. */
static void test_another_grace(void **state)
{
	struct hf_rpc_presence_link *link = begin("10.0.0.1", &alpha);

	assert_int_equal(count("10.0.0.1"), 1);
	hf_rpc_presence_end(link);
	assert_int_equal(count("10.0.0.1"), 1);
	turn_for(loop, GRACE_NS);
	hf_rpc_presence_set_grace(presence, 1000 * GRACE_NS);
	assert_int_equal(count("10.0.0.1"), 0);
	assert_false(hf_rpc_presence_is_young(presence));
	link = begin("10.0.0.1", &alpha);
	assert_int_equal(count("10.0.0.1"), 1);
	hf_rpc_presence_end(link);
	turn_for(loop, GRACE_NS);
	assert_int_equal(count("10.0.0.1"), 1);
	hf_rpc_presence_set_grace(presence, GRACE_NS);
	assert_int_equal(count("10.0.0.1"), 0);
}

static void come_and_go(const struct hf_tls_peer *peer)
{
	char text[32];

	for (int i = 0; i < MANY; i++) {
		snprintf(text, sizeof(text), "10.1.%d.%d", i / 200, 1 + i % 200);
		hf_rpc_presence_end(begin(text, peer));
	}
}

static void test_addresses_are_bounded(void **state)
{
	struct hf_rpc_presence_link *link = begin("10.9.9.9", &alpha);

	come_and_go(&alpha);
	assert_int_equal(count("10.1.0.1"), 0); /* it ended first */
	assert_int_equal(count("10.1.84.200"), 1);
	assert_int_equal(count("10.9.9.9"), 1); /* this one has not ended */
	hf_rpc_presence_end(link);
}

/* Those at addresses that begin with 10.9. */
static bool judge(void *user, const struct hf_addr *address, const struct hf_tls_peer *peer)
{
	char text[HF_ADDR_TEXT];

	return strncmp(hf_addr_format(address, text, sizeof(text)), "10.9.", strlen("10.9.")) == 0;
}

static void test_strangers_make_room_first(void **state)
{
	hf_rpc_presence_set_judge(presence, judge, NULL);
	hf_rpc_presence_end(begin("10.9.0.1", &nameless)); /* its client holds locks */
	hf_rpc_presence_end(begin("10.8.0.1", &alpha));
	hf_rpc_presence_end(begin("10.8.0.2", &nameless));
	come_and_go(&nameless);
	assert_int_equal(count("10.8.0.2"), 0);
	assert_int_equal(count("10.8.0.1"), 1);
	assert_int_equal(count("10.9.0.1"), 1);
	come_and_go(&alpha);
	come_and_go(&beta);
	assert_int_equal(count("10.8.0.1"), 0);
	assert_int_equal(count("10.9.0.1"), 1);
	turn_for(loop, GRACE_NS); /* it is not needed for longer than its grace */
	assert_int_equal(count("10.9.0.1"), 0);
}

/* The client connects again, ends again, and holds nothing any more. */
static void test_what_was_needed_before(void **state)
{
	hf_rpc_presence_set_judge(presence, judge, NULL);
	hf_rpc_presence_end(begin("10.9.0.1", &nameless));
	come_and_go(&nameless);
	hf_rpc_presence_end(begin("10.9.0.1", &nameless));
	hf_rpc_presence_set_judge(presence, NULL, NULL);
	come_and_go(&beta);
	assert_int_equal(count("10.9.0.1"), 0);
}

static bool needs_all(void *user, const struct hf_addr *address, const struct hf_tls_peer *peer)
{
	return true;
}

static void test_the_needed_are_bounded(void **state)
{
	hf_rpc_presence_set_judge(presence, needs_all, NULL);
	hf_rpc_presence_end(begin("10.9.0.1", &alpha));
	come_and_go(&alpha);
	assert_int_equal(count("10.9.0.1"), 0);
	assert_int_equal(count("10.1.84.200"), 1); /* the last one */
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_connection_counts_at_once),
		T(test_it_counts_for_a_while_after_its_end),
		T(test_one_that_begins_and_ends_at_once),
		T(test_identities_at_one_address),
		T(test_another_thread),
		T(test_the_listener),
		T(test_the_start),
		T(test_another_grace),
		T(test_addresses_are_bounded),
		T(test_strangers_make_room_first),
		T(test_what_was_needed_before),
		T(test_the_needed_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
