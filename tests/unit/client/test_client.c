/* The set of clients: finding, keeping, registering, windows, and the end of clients that hold nothing. */
#include "../turn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/clients.h"
#include "client/host_name.h"
#include "tls/tls.h"

#define MS HF_NS_PER_MS

struct rig {
	struct hf_loop *loop;
	struct hf_locks *locks;
	struct hf_clients *clients;
	int n_registered, n_unregistered, n_crashed, n_windows_over;
	int refuse; /* -errno */
	uint64_t ticket;
};

static struct rig rig;

static int on_registered(void *user, struct hf_client *client, uint64_t *ticketp)
{
	if (rig.refuse)
		return rig.refuse;
	rig.n_registered++;
	*ticketp = ++rig.ticket;
	return 0;
}

static void on_unregistered(void *user, struct hf_client *client)
{
	rig.n_unregistered++;
}

static void on_crashed(void *user, struct hf_client *client)
{
	rig.n_crashed++;
	hf_lock_client_purge(rig.locks, &client->locking);
}

static void on_window_over(void *user, struct hf_client *client)
{
	rig.n_windows_over++;
}

static const struct hf_client_events events = {
	.registered = on_registered,
	.unregistered = on_unregistered,
	.crashed = on_crashed,
	.window_over = on_window_over,
};

static void make(uint64_t idle_ns, size_t max)
{
	struct hf_clients_options options = {
		.max_registered = max,
		.max_per_address = max,
		.window_ns = 40 * MS,
		.idle_ns = idle_ns,
		.events = &events,
	};

	rig = (struct rig){ 0 };
	assert_int_equal(hf_loop_new(&rig.loop), 0);
	assert_int_equal(hf_locks_new(&rig.locks, &(struct hf_locks_options){ .epoch = 1 }), 0);
	options.loop = rig.loop;
	options.locks = rig.locks;
	assert_int_equal(hf_clients_new(&rig.clients, &options), 0);
}

static int setup(void **state)
{
	make(0, 3);
	return 0;
}

static int teardown(void **state)
{
	hf_locks_free(rig.locks);
	hf_clients_free(rig.clients);
	hf_loop_free(rig.loop);
	return 0;
}

static struct hf_client *get(const char *protocol, const char *address, const char *name)
{
	struct hf_client *client = NULL;
	struct hf_addr addr;

	assert_true(hf_addr_parse(&addr, address));
	assert_int_equal(hf_clients_get(&client, rig.clients, protocol, &addr, hf_bytes_of_str(name)), 0);
	return client;
}

/* One that was stored: at fe80::2, with the interface's number at that time. */
static struct hf_client *get_stored(const char *id, uint32_t scope)
{
	struct hf_client *client = NULL;
	struct hf_addr addr;

	assert_true(hf_addr_parse(&addr, "fe80::2"));
	addr.scope = scope;
	assert_int_equal(hf_clients_get_stored(&client, rig.clients, "nlm", &addr, id), 0);
	assert_string_equal(client->id, id);
	return client;
}

static int lock(struct hf_client *client, uint64_t start)
{
	struct hf_lock_request request = {
		.who = { .handle = hf_bytes_of_str("f"), .client = &client->locking },
		.range = { start, start },
		.mode = HF_LOCK_EXCLUSIVE,
	};

	return hf_lock_acquire(rig.locks, &request, NULL);
}

static void unlock(struct hf_client *client)
{
	struct hf_lock_target who = { .handle = hf_bytes_of_str("f"), .client = &client->locking };

	hf_lock_release(rig.locks, &who, (struct hf_range){ 0, HF_RANGE_EOF });
}

static void wait_ms(uint64_t ms)
{
	turn_for(rig.loop, ms * MS);
}

