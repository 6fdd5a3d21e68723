#include "../test.h"

#include <string.h>
#include <sys/socket.h>

#include "rpc/replay.h"

#define SECOND UINT64_C(1000000000)
#define CLEAR  0 /* the channel of clear text */

static struct hf_replay *replay;
static uint8_t reply[HF_REPLAY_MAX_REPLY];
static uint32_t reply_len;
static struct hf_replay_entry *entry;

static const struct hf_siphash_key key = { 1, 2 };

static int set_up(void **state)
{
	return hf_replay_new(&replay, &key, 8);
}

static int tear_down(void **state)
{
	replay = hf_replay_free(replay);
	assert_null(hf_replay_free(NULL));
	return 0;
}

static struct hf_addr host(uint8_t n, uint16_t port)
{
	return (struct hf_addr){ .ip = { 10, 0, 0, n }, .family = AF_INET, .port = port };
}

/* A message is its xid and some bytes. */
static struct hf_bytes message(uint32_t xid, uint8_t what)
{
	static uint8_t data[12];

	memset(data, what, sizeof(data));
	memcpy(data, &xid, 4);
	return hf_bytes_of(data, sizeof(data));
}

struct follower {
	int n_told;
	char text[16];
	uint32_t len;
};

static void on_told(void *user, struct hf_bytes told)
{
	struct follower *follower = user;

	follower->n_told++;
	follower->len = told.len;
	memcpy(follower->text, told.len ? (const char *)told.data : "", told.len);
}

static int begin(uint64_t now, struct hf_addr peer, struct hf_bytes m, struct follower *follower)
{
	struct hf_replay_call call = { .peer = &peer, .channel = CLEAR, .message = m };

	entry = NULL;
	return hf_replay_begin(replay, now, &call, follower, on_told, reply, &reply_len, &entry);
}

static void finish(const char *text)
{
	hf_replay_finish(replay, entry, hf_bytes_of_str(text));
}

static void test_new_then_done(void **state)
{
	assert_int_equal(begin(SECOND, host(1, 700), message(1, 'a'), NULL), HF_REPLAY_NEW);
	assert_non_null(entry);
	finish("answer");
	for (uint16_t port = 700; port < 710; port++) { /* whatever the port */
		assert_int_equal(begin(2 * SECOND, host(1, port), message(1, 'a'), NULL), HF_REPLAY_DONE);
		assert_int_equal(reply_len, 6);
		assert_memory_equal(reply, "answer", 6);
	}
	/* another host, another kind of port, another xid, another message: each is new */
	assert_int_equal(begin(2 * SECOND, host(1, 7000), message(1, 'a'), NULL), HF_REPLAY_NEW);
	finish("of a user");
	assert_int_equal(begin(2 * SECOND, host(2, 700), message(1, 'a'), NULL), HF_REPLAY_NEW);
	finish("of host 2");
	assert_int_equal(begin(2 * SECOND, host(1, 700), message(2, 'a'), NULL), HF_REPLAY_NEW);
	finish("of xid 2");
	assert_int_equal(begin(2 * SECOND, host(1, 700), message(1, 'b'), NULL), HF_REPLAY_NEW);
	finish("of b");
	assert_int_equal(begin(2 * SECOND, host(1, 700), message(1, 'a'), NULL), HF_REPLAY_DONE);
	assert_memory_equal(reply, "answer", 6);
	assert_int_equal(begin(2 * SECOND, host(2, 700), message(1, 'a'), NULL), HF_REPLAY_DONE);
	assert_memory_equal(reply, "of host 2", 9);
}

static int begin_on(uint64_t channel, struct hf_bytes m)
{
	struct hf_addr peer = host(1, 700);
	struct hf_replay_call call = { .peer = &peer, .channel = channel, .message = m };

	entry = NULL;
	return hf_replay_begin(replay, SECOND, &call, NULL, on_told, reply, &reply_len, &entry);
}

/* Neither does a copy in the clear get the reply that was made for TLS, nor the other way round. */
static void test_channels_are_apart(void **state)
{
	static const char *const texts[] = { "clear", "alpha", "beta" };

	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(begin_on(i, message(1, 'a')), HF_REPLAY_NEW);
		finish(texts[i]);
	}
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(begin_on(i, message(1, 'a')), HF_REPLAY_DONE);
		assert_memory_equal(reply, texts[i], reply_len);
	}
}

