/*
 * Did this notice, or its number, come before? A notice may arrive twice, and the second copy may
 * arrive when its sender has taken locks again. Such a copy must release nothing.
 *
 *	early      a notice that came while no registered client had that name and address, or whose
 *	           client left while it was checked, or a FREE_ALL from an address without any client.
 *	           It is remembered by (address, hash of the host's name, number): another host makes
 *	           another notice.
 *	departed   a number that a client certainly had, and the client is not registered any more.
 *	           A host never has one number twice. So a notice with a number that its host had
 *	           before the client took what it has now is a copy, and no exchange is needed to
 *	           tell.
 *
 * Both are rings, and are remembered as long as sm-notify repeats a notice. Early notices over
 * loopback are not remembered: any user of this host can send one, and it must not weaken a later
 * notice of the superuser.
 */
#include "client/host_name.h"
#include "proto/nsm/internal.h"

/* Of the stem: a host sends one notice under its long name, and one under its short one. If two hosts behind
 * one address have one stem, a notice is only checked in vain. */
static uint64_t hash_name(const struct hf_nsm *nsm, struct hf_bytes name)
{
	return hf_host_name_hash(&nsm->key, name);
}

/* Early notices */

/* The latest early notice from this host, by this name, with the number @state (0: any number). */
static const struct hf_nsm_early *find_early(const struct hf_nsm *nsm, const struct hf_addr *peer,
					     struct hf_bytes name, int32_t state)
{
	uint64_t now = hf_loop_now(nsm->options.loop), hash = hash_name(nsm, name);

	for (size_t i = 1; i <= HF_MIN(nsm->n_early, (size_t)HF_NSM_N_EARLY); i++) {
		const struct hf_nsm_early *early = &nsm->early[(nsm->n_early - i) % HF_NSM_N_EARLY];

		if (early->until > now && (!state || early->state == state) && early->name == hash &&
		    hf_addr_same_host(&early->host, peer))
			return early;
	}
	return NULL;
}

bool hf_nsm_was_early(const struct hf_nsm *nsm, const struct hf_addr *peer, struct hf_bytes name,
		      int32_t state)
{
	return find_early(nsm, peer, name, state) != NULL;
}

/* Of several early notices the latest has the host's present number. A repeated copy of an older one does not
 * become the latest. */
bool hf_nsm_is_last_early(const struct hf_nsm *nsm, const struct hf_addr *peer, struct hf_bytes name,
			  int32_t state)
{
	const struct hf_nsm_early *last = find_early(nsm, peer, name, 0);

	return last && last->state == state;
}

void hf_nsm_note_early(struct hf_nsm *nsm, const struct hf_addr *peer, struct hf_bytes name, int32_t state)
{
	if (!state || hf_addr_is_loopback(peer) || hf_nsm_was_early(nsm, peer, name, state))
		return;
	nsm->early[nsm->n_early++ % HF_NSM_N_EARLY] = (struct hf_nsm_early){
		.host = *peer,
		.name = hash_name(nsm, name),
		.state = state,
		.until = hf_loop_now(nsm->options.loop) + HF_RECOVERY_NOTICE_NS,
	};
}

/* A notice is about clients with more names than the FREE_ALL. If there is any, it must count. */
void hf_nsm_note_free_all(struct hf_nsm *nsm, const struct hf_addr *peer, struct hf_bytes name, int32_t state)
{
	struct hf_client *client = hf_clients_next_at(nsm->clients, peer, NULL);

	if (!client)
		client = hf_nsm_next_watch(nsm, name, NULL);
	if (!client)
		hf_nsm_note_early(nsm, peer, name, state);
	hf_client_unref(client);
}

/* Clients that left */

static void note_number(struct hf_nsm *nsm, const struct hf_client *client, int32_t state)
{
	nsm->departed[nsm->n_departed++ % HF_NSM_N_DEPARTED] = (struct hf_nsm_departed){
		.host = client->address,
		.name = hf_siphash(&nsm->key, client->name, client->name_len),
		.state = state,
		.until = hf_loop_now(nsm->options.loop) + HF_RECOVERY_NOTICE_NS,
	};
}

void hf_nsm_note_departed(struct hf_nsm *nsm, const struct hf_client *client)
{
	int32_t state = hf_client_proven_state(client);

	if (!hf_client_has_nothing(client))
		return;
	if (state)
		note_number(nsm, client, state);
	else if (client->sm_state) /* a notice with it may be a copy, and is checked */
		hf_nsm_note_early(nsm, &client->address, hf_client_name(client), client->sm_state);
	for (size_t i = 0; i < HF_CLIENT_PAST; i++) {
		const struct hf_client_past *past = &client->past[i];

		if (past->state && past->is_proven && past->until > hf_loop_now(nsm->options.loop))
			note_number(nsm, client, past->state);
	}
}

bool hf_nsm_is_number_of_departed(const struct hf_nsm *nsm, const struct hf_client *client, int32_t state)
{
	uint64_t now = hf_loop_now(nsm->options.loop),
		 name = hf_siphash(&nsm->key, client->name, client->name_len);

	for (size_t i = 0; i < HF_MIN(nsm->n_departed, (size_t)HF_NSM_N_DEPARTED); i++) {
		const struct hf_nsm_departed *departed = &nsm->departed[i];

		if (departed->state == state && departed->until > now && departed->name == name &&
		    hf_addr_same_host(&departed->host, &client->address))
			return true;
	}
	return false;
}