static void test_who_is_the_same(void **state)
{
	struct hf_client *a = get("nlm", "10.0.0.1", "a"), *again = get("nlm", "10.0.0.1", "a");
	struct hf_client *others[] = { get("nsm", "10.0.0.1", "a"), get("nlm", "10.0.0.2", "a"),
				       get("nlm", "10.0.0.1", "b"), get("nlm", "fd00::1", "a") };
	struct hf_addr with_port = a->address;
	struct hf_client *found;

	assert_ptr_equal(a, again);
	assert_string_equal(a->id, "nlm:10.0.0.1:a");
	assert_string_equal(others[3]->id, "nlm:fd00::1:a");
	for (size_t i = 0; i < 4; i++)
		assert_ptr_not_equal(a, others[i]);
	with_port.port = 1021; /* where it calls from does not count */
	found = hf_clients_find(rig.clients, "nlm", &with_port, hf_bytes_of_str("a"));
	assert_ptr_equal(found, a);
	hf_client_unref(found);
	found = hf_clients_find_id(rig.clients, hf_bytes_of_str("nlm:fd00::1:a"));
	assert_ptr_equal(found, others[3]);
	hf_client_unref(found);
	assert_null(hf_clients_find_id(rig.clients, hf_bytes_of_str("nlm:fd00::1:b")));
	assert_int_equal(hf_clients_count(rig.clients), 5);
	for (size_t i = 0; i < 4; i++)
		hf_client_unref(others[i]);
	hf_client_unref(a);
	hf_client_unref(again);
	assert_int_equal(hf_clients_count(rig.clients), 0); /* no reference is left */
}

static void test_names(void **state)
{
	static const char *const bad[] = { "", ".", ".a", "a/b", "a b", "a\n", "\x7f", "a\x80", "\x1b[m" };
	char longest[HF_CLIENT_MAX_NAME + 2];

	assert_true(hf_client_name_is_good(hf_bytes_of_str("a-1.example.org:5")));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(hf_client_name_is_good(hf_bytes_of_str(bad[i])));
	assert_false(hf_client_name_is_good(hf_bytes_of("a\0b", 3)));
	memset(longest, 'x', sizeof(longest));
	assert_true(hf_client_name_is_good(hf_bytes_of(longest, HF_CLIENT_MAX_NAME)));
	assert_false(hf_client_name_is_good(hf_bytes_of(longest, HF_CLIENT_MAX_NAME + 1)));
}

static void test_all_at_an_address_and_all(void **state)
{
	struct hf_client *clients[300], *client = NULL;
	struct hf_addr addr;
	uint64_t serial = 0;
	char name[16];
	int n = 0;

	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		clients[i] = get(i % 2 ? "nlm" : "nsm", i < 200 ? "10.0.0.1" : "10.0.0.2", name);
	}
	assert_true(hf_addr_parse(&addr, "10.0.0.1"));
	while ((client = hf_clients_next_at(rig.clients, &addr, client)))
		n++;
	assert_int_equal(n, 200);
	/* some go during the walk */
	n = 0;
	while ((client = hf_clients_next(rig.clients, serial))) {
		assert_true(client->serial > serial);
		serial = client->serial;
		hf_client_unref(client);
		if (n == 10)
			for (int i = 5; i < 50; i++)
				clients[i] = hf_client_unref(clients[i]);
		n++;
	}
	assert_int_equal(n, 11 + 250);
	for (int i = 0; i < 300; i++)
		hf_client_unref(clients[i]);
	assert_true(hf_addr_parse(&addr, "10.0.0.9"));
	assert_null(hf_clients_next_at(rig.clients, &addr, NULL));
}

static void test_what_keeps_a_client(void **state)
{
	struct hf_client *client = get("nlm", "10.0.0.1", "a");

	assert_int_equal(hf_client_register(client), 0);
	hf_client_unref(client);
	assert_int_equal(hf_clients_count(rig.clients), 1);
	hf_client_ref(client);
	assert_int_equal(lock(client, 1), HF_LOCK_OK);
	hf_client_unregister(client);
	hf_client_unref(client);
	assert_int_equal(hf_clients_count(rig.clients), 1); /* it holds something */
	hf_client_ref(client);
	unlock(client);
	hf_client_unref(client);
	assert_int_equal(hf_clients_count(rig.clients), 0);
}

static void test_registering(void **state)
{
	struct hf_client *clients[4];
	char name[2] = "a";

	for (int i = 0; i < 4; i++, name[0]++)
		hf_client_confirm(clients[i] = get("nlm", "10.0.0.1", name));
	for (int i = 0; i < 3; i++)
		assert_int_equal(hf_client_register(clients[i]), HF_CLIENT_OK);
	assert_int_equal(hf_client_register(clients[3]), HF_CLIENT_E_LIMIT);
	assert_false(hf_client_is_registered(clients[3]));
	assert_int_equal(hf_client_register(clients[0]), HF_CLIENT_OK); /* an update */
	assert_int_equal(clients[0]->registration_ticket, 4);
	hf_client_unregister(clients[1]);
	hf_client_unregister(clients[1]);
	assert_int_equal(rig.n_unregistered, 1);
	rig.refuse = -EROFS;
	assert_int_equal(hf_client_register(clients[3]), -EROFS);
	assert_false(hf_client_is_registered(clients[3]));
	assert_int_equal(hf_client_register(clients[0]), -EROFS);
	assert_true(hf_client_is_registered(clients[0])); /* as it was */
	assert_int_equal(hf_clients_count_registered(rig.clients), 2);
	for (int i = 0; i < 4; i++)
		hf_client_unref(clients[i]);
	assert_int_equal(hf_clients_count(rig.clients), 2);
}

