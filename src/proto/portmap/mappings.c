#include "proto/portmap/mappings.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define FIRST_CAPACITY 64

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
	if (mapping->owner != HF_OWNER_US)
		mappings->n_foreign++;
	return HF_MAPPINGS_OK;
}

int hf_mappings_set(struct hf_mappings *mappings, const struct hf_mapping *mapping)
{
	bool is_foreign = mapping->owner != HF_OWNER_US;
	const struct hf_mapping *found;

	assert(mapping->netid < HF_N_NETIDS && mapping->addr.port != 0);
	if (is_foreign && is_ours(mappings, mapping->program))
		return HF_MAPPINGS_E_OURS;
	found = hf_mappings_find(mappings, mapping->program, mapping->version, mapping->netid);
	if (found)
		return hf_addr_equal(&found->addr, &mapping->addr) ? HF_MAPPINGS_OK : HF_MAPPINGS_E_TAKEN;
	if (is_foreign && mappings->n_foreign >= HF_MAPPINGS_MAX_FOREIGN)
		return HF_MAPPINGS_E_LIMIT;
	return append(mappings, mapping);
}

/* Ours stay, whoever asks; the superuser removes all others, and each his own. */
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
	size_t kept = 0;

	for (size_t i = 0; i < mappings->n; i++) {
		const struct hf_mapping *mapping = &mappings->all[i];

		if (mapping->program == program && mapping->version == version &&
		    (netids & HF_NETID_BIT(mapping->netid))) {
			int r = may_remove(mapping, owner);

			if (r == HF_MAPPINGS_OK) {
				mappings->n_foreign--;
				continue;
			}
			answer = r;
		}
		mappings->all[kept++] = *mapping;
	}
	mappings->n = kept;
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
		other = mapping; /* the last one, as rpcbind does: mostly the newest version */
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
