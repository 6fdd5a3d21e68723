/*
 * Shares by number. The lock table knows a share by a small number, a handle by
 * its export's id, the store by the export's name. A number, once given, stays:
 * locks may outlive an export that a reload took away.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

struct hf_share_entry {
	uint64_t export_id;
	char *name;
};

struct hf_share_table {
	struct hf_share_entry *entries; /* the number is the place, from 1 */
	size_t n;
};

void hf_share_table_deinit(struct hf_share_table *table);
int hf_share_table_add(struct hf_share_table *table, uint64_t export_id,
		       const char *name);                                               /* again is fine */
uint32_t hf_share_table_number(const struct hf_share_table *table, uint64_t export_id); /* 0: none */
bool hf_share_table_find(const struct hf_share_table *table, struct hf_bytes name, uint32_t *numberp);
const char *hf_share_table_name(const struct hf_share_table *table, uint32_t number); /* "": none */
