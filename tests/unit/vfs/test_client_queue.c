/* The order of the jobs: here each job is a letter for its address, and the order of the jobs a word. */
#include "../memory.h"
#include "../test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/macros.h"
#include "vfs/client_queue.h"

#define MAX_ENTRIES 4000

struct waiting {
	struct hf_client_queue_entry entry;
	char letter;
	uint16_t port;
};

struct bed {
	struct hf_client_queue queue;
	struct waiting all[MAX_ENTRIES];
	size_t n;
};

static struct hf_addr addr_of(char letter, uint16_t port)
{
	return (struct hf_addr){ .ip = { 10, 0, 0, (uint8_t)letter }, .family = AF_INET, .port = port };
}

static void push(struct bed *bed, char letter, uint16_t port, size_t n)
{
	struct hf_addr from = addr_of(letter, port);

	for (size_t i = 0; i < n; i++) {
		struct waiting *waiting = &bed->all[bed->n++];

		assert_in_range(bed->n, 1, MAX_ENTRIES);
		hf_link_init(&waiting->entry.link);
		waiting->letter = letter;
		waiting->port = port;
		hf_client_queue_push(&bed->queue, &waiting->entry, letter ? &from : NULL);
	}
}

static struct waiting *begin(struct bed *bed)
{
	struct hf_client_queue_entry *entry = hf_client_queue_first(&bed->queue);

	if (!entry)
		return NULL;
	hf_client_queue_take(&bed->queue, entry);
	hf_client_queue_begin(&bed->queue, entry);
	return hf_container_of(entry, struct waiting, entry);
}

static void end(struct bed *bed, const struct waiting *waiting, uint64_t cost)
{
	hf_client_queue_end(&bed->queue, waiting->entry.flow, cost);
}

/* One after the other, by one worker; a capital letter costs ten times as much. */
static const char *serve(struct bed *bed, size_t n, char word[MAX_ENTRIES + 1])
{
	const struct waiting *waiting;
	size_t len = 0;

	while (len < n && (waiting = begin(bed))) {
		word[len++] = waiting->letter;
		end(bed, waiting, waiting->letter < 'a' ? 10 : 1);
	}
	word[len] = '\0';
	return word;
}

static int set_up(void **state)
{
	struct bed *bed = calloc(1, sizeof(*bed));

	*state = bed;
	hf_client_queue_init(&bed->queue);
	return 0;
}

static int tear_down(void **state)
{
	struct bed *bed = *state;
	char word[MAX_ENTRIES + 1];

	serve(bed, MAX_ENTRIES, word);
	hf_client_queue_deinit(&bed->queue);
	free(bed);
	return 0;
}

static void test_addresses_take_turns(void **state)
{
	char word[MAX_ENTRIES + 1];

	push(*state, 'a', 1, 6);
	push(*state, 'b', 1, 2);
	push(*state, 'c', 1, 1);
	assert_string_equal(serve(*state, 100, word), "abcabaaaa");
}

/* However many connections an address has, and each of them gets as much as the next. */
static void test_connections_of_an_address_take_turns(void **state)
{
	struct bed *bed = *state;
	uint16_t ports[6];

	push(bed, 'a', 1, 4);
	push(bed, 'a', 2, 1);
	push(bed, 'a', 3, 1);
	for (size_t i = 0; i < HF_ARRAY_SIZE(ports); i++) {
		const struct waiting *waiting = begin(bed);

		ports[i] = waiting->port;
		end(bed, waiting, 1);
	}
	assert_memory_equal(ports, ((uint16_t[]){ 1, 2, 3, 1, 1, 1 }), sizeof(ports));
}

static void test_what_costs_more_comes_less_often(void **state)
{
	char word[MAX_ENTRIES + 1];

	push(*state, 'A', 1, 4);
	push(*state, 'b', 1, 30);
	assert_string_equal(serve(*state, 23, word), "AbbbbbbbbbbAbbbbbbbbbbA");
}

/* Long before it is known what its jobs cost. */
static void test_who_occupies_a_worker_waits_for_who_does_not(void **state)
{
	struct bed *bed = *state;
	const struct waiting *first, *second;

	push(bed, 'a', 1, 10);
	first = begin(bed);
	push(bed, 'b', 1, 3);
	for (int i = 0; i < 3; i++) {
		second = begin(bed);
		assert_int_equal(second->letter, 'b');
		end(bed, second, 1000);
	}
	second = begin(bed); /* no other wants anything, so it has both workers */
	assert_int_equal(second->letter, 'a');
	end(bed, first, 1);
	end(bed, second, 1);
}