static void test_windows(void **state)
{
	assert_int_equal(hf_clients_window(rig.clients, "nlm"), 40 * MS);
	assert_int_equal(hf_clients_set_window(rig.clients, "smb", 5), 0);
	assert_int_equal(hf_clients_set_window(rig.clients, "smb", 6), 0);
	assert_int_equal(hf_clients_window(rig.clients, "smb"), 6);
	assert_int_equal(hf_clients_window(rig.clients, "nsm"), 40 * MS);
}

static void test_durable_handles(void **state)
{
	struct hf_client *client = get("smb", "10.0.0.1", "session");

	assert_int_equal(lock(client, 1), HF_LOCK_OK);
	hf_client_disconnected(client);
	hf_client_disconnected(client);
	hf_client_unref(client);
	wait_ms(10);
	client = get("smb", "10.0.0.1", "session"); /* still known, with what it holds */
	assert_int_equal(client->locking.n_locks, 1);
	hf_client_reconnected(client);
	wait_ms(60);
	assert_int_equal(rig.n_crashed, 0);
	assert_int_equal(rig.n_windows_over, 1); /* it was back in time: until then it could reclaim */
	hf_client_disconnected(client);
	hf_client_unref(client);
	wait_ms(60);
	assert_int_equal(rig.n_crashed, 1);
	assert_int_equal(rig.n_windows_over, 1);
	assert_int_equal(hf_clients_count(rig.clients), 0);
}

static void test_seen(void **state)
{
	struct hf_client *client = get("nlm", "10.0.0.1", "a");
	struct hf_addr local;

	assert_true(hf_addr_parse_with_port(&local, "10.0.0.200:2049"));
	hf_client_set_status(client, HF_CLIENT_CRASHED);
	hf_client_seen(client, &local);
	assert_int_equal(client->status, HF_CLIENT_ACTIVE);
	assert_int_equal(client->local.port, 0);
	assert_true(hf_addr_same_host(&client->local, &local));
	assert_true(client->last_seen > 0);
	hf_client_unref(client);
}

static struct hf_addr server_at(unsigned int i)
{
	struct hf_addr local = { .family = AF_INET, .ip = { 10, 0, 1, (uint8_t)i }, .port = 2049 };

	return local;
}

static int use(struct hf_client *client, unsigned int i, bool is_certain)
{
	struct hf_addr local = server_at(i);

	return hf_client_use(client, &local, is_certain);
}

static bool has_used(const struct hf_client *client, unsigned int i)
{
	struct hf_addr local = server_at(i);

	return hf_client_has_used(client, &local);
}

static void test_addresses_that_it_used(void **state)
{
	struct hf_client *client = get("nlm", "10.0.0.1", "a");
	struct hf_addr local = server_at(1);

	hf_client_seen(client, &local);
	assert_false(has_used(client, 1));
	assert_int_equal(use(client, 1, true), 0);
	assert_int_equal(hf_client_register(client), HF_CLIENT_OK);
	assert_true(has_used(client, 1));
	local = server_at(2);
	hf_client_seen(client, &local); /* it asked for nothing */
	assert_false(has_used(client, 2));
	assert_int_equal(client->local.ip[3], 1);

	assert_int_equal(use(client, 2, true), 0);
	assert_int_equal(client->local.ip[3], 2);
	assert_int_equal(client->local.port, 0);
	assert_string_equal(client->other_locals, "10.0.1.1");
	assert_int_equal(use(client, 3, false), 0);
	assert_int_equal(client->local.ip[3], 2);
	assert_string_equal(client->other_locals, "10.0.1.3 10.0.1.1"); /* the next to leave comes first */
	assert_int_equal(hf_client_register(client), HF_CLIENT_OK);
	assert_true(has_used(client, 1) && has_used(client, 2) && has_used(client, 3));
	assert_true(hf_client_other_local(client, 0, &local));
	assert_int_equal(local.ip[3], 3);
	assert_false(hf_client_other_local(client, 2, &local));

	hf_client_unregister(client);
	assert_null(client->other_locals);
	assert_false(has_used(client, 2));
	hf_client_unref(client);
}

