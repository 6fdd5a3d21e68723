#include "proto/nlm/known_handle.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define N_KNOWN 1024 /* a power of two */

int hf_nlm_known_handles_init(struct hf_nlm_known_handles *known)
{
	known->table = calloc(N_KNOWN, sizeof(*known->table));
	return known->table ? 0 : hf_trace(-ENOMEM);
}

void hf_nlm_known_handles_deinit(struct hf_nlm_known_handles *known)
{
	free(known->table);
	known->table = NULL;
}

static struct hf_nlm_known_handle *place_of(const struct hf_nlm_known_handles *known, struct hf_bytes handle)
{
	return &known->table[hf_handle_spread(handle) % N_KNOWN];
}

const struct hf_nlm_known_handle *hf_nlm_find_known_handle(const struct hf_nlm_known_handles *known,
							   struct hf_bytes handle, uint64_t n_exports)
{
	const struct hf_nlm_known_handle *place = place_of(known, handle);

	if (handle.len == 0 || place->len != handle.len || place->n_exports != n_exports ||
	    memcmp(place->handle, handle.data, handle.len) != 0)
		return NULL;
	return place;
}

void hf_nlm_know_handle(struct hf_nlm_known_handles *known, struct hf_bytes handle, uint64_t n_exports,
			uint32_t export, struct hf_bytes key)
{
	struct hf_nlm_known_handle *place = place_of(known, handle);

	assert(handle.len <= HF_HANDLE_MAX &&
	       key.len <= HF_HANDLE_MAX); /* both are of this server's making */
	place->n_exports = n_exports;
	place->export = export;
	place->len = (uint8_t)handle.len;
	place->key_len = (uint8_t)key.len;
	memcpy(place->handle, handle.data, handle.len);
	if (key.len)
		memcpy(place->key, key.data, key.len);
}
