/* The ports that rpcbind gave a short while ago, by key and by age. "Not registered" is not cached. */
#include "rpc/lookup.h"

#include <stdlib.h>
#include <string.h>

struct known_port {
	struct hf_hash_node node; /* in client->ports */
	struct hf_link link;      /* of client->ports_by_age, oldest first */
	struct hf_lookup_key key;
	uint64_t until;
	uint16_t port;
};

static uint64_t hash_of(const struct hf_rpc_client *client, const struct hf_lookup_key *key)
{
	return hf_siphash(&client->key, key, sizeof(*key));
}

static struct known_port *find(struct hf_rpc_client *client, const struct hf_lookup_key *key)
{
	hf_hash_for_each(node, &client->ports, hash_of(client, key)) {
		struct known_port *known = hf_container_of(node, struct known_port, node);

		if (memcmp(&known->key, key, sizeof(*key)) == 0)
			return known;
	}
	return NULL;
}

static void drop(struct hf_rpc_client *client, struct known_port *known)
{
	hf_hashtable_remove(&client->ports, &known->node);
	hf_link_remove(&known->link);
	free(known);
}

bool hf_lookup_recall(struct hf_rpc_client *client, const struct hf_lookup_key *key, uint16_t *portp)
{
	struct known_port *known = find(client, key);

	if (!known)
		return false;
	if (known->until <= hf_loop_now(client->loop)) {
		drop(client, known);
		return false;
	}
	*portp = known->port;
	return true;
}

void hf_lookup_forget(struct hf_rpc_client *client, const struct hf_lookup_key *key)
{
	struct known_port *known = find(client, key);

	if (known)
		drop(client, known);
}

void hf_lookup_compare(struct hf_rpc_client *client, const struct hf_lookup_key *key, uint16_t port)
{
	struct hf_lookup_key plain = *key;
	struct known_port *known;

	plain.is_fresh = 0;
	known = find(client, &plain);
	if (known && known->port != port)
		drop(client, known);
}

/* Without memory the next call asks again. */
void hf_lookup_remember(struct hf_rpc_client *client, const struct hf_lookup_key *key, uint16_t port)
{
	struct known_port *known;

	hf_lookup_forget(client, key);
	if (client->limits.max_ports == 0)
		return;
	if (client->ports.n >= client->limits.max_ports)
		drop(client, hf_list_entry(hf_list_first(&client->ports_by_age), struct known_port, link));
	known = malloc(sizeof(*known));
	if (!known)
		return;
	known->key = *key;
	known->port = port;
	known->until = hf_loop_now(client->loop) + client->limits.port_age_ns;
	hf_hashtable_insert(&client->ports, &known->node, hash_of(client, key));
	hf_list_push_back(&client->ports_by_age, &known->link);
}

void hf_lookup_cache_deinit(struct hf_rpc_client *client)
{
	struct hf_link *link;

	while ((link = hf_list_first(&client->ports_by_age)))
		drop(client, hf_list_entry(link, struct known_port, link));
	hf_hashtable_deinit(&client->ports);
}