static void test_an_address_counts_when_it_is_stored(void **state)
{
	struct hf_client *client = get("nlm", "10.0.0.1", "a");

	assert_int_equal(use(client, 1, true), 0);
	assert_int_equal(hf_client_register(client), HF_CLIENT_OK);
	rig.refuse = -EIO;
	for (int i = 0; i < 20; i++) {
		assert_int_equal(use(client, 2, false), 0);
		assert_int_equal(hf_client_register(client), -EIO);
		assert_false(has_used(client, 2));
	}
	assert_string_equal(client->other_locals, "10.0.1.2");
	rig.refuse = 0;
	assert_int_equal(use(client, 2, false), 0);
	assert_int_equal(hf_client_register(client), HF_CLIENT_OK);
	assert_true(has_used(client, 1) && has_used(client, 2));
	hf_client_unregister(client);
	hf_client_unref(client);
}

static void test_addresses_are_bounded(void **state)
{
	struct hf_client *client = get("nlm", "10.0.0.1", "a");
	struct hf_addr local;

	for (unsigned int i = 0; i < 40; i++)
		assert_int_equal(use(client, i, true), 0);
	assert_true(hf_client_other_local(client, 0, &local));
	assert_int_equal(local.ip[3], 39 - HF_CLIENT_OTHER_LOCALS);
	assert_true(hf_client_other_local(client, HF_CLIENT_OTHER_LOCALS - 1, &local));
	assert_int_equal(local.ip[3], 38);
	assert_false(hf_client_other_local(client, HF_CLIENT_OTHER_LOCALS, &local));
	hf_client_unref(client);
}

/* A forged datagram can give any of the server's addresses. */
static void test_an_address_that_may_be_forged_replaces_none(void **state)
{
	struct hf_client *client = get("nlm", "10.0.0.1", "a");

	assert_int_equal(use(client, 1, true), 0);
	assert_int_equal(use(client, 2, true), 0);
	for (unsigned int i = 0; i < 40; i++)
		assert_int_equal(use(client, 100 + i, false), 0);
	assert_int_equal(hf_client_register(client), HF_CLIENT_OK);
	assert_true(has_used(client, 1) && has_used(client, 2));
	assert_true(has_used(client, 100 + HF_CLIENT_OTHER_LOCALS - 2));
	assert_false(has_used(client, 100 + HF_CLIENT_OTHER_LOCALS - 1));

	for (unsigned int i = 3; i < 2 + HF_CLIENT_OTHER_LOCALS; i++)
		assert_int_equal(use(client, i, true), 0);
	assert_int_equal(hf_client_register(client), HF_CLIENT_OK);
	for (unsigned int i = 1; i < 2 + HF_CLIENT_OTHER_LOCALS; i++)
		assert_true(has_used(client, i)); /* the forged ones left */
	assert_false(has_used(client, 100));
	hf_client_unregister(client);
	hf_client_unref(client);
}

static void test_names_that_were_answered(void **state)
{
	struct hf_client *client = get("nlm", "10.0.0.1", "a");

	for (unsigned int i = 0; i < HF_CLIENT_OTHER_LOCALS; i++)
		assert_int_equal(use(client, i, true), 0);
	assert_int_equal(hf_client_register(client), HF_CLIENT_OK);
	hf_client_note_named(client, 7, 1);
	assert_int_equal(hf_client_count_named(client, 7), 1);
	assert_false(hf_client_is_reached(client, 7)); /* the address is missing */
	hf_client_note_named(client, 7, 2);
	assert_true(hf_client_is_reached(client, 7));
	assert_int_equal(hf_client_count_named(client, 9), 0);
	assert_false(hf_client_is_reached(client, 9));

	assert_int_equal(use(client, 20, true), 0); /* the last place */
	assert_int_equal(hf_client_count_named(client, 7), 2);
	assert_int_equal(use(client, 21, true), 0); /* one leaves */
	assert_int_equal(hf_client_count_named(client, 7), 0);
	hf_client_note_named(client, 7, 2);
	hf_client_unregister(client);
	assert_int_equal(hf_client_count_named(client, 7), 0);
	hf_client_unref(client);
}

