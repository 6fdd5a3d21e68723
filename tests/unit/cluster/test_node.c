/* What a node decides, from rows that the test makes and times that it says. */
#include "../test.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "cluster/fence.h"
#include "cluster/node.h"
#include "loop/loop.h"

#define S      HF_NS_PER_S
#define MS     HF_NS_PER_MS
#define LEASE  (3 * S)
#define OVER   (4 * S) /* the lease and a third of it */
#define T      (1000 * S)
#define SHARES "/srv rw\n"

static const uint8_t key[HF_SERVICE_KEY] = { 1, 2, 3 };
static const uint8_t other_key[HF_SERVICE_KEY] = { 9 };
static char exports[] = SHARES;

static struct hf_node_options options(void)
{
	return (struct hf_node_options){
		.service = "nfs",
		.node = "a",
		.instance = "id-a",
		.version = "1",
		.exports = SHARES,
		.lease_ns = LEASE,
		.automatic = true,
	};
}

static struct hf_node *make(const struct hf_node_options *with)
{
	struct hf_node_options usual = options();
	struct hf_node *node;

	assert_int_equal(hf_node_new(&node, with ? with : &usual, T), 0);
	return node;
}

/* Node b serves. */
static struct hf_service_row row_of_b(uint64_t renewals)
{
	struct hf_service_row row = {
		.exists = true,
		.has_lease = true,
		.epoch = 5,
		.sm_state = 11,
		.owner = "owner-b",
		.lease_owner = "owner-b",
		.node = "b",
		.instance = "id-b",
		.renewals = renewals,
		.lease_ns = LEASE,
		.history = "00000001",
		.lease_history = "00000001",
		.exports = exports,
	};

	memcpy(row.key, key, sizeof(key));
	return row;
}

static struct hf_service_row row_of_a(uint64_t renewals)
{
	struct hf_service_row row = row_of_b(renewals);

	strcpy(row.owner, "owner-a");
	strcpy(row.lease_owner, "owner-a");
	strcpy(row.node, "a");
	strcpy(row.instance, "id-a");
	return row;
}

static void add_node(struct hf_service_row *row, const char *name, const char *role, uint64_t ago)
{
	struct hf_service_node *node = &row->nodes[row->n_nodes++];

	strcpy(node->name, name);
	strcpy(node->role, role);
	node->seen_ago_ns = ago;
}

static void look(struct hf_node *node, struct hf_service_row row, uint64_t at)
{
	hf_node_saw(node, HF_NODE_LOOK, &row, at - MS, at);
}

static enum hf_node_step next(struct hf_node *node)
{
	uint64_t at;

	return hf_node_next(node, &at);
}

static uint64_t next_at(struct hf_node *node)
{
	uint64_t at;

	hf_node_next(node, &at);
	return at;
}

/* A node that serves, with a lease from @at on. */
static struct hf_node *make_active(const struct hf_node_options *with, uint64_t at)
{
	struct hf_node *node = make(with);
	struct hf_service_row row = row_of_a(1);

	look(node, row, at - MS);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_claimed(node, "owner-a", at);
	hf_node_serves(node);
	assert_int_equal(hf_node_role(node), HF_NODE_ACTIVE);
	return node;
}

/* The owner's lease */

static void test_lease_counts_from_the_sending(void **state)
{
	struct hf_node *node = make_active(NULL, T);
	struct hf_service_row row = row_of_a(2);

	assert_int_equal(hf_node_lease_ends(node), T + LEASE);
	assert_int_equal(next(node), HF_NODE_RENEW);
	assert_int_equal(next_at(node), T + LEASE / 3);
	hf_node_saw(node, HF_NODE_RENEW, &row, T + S, T + 2 * S);
	assert_int_equal(hf_node_lease_ends(node), T + S + LEASE);
	/* One that was not answered gives nothing. */
	hf_node_failed(node, T + 3 * S);
	assert_int_equal(hf_node_lease_ends(node), T + S + LEASE);
	assert_int_equal(hf_node_role(node), HF_NODE_ACTIVE);
	assert_true(next_at(node) < T + 3 * S + LEASE / 3);
	hf_node_free(node);
}

