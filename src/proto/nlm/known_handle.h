/*
 * What handles were found to be: their export, and the lock table's key for the
 * file. To find that out, the server checks the handle's seal and searches the
 * exports; a handle that has the same bytes as a known one needs neither.
 *
 * The memory is a direct-mapped table. It is valid for one list of exports.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "export/export.h"
#include "lock/lock.h"

struct hf_nlm_known_handle {
	uint64_t n_exports; /* hf_exports_count_changes() when it was found */
	uint32_t export;
	uint8_t len;     /* 0: this place is empty */
	uint8_t key_len; /* 0: the key is the handle itself */
	uint8_t handle[HF_HANDLE_MAX];
	uint8_t key[HF_HANDLE_MAX];
};

struct hf_nlm_known_handles {
	struct hf_nlm_known_handle *table;
};

int hf_nlm_known_handles_init(struct hf_nlm_known_handles *known);
void hf_nlm_known_handles_deinit(struct hf_nlm_known_handles *known);

/* NULL: it is not known, or from another list of exports. */
const struct hf_nlm_known_handle *hf_nlm_find_known_handle(const struct hf_nlm_known_handles *known,
							   struct hf_bytes handle, uint64_t n_exports);
/* The handle was checked. A key other than the handle is in @key; empty: the key is the handle itself. */
void hf_nlm_know_handle(struct hf_nlm_known_handles *known, struct hf_bytes handle, uint64_t n_exports,
			uint32_t export, struct hf_bytes key);