static void test_stored_addresses(void **state)
{
	static const char stored[] =
		"10.0.1.1 no-address  fd00::1 fe80::1%lo "
		"1234567890123456789012345678901234567890123456789012345678901234567890 ::2";
	struct hf_client *client = get("nlm", "10.0.0.1", "a");

	assert_int_equal(hf_client_restore_other_locals(client, hf_bytes_of_str(stored)), 0);
	assert_string_equal(client->other_locals, "10.0.1.1 fd00::1");
	hf_client_unref(client);
}

static void test_renamed_or_another(void **state)
{
	struct hf_client *old = get("nlm", "10.0.0.1", "old"), *client = get("nlm", "10.0.0.1", "new");

	assert_true(hf_client_may_be(client, old));
	old->sm_state = 3;
	assert_true(hf_client_may_be(client, old));
	client->sm_state = 5;
	assert_false(hf_client_may_be(client, old));
	client->sm_state = 3;
	assert_true(hf_client_may_be(client, old));
	old->sm_state = 5; /* a notice said so, and the LOCKs of both go on with the number before it */
	old->lock_state = client->lock_state = 3;
	assert_true(hf_client_may_be(client, old));
	client->sm_state = client->lock_state = 5;
	assert_false(hf_client_may_be(client, old));
	client->sm_state = client->lock_state = 3;
	old->called_at = client->met_at;
	assert_true(hf_client_may_be(client, old));
	old->called_at++;
	assert_false(hf_client_may_be(client, old));
	old->called_at = 1;
	hf_client_restore(client, 1, 1); /* so it was known before */
	assert_false(hf_client_may_be(client, old));
	hf_client_unregister(client);
	hf_client_unref(client);
	hf_client_unref(old);
}

/* The number of what is taken while a notice is checked: no client has it, and it tells which notice that
 * was. */
static void test_tags_of_doubts(void **state)
{
	const int32_t numbers[] = { 1, 2, 5, 0x7fff, 0xffff };

	for (size_t i = 0; i < HF_ARRAY_SIZE(numbers); i++)
		for (uint32_t serial = 0; serial < 100000; serial += 331) {
			int32_t tag = hf_client_make_doubt_tag(numbers[i], serial);

			assert_true(tag < 0 && tag % 2 == 0);
			assert_int_equal(hf_client_stored_number(tag), numbers[i]);
		}
	assert_int_not_equal(hf_client_make_doubt_tag(5, 1), hf_client_make_doubt_tag(5, 2));
	/* There is no room for a long number. */
	assert_int_equal(hf_client_stored_number(hf_client_make_doubt_tag(0x10001, 1)), 0);
	assert_int_equal(hf_client_stored_number(hf_client_make_doubt_tag(-1, 1)), 0);
	assert_int_equal(hf_client_stored_number(hf_client_make_doubt_tag(5, UINT32_MAX)), 5);
}

static void test_numbers_that_clients_say_are_stored_as_they_are(void **state)
{
	const int32_t numbers[] = { 0, 1, 2, 5, INT32_MAX, -1, -3, INT32_MIN + 1 };

	for (size_t i = 0; i < HF_ARRAY_SIZE(numbers); i++)
		assert_int_equal(hf_client_stored_number(numbers[i]), numbers[i]);
}

static void test_the_number_of_what_is_taken(void **state)
{
	struct hf_client *client = get("nlm", "10.0.0.1", "alpha");

	client->sm_state = 5;
	assert_int_equal(hf_client_state_for(client, 0, 0), 0); /* a forger may have said the 5 */
	client->is_state_proven = true;
	assert_int_equal(hf_client_state_for(client, 0, 0), 5);
	assert_int_equal(hf_client_state_for(client, 3, 0), 3);
	client->doubted_state = 7;
	client->doubt_tag = hf_client_make_doubt_tag(7, 1);
	client->doubted_at = 0;
	assert_int_equal(hf_client_state_for(client, 5, 0), client->doubt_tag);
	assert_int_equal(hf_client_state_for(client, 0, 0), client->doubt_tag);
	assert_int_equal(hf_client_state_for(client, 7, 0), client->doubt_tag);
	assert_int_equal(hf_client_state_for(client, 9, 0), 9);
	client->doubted_at = UINT64_MAX; /* the call came before the notice */
	assert_int_equal(hf_client_state_for(client, 5, 1), 5);
	client->doubted_at = 0;
	client->doubted_state = 9; /* two restarts later */
	client->doubt_tag = hf_client_make_doubt_tag(9, 2);
	assert_int_equal(hf_client_stored_number(hf_client_state_for(client, 7, 0)), 9);
	assert_int_equal(hf_client_stored_number(hf_client_state_for(client, 0, 0)), 9);
	assert_int_equal(hf_client_stored_number(hf_client_state_for(client, 5, 0)), 0);
	client->is_state_proven = false; /* so the 5 may be forged */
	assert_int_equal(hf_client_stored_number(hf_client_state_for(client, 5, 0)), 9);
	client->doubted_state = client->doubt_tag = 0;
	hf_client_unref(client);
}

