/*
 * Whose turn it is: calls of one owner about one file, one after the other.
 *
 * As a rule a call is served when it comes. Two kinds of them decide later what
 * their owner holds: those that wait for the right to the file (files.c), and those
 * that lower a lock when that is stored (lock.c). A client need not wait for their
 * replies, and one whose process is killed does not: its UNLOCK must not overtake the
 * LOCK before it, or the lock is nobody's. So whatever comes from the same owner
 * about the same file follows, in order.
 *
 * If a disk takes its time, the client may be restarted meanwhile, say so, and
 * lose what it held. A LOCK from before that is not served any more. It is told
 * of a grace period, for some hosts say an old state number all their life: those
 * ask again. So whoever asks for something is known as long as it waits, and each
 * call has its own client: two behind one address may have one process number.
 * What gives up something is served whatever happened: nobody asks for that twice,
 * and the restart may be what the LOCK in front of it said, of the same life.
 *
 * When we stop, what waits is not served any more: nobody could be told, and what it
 * takes or gives up would be stored after the stop was marked as clean.
 */
#include <stdlib.h>

#include "base/error.h"
#include "proto/nlm/internal.h"

/* In the room of the call. */
struct follower {
	struct hf_link link;
	struct hf_rpc_call *call;
	hf_rpc_handler_fn again;
	struct hf_nlm_life life;
};
_Static_assert(sizeof(struct follower) <= HF_RPC_CALL_ROOM, "a call has room for it");

/* Lives */

static bool takes_something(const struct hf_rpc_call *call)
{
	return hf_nlm_is_lock(call) || hf_rpc_call_header(call)->procedure == HF_NLM_SHARE;
}

static struct hf_nlm_life life_begin(const struct hf_nlm_op *op)
{
	struct hf_client *client = takes_something(op->call) ? hf_nlm_meet_caller(op) : NULL;

	if (!client)
		return (struct hf_nlm_life){ 0 };
	return (struct hf_nlm_life){ client, client->n_deaths, client->sm_state, op->args.state };
}

static bool is_older(int32_t state, int32_t than)
{
	return (int32_t)((uint32_t)than - (uint32_t)state) > 0;
}

/* Where no death was counted, since nothing was known of him, a newer number tells of one. Who says a newer
 * one himself is of a life after that. */
static bool has_died(const struct hf_nlm_life *life)
{
	const struct hf_client *client = life->client;
	bool says_another = life->state && life->state != life->known_state;

	if (!client)
		return false;
	if (client->n_deaths != life->n_deaths)
		return !says_another || !client->death_state || is_older(life->state, client->death_state);
	return life->state && client->sm_state != life->known_state &&
	       is_older(life->state, client->sm_state);
}

static void life_end(struct hf_nlm_life *life)
{
	life->client = hf_client_unref(life->client);
}

/* Life */

int hf_nlm_turns_init(struct hf_nlm *nlm)
{
	return hf_trace(hf_hashtable_init(&nlm->turns));
}

void hf_nlm_turns_deinit(struct hf_nlm *nlm)
{
	struct hf_link *link;

	while ((link = hf_list_pop_front(&nlm->lowerings))) {
		struct hf_nlm_turn *turn = hf_list_entry(link, struct hf_nlm_turn, lowering);

		/* Its calls are the server's. */
		hf_list_for_each(pos, &turn->followers)
			life_end(&hf_list_entry(pos, struct follower, link)->life);
		life_end(&turn->life);
		free(turn);
	}
	hf_hashtable_deinit(&nlm->turns);
}

/* The file is the lock table's key for it. */
static uint64_t make_key(const struct hf_nlm *nlm, struct hf_nlm_turn_key *key, const struct hf_addr *host,
			 int32_t svid, struct hf_bytes handle)
{
	memset(key, 0, sizeof(*key));
	key->host = *host;
	key->host.port = 0;
	key->svid = svid;
	key->handle_len = handle.len;
	memcpy(key->handle, handle.data, handle.len);
	return hf_siphash(&nlm->key, key, sizeof(*key));
}

static uint64_t make_key_of(const struct hf_nlm_op *op, struct hf_nlm_turn_key *key)
{
	return make_key(op->nlm, key, hf_rpc_call_peer(op->call), op->args.svid, op->target.handle);
}

