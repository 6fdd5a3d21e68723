#include "rpc/contacts.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/hashtable.h"
#include "base/list.h"
#include "base/macros.h"

struct contact {
	struct hf_hash_node node;
	struct hf_link link; /* in contacts->by_time */
	struct hf_addr addr; /* its port is 0 */
	uint64_t at;
	uint64_t heard_at;
};

struct hf_contacts {
	struct hf_siphash_key key;
	size_t max;
	struct hf_hashtable by_addr;
	struct hf_list by_time; /* by the contact, the oldest first */
	uint64_t n_forgotten;
	uint64_t forgotten;       /* the latest contact of an address that is not remembered any more */
	uint64_t forgotten_heard; /* the latest time at which one of these was heard */
};

int hf_contacts_new(struct hf_contacts **contactsp, const struct hf_siphash_key *key, size_t max)
{
	struct hf_contacts *contacts = calloc(1, sizeof(*contacts));
	int r = contacts ? hf_hashtable_init(&contacts->by_addr) : -ENOMEM;

	assert(max > 0);
	if (r < 0) {
		free(contacts);
		return hf_trace(r);
	}
	contacts->key = *key;
	contacts->max = max;
	hf_list_init(&contacts->by_time);
	*contactsp = contacts;
	return 0;
}

static struct contact *find(const struct hf_contacts *contacts, const struct hf_addr *addr, uint64_t hash)
{
	hf_hash_for_each(node, &contacts->by_addr, hash) {
		struct contact *contact = hf_container_of(node, struct contact, node);

		if (hf_addr_equal(&contact->addr, addr))
			return contact;
	}
	return NULL;
}

static void forget(struct hf_contacts *contacts, uint64_t at, uint64_t heard_at)
{
	contacts->forgotten = HF_MAX(contacts->forgotten, at);
	contacts->forgotten_heard = HF_MAX(contacts->forgotten_heard, heard_at);
}

static struct contact *remove_oldest(struct hf_contacts *contacts)
{
	struct contact *contact = hf_list_entry(hf_list_first(&contacts->by_time), struct contact, link);

	forget(contacts, contact->at, contact->heard_at);
	hf_hashtable_remove(&contacts->by_addr, &contact->node);
	hf_link_remove(&contact->link);
	return contact;
}

static struct contact *add(struct hf_contacts *contacts, const struct hf_addr *addr, uint64_t hash)
{
	bool is_full = contacts->by_addr.n >= contacts->max;
	struct contact *contact = is_full ? remove_oldest(contacts) : malloc(sizeof(*contact));

	contacts->n_forgotten += is_full;
	if (!contact)
		return NULL;
	contact->addr = *addr;
	contact->at = contact->heard_at = 0;
	hf_link_init(&contact->link);
	hf_hashtable_insert(&contacts->by_addr, &contact->node, hash);
	return contact;
}

static uint64_t hash_of(const struct hf_contacts *contacts, const struct hf_addr *host)
{
	return hf_siphash(&contacts->key, host, sizeof(*host));
}

void hf_contacts_note(struct hf_contacts *contacts, const struct hf_addr *addr, uint64_t now,
		      uint64_t heard_at)
{
	struct hf_addr host = *addr;
	struct contact *contact;
	uint64_t hash;

	host.port = 0;
	hash = hash_of(contacts, &host);
	contact = find(contacts, &host, hash);
	if (!contact)
		contact = add(contacts, &host, hash);
	if (!contact) {
		forget(contacts, now, heard_at);
		return;
	}
	contact->at = HF_MAX(contact->at, now); /* the clocks of two loops differ a little */
	contact->heard_at = HF_MAX(contact->heard_at, heard_at);
	hf_link_remove(&contact->link);
	hf_list_push_back(&contacts->by_time, &contact->link);
}

static const struct contact *find_host(const struct hf_contacts *contacts, const struct hf_addr *addr)
{
	struct hf_addr host = *addr;

	host.port = 0;
	return find(contacts, &host, hash_of(contacts, &host));
}

uint64_t hf_contacts_last(const struct hf_contacts *contacts, const struct hf_addr *addr)
{
	const struct contact *contact = find_host(contacts, addr);

	return contact ? contact->at : contacts->forgotten;
}

uint64_t hf_contacts_heard(const struct hf_contacts *contacts, const struct hf_addr *addr)
{
	const struct contact *contact = find_host(contacts, addr);

	return contact ? contact->heard_at : contacts->forgotten_heard;
}

void hf_contacts_show_limit(const struct hf_contacts *contacts, struct hf_limit_use *use)
{
	*use = (struct hf_limit_use){ .used = contacts->by_addr.n,
				      .max = contacts->max,
				      .refused = contacts->n_forgotten };
}

struct hf_contacts *hf_contacts_free(struct hf_contacts *contacts)
{
	if (!contacts)
		return NULL;
	while (contacts->by_addr.n)
		free(remove_oldest(contacts));
	hf_hashtable_deinit(&contacts->by_addr);
	free(contacts);
	return NULL;
}