static void test_neighbours(void **state)
{
	struct hf_client *client = get("nlm", "10.0.0.1", "alpha"), *other = get("nlm", "10.0.0.1", "beta");
	struct hf_client *watcher = get("nsm", "10.0.0.1", "alpha");

	watcher->has_connected = client->has_connected = true;
	assert_false(hf_client_is_neighbour(client, client));
	assert_false(hf_client_is_neighbour(client, watcher));
	assert_false(hf_client_is_neighbour(client, other)); /* datagrams have said the name */
	assert_int_equal(hf_client_register(other), HF_CLIENT_OK);
	hf_client_unregister(other);
	assert_false(hf_client_had_neighbour(client));
	other->has_connected = true;
	assert_true(hf_client_is_neighbour(client, other));
	client->is_privileged = true; /* and an ordinary user of its host could be the other one */
	assert_false(hf_client_is_neighbour(client, other));
	other->is_privileged = true;
	assert_true(hf_client_is_neighbour(client, other));
	assert_int_equal(hf_client_register(other), HF_CLIENT_OK);
	hf_client_unregister(other);
	assert_true(hf_client_had_neighbour(client));
	hf_client_unref(watcher);
	hf_client_unref(other);
	hf_client_unref(client);
}

static void test_status_names(void **state)
{
	assert_string_equal(hf_client_status_name(HF_CLIENT_ACTIVE), "active");
	assert_string_equal(hf_client_status_name(HF_CLIENT_NOTIFIED), "notified");
	assert_string_equal(hf_client_status_name(HF_CLIENT_UNREACHABLE), "unreachable");
	assert_string_equal(hf_client_status_name(HF_CLIENT_CRASHED), "crashed");
}

static void test_privilege_is_stored(void **state)
{
	struct hf_client *client;

	client = get("nlm", "192.0.2.1", "alpha");
	assert_int_equal(hf_client_set_privileged(client, true), 0);
	assert_int_equal(rig.n_registered, 0); /* the registration will say so */
	assert_int_equal(hf_client_register(client), HF_CLIENT_OK);
	assert_int_equal(hf_client_set_privileged(client, true), 0);
	assert_int_equal(rig.n_registered, 1);
	rig.refuse = -ENOMEM;
	assert_int_equal(hf_client_set_privileged(client, false), -ENOMEM);
	assert_true(client->is_privileged);
	rig.refuse = 0;
	assert_int_equal(hf_client_set_privileged(client, false), 0);
	assert_false(client->is_privileged);
	assert_int_equal(rig.n_registered, 2);
	hf_client_unregister(client);
	hf_client_unref(client);
}

/* Names */

static uint64_t hash_of(const char *name)
{
	return hf_host_name_hash(&(struct hf_siphash_key){ 1, 2 }, hf_bytes_of_str(name));
}

static void test_forms_of_a_name_have_one_hash(void **state)
{
	assert_int_equal(hash_of("Host.example.org"), hash_of("hOST"));
	assert_int_equal(hash_of("host:4045"), hash_of("host"));
	assert_int_equal(hash_of("host.example.org:4045"), hash_of("host"));
	assert_int_not_equal(hash_of("host1"), hash_of("host2"));
}

static void test_addresses_have_hashes_of_their_own(void **state)
{
	assert_int_not_equal(hash_of("10.0.0.1"), hash_of("10.0.0.2"));
	assert_int_not_equal(hash_of("10.0.0.1"), hash_of("10"));
	assert_int_not_equal(hash_of("fd00::1"), hash_of("fd00::2"));
	assert_int_equal(hash_of("FD00::1"), hash_of("fd00::1"));
	assert_int_equal(hash_of("10.0.0.1:4045"), hash_of("10.0.0.1"));
}

