#include "proto/portmap/mappings.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define FIRST_CAPACITY 64
#define RESERVED_PORTS 1024
#define NFS_PORT       2049

void hf_mappings_init(struct hf_mappings *mappings)
{
	memset(mappings, 0, sizeof(*mappings));
}

void hf_mappings_deinit(struct hf_mappings *mappings)
{
	free(mappings->all);
	memset(mappings, 0, sizeof(*mappings));
}

static bool is_ours(const struct hf_mappings *mappings, uint32_t program)
{
	for (size_t i = 0; i < mappings->n; i++) {
		if (mappings->all[i].program == program && mappings->all[i].owner == HF_OWNER_US)
			return true;
	}
	return false;
}

/* Counts the mappings in the table: each is counted once when added and once when removed. */
static void count(struct hf_mappings *mappings, enum hf_mapping_owner owner, int change)
{
	if (owner == HF_OWNER_US)
		return;
	mappings->n_foreign += (size_t)change;
	if (owner == HF_OWNER_UNKNOWN)
		mappings->n_unknown += (size_t)change;
}

static int append(struct hf_mappings *mappings, const struct hf_mapping *mapping)
{
	if (mappings->n == mappings->capacity) {
		size_t capacity = mappings->capacity ? mappings->capacity * 2 : FIRST_CAPACITY;
		struct hf_mapping *all = realloc(mappings->all, capacity * sizeof(*all));

		if (!all)
			return hf_trace(-ENOMEM);
		mappings->all = all;
		mappings->capacity = capacity;
	}
	mappings->all[mappings->n++] = *mapping;
	count(mappings, mapping->owner, +1);
	return HF_MAPPINGS_OK;
}

bool hf_mapping_port_is_reserved(uint16_t port)
{
	return port < RESERVED_PORTS || port == NFS_PORT;
}

static bool is_full(const struct hf_mappings *mappings, enum hf_mapping_owner owner)
{
	return (owner == HF_OWNER_UNKNOWN && mappings->n_unknown >= HF_MAPPINGS_MAX_UNKNOWN) ||
	       (owner != HF_OWNER_US && mappings->n_foreign >= HF_MAPPINGS_MAX_FOREIGN);
}

/* The owner of @found registers it again, or another program wants to replace it. */
static int set_again(struct hf_mappings *mappings, struct hf_mapping *found, const struct hf_mapping *mapping)
{
	if (found->owner == HF_OWNER_UNKNOWN && mapping->owner == HF_OWNER_SUPERUSER) {
		count(mappings, found->owner, -1);
		count(mappings, mapping->owner, +1);
		*found = *mapping;
		return HF_MAPPINGS_OK;
	}
	return hf_addr_equal(&found->addr, &mapping->addr) ? HF_MAPPINGS_OK : HF_MAPPINGS_E_TAKEN;
}

int hf_mappings_set(struct hf_mappings *mappings, const struct hf_mapping *mapping)
{
	const struct hf_mapping *found;

	assert(mapping->netid < HF_N_NETIDS && mapping->addr.port != 0);
	if (mapping->owner != HF_OWNER_US && is_ours(mappings, mapping->program))
		return HF_MAPPINGS_E_OURS;
	if (mapping->owner == HF_OWNER_UNKNOWN && hf_mapping_port_is_reserved(mapping->addr.port))
		return HF_MAPPINGS_E_RESERVED;
	found = hf_mappings_find(mappings, mapping->program, mapping->version, mapping->netid);
	if (found)
		return set_again(mappings, &mappings->all[found - mappings->all], mapping);
	if (is_full(mappings, mapping->owner)) {
		if (mappings->n_foreign < HF_MAPPINGS_MAX_FOREIGN)
			mappings->n_refused_unknown++;
		else
			mappings->n_refused++;
		return HF_MAPPINGS_E_LIMIT;
	}
	return append(mappings, mapping);
}

/* The server's own mappings stay. The superuser may remove every other mapping, an unprivileged caller those
 * of unprivileged callers. */
static int may_remove(const struct hf_mapping *mapping, enum hf_mapping_owner owner)
{
	if (mapping->owner == HF_OWNER_US)
		return HF_MAPPINGS_E_OURS;
	if (owner != HF_OWNER_SUPERUSER && owner != mapping->owner)
		return HF_MAPPINGS_E_NOT_YOURS;
	return HF_MAPPINGS_OK;
}

int hf_mappings_unset(struct hf_mappings *mappings, uint32_t program, uint32_t version, unsigned int netids,
		      enum hf_mapping_owner owner)
{
	int answer = HF_MAPPINGS_OK;
	size_t n_left = 0;

	for (size_t i = 0; i < mappings->n; i++) {
		const struct hf_mapping *mapping = &mappings->all[i];

		if (mapping->program == program && mapping->version == version &&
		    (netids & HF_NETID_BIT(mapping->netid))) {
			int r = may_remove(mapping, owner);

			if (r == HF_MAPPINGS_OK) {
				count(mappings, mapping->owner, -1);
				continue;
			}
			answer = r;
		}
		mappings->all[n_left++] = *mapping;
	}
	mappings->n = n_left;
	return answer;
}

const struct hf_mapping *hf_mappings_find(const struct hf_mappings *mappings, uint32_t program,
					  uint32_t version, enum hf_netid netid)
{
	const struct hf_mapping *found = hf_mappings_find_any_version(mappings, program, version, netid);

	return found && found->version == version ? found : NULL;
}

const struct hf_mapping *hf_mappings_find_any_version(const struct hf_mappings *mappings, uint32_t program,
						      uint32_t version, enum hf_netid netid)
{
	const struct hf_mapping *other = NULL;

	for (size_t i = 0; i < mappings->n; i++) {
		const struct hf_mapping *mapping = &mappings->all[i];

		if (mapping->program != program || mapping->netid != netid)
			continue;
		if (mapping->version == version)
			return mapping;
		other = mapping; /* rpcbind also returns the last one: mostly the newest version */
	}
	return other;
}

const char *hf_mapping_owner_name(enum hf_mapping_owner owner)
{
	static const char *const names[] = {
		[HF_OWNER_US] = "holdfast",
		[HF_OWNER_SUPERUSER] = "superuser",
		[HF_OWNER_UNKNOWN] = "unknown",
	};

	return names[owner];
}