static void test_lease_that_is_over_is_renewed_if_the_row_is_its_own(void **state)
{
	struct hf_node *node = make_active(NULL, T);
	struct hf_service_row row = row_of_a(2);

	hf_node_saw(node, HF_NODE_RENEW, &row, T + 60 * S, T + 61 * S);
	assert_int_equal(hf_node_role(node), HF_NODE_ACTIVE);
	assert_int_equal(hf_node_lease_ends(node), T + 60 * S + LEASE);
	hf_node_free(node);
}

static void test_deposed_node_stands_by(void **state)
{
	struct hf_node *node = make_active(NULL, T);

	hf_node_deposed(node, T + S);
	assert_int_equal(hf_node_role(node), HF_NODE_STANDBY);
	assert_int_equal(hf_node_lease_ends(node), 0);
	assert_string_equal(hf_node_owner(node), "");
	assert_int_equal(next(node), HF_NODE_LOOK);
	hf_node_free(node);
}

static void test_deposed_node_claims_nothing_before_its_service_has_ended(void **state)
{
	struct hf_node *node = make_active(NULL, T);
	struct hf_service_row row = row_of_b(7);

	hf_node_deposed(node, T + S);
	row.lease_owner[0] = '\0'; /* node b hands over at once */
	look(node, row, T + S);
	assert_int_equal(next(node), HF_NODE_LOOK);
	hf_node_released(node, false, T + 2 * S);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	assert_int_equal(next_at(node), T + 2 * S);
	hf_node_free(node);
}

