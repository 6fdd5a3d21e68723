/* Who may be registered when places are few, and which registered client gives way. */
#include "../turn.h"

#include <stdio.h>
#include <string.h>

#include "client/client.h"

#define IDLE_NS (300 * HF_NS_PER_S)

struct rig {
	struct hf_loop *loop;
	struct hf_locks *locks;
	struct hf_clients *clients;
	int n_unregistered;
	char last[64]; /* the name of the last one that was unregistered */
	uint64_t n_changes, n_stored;
};

static struct rig rig;

static int on_registered(void *user, struct hf_client *client, uint64_t *ticketp)
{
	*ticketp = 1;
	return 0;
}

static void on_unregistered(void *user, struct hf_client *client)
{
	rig.n_unregistered++;
	snprintf(rig.last, sizeof(rig.last), "%s", client->name);
}

static void on_crashed(void *user, struct hf_client *client)
{
}

static uint64_t mark(void *user)
{
	return rig.n_changes;
}

static bool may_leave(void *user, const struct hf_client *client)
{
	return client->idle_mark <= rig.n_stored;
}

static const struct hf_client_events events = {
	.registered = on_registered,
	.unregistered = on_unregistered,
	.mark = mark,
	.may_leave = may_leave,
	.crashed = on_crashed,
};

static void make(size_t max, size_t max_per_address)
{
	struct hf_clients_options options = {
		.max_registered = max,
		.max_per_address = max_per_address,
		.idle_ns = IDLE_NS,
		.events = &events,
	};

	rig = (struct rig){ 0 };
	assert_int_equal(hf_loop_new(&rig.loop), 0);
	assert_int_equal(hf_locks_new(&rig.locks, &(struct hf_locks_options){ .epoch = 1 }), 0);
	options.loop = rig.loop;
	options.locks = rig.locks;
	assert_int_equal(hf_clients_new(&rig.clients, &options), 0);
}

static int teardown(void **state)
{
	hf_locks_free(rig.locks);
	hf_clients_free(rig.clients);
	hf_loop_free(rig.loop);
	return 0;
}

/* A client that was confirmed, and its registration. */
static int meet(struct hf_client **clientp, const char *address, const char *name)
{
	struct hf_addr addr;
	int r;

	assert_true(hf_addr_parse(&addr, address));
	assert_int_equal(hf_clients_get(clientp, rig.clients, "nlm", &addr, hf_bytes_of_str(name)), 0);
	hf_client_confirm(*clientp);
	r = hf_client_register(*clientp);
	return r;
}

static struct hf_client *stay(const char *address, const char *name)
{
	struct hf_client *client;

	assert_int_equal(meet(&client, address, name), HF_CLIENT_OK);
	hf_client_unref(client);
	return client;
}

static void refused(const char *address, const char *name)
{
	struct hf_client *client;

	assert_int_equal(meet(&client, address, name), HF_CLIENT_E_LIMIT);
	hf_client_unref(client);
}

static void hold(struct hf_client *client)
{
	struct hf_lock_request request = {
		.who = { .handle = hf_bytes_of_str(client->id), .client = &client->locking },
		.range = { 0, 0 },
		.mode = HF_LOCK_EXCLUSIVE,
	};

	hf_client_ref(client);
	assert_int_equal(hf_lock_acquire(rig.locks, &request, NULL), HF_LOCK_OK);
	hf_client_unref(client);
}

static void let_go(struct hf_client *client)
{
	struct hf_lock_target who = { .handle = hf_bytes_of_str(client->id), .client = &client->locking };

	hf_client_ref(client);
	hf_lock_release(rig.locks, &who, (struct hf_range){ 0, HF_RANGE_EOF });
	hf_client_unref(client);
}

static struct hf_client *stay_and_hold(const char *address, const char *name)
{
	struct hf_client *client = stay(address, name);

	hold(client);
	return client;
}

/* By a datagram that may be forged. */
static struct hf_client *unheard(const char *address, const char *name)
{
	struct hf_client *client;
	struct hf_addr addr;

	assert_true(hf_addr_parse(&addr, address));
	assert_int_equal(hf_clients_get(&client, rig.clients, "nsm", &addr, hf_bytes_of_str(name)), 0);
	assert_int_equal(hf_client_set_callback(client, hf_bytes_of_str(name), 1, 1, 1), 0);
	assert_int_equal(hf_client_register(client), HF_CLIENT_OK);
	hf_client_unref(client);
	return client;
}

