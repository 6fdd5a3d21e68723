#include "test.h"

#include <string.h>

#include "proto/portmap/mappings.h"

static struct hf_mapping mapping(uint32_t program, uint32_t version, enum hf_netid netid, uint16_t port,
				 enum hf_mapping_owner owner)
{
	return (struct hf_mapping){
		.program = program,
		.version = version,
		.netid = netid,
		.owner = owner,
		.addr = { .family = hf_netid_info(netid)->family, .port = port },
	};
}

static int set(struct hf_mappings *m, uint32_t program, uint32_t version, enum hf_netid netid, uint16_t port,
	       enum hf_mapping_owner owner)
{
	struct hf_mapping one = mapping(program, version, netid, port, owner);

	return hf_mappings_set(m, &one);
}

static int setup(void **state)
{
	static struct hf_mappings m;

	hf_mappings_init(&m);
	set(&m, 100003, 3, HF_NETID_TCP, 2049, HF_OWNER_US);
	set(&m, 100021, 1, HF_NETID_TCP, 2049, HF_OWNER_US);
	set(&m, 100021, 4, HF_NETID_TCP, 2049, HF_OWNER_US);
	*state = &m;
	return 0;
}

static int teardown(void **state)
{
	hf_mappings_deinit(*state);
	hf_mappings_deinit(*state); /* again is fine */
	return 0;
}

static void test_ours_are_ours(void **state)
{
	struct hf_mappings *m = *state;

	assert_int_equal(set(m, 100003, 3, HF_NETID_TCP, 9, HF_OWNER_SUPERUSER), HF_MAPPINGS_E_OURS);
	assert_int_equal(set(m, 100003, 3, HF_NETID_TCP, 2049, HF_OWNER_SUPERUSER), HF_MAPPINGS_E_OURS);
	/* other transports and versions of the program, too */
	assert_int_equal(set(m, 100003, 4, HF_NETID_UDP, 9, HF_OWNER_UNKNOWN), HF_MAPPINGS_E_OURS);
	assert_int_equal(hf_mappings_unset(m, 100003, 3, HF_NETIDS_ALL, HF_OWNER_SUPERUSER),
			 HF_MAPPINGS_E_OURS);
	assert_int_equal(m->n, 3);
	assert_int_equal(m->n_foreign, 0);
}

static void test_set_and_owner(void **state)
{
	struct hf_mappings *m = *state;

	assert_int_equal(set(m, 7, 1, HF_NETID_UDP, 7000, HF_OWNER_UNKNOWN), HF_MAPPINGS_OK);
	assert_int_equal(set(m, 7, 1, HF_NETID_UDP, 7000, HF_OWNER_UNKNOWN), HF_MAPPINGS_OK); /* is there */
	assert_int_equal(set(m, 7, 1, HF_NETID_UDP, 7001, HF_OWNER_UNKNOWN), HF_MAPPINGS_E_TAKEN);
	assert_int_equal(set(m, 7, 2, HF_NETID_UDP, 701, HF_OWNER_SUPERUSER), HF_MAPPINGS_OK);
	assert_int_equal(m->n_foreign, 2);

	assert_int_equal(hf_mappings_unset(m, 7, 2, HF_NETIDS_ALL, HF_OWNER_UNKNOWN),
			 HF_MAPPINGS_E_NOT_YOURS);
	assert_non_null(hf_mappings_find(m, 7, 2, HF_NETID_UDP));
	assert_int_equal(hf_mappings_unset(m, 7, 1, HF_NETIDS_ALL, HF_OWNER_SUPERUSER), HF_MAPPINGS_OK);
	assert_int_equal(hf_mappings_unset(m, 7, 2, HF_NETIDS_ALL, HF_OWNER_SUPERUSER), HF_MAPPINGS_OK);
	assert_int_equal(hf_mappings_unset(m, 7, 2, HF_NETIDS_ALL, HF_OWNER_UNKNOWN), HF_MAPPINGS_OK);
	assert_int_equal(m->n_foreign, 0);
	assert_int_equal(m->n, 3);
}

static void test_unset_by_netid(void **state)
{
	struct hf_mappings *m = *state;

	for (int i = 0; i < HF_N_NETIDS; i++)
		set(m, 7, 1, (enum hf_netid)i, 7000, HF_OWNER_UNKNOWN);
	hf_mappings_unset(m, 7, 1, HF_NETID_BIT(HF_NETID_TCP6), HF_OWNER_UNKNOWN);
	assert_null(hf_mappings_find(m, 7, 1, HF_NETID_TCP6));
	assert_non_null(hf_mappings_find(m, 7, 1, HF_NETID_UDP6));
	hf_mappings_unset(m, 7, 1, HF_NETIDS_IPV4, HF_OWNER_UNKNOWN);
	assert_null(hf_mappings_find(m, 7, 1, HF_NETID_TCP));
	assert_null(hf_mappings_find(m, 7, 1, HF_NETID_UDP));
	assert_non_null(hf_mappings_find(m, 7, 1, HF_NETID_UDP6));
}

