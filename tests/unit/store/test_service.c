/* The row of a service in a real database: who may change it, and what the others see. */
#include "../test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster.h"
#include "kit.h"
#include "loop/loop.h"
#include "store/offline.h"
#include "store/service.h"

#define LEASE (3 * HF_NS_PER_S)

static const uint8_t key[HF_SERVICE_KEY] = { 1, 2, 3 };

struct both {
	char *conninfo;
	struct hf_service *a, *b;
};

static const struct hf_service_self self_a = { .node = "a",
					       .instance = "id-a",
					       .role = "standby",
					       .reason = "",
					       .version = "1",
					       .gone_ns = LEASE,
					       .history = "00000001" };
static const struct hf_service_self self_b = { .node = "b",
					       .instance = "id-b",
					       .role = "standby",
					       .reason = "",
					       .version = "1",
					       .gone_ns = LEASE,
					       .history = "00000001" };

static int setup(void **state)
{
	static struct both both;

	both.conninfo = cluster_new_database(cluster_get());
	assert_int_equal(hf_service_new(&both.a, both.conninfo, "nfs", 20 * HF_NS_PER_S), 0);
	assert_int_equal(hf_service_new(&both.b, both.conninfo, "nfs", 20 * HF_NS_PER_S), 0);
	*state = &both;
	return 0;
}

static int teardown(void **state)
{
	struct both *both = *state;

	both->a = hf_service_free(both->a);
	both->b = hf_service_free(both->b);
	free(both->conninfo);
	return 0;
}

static struct hf_service_row look(struct hf_service *service, const struct hf_service_self *self)
{
	struct hf_service_row row;

	assert_int_equal(hf_service_look(service, self, &row), 0);
	return row;
}

static int claim(struct hf_service *service, const struct hf_service_self *self,
		 const struct hf_service_row *seen, const char *owner)
{
	const struct hf_service_claim wanted = {
		.owner = owner, .lease_ns = LEASE, .key = key, .exports = "/srv rw\n"
	};

	return hf_service_claim(service, self, seen, &wanted);
}

static void test_one_of_two_claims_succeeds(void **state)
{
	struct both *both = *state;
	struct hf_service_row one = look(both->a, &self_a), two = look(both->b, &self_b);

	assert_false(one.has_lease);
	assert_int_equal(strlen(one.history), 8);
	assert_int_equal(claim(both->a, &self_a, &one, "owner-a"), 0);
	assert_int_equal(claim(both->b, &self_b, &two, "owner-b"), -ESTALE);
	hf_service_row_deinit(&one);
	hf_service_row_deinit(&two);
	two = look(both->b, &self_b);
	assert_true(two.has_lease);
	assert_string_equal(two.owner, "owner-a");
	assert_string_equal(two.lease_owner, "owner-a");
	assert_string_equal(two.node, "a");
	assert_string_equal(two.instance, "id-a");
	assert_string_equal(two.exports, "/srv rw\n");
	assert_string_equal(two.lease_history, two.history);
	assert_int_equal(two.lease_ns, LEASE);
	assert_memory_equal(two.key, key, sizeof(key));
	assert_int_equal(two.n_nodes, 2);
	hf_service_row_deinit(&two);
}

static void test_renewals_are_seen_and_end_with_a_claim(void **state)
{
	struct both *both = *state;
	struct hf_service_self sure = self_a;
	struct hf_service_row row = look(both->a, &self_a), seen, later;

	assert_int_equal(claim(both->a, &self_a, &row, "owner-a"), 0);
	hf_service_row_deinit(&row);
	seen = look(both->b, &self_b);
	sure.history = "0000000F"; /* of another history than the database's */
	assert_int_equal(hf_service_renew(both->a, &sure, "owner-a", NULL, &row), 0);
	hf_service_row_deinit(&row);
	later = look(both->b, &self_b);
	assert_int_equal(later.renewals, seen.renewals + 1);
	assert_string_equal(later.lease_history, "0000000F");
	assert_string_not_equal(later.history, "0000000F");
	/* It was renewed since that look. */
	assert_int_equal(claim(both->b, &self_b, &seen, "owner-b"), -ESTALE);
	/* That look was at a database with another history. */
	strcpy(seen.history, "0000000F");
	seen.renewals = later.renewals;
	assert_int_equal(claim(both->b, &self_b, &seen, "owner-b"), -ESTALE);
	assert_int_equal(claim(both->b, &self_b, &later, "owner-b"), 0);
	assert_int_equal(hf_service_renew(both->a, &self_a, "owner-a", NULL, &row), -ESTALE);
	assert_string_equal(row.lease_owner, "owner-b");
	assert_string_equal(row.lease_history, row.history);
	hf_service_row_deinit(&row);
	hf_service_row_deinit(&seen);
	hf_service_row_deinit(&later);
}

static void test_handing_over_names_the_heir(void **state)
{
	struct both *both = *state;
	struct hf_service_row row = look(both->a, &self_a);

	assert_int_equal(claim(both->a, &self_a, &row, "owner-a"), 0);
	hf_service_row_deinit(&row);
	assert_int_equal(hf_service_ask(both->b, "b"), 0);
	assert_int_equal(hf_service_renew(both->a, &self_a, "owner-a", NULL, &row), 0);
	assert_string_equal(row.wanted, "b");
	hf_service_row_deinit(&row);
	assert_int_equal(hf_service_hand_over(both->a, "owner-a", "b"), 0);
	assert_int_equal(hf_service_hand_over(both->a, "owner-a", "b"), -ESTALE);
	row = look(both->b, &self_b);
	assert_string_equal(row.lease_owner, "");
	assert_string_equal(row.owner, "owner-a"); /* until the next node claims it */
	assert_string_equal(row.heir, "b");
	assert_string_equal(row.wanted, "");
	assert_int_equal(claim(both->b, &self_b, &row, "owner-b"), 0);
	hf_service_row_deinit(&row);
}

