/*
 * Shares by number. The lock table knows a share by a small number, a handle by
 * its export's id, the store by the export's name. A number, once given, stays:
 * locks may outlive an export that a reload took away.
 *
 * A file may be in several shares: one directory under two names, one within the
 * other, two with a hard link between. It is one file for the lock table if they
 * are on one file system; so all shares there have one home, the first of them,
 * and a file is known by its handle in that one. A home stays as long as we run,
 * whatever a reload takes away. It is nowhere stored.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/bytes.h"
#include "export/export.h"

struct hf_share_entry {
	uint64_t export_id;
	uint64_t home;                   /* the id of an export */
	dev_t device;                    /* of the file system; 0: not shared yet */
	enum hf_local_locks local_locks; /* OFF, or as it was set */
	bool is_secure;                  /* as it was shared last */
	char *name;
};

struct hf_share_table {
	struct hf_share_entry *entries; /* the number is the place, from 1 */
	size_t n;
};

void hf_share_table_deinit(struct hf_share_table *table);
/* It has a number from now on; again is fine. Nothing else changes, for it may not be shared after all. */
int hf_share_table_add(struct hf_share_table *table, const struct hf_export *export);
/* It is shared, as it is now. */
void hf_share_table_note(struct hf_share_table *table, const struct hf_export *export);
uint32_t hf_share_table_number(const struct hf_share_table *table, uint64_t export_id); /* 0: none */
bool hf_share_table_find(const struct hf_share_table *table, struct hf_bytes name, uint32_t *numberp);
const char *hf_share_table_name(const struct hf_share_table *table, uint32_t number); /* "": none */
const struct hf_share_entry *hf_share_table_at(const struct hf_share_table *table,
					       uint32_t number);         /* or NULL */
bool hf_share_table_has_local_locks(const struct hf_share_table *table); /* in any of them */
