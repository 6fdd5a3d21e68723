/*
 * Look-ups under way. One look-up serves all calls with the same question. It has a leg for
 * each transport over which rpcbind is asked. Each leg tries the versions of rpcbind that may
 * answer there. A look-up has no deadline of its own: it lasts while a call waits for it.
 */
#include "rpc/lookup.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

#define SECOND_LEG_AFTER HF_NS_PER_S /* or a quarter of the available time */

struct lookup_leg {
	struct hf_lookup *lookup;
	struct hf_rpc_exchange exchange;
	const uint32_t *versions; /* still to be tried, the current one first; ends with 0 */
	uint8_t message[HF_LOOKUP_MAX_MESSAGE];
};

struct hf_lookup {
	struct hf_rpc_client *client;
	struct hf_hash_node node; /* in client->lookups */
	struct hf_lookup_key key;
	struct hf_list waiters;
	struct lookup_leg legs[2];    /* by enum hf_rpc_transport */
	struct hf_timer timer;        /* until the second leg starts */
	bool has_second;              /* still to be started */
	struct hf_rpc_result failure; /* of the leg that failed last; OK: none */
};

static void on_leg_end(struct hf_rpc_exchange *exchange, const struct hf_rpc_result *result);
static void on_second_due(struct hf_timer *timer);

static const uint32_t *versions_for(const struct hf_lookup_key *key, enum hf_rpc_transport transport)
{
	static const uint32_t v4[] = { 2, 4, 3, 0 };
	static const uint32_t v4_other[] = { 2, 0 };
	static const uint32_t v6[] = { 4, 3, 0 };
	static const uint32_t none[] = { 0 };

	if (key->remote.family == AF_INET)
		return key->transport == transport ? v4 : v4_other;
	return key->transport == transport ? v6 : none;
}

static uint64_t hash_of(const struct hf_rpc_client *client, const struct hf_lookup_key *key)
{
	return hf_siphash(&client->key, key, sizeof(*key));
}

static void lookup_free(struct hf_lookup *lookup)
{
	hf_exchange_stop(&lookup->legs[HF_RPC_UDP].exchange, false);
	hf_exchange_stop(&lookup->legs[HF_RPC_TCP].exchange, false);
	hf_timer_stop(&lookup->timer);
	hf_hashtable_remove(&lookup->client->lookups, &lookup->node);
	free(lookup);
}

static void leg_init(struct hf_lookup *lookup, enum hf_rpc_transport transport)
{
	struct lookup_leg *leg = &lookup->legs[transport];
	struct hf_rpc_exchange *exchange = &leg->exchange;

	leg->lookup = lookup;
	leg->versions = versions_for(&lookup->key, transport);
	hf_exchange_init(exchange, lookup->client, on_leg_end);
	exchange->remote = lookup->key.remote;
	exchange->remote.port = lookup->client->limits.rpcbind_port;
	exchange->local = lookup->key.local;
	exchange->message = leg->message;
	exchange->transport = transport;
	exchange->fresh = true;
	exchange->is_modest = true;
}

static int lookup_new(struct hf_lookup **lookupp, struct hf_rpc_client *client,
		      const struct hf_lookup_key *key)
{
	struct hf_lookup *lookup = calloc(1, sizeof(*lookup));

	if (!lookup)
		return -ENOMEM;
	lookup->client = client;
	lookup->key = *key;
	hf_list_init(&lookup->waiters);
	hf_timer_init(&lookup->timer, client->loop, on_second_due);
	leg_init(lookup, HF_RPC_UDP);
	leg_init(lookup, HF_RPC_TCP);
	hf_hashtable_insert(&client->lookups, &lookup->node, hash_of(client, key));
	*lookupp = lookup;
	return 0;
}

/* Tells all waiters, and frees the look-up. */
static void lookup_end(struct hf_lookup *lookup, const struct hf_rpc_result *result, uint16_t port)
{
	struct hf_list waiters = HF_LIST_INIT(waiters);
	struct hf_rpc_result said = *result;
	struct hf_link *link;

	hf_list_splice(&waiters, &lookup->waiters);
	hf_list_for_each(pos, &waiters)
		hf_list_entry(pos, struct hf_lookup_waiter, link)->lookup = NULL;
	lookup_free(lookup);
	said.stage = HF_RPC_STAGE_LOOKUP;
	said.results = NULL;
	while ((link = hf_list_pop_front(&waiters))) {
		struct hf_lookup_waiter *waiter = hf_list_entry(link, struct hf_lookup_waiter, link);

		waiter->fn(waiter, &said, port);
		/* @waiter may be freed here */
	}
}

/* Legs */

static int leg_ask(struct lookup_leg *leg)
{
	struct hf_lookup *lookup = leg->lookup;
	uint32_t version = leg->versions[0];
	int r;

	assert(version);
	leg->exchange.len =
		hf_lookup_put_question(leg->message, version, &lookup->key, leg->exchange.remote.port);
	lookup->client->counts.lookups++;
	r = hf_exchange_start(&leg->exchange);
	if (r < 0)
		lookup->failure = hf_exchange_not_started(&leg->exchange, r);
	return r;
}

static enum hf_rpc_transport first_leg(const struct hf_lookup *lookup)
{
	return lookup->key.remote.family == AF_INET6 ? (enum hf_rpc_transport)lookup->key.transport
						     : HF_RPC_UDP;
}

/* Is there anything left to try? */
static bool try_second(struct hf_lookup *lookup)
{
	hf_timer_stop(&lookup->timer);
	if (!lookup->has_second)
		return false;
	lookup->has_second = false;
	return leg_ask(&lookup->legs[HF_RPC_TCP]) == 0;
}