static void test_nothing_is_saved_up(void **state)
{
	char word[MAX_ENTRIES + 1];

	push(*state, 'a', 1, 500);
	serve(*state, 400, word);
	push(*state, 'b', 1, 10);
	assert_string_equal(serve(*state, 8, word), "babababa");
}

static void test_datagrams_are_one_address(void **state)
{
	char word[MAX_ENTRIES + 1];

	for (char letter = 'a'; letter <= 'e'; letter++)
		push(*state, letter, 0, 2);
	push(*state, 't', 1, 4);
	assert_string_equal(serve(*state, 9, word), "atbtctdte");
}

static void test_one_that_is_put_back_is_the_next_of_its_address(void **state)
{
	struct bed *bed = *state;
	char word[MAX_ENTRIES + 1];
	struct hf_client_queue_entry *entry;

	push(bed, 'a', 1, 2);
	push(bed, 'a', 2, 2);
	entry = hf_client_queue_first(&bed->queue);
	hf_client_queue_take(&bed->queue, entry);
	hf_client_queue_put_back(&bed->queue, entry);
	assert_ptr_equal(hf_client_queue_first(&bed->queue), entry);
	push(bed, 'b', 1, 1);
	assert_string_equal(serve(bed, 10, word), "abaaa");
}

static void test_others_wait(void **state)
{
	struct bed *bed = *state;
	const struct waiting *waiting;

	push(bed, 'a', 1, 2);
	push(bed, 'a', 2, 2);
	waiting = begin(bed);
	assert_false(hf_client_queue_others_wait(&bed->queue, waiting->entry.flow));
	push(bed, 'b', 1, 1);
	assert_true(hf_client_queue_others_wait(&bed->queue, waiting->entry.flow));
	end(bed, waiting, 1);
}

static void test_few_that_want_nothing_are_remembered(void **state)
{
	struct bed *bed = *state;
	char word[MAX_ENTRIES + 1];

	for (uint16_t port = 1; port <= MAX_ENTRIES; port++)
		push(bed, (char)('a' + port % 16), port, 1);
	assert_int_equal(hf_rb_check(&bed->queue.flows), MAX_ENTRIES);
	serve(bed, MAX_ENTRIES, word);
	assert_in_range(hf_rb_check(&bed->queue.flows), 1, 1024);
	assert_int_equal(hf_rb_check(&bed->queue.payers), 16);
}

/* What there is no memory for is served among the server's own. */
static void test_want_of_memory(void **state)
{
	struct bed *bed = *state;
	char word[MAX_ENTRIES + 1];

	push(bed, 'a', 1, 1);
	for (int i = 1; i <= 2; i++) {
		memory_may_fail = true;
		memory_until_failure = i;
		push(bed, (char)('a' + i), 1, 1);
		memory_may_fail = false;
		assert_int_equal(memory_until_failure, 0);
	}
	assert_int_equal(bed->queue.own_flow.n, 2);
	assert_string_equal(serve(bed, 10, word), "abc");
}

static void test_the_server_takes_turns_with_the_others(void **state)
{
	struct bed *bed = *state;
	const struct waiting *waiting;

	push(bed, 'a', 1, 3);
	push(bed, '\0', 0, 1);
	waiting = begin(bed);
	end(bed, waiting, 1);
	waiting = begin(bed);
	assert_int_equal(waiting->letter, '\0');
	end(bed, waiting, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(test_addresses_take_turns),
		T(test_connections_of_an_address_take_turns),
		T(test_what_costs_more_comes_less_often),
		T(test_who_occupies_a_worker_waits_for_who_does_not),
		T(test_nothing_is_saved_up),
		T(test_datagrams_are_one_address),
		T(test_one_that_is_put_back_is_the_next_of_its_address),
		T(test_others_wait),
		T(test_few_that_want_nothing_are_remembered),
		T(test_want_of_memory),
		T(test_the_server_takes_turns_with_the_others),
	};

	return cmocka_run_group_tests_name("client_queue", tests, NULL, NULL);
}