static void test_finish_once(void **state)
{
	struct follower follower = { 0 };
	struct hf_replay_entry *mine;

	assert_int_equal(begin(SECOND, host(1, 1), message(1, 'a'), NULL), HF_REPLAY_NEW);
	mine = entry;
	assert_int_equal(begin(SECOND, host(1, 2), message(1, 'a'), &follower), HF_REPLAY_BUSY);
	hf_replay_finish_once(replay, mine, hf_bytes_of_str("denied"));
	assert_int_equal(follower.n_told, 1);
	assert_memory_equal(follower.text, "denied", 6);
	assert_int_equal(begin(SECOND, host(1, 1), message(1, 'a'), NULL), HF_REPLAY_NEW);
	finish("answer");
}

static void test_busy(void **state)
{
	struct follower first = { 0 }, second = { 0 };
	struct hf_replay_entry *mine;

	assert_int_equal(begin(SECOND, host(1, 1), message(1, 'a'), NULL), HF_REPLAY_NEW);
	mine = entry;
	assert_int_equal(begin(SECOND, host(1, 2), message(1, 'a'), NULL), HF_REPLAY_BUSY);
	assert_int_equal(begin(SECOND, host(1, 2), message(1, 'a'), &first), HF_REPLAY_BUSY);
	assert_int_equal(first.n_told, 0);
	/* without a follower of its own it leaves the one there is */
	assert_int_equal(begin(SECOND, host(1, 2), message(1, 'a'), NULL), HF_REPLAY_BUSY);
	assert_int_equal(first.n_told, 0);
	assert_int_equal(begin(SECOND, host(1, 3), message(1, 'a'), &second), HF_REPLAY_BUSY);
	assert_int_equal(first.n_told, 1); /* its place is taken */
	assert_int_equal(first.len, 0);
	entry = mine;
	finish("answer");
	assert_int_equal(first.n_told, 1);
	assert_int_equal(second.n_told, 1);
	assert_memory_equal(second.text, "answer", 6);
	assert_int_equal(begin(SECOND, host(1, 3), message(1, 'a'), NULL), HF_REPLAY_DONE);
	assert_int_equal(second.n_told, 1);
}

static void test_forget(void **state)
{
	struct follower follower = { 0 };
	struct hf_replay_entry *mine;

	assert_int_equal(begin(SECOND, host(1, 1), message(1, 'a'), NULL), HF_REPLAY_NEW);
	mine = entry;
	assert_int_equal(begin(SECOND, host(1, 1), message(1, 'a'), &follower), HF_REPLAY_BUSY);
	hf_replay_forget(replay, mine);
	assert_int_equal(follower.n_told, 1);
	assert_int_equal(follower.len, 0);
	assert_int_equal(begin(SECOND, host(1, 1), message(1, 'a'), NULL), HF_REPLAY_NEW);
	hf_replay_forget(replay, entry);
}

static void test_long_replies(void **state)
{
	static uint8_t big[HF_REPLAY_MAX_REPLY + 1];

	assert_int_equal(begin(SECOND, host(1, 1), message(1, 'a'), NULL), HF_REPLAY_NEW);
	hf_replay_finish(replay, entry, hf_bytes_of(big, HF_REPLAY_MAX_REPLY));
	assert_int_equal(begin(SECOND, host(1, 1), message(1, 'a'), NULL), HF_REPLAY_DONE);
	assert_int_equal(reply_len, HF_REPLAY_MAX_REPLY);
	assert_int_equal(begin(SECOND, host(1, 1), message(2, 'a'), NULL), HF_REPLAY_NEW);
	hf_replay_finish(replay, entry, hf_bytes_of(big, HF_REPLAY_MAX_REPLY + 1));
	assert_int_equal(begin(SECOND, host(1, 1), message(2, 'a'), NULL), HF_REPLAY_NEW);
	hf_replay_forget(replay, entry);
}