void hf_nlm_turn_take(struct hf_nlm_turn *turn, const struct hf_nlm_op *op)
{
	turn->life = life_begin(op);
	hf_link_init(&turn->lowering);
	hf_list_init(&turn->followers);
	turn->hurry = NULL;
	hf_hashtable_insert(&op->nlm->turns, &turn->node, make_key_of(op, &turn->key));
}

void hf_nlm_turn_leave(struct hf_nlm *nlm, struct hf_nlm_turn *turn)
{
	hf_link_remove(&turn->lowering);
	hf_hashtable_remove(&nlm->turns, &turn->node);
}

static void serve(struct hf_nlm *nlm, const struct hf_nlm_life *life, struct hf_rpc_call *call,
		  hf_rpc_handler_fn again)
{
	hf_rpc_call_rewind(call);
	if (hf_recovery_is_stopping(nlm->options.recovery))
		hf_nlm_call_drop(nlm, call); /* its client asks again after the start */
	else if (has_died(life))
		hf_nlm_reply_late(nlm, call, HF_NLM_DENIED_GRACE_PERIOD);
	else
		again(nlm, call);
}

void hf_nlm_turn_serve(struct hf_nlm *nlm, const struct hf_nlm_turn *turn, struct hf_rpc_call *call,
		       hf_rpc_handler_fn again)
{
	serve(nlm, &turn->life, call, again);
}

void hf_nlm_turn_pass(struct hf_nlm *nlm, struct hf_nlm_turn *turn)
{
	struct hf_link *link;

	/* The first may wait for something itself, and then the rest follows that. */
	while ((link = hf_list_pop_front(&turn->followers))) {
		struct follower follower = *hf_list_entry(link, struct follower, link);

		serve(nlm, &follower.life, follower.call, follower.again); /* the call may be gone here */
		life_end(&follower.life);
	}
	life_end(&turn->life);
}

struct hf_nlm_turn *hf_nlm_turn_new(const struct hf_nlm_op *op)
{
	struct hf_nlm_turn *turn = malloc(sizeof(*turn));

	if (!turn)
		return NULL;
	hf_nlm_turn_take(turn, op);
	hf_list_push_back(&op->nlm->lowerings, &turn->lowering);
	return turn;
}

void hf_nlm_turn_end(struct hf_nlm *nlm, struct hf_nlm_turn *turn)
{
	if (!turn)
		return;
	hf_nlm_turn_leave(nlm, turn);
	hf_nlm_turn_pass(nlm, turn);
	free(turn);
}

static struct hf_nlm_turn *find(const struct hf_nlm *nlm, const struct hf_nlm_turn_key *key, uint64_t hash)
{
	hf_hash_for_each(node, &nlm->turns, hash) {
		struct hf_nlm_turn *turn = hf_container_of(node, struct hf_nlm_turn, node);

		if (memcmp(&turn->key, key, sizeof(*key)) == 0)
			return turn;
	}
	return NULL;
}

struct hf_nlm_turn *hf_nlm_turn_find(const struct hf_nlm *nlm, const struct hf_lock_target *owner)
{
	const struct hf_client *client = hf_container_of(owner->client, struct hf_client, holds);
	struct hf_nlm_turn_key key;
	uint64_t hash = make_key(nlm, &key, &client->address, (int32_t)owner->owner_id, owner->handle);

	return find(nlm, &key, hash);
}

/* What is served first may wait for something itself then, and be followed. */
static struct hf_nlm_turn *find_to_follow(const struct hf_nlm_op *op)
{
	struct hf_nlm_turn_key key;
	uint64_t hash = make_key_of(op, &key);
	struct hf_nlm_turn *turn;

	while ((turn = find(op->nlm, &key, hash)) && turn->hurry)
		turn->hurry(turn); /* @turn is gone here */
	return turn;
}

bool hf_nlm_turn_follow_busy(struct hf_nlm_op *op, hf_rpc_handler_fn again)
{
	struct hf_nlm_turn *turn = find_to_follow(op);
	struct follower *follower;
	struct hf_nlm_life life;

	if (!turn)
		return false;
	life = life_begin(op); /* before the call moves */
	if (hf_nlm_call_keep(op->nlm, op->call) < 0) {
		life_end(&life);
		return true; /* it has been answered: SYSTEM_ERR */
	}
	follower = hf_rpc_call_room(op->call);
	*follower = (struct follower){ .call = op->call, .again = again, .life = life };
	hf_list_push_back(&turn->followers, &follower->link);
	return true;
}