/* A client of which nothing but datagrams came. */
static int try_unmet(struct hf_client **clientp, const char *address, const char *name)
{
	struct hf_addr addr;

	assert_true(hf_addr_parse(&addr, address));
	assert_int_equal(hf_clients_get(clientp, rig.clients, "nlm", &addr, hf_bytes_of_str(name)), 0);
	return hf_client_register(*clientp);
}

static struct hf_client *unmet_holds(const char *address, const char *name)
{
	struct hf_client *client;

	assert_int_equal(try_unmet(&client, address, name), HF_CLIENT_OK);
	hold(client);
	hf_client_unref(client);
	return client;
}

static void unmet_refused(const char *address, const char *name)
{
	struct hf_client *client;

	assert_int_equal(try_unmet(&client, address, name), HF_CLIENT_E_LIMIT);
	assert_false(hf_client_may_be_unmet(client));
	hf_client_unref(client);
}

static void assert_left(const char *name)
{
	assert_string_equal(rig.last, name);
}

static void test_one_address_has_half(void **state)
{
	make(5, 0);
	stay_and_hold("10.0.0.1", "a");
	stay_and_hold("10.0.0.1", "b");
	stay_and_hold("10.0.0.1", "c");
	refused("10.0.0.1", "d");
	stay_and_hold("10.0.0.2", "e");
	stay_and_hold("10.0.0.2", "f");
	refused("10.0.0.3", "g");
	assert_int_equal(hf_clients_count_registered(rig.clients), 5);
	assert_int_equal(rig.n_unregistered, 0);
}

static void test_one_place(void **state)
{
	make(1, 0);
	stay_and_hold("10.0.0.1", "a");
	refused("10.0.0.1", "b");
	refused("10.0.0.2", "c");
}

static void test_a_part_that_was_set(void **state)
{
	make(10, 2);
	stay_and_hold("10.0.0.1", "a");
	stay_and_hold("10.0.0.1", "b");
	refused("10.0.0.1", "c");
	stay_and_hold("10.0.0.2", "d");
}

/* At an address that has its part a new client takes the place of another one there, and of no other. */
static void test_within_an_address(void **state)
{
	struct hf_client *a;

	make(6, 2);
	stay("10.0.0.2", "other");
	a = stay_and_hold("10.0.0.1", "a");
	stay("10.0.0.1", "b");
	stay("10.0.0.1", "c");
	assert_left("b");
	hf_client_ref(a);
	let_go(a);
	stay("10.0.0.1", "d");
	assert_left("c");
	hf_client_unref(a);
	stay("10.0.0.1", "e");
	assert_left("a");
	assert_int_equal(hf_clients_count_evicted(rig.clients), 3);
	assert_int_equal(hf_clients_count_registered(rig.clients), 3);
}

/* Unconfirmed ones first, however small their address; then the largest address loses its longest idle one.
 */
static void test_who_leaves_first(void **state)
{
	make(6, 6);
	stay("10.0.0.1", "small");
	stay("10.0.0.2", "large1");
	stay("10.0.0.2", "large2");
	stay_and_hold("10.0.0.2", "large3");
	unheard("10.0.0.3", "forged1");
	unheard("10.0.0.3", "forged2");
	stay_and_hold("10.0.0.5", "new1");
	assert_left("forged1");
	stay_and_hold("10.0.0.5", "new2");
	assert_left("forged2");
	stay_and_hold("10.0.0.6", "new3");
	assert_left("large1");
	stay_and_hold("10.0.0.6", "new4");
	assert_left("large2");
	stay_and_hold("10.0.0.6", "new5");
	assert_left("small");
	refused("10.0.0.7", "new6");
}

static void test_confirmed_later(void **state)
{
	struct hf_client *client;

	make(2, 2);
	client = unheard("10.0.0.1", "asked");
	stay_and_hold("10.0.0.2", "a");
	hf_client_ref(client);
	hf_client_confirm(client); /* it stays until it says so */
	hf_client_unref(client);
	refused("10.0.0.3", "b");
	hf_client_unregister(client);
	stay_and_hold("10.0.0.3", "b");
}

/* With as many addresses as this, none of the largest has a client that can leave. */
static void test_many_addresses(void **state)
{
	char text[32];

	make(202, 0);
	for (int i = 0; i < 100; i++) {
		snprintf(text, sizeof(text), "10.0.1.%d", i);
		stay_and_hold(text, "a");
		stay_and_hold(text, "b");
	}
	stay("10.0.0.1", "c");
	stay("10.0.0.2", "d");
	stay_and_hold("10.0.0.3", "e");
	assert_left("c");
	stay_and_hold("10.0.0.4", "f");
	assert_left("d");
	refused("10.0.0.5", "g");
}