static void test_expiry(void **state)
{
	assert_int_equal(begin(SECOND, host(1, 1), message(1, 'a'), NULL), HF_REPLAY_NEW);
	finish("old");
	assert_int_equal(begin(100 * SECOND, host(1, 1), message(2, 'a'), NULL), HF_REPLAY_NEW);
	finish("young");
	assert_int_equal(begin(121 * SECOND, host(1, 1), message(1, 'a'), NULL), HF_REPLAY_DONE);
	assert_int_equal(begin(122 * SECOND, host(1, 1), message(1, 'a'), NULL), HF_REPLAY_NEW);
	finish("again");
	assert_int_equal(begin(122 * SECOND, host(1, 1), message(2, 'a'), NULL), HF_REPLAY_DONE);
	/* what is under way never expires */
	assert_int_equal(begin(123 * SECOND, host(1, 1), message(3, 'a'), NULL), HF_REPLAY_NEW);
	{
		struct hf_replay_entry *mine = entry;

		assert_int_equal(begin(1000 * SECOND, host(1, 1), message(3, 'a'), NULL), HF_REPLAY_BUSY);
		hf_replay_forget(replay, mine);
	}
}

/* Each lane reads its own clock: an entry may come from a moment that another has not reached yet. */
static void test_clocks_differ(void **state)
{
	assert_int_equal(begin(2 * SECOND, host(1, 1), message(1, 'a'), NULL), HF_REPLAY_NEW);
	finish("from the future");
	assert_int_equal(begin(SECOND, host(1, 1), message(1, 'a'), NULL), HF_REPLAY_DONE);
}

static void test_full(void **state)
{
	struct hf_replay_entry *busy[8];

	/* done ones make room, the oldest first */
	for (uint32_t i = 0; i < 20; i++) {
		assert_int_equal(begin(SECOND + i, host(1, 1), message(i, 'a'), NULL), HF_REPLAY_NEW);
		finish("x");
	}
	assert_int_equal(begin(2 * SECOND, host(1, 1), message(19, 'a'), NULL), HF_REPLAY_DONE);
	assert_int_equal(begin(2 * SECOND, host(1, 1), message(13, 'a'), NULL), HF_REPLAY_DONE);
	assert_int_equal(begin(2 * SECOND, host(1, 1), message(11, 'a'), NULL), HF_REPLAY_NEW);
	busy[0] = entry;
	/* those under way do not */
	for (uint8_t i = 1; i < 8; i++) {
		assert_int_equal(begin(2 * SECOND, host(1 + i, 1), message(i, 'a'), NULL), HF_REPLAY_NEW);
		busy[i] = entry;
	}
	assert_int_equal(begin(2 * SECOND, host(20, 1), message(1, 'a'), NULL), HF_REPLAY_FULL);
	assert_null(entry);
	assert_int_equal(begin(2 * SECOND, host(6, 1), message(5, 'a'), NULL), HF_REPLAY_BUSY);
	hf_replay_finish(replay, busy[3], hf_bytes_of_str("y"));
	assert_int_equal(begin(2 * SECOND, host(20, 1), message(1, 'a'), NULL), HF_REPLAY_NEW);
	finish("z");
	for (int i = 0; i < 8; i++)
		if (i != 3)
			hf_replay_forget(replay, busy[i]);
}

static int begin_datagram(struct hf_addr peer, struct hf_bytes m)
{
	struct hf_replay_call call = { .peer = &peer, .channel = CLEAR, .message = m, .is_forgeable = true };

	entry = NULL;
	return hf_replay_begin(replay, SECOND, &call, NULL, on_told, reply, &reply_len, &entry);
}

/* The address with the most loses its oldest. */
static void test_no_address_takes_the_entries_of_another(void **state)
{
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(begin(SECOND, host(1, 1), message(i, 'a'), NULL), HF_REPLAY_NEW);
		finish("mine");
	}
	for (uint32_t i = 0; i < 100; i++) {
		assert_int_equal(begin(SECOND, host(2, 1), message(i, 'a'), NULL), HF_REPLAY_NEW);
		finish("flood");
	}
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(begin(SECOND, host(1, 1), message(i, 'a'), NULL), HF_REPLAY_DONE);
	for (uint32_t i = 95; i < 100; i++)
		assert_int_equal(begin(SECOND, host(2, 1), message(i, 'a'), NULL), HF_REPLAY_DONE);
	assert_int_equal(begin(SECOND, host(2, 1), message(94, 'a'), NULL), HF_REPLAY_NEW);
	hf_replay_forget(replay, entry);
}