static size_t count_named(const char *name)
{
	struct hf_client *client = NULL;
	size_t n = 0;

	while ((client = hf_clients_next_named(rig.clients, hf_bytes_of_str(name), client)))
		n++;
	return n;
}

static void test_clients_are_found_by_name(void **state)
{
	struct hf_client *clients[40];
	char address[32], name[32];

	for (int i = 0; i < 40; i++) {
		snprintf(address, sizeof(address), "10.0.0.%d", i + 1);
		snprintf(name, sizeof(name), "Host%d%s", i % 4, i < 20 ? ".example.org" : "");
		clients[i] = get(i % 2 ? "nlm" : "nsm", address, name);
	}
	assert_int_equal(count_named("host1"), 10);
	assert_int_equal(count_named("HOST1.example.com"), 10); /* the caller compares */
	assert_int_equal(count_named("host"), 0);
	for (int i = 0; i < 40; i += 8)
		clients[i] = hf_client_unref(clients[i]);
	assert_int_equal(count_named("host0"), 5);
	assert_int_equal(count_named("host1"), 10);
	for (int i = 0; i < 40; i++)
		hf_client_unref(clients[i]);
	assert_int_equal(count_named("host1"), 0);
}

/* Binding */

static struct hf_tls_peer peer_named(char *name)
{
	return (struct hf_tls_peer){ .is_authenticated = true, .n_names = 1, .names = { name } };
}

static void test_a_binding(void **state)
{
	char alpha_name[] = "ALPHA.example", beta_name[] = "beta", other_name[] = "bet";
	struct hf_tls_peer alpha = peer_named(alpha_name), beta = peer_named(beta_name);
	struct hf_tls_peer other = peer_named(other_name), nameless = { 0 };
	struct hf_client *client = get("nlm", "10.0.0.1", "a");

	assert_string_equal(hf_client_transport(client), "clear");
	assert_true(hf_client_is_bound_to(client, &nameless));
	assert_int_equal(hf_client_bind(client, NULL), 0);
	assert_string_equal(hf_client_transport(client), "tls");
	assert_true(hf_client_is_bound_to(client, &nameless) && hf_client_is_bound_to(client, &beta));
	assert_int_equal(hf_client_bind(client, "alpha.example beta"), 0);
	assert_string_equal(hf_client_transport(client), "mtls");
	assert_true(hf_client_is_bound_to(client, &alpha) && hf_client_is_bound_to(client, &beta));
	assert_false(hf_client_is_bound_to(client, &nameless) || hf_client_is_bound_to(client, &other));
	beta.is_authenticated = false;
	assert_false(hf_client_is_bound_to(client, &beta));
	assert_int_equal(hf_client_unbind(client), 0);
	assert_string_equal(hf_client_transport(client), "clear");
	hf_client_unref(client);
}

static void test_a_binding_is_stored(void **state)
{
	struct hf_client *client = get("nlm", "10.0.0.1", "a");

	assert_int_equal(hf_client_bind(client, "alpha"), 0);
	assert_int_equal(rig.n_registered, 0); /* it is not registered */
	assert_int_equal(hf_client_register(client), 0);
	assert_int_equal(hf_client_bind(client, "alpha"), 0);
	assert_int_equal(rig.n_registered, 1); /* nothing has changed */
	assert_int_equal(hf_client_bind(client, "beta"), 0);
	assert_int_equal(rig.n_registered, 2);
	rig.refuse = -EROFS;
	assert_int_equal(hf_client_bind(client, "gamma"), -EROFS);
	assert_string_equal(client->identity, "beta");
	assert_int_equal(hf_client_unbind(client), -EROFS);
	assert_true(client->is_secured);
	hf_client_unregister(client);
	hf_client_unref(client);
}

static void test_refused_calls(void **state)
{
	struct hf_client *client = get("nlm", "10.0.0.1", "a");

	assert_true(hf_client_note_refused(rig.clients, client, HF_CLIENT_NAME_TAKEN));
	assert_false(hf_client_note_refused(rig.clients, client, HF_CLIENT_NAME_TAKEN));
	assert_true(hf_client_note_refused(rig.clients, client, HF_CLIENT_NO_PROOF));
	assert_false(hf_client_note_refused(rig.clients, NULL, HF_CLIENT_NO_PROOF));
	assert_int_equal(client->n_refused, 3);
	assert_int_equal(hf_clients_count_refused(rig.clients, HF_CLIENT_NAME_TAKEN), 2);
	assert_int_equal(hf_clients_count_refused(rig.clients, HF_CLIENT_NO_PROOF), 2);
	assert_int_equal(hf_clients_count_refused(rig.clients, HF_CLIENT_NO_CONNECTION), 0);
	hf_client_unref(client);
}

