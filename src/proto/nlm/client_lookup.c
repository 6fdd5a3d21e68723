/* Which client a name at an address is. The last one found is remembered: the next call is often from it. */
#include "proto/nlm/internal.h"

static bool is_recent(const struct hf_nlm *nlm, const struct hf_addr *peer, struct hf_bytes name)
{
	return nlm->recent && hf_addr_same_host(&nlm->recent->address, peer) &&
	       hf_bytes_equal(hf_client_name(nlm->recent), name);
}

struct hf_client *hf_nlm_find_client(struct hf_nlm *nlm, const struct hf_addr *peer, struct hf_bytes name)
{
	if (is_recent(nlm, peer, name))
		return hf_client_ref(nlm->recent);
	return hf_clients_find(nlm->clients, HF_NLM_PROTOCOL, peer, name);
}

struct hf_client *hf_nlm_meet_client(struct hf_nlm *nlm, const struct hf_addr *peer, struct hf_bytes name,
				     bool is_served)
{
	struct hf_client *client;

	if (is_recent(nlm, peer, name))
		return hf_client_ref(nlm->recent);
	if (hf_clients_get(&client, nlm->clients, HF_NLM_PROTOCOL, peer, name) < 0)
		return NULL;
	if (is_served) {
		hf_client_unref(nlm->recent);
		nlm->recent = hf_client_ref(client);
	}
	return client;
}

void hf_nlm_forget_refused(struct hf_nlm *nlm)
{
	if (nlm->recent && !hf_client_is_registered(nlm->recent) &&
	    hf_lock_client_is_idle(&nlm->recent->locking))
		nlm->recent = hf_client_unref(nlm->recent);
}