static void test_forged_addresses_are_one(void **state)
{
	assert_int_equal(begin(SECOND, host(1, 1), message(1, 'a'), NULL), HF_REPLAY_NEW);
	finish("mine");
	for (uint8_t i = 2; i < 200; i++) {
		assert_int_equal(begin_datagram(host(i, 1), message(1, 'a')), HF_REPLAY_NEW);
		finish("forged");
	}
	assert_int_equal(begin(SECOND, host(1, 1), message(1, 'a'), NULL), HF_REPLAY_DONE);
	assert_int_equal(begin_datagram(host(199, 1), message(1, 'a')), HF_REPLAY_DONE);
}

static struct hf_addr in_network(uint8_t network, uint8_t host)
{
	struct hf_addr peer = { .ip = { 0x20, 1, [7] = network, [15] = host }, .family = AF_INET6 };

	return peer;
}

/* A host may have any address of its /64. */
static void test_a_network_of_ipv6_is_one(void **state)
{
	assert_int_equal(begin(SECOND, in_network(1, 1), message(1, 'a'), NULL), HF_REPLAY_NEW);
	finish("mine");
	for (uint8_t i = 2; i < 200; i++) {
		assert_int_equal(begin(SECOND, in_network(2, i), message(1, 'a'), NULL), HF_REPLAY_NEW);
		finish("of another network");
	}
	assert_int_equal(begin(SECOND, in_network(1, 1), message(1, 'a'), NULL), HF_REPLAY_DONE);
}

/* What is under way cannot make room. */
static void test_an_address_has_half_under_way(void **state)
{
	struct hf_replay_entry *busy[6];
	uint32_t n = 0;

	for (; n < 4; n++) {
		assert_int_equal(begin(SECOND, host(1, 1), message(n, 'a'), NULL), HF_REPLAY_NEW);
		busy[n] = entry;
	}
	assert_int_equal(begin(SECOND, host(1, 1), message(n, 'a'), NULL), HF_REPLAY_FULL);
	for (; n < 6; n++) { /* half of what is left */
		assert_int_equal(begin(SECOND, host(2, 1), message(n, 'a'), NULL), HF_REPLAY_NEW);
		busy[n] = entry;
	}
	assert_int_equal(begin(SECOND, host(2, 1), message(n, 'a'), NULL), HF_REPLAY_FULL);
	assert_int_equal(begin(SECOND, host(3, 1), message(n, 'a'), NULL), HF_REPLAY_NEW);
	finish("a third one");
	while (n)
		hf_replay_forget(replay, busy[--n]);
	assert_int_equal(begin(SECOND, host(1, 1), message(4, 'a'), NULL), HF_REPLAY_NEW);
	finish("later");
}

/* Many of them, so that buckets hold several. */
static void test_many(void **state)
{
	struct hf_replay *many;
	struct hf_addr peer = host(1, 1);

	assert_int_equal(hf_replay_new(&many, &key, 5000), 0);
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < 5000; i++) {
			struct hf_replay_call call = { .peer = &peer, .message = message(i, (uint8_t)i) };
			int r = hf_replay_begin(many, SECOND, &call, NULL, NULL, reply, &reply_len, &entry);

			assert_int_equal(r, round ? HF_REPLAY_DONE : HF_REPLAY_NEW);
			if (round) {
				assert_int_equal(reply_len, 4);
				assert_memory_equal(reply, &i, 4);
			} else {
				hf_replay_finish(many, entry, hf_bytes_of(&i, 4));
			}
		}
	}
	hf_replay_free(many);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_new_then_done),
		TEST(test_busy),
		TEST(test_finish_once),
		TEST(test_channels_are_apart),
		TEST(test_forget),
		TEST(test_long_replies),
		TEST(test_expiry),
		TEST(test_clocks_differ),
		TEST(test_full),
		cmocka_unit_test(test_many),
		TEST(test_no_address_takes_the_entries_of_another),
		TEST(test_forged_addresses_are_one),
		TEST(test_a_network_of_ipv6_is_one),
		TEST(test_an_address_has_half_under_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