static void test_stored_clients_of_interfaces_that_are_not_there(void **state)
{
	struct hf_client *first = get_stored("nlm:fe80::2%gone1:host", 7);
	struct hf_client *second = get_stored("nlm:fe80::2%gone2:host", 7);
	struct hf_client *other = get_stored("nlm:fe80::2%gone1:other", 7);

	assert_ptr_not_equal(first, second);
	assert_string_equal(first->name, "host");
	assert_false(hf_addr_equal(&first->address, &second->address));
	assert_true(hf_addr_equal(&first->address, &other->address));
	assert_true(hf_client_is_alone(second));
	assert_false(hf_client_is_alone(first));
	hf_client_unref(first);
	hf_client_unref(second);
	hf_client_unref(other);
}

static void test_a_stored_client_has_the_number_of_its_interface(void **state)
{
	struct hf_client *stored = get_stored("nlm:fe80::2%lo:host", 1234567);
	struct hf_client *found = get("nlm", "fe80::2%lo", "host");

	assert_ptr_equal(found, stored);
	hf_client_unref(found);
	/* The interface is made again while the server runs. */
	stored->host->address.scope = stored->address.scope = stored->local.scope = 1234567;
	found = get("nlm", "fe80::2%lo", "host");
	assert_ptr_equal(found, stored);
	assert_int_equal(found->local.scope, found->address.scope);
	hf_client_unref(found);
	stored->host->address.scope = stored->address.scope = 1234567;
	hf_client_renumber(stored);
	found = get("nlm", "fe80::2%lo", "other");
	assert_ptr_equal(found->host, stored->host);
	hf_client_unref(found);
	hf_client_unref(stored);
}

static void test_a_stored_id_without_its_interface(void **state)
{
	struct hf_client *stored = get_stored("nlm:fe80::2:host", 1);
	struct hf_client *found = get("nlm", "fe80::2%lo", "host"); /* number 1 everywhere */

	assert_ptr_equal(found, stored);
	hf_client_unref(found);
	hf_client_unref(stored);
}

static void test_stored_ids_of_another_address(void **state)
{
	static const char *const wrong[] = {
		"nlm:fe80::3:host",
		"nsm:fe80::2:host",
		"nlm:fe80::2",
		"nlm:fe80::2%:host",
		"nlm:fe80::2%lo",
		"nlm:fe80::2:",
		"nlm:fe80::2%0123456789abcdef:host",
	};
	struct hf_client *client;
	struct hf_addr addr;

	assert_true(hf_addr_parse(&addr, "fe80::2"));
	for (size_t i = 0; i < HF_ARRAY_SIZE(wrong); i++)
		assert_int_equal(hf_clients_get_stored(&client, rig.clients, "nlm", &addr, wrong[i]),
				 -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms_of_a_name_have_one_hash),
		cmocka_unit_test(test_addresses_have_hashes_of_their_own),
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_clients_are_found_by_name),
		T(test_who_is_the_same),
		T(test_names),
		T(test_all_at_an_address_and_all),
		T(test_what_keeps_a_client),
		T(test_registering),
		T(test_windows),
		T(test_durable_handles),
		T(test_seen),
		T(test_addresses_that_it_used),
		T(test_an_address_counts_when_it_is_stored),
		T(test_addresses_are_bounded),
		T(test_an_address_that_may_be_forged_replaces_none),
		T(test_names_that_were_answered),
		T(test_stored_addresses),
		T(test_renamed_or_another),
		T(test_tags_of_doubts),
		T(test_numbers_that_clients_say_are_stored_as_they_are),
		T(test_the_number_of_what_is_taken),
		T(test_neighbours),
		T(test_status_names),
		T(test_privilege_is_stored),
		T(test_a_binding),
		T(test_a_binding_is_stored),
		T(test_refused_calls),
		T(test_stored_clients_of_interfaces_that_are_not_there),
		T(test_a_stored_client_has_the_number_of_its_interface),
		T(test_a_stored_id_without_its_interface),
		T(test_stored_ids_of_another_address),
	};

	return cmocka_run_group_tests_name("client", tests, NULL, NULL);
}