/* The first leg goes on, whatever this one brings. */
static void on_second_due(struct hf_timer *timer)
{
	struct hf_lookup *lookup = hf_container_of(timer, struct hf_lookup, timer);

	if (try_second(lookup) || lookup->failure.outcome != HF_RPC_OUTCOME_NO_ROOM)
		return;
	/* It says nothing about the peer, and may work later. */
	lookup->failure = (struct hf_rpc_result){ 0 };
	lookup->has_second = true;
	(void)hf_timer_start(timer, SECOND_LEG_AFTER);
}

static int start_legs(struct hf_lookup *lookup, uint64_t patience_ns)
{
	enum hf_rpc_transport first = first_leg(lookup);

	lookup->has_second = lookup->key.remote.family == AF_INET;
	if (leg_ask(&lookup->legs[first]) < 0)
		return try_second(lookup) ? 0 : lookup->failure.error;
	if (lookup->has_second &&
	    hf_timer_start(&lookup->timer, HF_MIN(SECOND_LEG_AFTER, patience_ns / 4)) < 0)
		(void)try_second(lookup);
	return 0;
}

static void leg_failed(struct lookup_leg *leg, const struct hf_rpc_result *result)
{
	struct hf_lookup *lookup = leg->lookup;

	lookup->failure = *result;
	lookup->failure.results = NULL; /* they are valid only in this call-back */
	if (!try_second(lookup) && !lookup->legs[HF_RPC_UDP].exchange.is_started &&
	    !lookup->legs[HF_RPC_TCP].exchange.is_started)
		lookup_end(lookup, &lookup->failure, 0);
}

static void take_answer(struct lookup_leg *leg, const struct hf_rpc_result *result)
{
	struct hf_lookup *lookup = leg->lookup;
	struct hf_rpc_result bad = *result;
	uint16_t port;

	if (hf_lookup_get_answer(result->results, leg->versions[0], &port)) {
		if (lookup->key.is_fresh)
			hf_lookup_compare(lookup->client, &lookup->key, port);
		else if (port)
			hf_lookup_remember(lookup->client, &lookup->key, port);
		lookup_end(lookup, result, port);
	} else {
		bad.outcome = HF_RPC_OUTCOME_GARBAGE;
		leg_failed(leg, &bad);
	}
}

/* May another version of rpcbind have a better answer? */
static bool is_refusal(enum hf_rpc_outcome outcome)
{
	return outcome == HF_RPC_OUTCOME_NO_PROGRAM || outcome == HF_RPC_OUTCOME_NO_PROCEDURE ||
	       outcome == HF_RPC_OUTCOME_NO_SENSE || outcome == HF_RPC_OUTCOME_DENIED;
}

static void on_leg_end(struct hf_rpc_exchange *exchange, const struct hf_rpc_result *result)
{
	struct lookup_leg *leg = hf_container_of(exchange, struct lookup_leg, exchange);

	if (result->outcome == HF_RPC_OUTCOME_OK) {
		take_answer(leg, result);
		return;
	}
	if (is_refusal(result->outcome) && *++leg->versions && leg_ask(leg) == 0)
		return;
	leg_failed(leg, result);
	/* @leg may be freed here */
}

/* For calls */

static struct hf_lookup *find(struct hf_rpc_client *client, const struct hf_lookup_key *key)
{
	hf_hash_for_each(node, &client->lookups, hash_of(client, key)) {
		struct hf_lookup *lookup = hf_container_of(node, struct hf_lookup, node);

		if (memcmp(&lookup->key, key, sizeof(*key)) == 0)
			return lookup;
	}
	return NULL;
}

int hf_lookup_port(struct hf_rpc_client *client, struct hf_lookup_waiter *waiter,
		   const struct hf_lookup_key *key, uint64_t patience_ns, uint16_t *portp)
{
	struct hf_lookup *lookup;
	int r;

	if (hf_lookup_recall(client, key, portp))
		return HF_LOOKUP_KNOWN;
	lookup = find(client, key);
	if (!lookup) {
		r = lookup_new(&lookup, client, key);
		if (r < 0)
			return r;
		r = start_legs(lookup, patience_ns);
		if (r < 0) {
			lookup_free(lookup);
			return r;
		}
	}
	waiter->lookup = lookup;
	hf_list_push_back(&lookup->waiters, &waiter->link);
	return HF_LOOKUP_ASKED;
}

void hf_lookup_leave(struct hf_lookup_waiter *waiter)
{
	struct hf_lookup *lookup = waiter->lookup;

	hf_link_remove(&waiter->link);
	waiter->lookup = NULL;
	if (lookup && hf_list_is_empty(&lookup->waiters))
		lookup_free(lookup);
}

struct hf_rpc_result hf_lookup_give_up(struct hf_lookup_waiter *waiter)
{
	struct hf_lookup *lookup = waiter->lookup;
	const struct lookup_leg *leg = &lookup->legs[first_leg(lookup)];
	struct hf_rpc_result result = lookup->failure;

	if (result.outcome == HF_RPC_OUTCOME_OK)
		result = hf_exchange_verdict(&leg->exchange);
	result.stage = HF_RPC_STAGE_LOOKUP;
	hf_lookup_leave(waiter);
	return result;
}

void hf_lookup_deinit(struct hf_rpc_client *client)
{
	assert(client->lookups.n == 0);
	hf_hashtable_deinit(&client->lookups);
	hf_lookup_cache_deinit(client);
}
