/*
 * The latest record of each fact, where a peer chooses a name for its checksum.
 */
#include "kit.h"

#include "store/checksum.h"
#include "store/latest_records.h"

static void test_lock_with_the_checksum_of_a_name(void **state)
{
	struct hf_store_client client = kit_client(1, 1);
	uint64_t id = hf_checksum(client.id.data, client.id.len) | 1;
	struct hf_store_lock lock = kit_lock(id, 1);
	struct hf_latest_records table = { 0 };
	uint8_t records[2 * HF_RECORD_MAX];
	int first = hf_record_encode_client(records, &client);
	int second = hf_record_encode_lock(records + first, &lock);
	bool has_client = false, has_lock = false;

	assert_true(first > 0 && second > 0);
	assert_int_equal(hf_latest_records_collect(&table, hf_bytes_of(records, (size_t)(first + second))),
			 0);
	assert_int_equal(table.n, 2);
	for (size_t i = 0; i < table.n_slots; i++) {
		struct hf_record record;

		if (!table.slots[i].key)
			continue;
		assert_int_equal(hf_latest_records_decode(&table.slots[i], &record), 0);
		has_client |= record.type == HF_RECORD_CLIENT;
		has_lock |= record.type == HF_RECORD_LOCK && record.lock.id == id;
	}
	assert_true(has_client);
	assert_true(has_lock);
	hf_latest_records_deinit(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lock_with_the_checksum_of_a_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
