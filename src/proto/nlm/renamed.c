/*
 * A host that was renamed while it held locks: by its new name it gives up, or reclaims, what it took by the
 * old one.
 *
 * Several hosts may stand behind one address, and their processes may have the same numbers. So the server
 * does not guess. It takes one name for another's only where all of this is true:
 *
 *	- the new name has nothing of this owner in this file, and never asked for anything of it there: a
 *	  process that took its lock by the old name unlocks it without a LOCK before that
 *	- exactly one other name at the address has, and fewer than MAX_LOOKED_AT names are there
 *	- the owner's handle is the same, or differs as the names do: Linux sends "5@old" and then "5@new"
 *	- the old name was not heard since the new one was met, and their LOCKs, this one included, do not say
 *	  other state numbers: a restarted host has nothing to reclaim by another name
 *	- the call comes from the port that the old name called from last: a connection outlives the name, and
 *	  Linux opens the next one from the same port, while two hosts behind an address have two
 *
 * The first reclaim after the server's restart cannot have the last of these. There it is enough that the old
 * name is still known from before and has not been heard since: the lock is not given to any other host, and
 * the old name, if it lives, still gets it.
 *
 * In doubt nothing is released. The lock stays until its host says otherwise, or an operator does.
 */
#include <stdlib.h>

#include "base/error.h"
#include "proto/nlm/internal.h"
#include "proto/nlm/op.h"

/* More names at one address are behind an address translation; and a host that makes itself a million of them
 * does not make the server look at each. */
#define MAX_LOOKED_AT 256
#define N_ACTS        4096 /* a power of two */

int hf_nlm_renames_init(struct hf_nlm *nlm)
{
	nlm->acts = calloc(N_ACTS, sizeof(*nlm->acts));
	return nlm->acts ? 0 : hf_trace(-ENOMEM);
}

void hf_nlm_renames_deinit(struct hf_nlm *nlm)
{
	free(nlm->acts);
	nlm->acts = NULL;
}

/* What a name did for itself, one number for each; a newer one takes the place of an older one. */

struct act { /* without gaps, to be hashed */
	struct hf_addr host;
	int32_t svid;
	uint32_t name_len;
	uint32_t handle_len;
	uint8_t handle[HF_NLM_MAX_HANDLE];
	uint8_t name[HF_CLIENT_MAX_NAME];
};

static uint64_t act_of(const struct hf_nlm_op *op)
{
	const struct hf_bytes name = op->args.caller, handle = op->target.handle;
	struct act act;

	act.host = *hf_rpc_call_peer(op->call);
	act.host.port = 0;
	act.svid = op->args.svid;
	act.name_len = name.len;
	act.handle_len = handle.len;
	memset(act.handle, 0, sizeof(act.handle));
	memcpy(act.handle, handle.data, handle.len);
	memcpy(act.name, name.data, name.len);
	return hf_siphash(&op->nlm->key, &act, offsetof(struct act, name) + name.len) | 1;
}

static bool is_possible(const struct hf_nlm_op *op)
{
	return op->args.caller.len <= HF_CLIENT_MAX_NAME && op->target.handle.len <= HF_NLM_MAX_HANDLE;
}

void hf_nlm_note_act(const struct hf_nlm_op *op)
{
	uint64_t act;

	if (!is_possible(op))
		return;
	act = act_of(op);
	op->nlm->acts[act / 2 % N_ACTS] = act;
}

static bool has_acted(const struct hf_nlm_op *op)
{
	uint64_t act;

	if (!is_possible(op))
		return true;
	act = act_of(op);
	return op->nlm->acts[act / 2 % N_ACTS] == act;
}

/* Handles of owners */

static bool begins(struct hf_bytes whole, const uint8_t *with, size_t len)
{
	return len <= whole.len && memcmp(whole.data, with, len) == 0;
}

/* The same, or a common part and then the beginning of the name, each of its own: "5@old", or four bytes of a
 * number and four of the name. */
static bool handle_fits(struct hf_bytes oh, struct hf_bytes name, struct hf_bytes old_oh,
			struct hf_bytes old_name)
{
	if (hf_bytes_equal(oh, old_oh))
		return true;
	for (uint32_t i = 1; i < oh.len && i < old_oh.len && oh.data[i - 1] == old_oh.data[i - 1]; i++)
		if (begins(name, oh.data + i, oh.len - i) &&
		    begins(old_name, old_oh.data + i, old_oh.len - i))
			return true;
	return false;
}

/* Finding */

static bool came_as_it(const struct hf_nlm_op *op, const struct hf_client *old)
{
	const struct hf_rpc_call *call = op->call;
	bool is_silent = old->met_at == 0 && old->called_at == 0;

	return old->ports[hf_rpc_call_transport(call)] == hf_rpc_call_peer(call)->port ||
	       (op->args.reclaim && is_silent);
}

/* A host with another number is in another life. Its reclaim would end the life of @old, and release all that
 * @old has. */
static bool is_of_another_life(const struct hf_nlm_op *op, const struct hf_client *old)
{
	return op->args.reclaim && hf_client_says_other(old, op->args.state);
}

/* Is @old the former name of the caller? @exact is what is known by the new one, or NULL. */
static bool is_former(struct hf_nlm_op *op, const struct hf_client *exact, struct hf_client *old)
{
	struct hf_bytes old_oh;

	if (old == exact || strcmp(old->protocol, HF_NLM_PROTOCOL) != 0 ||
	    (exact && !hf_client_may_be(exact, old)) || is_of_another_life(op, old) || !came_as_it(op, old))
		return false;
	op->target.client = &old->locking;
	return hf_lock_find_oh(op->nlm->locks, &op->target, &old_oh) &&
	       handle_fits(op->args.oh, op->args.caller, old_oh, hf_client_name(old));
}

static struct hf_client *find_former(struct hf_nlm_op *op, const struct hf_client *exact)
{
	struct hf_client *client = NULL, *former = NULL;
	size_t n = 0, n_looked_at = 0;

	while ((client = hf_clients_next_at(op->nlm->clients, hf_rpc_call_peer(op->call), client)) &&
	       n_looked_at++ < MAX_LOOKED_AT) {
		if (!is_former(op, exact, client))
			continue;
		n++;
		hf_client_unref(former);
		former = hf_client_ref(client);
	}
	if (n == 1 && !client)
		return former;
	hf_client_unref(client);
	hf_client_unref(former);
	return NULL;
}

/* The address has other clients, too, or none of this name. */
static HF_NOINLINE bool find_among_names(struct hf_nlm_op *op)
{
	struct hf_client *exact = op->client, *former = NULL;

	if (exact && hf_lock_is_involved(op->nlm->locks, &op->target)) {
		hf_nlm_note_act(op);
		return false;
	}
	if (!has_acted(op))
		former = find_former(op, exact);
	op->target.client = exact ? &exact->locking : NULL;
	if (!former)
		return false;
	hf_client_unref(exact);
	hf_nlm_use_client(op, former);
	return true;
}

bool hf_nlm_find_renamed(struct hf_nlm_op *op)
{
	return !(op->client && hf_client_is_alone(op->client)) && find_among_names(op);
}