/* Until the store has lost its locks, a client is in the store, too. */
static void test_not_before_it_is_stored(void **state)
{
	struct hf_client *client;

	make(2, 2);
	stay("10.0.0.2", "other");
	client = stay_and_hold("10.0.0.1", "a");
	rig.n_changes++;
	let_go(client);
	stay_and_hold("10.0.0.1", "b");
	assert_left("other");
	refused("10.0.0.3", "c");
	turn_for(rig.loop, 2 * IDLE_NS);
	assert_int_equal(rig.n_unregistered, 1);
	rig.n_stored = rig.n_changes;
	stay_and_hold("10.0.0.3", "c");
	assert_left("a");
}

/* It has yet to be told of the server's restart: neither time nor a new client takes its place. */
static void test_pinned(void **state)
{
	struct hf_client *client;

	make(1, 1);
	client = stay("10.0.0.1", "a");
	hf_client_pin(client, true);
	refused("10.0.0.2", "b");
	turn_for(rig.loop, 4 * IDLE_NS);
	assert_int_equal(rig.n_unregistered, 0);
	hf_client_pin(client, false);
	turn_for(rig.loop, IDLE_NS - 20 * HF_NS_PER_S);
	assert_int_equal(rig.n_unregistered, 0);
	turn_for(rig.loop, 40 * HF_NS_PER_S);
	assert_left("a");
	assert_int_equal(hf_clients_count(rig.clients), 0);
}

/* Also where hf_client_pin() was not called: the lists may be behind. */
static void test_pinned_by_hand(void **state)
{
	struct hf_client *client;

	make(1, 1);
	client = stay("10.0.0.1", "a");
	client->is_pinned = true;
	refused("10.0.0.2", "b");
	client->is_pinned = false;
	hf_client_pin(client, false);
	client->is_pinned = true;
	turn_for(rig.loop, 2 * IDLE_NS);
	assert_int_equal(rig.n_unregistered, 0);
}

static void test_what_time_takes(void **state)
{
	struct hf_client *holder, *unconfirmed;
	struct hf_addr addr;

	make(8, 8);
	holder = stay_and_hold("10.0.0.1", "holder");
	stay("10.0.0.1", "idle");
	unheard("10.0.0.2", "unheard");
	assert_true(hf_addr_parse(&addr, "10.0.0.3"));
	assert_int_equal(hf_clients_get(&unconfirmed, rig.clients, "nlm", &addr, hf_bytes_of_str("udp")), 0);
	assert_int_equal(hf_client_register(unconfirmed), HF_CLIENT_OK);
	hf_client_unref(unconfirmed);
	turn_for(rig.loop, 2 * IDLE_NS);
	assert_int_equal(rig.n_unregistered, 2);
	assert_int_equal(hf_clients_count_registered(rig.clients), 2); /* holder, call-back */
	let_go(holder);
	turn_for(rig.loop, 2 * IDLE_NS);
	assert_left("holder");
	assert_int_equal(hf_clients_count_registered(rig.clients), 1);
	assert_int_equal(hf_clients_count_evicted(rig.clients), 0);
}

/* What forged datagrams hold has a part of the places, from however many addresses they come. */
static void test_unmet_clients_have_a_part(void **state)
{
	char text[32];

	make(400, 0);
	for (int i = 0; i < 50; i++) {
		snprintf(text, sizeof(text), "10.1.0.%d", i);
		unmet_holds(text, "forged");
	}
	assert_int_equal(hf_clients_count_unmet(rig.clients), 50);
	unmet_refused("10.1.1.1", "late");
	for (int i = 0; i < 350; i++) {
		snprintf(text, sizeof(text), "10.2.%d.%d", i / 100, i % 100);
		stay_and_hold(text, "tcp");
	}
	refused("10.3.0.1", "late");
	assert_int_equal(rig.n_unregistered, 0);
}

static void test_an_answer_makes_room(void **state)
{
	struct hf_client *first, *client;

	make(4, 0);
	first = unmet_holds("10.0.0.1", "a");
	unmet_holds("10.0.0.2", "b");
	unmet_refused("10.0.0.3", "c");
	hf_client_answered(first);
	assert_true(first->is_confirmed);
	assert_int_equal(hf_clients_count_unmet(rig.clients), 1);
	unmet_holds("10.0.0.3", "c");
	/* Of one that is refused, too. */
	assert_int_equal(try_unmet(&client, "10.0.0.4", "d"), HF_CLIENT_E_LIMIT);
	hf_client_answered(client);
	assert_true(hf_client_may_be_unmet(client));
	assert_int_equal(hf_client_register(client), HF_CLIENT_OK);
	hf_client_unref(client);
	assert_int_equal(rig.n_unregistered, 0);
}

