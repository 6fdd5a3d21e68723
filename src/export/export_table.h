/*
 * Exports by number. The lock table knows an export by a small number, a handle
 * contains the export's id, the store has the export's name. A number never
 * changes: locks may outlive an export that a reload removed.
 *
 * A file may be in several exports: one directory under two names, one export
 * inside another, two with a hard link between them. If they are on one file
 * system, the lock table must see one file. All exports of a file system
 * therefore have one home, the first of them, and the lock table knows a file
 * by its handle in the home. A home stays the same while the server runs, also
 * when a reload removes exports. It is not stored.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/bytes.h"
#include "export/export.h"

struct hf_export_entry {
	uint64_t export_id;
	uint64_t home;                   /* id of the home export */
	dev_t device;                    /* of the file system; 0: not exported yet */
	enum hf_local_locks local_locks; /* OFF until it is exported, then as configured */
	enum hf_transport transport;     /* ANY until it is exported, then as configured last */
	bool is_secure;                  /* one of its rules is, in the last configuration that had it */
	char *name;
};

struct hf_export_table {
	struct hf_export_entry *entries; /* the number is the index, from 1 */
	size_t n;
};

void hf_export_table_deinit(struct hf_export_table *table);
/* Gives it a number, if it has none. Nothing else changes, because the caller may still fail to export it. */
int hf_export_table_add(struct hf_export_table *table, const struct hf_export *export);
/* Records the export as it is configured now. */
void hf_export_table_note(struct hf_export_table *table, const struct hf_export *export);
uint32_t hf_export_table_number(const struct hf_export_table *table, uint64_t export_id); /* 0: none */
bool hf_export_table_find(const struct hf_export_table *table, struct hf_bytes name, uint32_t *numberp);
const char *hf_export_table_name(const struct hf_export_table *table, uint32_t number); /* "": none */
const struct hf_export_entry *hf_export_table_at(const struct hf_export_table *table,
						 uint32_t number); /* or NULL */
/* Does any export demand TLS? One that a reload removed counts: there may be locks in it. */
bool hf_export_table_demands_tls(const struct hf_export_table *table);
/* Does any export have local locks? */
bool hf_export_table_has_local_locks(const struct hf_export_table *table);
