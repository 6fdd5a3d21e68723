/*
 * Exports by number. The lock table knows an export by a small number, a handle
 * contains the export's id, the store has the export's name. A number never
 * changes: locks may outlive an export that a reload removed.
 *
 * A file may be in several exports: one directory under two names, one export
 * inside another, two with a hard link between them. The lock table must see one
 * file. So all exports of a file system have one *home*, as a rule the first of them,
 * and the lock table knows a file by its handle in the home. A home is not stored.
 *
 * A reload may find the directory of an export on another file system, because a
 * volume was mounted there. Then one of three things happens. A wait, a reservation
 * and a lock that is still to be reclaimed count as locks here.
 *
 *	nothing is locked by the export           it gets the home of its new file system
 *	something is, and nothing by the others   it keeps its home, because calls must find
 *	of its new file system                    those locks; the others get its home
 *	something is locked by both               the file system has two homes until a
 *	                                          reload after either has no locks
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/bytes.h"
#include "export/export.h"
#include "lock/lock.h"

struct hf_export_entry {
	uint64_t export_id;
	uint64_t home;     /* as a rule the id of the first export there */
	dev_t device;      /* its file system at the last reload that had it; 0: not exported yet */
	dev_t home_device; /* the file system for which it has this home; 0: none yet */
	bool is_used;      /* of choose_homes(): it keeps its home */
	enum hf_local_locks local_locks; /* OFF until it is exported, then as configured */
	enum hf_transport transport;     /* ANY until it is exported, then as configured last */
	bool is_secure;                  /* one of its rules is, in the last configuration that had it */
	char *name;
};

struct hf_export_table {
	struct hf_exports *exports; /* their key seals the handles */
	/* Calls @fn with each export by which something is locked, or still to be reclaimed, any number of
	 * times. NULL: there is none. */
	void (*show_used)(void *user, void (*fn)(void *context, uint32_t number), void *context);
	void *show_used_user;
	struct hf_export_entry *entries; /* the number is the index, from 1 */
	size_t n;
};

void hf_export_table_deinit(struct hf_export_table *table);
/* Gives it a number, if it has none. Nothing else changes, because the caller may still fail to export it. */
int hf_export_table_add(struct hf_export_table *table, const struct hf_export *export);
/* Records the exports as they are configured now. */
void hf_export_table_note(struct hf_export_table *table, const struct hf_export_list *exports);
/* Does any export have local locks? */
bool hf_export_table_has_local_locks(const struct hf_export_table *table);

/* What locks and their recovery ask. The parts above take these functions as call-backs, so that a test can
 * replace the table: @user is a struct hf_export_table. */

/* 0: none. *homep is the home of its file system, or @export_id. */
uint32_t hf_export_table_number(void *user, uint64_t export_id, uint64_t *homep);
uint64_t hf_export_table_id(void *user, uint32_t number);          /* 0: none */
uint64_t hf_export_table_home(void *user, uint32_t number);        /* 0: none */
struct hf_bytes hf_export_table_name(void *user, uint32_t number); /* empty: none */
bool hf_export_table_find(void *user, struct hf_bytes name, uint32_t *numberp);
bool hf_export_table_is_secure(void *user, uint32_t number);
enum hf_transport hf_export_table_transport(void *user, uint32_t number);
enum hf_local_locks hf_export_table_local_locks(void *user, uint32_t number);
/* Does any export demand TLS? One that a reload removed counts: there may be locks in it. */
bool hf_export_table_demands_tls(void *user);
/* May this address use any export? */
bool hf_export_table_has_client(void *user, const struct hf_addr *peer);
/* The lock table's key of the file with this handle, and the way back. The result is in @room, or is the
 * argument itself, or is empty if the server's key did not seal the handle. */
struct hf_bytes hf_export_table_key(void *user, uint32_t number, struct hf_bytes handle,
				    uint8_t room[HF_LOCK_HANDLE_MAX]);
struct hf_bytes hf_export_table_handle(void *user, uint32_t number, struct hf_bytes key,
				       uint8_t room[HF_LOCK_HANDLE_MAX]);