static void test_an_unmet_client_that_holds_nothing_gives_way(void **state)
{
	struct hf_client *a;

	make(4, 0);
	stay("10.0.0.9", "idle");
	a = unmet_holds("10.0.0.1", "a");
	unmet_holds("10.0.0.2", "b");
	unmet_refused("10.0.0.3", "c");
	let_go(a);
	unmet_holds("10.0.0.3", "c");
	assert_left("a");
	assert_int_equal(hf_clients_count_unmet(rig.clients), 2);
}

/* A host answers for each name that a forger gives it. */
static void test_answers_confirm_few_names_of_an_address(void **state)
{
	struct hf_client *client;
	char name[16];

	make(100, 0);
	for (int i = 0; i < 8; i++) {
		snprintf(name, sizeof(name), "name%d", i);
		client = unmet_holds("10.0.0.1", name);
		hf_client_answered(client);
		assert_true(client->is_confirmed);
	}
	client = unmet_holds("10.0.0.1", "another");
	hf_client_answered(client);
	assert_false(client->is_confirmed);
	assert_int_equal(hf_clients_count_unmet(rig.clients), 1);
	hf_client_confirm(client);
	assert_true(client->is_confirmed);
	assert_int_equal(hf_clients_count_unmet(rig.clients), 0);
	client = unmet_holds("10.0.0.2", "third");
	hf_client_answered(client);
	assert_true(client->is_confirmed);
}

/* Its host answers, but that does not say who registered it: it is the last to go, and of the largest
 * address. */
static void test_registrations_by_datagram_give_way_last(void **state)
{
	make(4, 4);
	hf_client_answered(unheard("10.0.0.1", "one"));
	hf_client_answered(unheard("10.0.0.2", "forged1"));
	hf_client_answered(unheard("10.0.0.2", "forged2"));
	stay("10.0.0.3", "idle");
	turn_for(rig.loop, IDLE_NS / 2);
	stay_and_hold("10.0.0.4", "new1");
	assert_left("idle");
	stay_and_hold("10.0.0.5", "new2");
	assert_left("forged1");
	turn_for(rig.loop, 2 * IDLE_NS);
	assert_int_equal(rig.n_unregistered, 2); /* time does not take them */
}

/* The server promised them something in an earlier life. */
static void test_loaded_clients_are_not_bounded(void **state)
{
	struct hf_client *client, *local;
	struct hf_addr addr;
	char text[32];

	make(8, 8);
	for (int i = 0; i < 6; i++) {
		snprintf(text, sizeof(text), "10.0.0.%d", i + 1);
		assert_true(hf_addr_parse(&addr, text));
		assert_int_equal(hf_clients_get(&client, rig.clients, "nlm", &addr, hf_bytes_of_str("a")), 0);
		assert_int_equal(hf_client_restore(client, 1, 1), 0);
		hold(client);
		hf_client_unref(client);
	}
	assert_int_equal(hf_clients_count_unmet(rig.clients), 6);
	unmet_refused("10.0.1.1", "new");
	stay_and_hold("10.0.1.2", "tcp");
	/* A program of this host is not forged, also after the server's restart. */
	assert_true(hf_addr_parse(&addr, "10.0.2.1"));
	assert_int_equal(hf_clients_get(&local, rig.clients, "nsm", &addr, hf_bytes_of_str("lockd")), 0);
	assert_true(hf_addr_parse(&local->local, "127.0.0.1"));
	assert_int_equal(hf_client_restore(local, 1, 1), 0);
	assert_true(local->is_certain);
	hf_client_unref(local);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_teardown(name, teardown)
		T(test_one_address_has_half),
		T(test_one_place),
		T(test_a_part_that_was_set),
		T(test_within_an_address),
		T(test_who_leaves_first),
		T(test_confirmed_later),
		T(test_many_addresses),
		T(test_pinned),
		T(test_pinned_by_hand),
		T(test_what_time_takes),
		T(test_not_before_it_is_stored),
		T(test_unmet_clients_have_a_part),
		T(test_an_answer_makes_room),
		T(test_an_unmet_client_that_holds_nothing_gives_way),
		T(test_answers_confirm_few_names_of_an_address),
		T(test_registrations_by_datagram_give_way_last),
		T(test_loaded_clients_are_not_bounded),
	};

	return cmocka_run_group_tests_name("places", tests, NULL, NULL);
}