static void test_find(void **state)
{
	struct hf_mappings *m = *state;

	assert_int_equal(hf_mappings_find(m, 100021, 1, HF_NETID_TCP)->version, 1);
	assert_null(hf_mappings_find(m, 100021, 3, HF_NETID_TCP));
	assert_null(hf_mappings_find_any_version(m, 100021, 4, HF_NETID_UDP));
	assert_int_equal(hf_mappings_find_any_version(m, 100021, 1, HF_NETID_TCP)->version, 1);
	assert_int_equal(hf_mappings_find_any_version(m, 100021, 0, HF_NETID_TCP)->version, 4);
	assert_int_equal(hf_mappings_find_any_version(m, 100021, 99, HF_NETID_TCP)->version, 4);
}

static void test_reserved_ports(void **state)
{
	struct hf_mappings *m = *state;

	assert_int_equal(set(m, 7, 1, HF_NETID_TCP, 1, HF_OWNER_UNKNOWN), HF_MAPPINGS_E_RESERVED);
	assert_int_equal(set(m, 7, 1, HF_NETID_TCP, 1023, HF_OWNER_UNKNOWN), HF_MAPPINGS_E_RESERVED);
	assert_int_equal(set(m, 7, 1, HF_NETID_TCP6, 2049, HF_OWNER_UNKNOWN), HF_MAPPINGS_E_RESERVED);
	assert_int_equal(m->n_foreign, 0);
	assert_int_equal(set(m, 7, 1, HF_NETID_TCP, 1024, HF_OWNER_UNKNOWN), HF_MAPPINGS_OK);
	assert_int_equal(set(m, 8, 1, HF_NETID_TCP, 1023, HF_OWNER_SUPERUSER), HF_MAPPINGS_OK);
}

static void test_the_superuser_takes_over(void **state)
{
	struct hf_mappings *m = *state;

	assert_int_equal(set(m, 7, 1, HF_NETID_TCP, 7000, HF_OWNER_UNKNOWN), HF_MAPPINGS_OK);
	assert_int_equal(set(m, 8, 1, HF_NETID_TCP, 8000, HF_OWNER_UNKNOWN), HF_MAPPINGS_OK);
	assert_int_equal(set(m, 7, 1, HF_NETID_TCP, 700, HF_OWNER_SUPERUSER), HF_MAPPINGS_OK);
	assert_int_equal(set(m, 8, 1, HF_NETID_TCP, 8000, HF_OWNER_SUPERUSER), HF_MAPPINGS_OK);
	assert_int_equal(hf_mappings_find(m, 7, 1, HF_NETID_TCP)->addr.port, 700);
	assert_int_equal(m->n_foreign, 2);
	assert_int_equal(m->n_unknown, 0);
	assert_int_equal(set(m, 7, 1, HF_NETID_TCP, 7000, HF_OWNER_UNKNOWN), HF_MAPPINGS_E_TAKEN);
	assert_int_equal(hf_mappings_unset(m, 8, 1, HF_NETIDS_ALL, HF_OWNER_UNKNOWN),
			 HF_MAPPINGS_E_NOT_YOURS);
	/* One superuser's program does not take another's place. */
	assert_int_equal(set(m, 7, 1, HF_NETID_TCP, 701, HF_OWNER_SUPERUSER), HF_MAPPINGS_E_TAKEN);
}

static void test_limit(void **state)
{
	struct hf_mappings *m = *state;

	for (uint32_t i = 0; i < HF_MAPPINGS_MAX_UNKNOWN; i++)
		assert_int_equal(set(m, 1000 + i, 1, HF_NETID_TCP, 7000, HF_OWNER_UNKNOWN), HF_MAPPINGS_OK);
	assert_int_equal(set(m, 7, 1, HF_NETID_TCP, 7000, HF_OWNER_UNKNOWN), HF_MAPPINGS_E_LIMIT);
	assert_int_equal(set(m, 1000, 1, HF_NETID_TCP, 7000, HF_OWNER_UNKNOWN), HF_MAPPINGS_OK);
	/* The rest is the superuser's. */
	for (uint32_t i = HF_MAPPINGS_MAX_UNKNOWN; i < HF_MAPPINGS_MAX_FOREIGN; i++)
		assert_int_equal(set(m, 1000 + i, 1, HF_NETID_TCP, 700, HF_OWNER_SUPERUSER), HF_MAPPINGS_OK);
	assert_int_equal(set(m, 7, 1, HF_NETID_TCP, 700, HF_OWNER_SUPERUSER), HF_MAPPINGS_E_LIMIT);
	assert_int_equal(hf_mappings_unset(m, 1000, 1, HF_NETIDS_ALL, HF_OWNER_UNKNOWN), HF_MAPPINGS_OK);
	assert_int_equal(m->n_unknown, HF_MAPPINGS_MAX_UNKNOWN - 1);
	assert_int_equal(set(m, 7, 1, HF_NETID_TCP, 700, HF_OWNER_SUPERUSER), HF_MAPPINGS_OK);
	assert_int_equal(m->n_foreign, HF_MAPPINGS_MAX_FOREIGN);
	/* the server's own do not count against it */
	assert_int_equal(set(m, 100024, 1, HF_NETID_TCP, 700, HF_OWNER_US), HF_MAPPINGS_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ours_are_ours, setup, teardown),
		cmocka_unit_test_setup_teardown(test_set_and_owner, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unset_by_netid, setup, teardown),
		cmocka_unit_test_setup_teardown(test_find, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reserved_ports, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_superuser_takes_over, setup, teardown),
		cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