static void test_node_that_could_not_build_the_service_leaves_it_to_others(void **state)
{
	struct hf_node *node = make_active(NULL, T);
	struct hf_service_row row = row_of_a(3);

	hf_node_released(node, true, T + S);
	assert_int_equal(next(node), HF_NODE_HAND_OVER);
	hf_node_handed_over(node, T + S);
	row.lease_owner[0] = '\0';
	look(node, row, T + S + MS);
	assert_int_equal(next(node), HF_NODE_LOOK);
	look(node, row, T + S + LEASE);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

static void test_node_that_never_comes_to_serve_is_stuck(void **state)
{
	struct hf_node *node = make(NULL);

	hf_node_claimed(node, "owner-a", T);
	assert_false(hf_node_is_stuck(node, T + 20 * LEASE));
	assert_true(hf_node_is_stuck(node, T + 20 * LEASE + 1));
	hf_node_serves(node);
	assert_false(hf_node_is_stuck(node, T + 100 * LEASE));
	hf_node_free(node);
}

static void test_renewal_that_crosses_the_release_gives_no_lease(void **state)
{
	struct hf_node *node = make_active(NULL, T);
	struct hf_service_row row = row_of_a(2);

	hf_node_leave(node, T + S);
	hf_node_released(node, false, T + S);
	hf_node_saw(node, HF_NODE_RENEW, &row, T + S - MS, T + S + MS);
	assert_int_equal(hf_node_lease_ends(node), 0);
	assert_int_equal(next(node), HF_NODE_HAND_OVER);
	assert_int_equal(next_at(node), T + S);
	hf_node_free(node);
}

/* Its process has not ended yet when it sees that the service is free. */
static void test_node_that_leaves_claims_nothing_more(void **state)
{
	struct hf_node *node = make_active(NULL, T);
	struct hf_service_row row = row_of_a(2);

	hf_node_leave(node, T + S);
	hf_node_released(node, false, T + S);
	hf_node_handed_over(node, T + S + MS);
	row.lease_owner[0] = '\0';
	look(node, row, T + S + 2 * MS);
	assert_int_equal(next(node), HF_NODE_LOOK);
	assert_true(next_at(node) > T + S + 2 * MS);
	hf_node_free(node);
}

static void test_claim_that_crosses_the_end_is_handed_over(void **state)
{
	struct hf_node *node = make(NULL);

	look(node, row_of_a(1), T);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_leave(node, T);
	hf_node_claimed(node, "owner-a", T + MS);
	assert_int_equal(hf_node_lease_ends(node), 0);
	assert_int_equal(next(node), HF_NODE_HAND_OVER);
	hf_node_free(node);
}

/* A standby */

static void test_takes_over_a_lease_and_a_third_after_the_last_change(void **state)
{
	struct hf_node *node = make(NULL);

	look(node, row_of_b(7), T);
	look(node, row_of_b(8), T + S);
	look(node, row_of_b(8), T + S + OVER - MS);
	assert_int_equal(next(node), HF_NODE_LOOK);
	look(node, row_of_b(8), T + S + OVER);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	assert_string_equal(hf_node_claim_reason(node), "the lease was over");
	hf_node_free(node);
}

/* The owner has all in its memory; another node may have to start over. */
static void test_owner_comes_first_when_the_database_is_back(void **state)
{
	struct hf_node *node = make(NULL);

	look(node, row_of_b(7), T);
	hf_node_failed(node, T + S);
	hf_node_failed(node, T + 10 * S);
	look(node, row_of_b(7), T + 20 * S);
	assert_int_equal(next(node), HF_NODE_LOOK);
	look(node, row_of_b(7), T + 20 * S + LEASE / 3);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

static void test_database_that_was_away_for_a_moment_delays_nothing(void **state)
{
	struct hf_node *node = make(NULL);

	look(node, row_of_b(7), T);
	hf_node_failed(node, T + OVER - 100 * MS);
	look(node, row_of_b(7), T + OVER);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

static void test_counter_that_falls_is_a_change(void **state)
{
	struct hf_node *node = make(NULL);

	look(node, row_of_b(7), T);
	look(node, row_of_b(3), T + 3 * S);
	look(node, row_of_b(3), T + OVER);
	assert_int_equal(next(node), HF_NODE_LOOK);
	hf_node_free(node);
}

static void test_time_alone_is_not_enough(void **state)
{
	struct hf_node *node = make(NULL);

	look(node, row_of_b(7), T);
	hf_node_failed(node, T + OVER); /* it is cut off, and sees nothing */
	assert_int_equal(next(node), HF_NODE_LOOK);
	look(node, row_of_b(9), T + 60 * S);
	assert_int_equal(next(node), HF_NODE_LOOK);
	hf_node_free(node);
}

static void test_claim_that_lost_looks_again(void **state)
{
	struct hf_node *node = make(NULL);

	look(node, row_of_b(7), T);
	look(node, row_of_b(7), T + OVER);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_not_claimed(node, T + OVER);
	assert_int_equal(next(node), HF_NODE_LOOK);
	hf_node_free(node);
}

static void test_same_instance_goes_on_at_once(void **state)
{
	struct hf_node *node = make(NULL);

	look(node, row_of_a(7), T);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	assert_int_equal(next_at(node), T);
	assert_string_equal(hf_node_claim_reason(node), "restart");
	hf_node_free(node);
}

static void test_first_start_waits_for_a_store_outside_of_the_cluster(void **state)
{
	struct hf_node *node = make(NULL);
	struct hf_service_row row = { .exists = true, .is_locked = true };

	look(node, row, T);
	assert_int_equal(next(node), HF_NODE_LOOK);
	assert_non_null(strstr(hf_node_reason(node), "outside of the cluster"));
	row.is_locked = false;
	look(node, row, T + S);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

/* Handing over */

static void test_handed_over_to_the_heir_alone(void **state)
{
	struct hf_service_row row = row_of_b(7);
	struct hf_node *node = make(NULL);

	row.lease_owner[0] = '\0';
	strcpy(row.heir, "c");
	look(node, row, T);
	assert_int_equal(next(node), HF_NODE_LOOK);
	strcpy(row.heir, "a");
	look(node, row, T + S);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

static void test_handed_over_to_any_node(void **state)
{
	struct hf_service_row row = row_of_b(7);
	struct hf_node *node = make(NULL);

	row.lease_owner[0] = '\0';
	look(node, row, T);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	assert_string_equal(hf_node_claim_reason(node), "handed over");
	hf_node_free(node);
}

static void test_heir_that_does_not_come(void **state)
{
	struct hf_service_row row = row_of_b(7);
	struct hf_node *node = make(NULL);

	row.lease_owner[0] = '\0';
	strcpy(row.heir, "c");
	look(node, row, T);
	look(node, row, T + OVER);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

static void test_move_goes_to_a_standby_that_was_seen(void **state)
{
	struct hf_node *node = make_active(NULL, T);
	struct hf_service_row row = row_of_a(2);
	char why[HF_NODE_REASON];

	add_node(&row, "a", "active", 0);
	add_node(&row, "b", "standby", LEASE); /* it was not seen for too long */
	add_node(&row, "c", "mismatched", 0);
	hf_node_saw(node, HF_NODE_RENEW, &row, T + S, T + S);
	assert_int_equal(hf_node_move(node, "", T + S, why, sizeof(why)), -EBUSY);
	assert_non_null(strstr(why, "No standby"));
	row.nodes[1].seen_ago_ns = 0;
	hf_node_saw(node, HF_NODE_RENEW, &row, T + 2 * S, T + 2 * S);
	assert_int_equal(hf_node_move(node, "c", T + 2 * S, why, sizeof(why)), -EBUSY);
	assert_int_equal(hf_node_move(node, "", T + 2 * S, why, sizeof(why)), 0);
	assert_int_equal(hf_node_role(node), HF_NODE_STOPPING);
	assert_string_equal(hf_node_heir(node), "b");
	assert_int_equal(next(node), HF_NODE_RENEW); /* until the service has ended */
	hf_node_released(node, false, T + 3 * S);
	assert_int_equal(hf_node_lease_ends(node), 0);
	assert_int_equal(next(node), HF_NODE_HAND_OVER);
	hf_node_handed_over(node, T + 3 * S);
	assert_int_equal(hf_node_role(node), HF_NODE_STANDBY);
	assert_int_equal(next(node), HF_NODE_LOOK);
	hf_node_free(node);
}

static void test_standby_cannot_be_moved(void **state)
{
	struct hf_node *node = make(NULL);
	char why[HF_NODE_REASON];

	look(node, row_of_b(7), T);
	assert_int_equal(hf_node_move(node, "", T, why, sizeof(why)), -EBUSY);
	assert_non_null(strstr(why, "the active node is b"));
	hf_node_free(node);
}

static void test_active_node_hands_over_when_asked(void **state)
{
	struct hf_node *node = make_active(NULL, T);
	struct hf_service_row row = row_of_a(2);

	strcpy(row.wanted, "b");
	hf_node_saw(node, HF_NODE_RENEW, &row, T + S, T + S);
	assert_int_equal(hf_node_role(node), HF_NODE_ACTIVE); /* it does not see node b */
	add_node(&row, "b", "standby", 0);
	hf_node_saw(node, HF_NODE_RENEW, &row, T + 2 * S, T + 2 * S);
	assert_int_equal(hf_node_role(node), HF_NODE_STOPPING);
	assert_string_equal(hf_node_heir(node), "b");
	hf_node_free(node);
}

static void test_unfit_node_hands_over_and_takes_nothing(void **state)
{
	struct hf_node *node = make_active(NULL, T);
	struct hf_service_row row = row_of_a(2);

	hf_node_set_unfit(node, "no link", T + S);
	assert_int_equal(hf_node_role(node), HF_NODE_ACTIVE); /* no standby is ready */
	add_node(&row, "b", "standby", 0);
	hf_node_saw(node, HF_NODE_RENEW, &row, T + S, T + S);
	hf_node_set_unfit(node, "no link", T + S);
	assert_int_equal(hf_node_role(node), HF_NODE_STOPPING);
	hf_node_released(node, false, T + S);
	hf_node_handed_over(node, T + S);
	row.lease_owner[0] = '\0';
	look(node, row, T + 2 * S);
	assert_int_equal(hf_node_role(node), HF_NODE_MISMATCHED);
	assert_int_equal(next(node), HF_NODE_LOOK);
	hf_node_set_unfit(node, "", T + 3 * S);
	look(node, row, T + 3 * S);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

/* Orders to take */

static void test_manual_node_takes_over_only_when_told(void **state)
{
	struct hf_node_options manual = options();
	struct hf_node *node;
	char why[HF_NODE_REASON];

	manual.automatic = false;
	node = make(&manual);
	assert_int_equal(hf_node_take(node, T, why, sizeof(why)), -EBUSY); /* it has seen nothing yet */
	look(node, row_of_b(7), T);
	look(node, row_of_b(7), T + OVER);
	assert_int_equal(next(node), HF_NODE_LOOK);
	assert_int_equal(hf_node_take(node, T + OVER, why, sizeof(why)), 0);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

static void test_automatic_is_turned_off_and_on(void **state)
{
	struct hf_node_options automatic = options();
	struct hf_node *node = make(&automatic);

	look(node, row_of_b(7), T);
	hf_node_set_automatic(node, false);
	look(node, row_of_b(7), T + OVER);
	assert_int_equal(next(node), HF_NODE_LOOK);
	hf_node_set_automatic(node, true);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

static void test_manual_node_restarts_without_an_order(void **state)
{
	struct hf_node_options manual = options();
	struct hf_service_row row = row_of_a(7);
	struct hf_node *node;

	manual.automatic = false;
	node = make(&manual);
	look(node, row, T);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
	/* Its witness has given the service up. */
	row.owner[0] = row.lease_owner[0] = '\0';
	node = make(&manual);
	look(node, row, T);
	look(node, row, T + OVER);
	assert_int_equal(next(node), HF_NODE_LOOK);
	hf_node_free(node);
}

static void test_take_asks_an_owner_that_lives(void **state)
{
	struct hf_node *node = make(NULL);
	struct hf_service_row row = row_of_b(7);
	char why[HF_NODE_REASON];

	look(node, row, T);
	assert_int_equal(hf_node_take(node, T + S, why, sizeof(why)), 0);
	assert_int_equal(next(node), HF_NODE_ASK);
	hf_node_asked(node, T + S);
	assert_int_equal(next(node), HF_NODE_LOOK);
	hf_node_free(node);
	node = make_active(NULL, T);
	assert_int_equal(hf_node_take(node, T, why, sizeof(why)), -EBUSY);
	hf_node_free(node);
}

static void test_order_to_take_does_not_hold_for_ever(void **state)
{
	struct hf_node_options manual = options();
	struct hf_node *node;
	char why[HF_NODE_REASON];

	manual.automatic = false;
	node = make(&manual);
	look(node, row_of_b(7), T);
	assert_int_equal(hf_node_take(node, T, why, sizeof(why)), 0);
	hf_node_asked(node, T);
	look(node, row_of_b(8), T + 100 * S);
	look(node, row_of_b(8), T + 100 * S + OVER);
	assert_int_equal(next(node), HF_NODE_LOOK);
	hf_node_free(node);
}

static void test_order_to_take_outlasts_a_long_lease(void **state)
{
	struct hf_node_options manual = options();
	struct hf_service_row row = row_of_b(7);
	struct hf_node *node;
	char why[HF_NODE_REASON];

	manual.automatic = false;
	manual.lease_ns = row.lease_ns = 60 * S;
	node = make(&manual);
	look(node, row, T);
	assert_int_equal(hf_node_take(node, T, why, sizeof(why)), 0);
	hf_node_asked(node, T);
	look(node, row, T + 80 * S - MS);
	assert_int_equal(next(node), HF_NODE_ASK); /* the row does not have the wish yet */
	strcpy(row.wanted, "a");
	look(node, row, T + 80 * S - MS);
	assert_int_equal(next(node), HF_NODE_LOOK);
	look(node, row, T + 80 * S);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

static void test_order_to_take_outlasts_a_fence_that_fails_once(void **state)
{
	struct hf_node_options manual = options();
	uint64_t at = T + OVER;
	struct hf_node *node;
	char why[HF_NODE_REASON];

	manual.automatic = false;
	manual.has_fence = true;
	node = make(&manual);
	look(node, row_of_b(7), T);
	assert_int_equal(hf_node_take(node, T, why, sizeof(why)), 0);
	hf_node_asked(node, T);
	look(node, row_of_b(7), at);
	assert_int_equal(next(node), HF_NODE_FENCE);
	hf_node_fenced(node, false, at + HF_FENCE_TIMEOUT_MS * MS);
	at = next_at(node);
	look(node, row_of_b(7), at);
	assert_int_equal(next(node), HF_NODE_FENCE);
	hf_node_fenced(node, true, at + HF_FENCE_TIMEOUT_MS * MS);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

/* Fences */

static void test_fence_before_a_claim_without_consent(void **state)
{
	struct hf_node_options fenced = options();
	struct hf_node *node;

	fenced.has_fence = true;
	node = make(&fenced);
	look(node, row_of_b(7), T);
	look(node, row_of_b(7), T + OVER);
	assert_int_equal(next(node), HF_NODE_FENCE);
	hf_node_fenced(node, false, T + OVER);
	assert_int_equal(next(node), HF_NODE_LOOK);
	assert_non_null(strstr(hf_node_reason(node), "cluster.fence failed for node b"));
	look(node, row_of_b(7), T + 2 * OVER);
	assert_int_equal(next(node), HF_NODE_FENCE);
	hf_node_fenced(node, true, T + 2 * OVER);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	/* The owner came back meanwhile: the next claim needs another fence. */
	hf_node_not_claimed(node, T + 2 * OVER);
	look(node, row_of_b(8), T + 2 * OVER);
	look(node, row_of_b(8), T + 3 * OVER);
	assert_int_equal(next(node), HF_NODE_FENCE);
	hf_node_free(node);
}

static void test_no_fence_with_consent(void **state)
{
	struct hf_node_options fenced = options();
	struct hf_service_row row = row_of_b(7);
	struct hf_node *node;

	fenced.has_fence = true;
	node = make(&fenced);
	row.lease_owner[0] = '\0';
	look(node, row, T);
	assert_int_equal(next(node), HF_NODE_CLAIM); /* handed over */
	hf_node_free(node);
	node = make(&fenced);
	look(node, row_of_a(7), T);
	assert_int_equal(next(node), HF_NODE_CLAIM); /* its own */
	hf_node_free(node);
}

/* The state directory is a new one, and the row still has this node's name. */
static void test_no_fence_for_its_own_name(void **state)
{
	struct hf_node_options fenced = options();
	struct hf_service_row row = row_of_a(7);
	struct hf_node *node;

	fenced.has_fence = true;
	node = make(&fenced);
	strcpy(row.instance, "id-before");
	look(node, row, T);
	assert_int_equal(next(node), HF_NODE_LOOK); /* not before the lease is over */
	look(node, row, T + OVER - 1);
	assert_int_equal(next(node), HF_NODE_LOOK);
	look(node, row, T + OVER);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

/* Set-ups that do not fit */

static void test_key_of_a_store_without_a_lease(void **state)
{
	struct hf_service_row row = {
		.exists = true, .history = "00000001", .exports = exports, .key_print = 7
	};
	struct hf_node_options keyed = options();
	struct hf_node *node = make(NULL);

	look(node, row, T);
	assert_int_equal(hf_node_role(node), HF_NODE_MISMATCHED); /* it has no key */
	assert_non_null(strstr(hf_node_reason(node), "handle.key"));
	assert_int_equal(next(node), HF_NODE_LOOK);
	look(node, row_of_b(7), T + S);
	assert_int_equal(hf_node_role(node), HF_NODE_STANDBY); /* it takes the key of the service */
	hf_node_free(node);

	keyed.key = key;
	keyed.key_print = 8;
	node = make(&keyed);
	look(node, row, T);
	assert_int_equal(hf_node_role(node), HF_NODE_MISMATCHED);
	row.key_print = 0; /* no client relies on any */
	look(node, row, T + S);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	row.key_print = 8;
	look(node, row, T + 2 * S);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

static void test_exports_that_differ(void **state)
{
	struct hf_node *node = make(NULL);
	struct hf_service_row row = row_of_b(7);
	char theirs[] = "/srv ro\n";

	row.exports = theirs;
	look(node, row, T);
	look(node, row, T + OVER);
	assert_int_equal(hf_node_role(node), HF_NODE_MISMATCHED);
	assert_non_null(strstr(hf_node_reason(node), "/srv rw"));
	assert_int_equal(next(node), HF_NODE_LOOK);
	assert_int_equal(hf_node_set_exports(node, theirs), 0);
	look(node, row, T + OVER);
	assert_int_equal(hf_node_role(node), HF_NODE_STANDBY);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

static void test_leases_that_differ(void **state)
{
	struct hf_node *node = make(NULL);
	struct hf_service_row row = row_of_b(7);

	row.lease_ns = 2 * LEASE;
	look(node, row, T);
	assert_int_equal(hf_node_role(node), HF_NODE_MISMATCHED);
	assert_non_null(strstr(hf_node_reason(node), "cluster.lease_seconds"));
	hf_node_free(node);
}

static void test_node_that_served_last_says_what_the_service_is(void **state)
{
	struct hf_service_row row = row_of_a(7);
	struct hf_node *node = make(NULL);
	char before[] = "/old rw\n";

	row.exports = before;
	row.lease_ns = 2 * LEASE;
	look(node, row, T);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

static void test_key_that_differs_is_refused(void **state)
{
	struct hf_node_options with_key = options();
	struct hf_node *node;

	with_key.key = key;
	node = make(&with_key);
	look(node, row_of_b(7), T);
	assert_false(hf_node_is_refused(node));
	hf_node_free(node);
	with_key.key = other_key;
	node = make(&with_key);
	look(node, row_of_b(7), T);
	assert_true(hf_node_is_refused(node));
	assert_int_equal(next(node), HF_NODE_NOTHING);
	hf_node_free(node);
}

static void test_name_that_another_node_has(void **state)
{
	struct hf_node *node = make(NULL);

	hf_node_name_is_used(node, T);
	hf_node_name_is_used(node, T + LEASE);
	assert_false(hf_node_is_refused(node));
	hf_node_name_is_used(node, T + 2 * LEASE + S);
	assert_true(hf_node_is_refused(node));
	hf_node_free(node);
	node = make(NULL);
	hf_node_name_is_used(node, T); /* of a node that has just died */
	look(node, row_of_b(7), T + LEASE);
	hf_node_name_is_used(node, T + 3 * LEASE);
	assert_false(hf_node_is_refused(node));
	hf_node_free(node);
}

/* A database that goes back */

static struct hf_service_row promoted(struct hf_service_row row)
{
	strcpy(row.history, "00000002");
	return row;
}

static void test_owner_goes_on_in_another_history_while_its_lease_runs(void **state)
{
	struct hf_node *node = make_active(NULL, T);
	struct hf_service_row row = promoted(row_of_a(2));

	assert_string_equal(hf_node_history(node), "00000001");
	hf_node_saw(node, HF_NODE_RENEW, &row, T + S, T + 2 * S);
	assert_int_equal(hf_node_role(node), HF_NODE_ACTIVE);
	assert_string_equal(hf_node_history(node), "00000002"); /* the next renewal says so */
	hf_node_free(node);
}

static void test_owner_without_a_lease_is_not_sure_of_another_history(void **state)
{
	struct hf_node *node = make_active(NULL, T);
	struct hf_service_row row = promoted(row_of_a(2));

	hf_node_saw(node, HF_NODE_RENEW, &row, T + 2 * S, T + LEASE);
	assert_int_equal(hf_node_role(node), HF_NODE_STANDBY);
	assert_int_equal(hf_node_lease_ends(node), 0);
	hf_node_released(node, false, T + LEASE);
	/* It may have been another node's in the meantime, for a lease at most. */
	look(node, row, T + LEASE + S);
	assert_int_equal(next(node), HF_NODE_LOOK);
	look(node, row, T + LEASE + OVER);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

static void test_lost_claim_of_another_node_is_waited_for(void **state)
{
	struct hf_service_row own = promoted(row_of_a(7)), handed = promoted(row_of_b(7));
	struct hf_node *node = make(NULL);

	look(node, own, T);
	assert_int_equal(next(node), HF_NODE_LOOK);
	look(node, own, T + OVER);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
	node = make(NULL);
	handed.lease_owner[0] = '\0';
	look(node, handed, T);
	assert_int_equal(next(node), HF_NODE_LOOK);
	strcpy(handed.lease_history, handed.history); /* its owner was sure of it */
	look(node, handed, T + S);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

static void test_row_that_is_gone_is_waited_for(void **state)
{
	struct hf_service_row none = { .history = "00000002" };
	struct hf_node *node = make(NULL);

	look(node, row_of_b(7), T);
	look(node, none, T + S);
	assert_int_equal(next(node), HF_NODE_LOOK);
	look(node, none, T + S + OVER);
	assert_int_equal(next(node), HF_NODE_CLAIM);
	hf_node_free(node);
}

static void test_counter_that_is_counted_again_is_a_change(void **state)
{
	struct hf_service_row row = promoted(row_of_b(7));
	struct hf_node *node = make(NULL);

	look(node, row_of_b(7), T);
	strcpy(row.lease_history, row.history); /* it went back to 6, and was renewed since */
	look(node, row, T + 3 * S);
	look(node, row, T + OVER);
	assert_int_equal(next(node), HF_NODE_LOOK);
	hf_node_free(node);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lease_counts_from_the_sending),
		cmocka_unit_test(test_lease_that_is_over_is_renewed_if_the_row_is_its_own),
		cmocka_unit_test(test_deposed_node_stands_by),
		cmocka_unit_test(test_deposed_node_claims_nothing_before_its_service_has_ended),
		cmocka_unit_test(test_renewal_that_crosses_the_release_gives_no_lease),
		cmocka_unit_test(test_node_that_leaves_claims_nothing_more),
		cmocka_unit_test(test_claim_that_crosses_the_end_is_handed_over),
		cmocka_unit_test(test_takes_over_a_lease_and_a_third_after_the_last_change),
		cmocka_unit_test(test_counter_that_falls_is_a_change),
		cmocka_unit_test(test_time_alone_is_not_enough),
		cmocka_unit_test(test_claim_that_lost_looks_again),
		cmocka_unit_test(test_same_instance_goes_on_at_once),
		cmocka_unit_test(test_first_start_waits_for_a_store_outside_of_the_cluster),
		cmocka_unit_test(test_handed_over_to_the_heir_alone),
		cmocka_unit_test(test_handed_over_to_any_node),
		cmocka_unit_test(test_heir_that_does_not_come),
		cmocka_unit_test(test_move_goes_to_a_standby_that_was_seen),
		cmocka_unit_test(test_standby_cannot_be_moved),
		cmocka_unit_test(test_active_node_hands_over_when_asked),
		cmocka_unit_test(test_unfit_node_hands_over_and_takes_nothing),
		cmocka_unit_test(test_manual_node_takes_over_only_when_told),
		cmocka_unit_test(test_automatic_is_turned_off_and_on),
		cmocka_unit_test(test_manual_node_restarts_without_an_order),
		cmocka_unit_test(test_take_asks_an_owner_that_lives),
		cmocka_unit_test(test_order_to_take_does_not_hold_for_ever),
		cmocka_unit_test(test_order_to_take_outlasts_a_long_lease),
		cmocka_unit_test(test_order_to_take_outlasts_a_fence_that_fails_once),
		cmocka_unit_test(test_fence_before_a_claim_without_consent),
		cmocka_unit_test(test_no_fence_with_consent),
		cmocka_unit_test(test_no_fence_for_its_own_name),
		cmocka_unit_test(test_key_of_a_store_without_a_lease),
		cmocka_unit_test(test_owner_comes_first_when_the_database_is_back),
		cmocka_unit_test(test_database_that_was_away_for_a_moment_delays_nothing),
		cmocka_unit_test(test_node_that_could_not_build_the_service_leaves_it_to_others),
		cmocka_unit_test(test_node_that_never_comes_to_serve_is_stuck),
		cmocka_unit_test(test_exports_that_differ),
		cmocka_unit_test(test_leases_that_differ),
		cmocka_unit_test(test_node_that_served_last_says_what_the_service_is),
		cmocka_unit_test(test_key_that_differs_is_refused),
		cmocka_unit_test(test_name_that_another_node_has),
		cmocka_unit_test(test_owner_goes_on_in_another_history_while_its_lease_runs),
		cmocka_unit_test(test_owner_without_a_lease_is_not_sure_of_another_history),
		cmocka_unit_test(test_lost_claim_of_another_node_is_waited_for),
		cmocka_unit_test(test_row_that_is_gone_is_waited_for),
		cmocka_unit_test(test_counter_that_is_counted_again_is_a_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