static void test_one_name_for_two_nodes(void **state)
{
	struct both *both = *state;
	struct hf_service_self twin = self_b;
	struct hf_service_row row = look(both->a, &self_a);

	hf_service_row_deinit(&row);
	twin.node = "a";
	assert_int_equal(hf_service_look(both->b, &twin, &row), -EEXIST);
	twin.gone_ns = 0; /* the first one has gone meanwhile */
	row = look(both->b, &twin);
	hf_service_row_deinit(&row);
}

/* A host that accepts and says nothing has only its part of the time. */
static void test_silent_host_in_the_list(void **state)
{
	struct both *both = *state;
	struct sockaddr_in silent = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(silent);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct hf_service *service;
	char conninfo[1024], *path = both->conninfo + strlen("host=");

	assert_int_equal(bind(fd, (struct sockaddr *)&silent, sizeof(silent)), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&silent, &len), 0);
	snprintf(conninfo, sizeof(conninfo), "port=%u,5432 host=127.0.0.1,%s", ntohs(silent.sin_port), path);
	assert_int_equal(hf_service_new(&service, conninfo, "nfs", 4 * HF_NS_PER_S), 0);
	struct hf_service_row row = look(service, &self_a);
	hf_service_row_deinit(&row);
	hf_service_free(service);
	close(fd);
}

/* A term has served the store of @kit, has ended, and said whether its commits waited for the replica. Then a
 * replica took the place of the database: the history that the term noted is not the present one. */
static void serve_and_promote(struct kit *kit, struct both *both, bool waited)
{
	const struct hf_service_takeover none = { 0 };
	struct hf_service_row row = look(both->a, &self_a);
	uint64_t ticket;

	assert_int_equal(claim(both->a, &self_a, &row, "owner_a"), 0);
	hf_service_row_deinit(&row);
	kit->options.owner = "owner_a";
	kit_open(kit);
	kit->options.owner = NULL;
	assert_int_equal(hf_service_report(both->a, "owner_a", &none), 0);
	assert_int_equal(hf_store_mark_complete(kit->store, &ticket), 0);
	kit->last_ticket = ticket;
	kit_put_lock(kit, hf_store_new_id(kit->store), 1);
	kit_put_client(kit, 1, 1);
	kit_settle(kit);
	kit_close(kit);
	cluster_query(both->conninfo,
		      waited ? "UPDATE holdfast_leases SET is_unsynced = false"
			     : "UPDATE holdfast_leases SET is_unsynced = true",
		      NULL, 0);
	cluster_query(both->conninfo,
		      "UPDATE holdfast_server_state SET medium = split_part(medium, '/', 1) || '/00000000'",
		      NULL, 0);
}

static void expect_copy(struct both *both, bool waited)
{
	char *folder = kit_temporary();
	const struct hf_offline_options source = { .postgres = both->conninfo, .server = "nfs" };
	const struct hf_offline_options target = { .path = folder, .server = "nfs" };
	struct hf_offline *from, *to;
	struct hf_store_state state;
	bool is_trusted;

	assert_int_equal(hf_offline_open(&from, &source), 0);
	assert_int_equal(hf_offline_open(&to, &target), 0);
	assert_int_equal(hf_offline_look(from, &state, &is_trusted), 1);
	assert_int_equal(state.sm_state, 3);
	assert_int_equal(is_trusted, waited);
	assert_int_equal(hf_offline_copy(to, from), 0);
	assert_int_equal(hf_offline_look(to, &state, &is_trusted), 1);
	assert_int_equal(state.sm_state, waited ? 3 : 1003);
	assert_int_equal(state.is_complete, waited);
	hf_offline_close(to);
	hf_offline_close(from);
	kit_remove_tree(folder);
	free(folder);
}

static void expect_lone_server(struct kit *kit, struct both *both, bool waited)
{
	char was_unsynced[8];

	kit_open(kit);
	assert_int_equal(kit->start.has_all_locks, waited);
	assert_int_equal(kit->start.sm_state, waited ? 5 : 1005);
	cluster_query(both->conninfo, "SELECT was_unsynced FROM holdfast_leases", was_unsynced,
		      sizeof(was_unsynced));
	assert_string_equal(was_unsynced, "t");
}

/* Neither a copy nor a server outside of the cluster claims the service. Both take what the replica has for
 * complete only if the last term waited for it. */
static void test_promoted_replica_without_a_claim(void **state)
{
	for (int waited = 0; waited < 2; waited++) {
		struct both *both;
		struct kit kit;
		void *parts;

		setup(&parts);
		both = parts;
		kit_init(&kit, &kit_postgres, HF_STORE_MACHINE);
		kit.options.postgres = both->conninfo;
		kit.options.server = "nfs";
		serve_and_promote(&kit, both, waited);
		expect_copy(both, waited);
		expect_lone_server(&kit, both, waited);
		kit_deinit(&kit);
		teardown(&parts);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_silent_host_in_the_list, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_of_two_claims_succeeds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_renewals_are_seen_and_end_with_a_claim, setup, teardown),
		cmocka_unit_test_setup_teardown(test_handing_over_names_the_heir, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_name_for_two_nodes, setup, teardown),
		cmocka_unit_test(test_promoted_replica_without_a_claim),
	};

	if (!cluster_is_possible())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
