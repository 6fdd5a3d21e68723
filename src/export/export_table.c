#include "export/export_table.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

void hf_export_table_deinit(struct hf_export_table *table)
{
	for (size_t i = 0; i < table->n; i++)
		free(table->entries[i].name);
	free(table->entries);
	*table = (struct hf_export_table){ 0 };
}

/* 0: none. */
static uint32_t number_of(const struct hf_export_table *table, uint64_t export_id)
{
	for (size_t i = 0; i < table->n; i++)
		if (table->entries[i].export_id == export_id)
			return (uint32_t)(i + 1);
	return 0;
}

static const struct hf_export_entry *entry_at(const struct hf_export_table *table, uint32_t number)
{
	return number >= 1 && number <= table->n ? &table->entries[number - 1] : NULL;
}

int hf_export_table_add(struct hf_export_table *table, const struct hf_export *export)
{
	struct hf_export_entry *entries;
	char *copy;

	if (number_of(table, export->id))
		return 0;
	entries = realloc(table->entries, (table->n + 1) * sizeof(*entries));
	if (!entries)
		return hf_trace(-ENOMEM);
	table->entries = entries;
	copy = strdup(export->settings.name);
	if (!copy)
		return hf_trace(-ENOMEM);
	entries[table->n++] = (struct hf_export_entry){
		.export_id = export->id,
		.home = export->id,
		.local_locks = HF_LOCAL_LOCKS_OFF,
		.name = copy,
	};
	return 0;
}

/* Homes */

static bool is_of_another(const struct hf_export_table *table, uint64_t home, dev_t device)
{
	for (size_t i = 0; i < table->n; i++) {
		const struct hf_export_entry *entry = &table->entries[i];

		if (entry->home == home && entry->home_device && entry->home_device != device)
			return true;
	}
	return false;
}

/* Two file systems may have files of one handle: one may be a copy of the other. */
static uint64_t new_home(const struct hf_export_table *table, const struct hf_export_entry *entry)
{
	uint64_t home = entry->export_id;

	while (is_of_another(table, home, entry->device))
		home++;
	return home;
}

/* How much speaks for the home of this export as that of its file system. Those that got their homes for this
 * file system have the same one. */
static unsigned int weight_of(const struct hf_export_entry *entry)
{
	bool is_at_home = entry->home_device == entry->device;

	if (entry->is_used)
		return is_at_home ? 3 : 2;
	return is_at_home ? 1 : 0;
}

/* The home of the file system of this export. */
static uint64_t home_for(const struct hf_export_table *table, const struct hf_export_entry *entry)
{
	const struct hf_export_entry *best = NULL;
	unsigned int weight = 0;

	for (size_t i = 0; i < table->n; i++) {
		const struct hf_export_entry *other = &table->entries[i];

		if (other->device == entry->device && weight_of(other) > weight) {
			best = other;
			weight = weight_of(other);
		}
	}
	if (!best || (!best->is_used && is_of_another(table, best->home, entry->device)))
		return new_home(table, entry);
	return best->home;
}

static void warn_of_two_homes(const struct hf_export_entry *entry)
{
	char name[256];

	hf_log_quote(name, sizeof(name), entry->name, strlen(entry->name));
	hf_log_warn(
		"since this reload an export is on the file system of another one, and clients have locks by "
		"both: a lock by one does not exclude a lock by the other, until either has none and the "
		"configuration is loaded again",
		"export=%s", name);
}

static void choose_home(struct hf_export_table *table, struct hf_export_entry *entry)
{
	uint64_t home = home_for(table, entry);

	if (entry->is_used) {
		if (home != entry->home)
			warn_of_two_homes(entry);
		return;
	}
	entry->home = home;
	entry->home_device = entry->device;
}

/* It has moved, or took over the home of one that has. */
static bool is_home_outdated(const struct hf_export_table *table, const struct hf_export_entry *entry)
{
	return entry->home_device &&
	       (entry->home_device != entry->device || is_of_another(table, entry->home, entry->device));
}

static bool is_any_home_outdated(const struct hf_export_table *table)
{
	for (size_t i = 0; i < table->n; i++)
		if (is_home_outdated(table, &table->entries[i]))
			return true;
	return false;
}

static void mark_used(void *context, uint32_t number)
{
	struct hf_export_table *table = context;

	if (entry_at(table, number))
		table->entries[number - 1].is_used = true;
}

/* If no home is outdated, only new exports get one, and what is used need not be known. */
static void choose_homes(struct hf_export_table *table)
{
	for (size_t i = 0; i < table->n; i++)
		table->entries[i].is_used = false;
	if (is_any_home_outdated(table) && table->show_used)
		table->show_used(table->show_used_user, mark_used, table);
	for (size_t i = 0; i < table->n; i++)
		if (table->entries[i].device)
			choose_home(table, &table->entries[i]);
}

static void note(struct hf_export_entry *entry, const struct hf_export *export)
{
	entry->device = export->volume->root_stat.st_dev;
	entry->local_locks = hf_export_local_locks(export);
	entry->transport = export->settings.transport;
	entry->is_secure = false;
	for (size_t i = 0; i < export->settings.n_rules; i++)
		entry->is_secure |= export->settings.rules[i].secure;
}

void hf_export_table_note(struct hf_export_table *table, const struct hf_export_list *exports)
{
	for (size_t i = 0; i < exports->n; i++) {
		uint32_t number = number_of(table, exports->items[i]->id);

		assert(number);
		note(&table->entries[number - 1], exports->items[i]);
	}
	choose_homes(table);
}

bool hf_export_table_has_local_locks(const struct hf_export_table *table)
{
	for (size_t i = 0; i < table->n; i++)
		if (table->entries[i].local_locks != HF_LOCAL_LOCKS_OFF)
			return true;
	return false;
}

/* What locks and their recovery ask */

uint32_t hf_export_table_number(void *user, uint64_t export_id, uint64_t *homep)
{
	const struct hf_export_table *table = user;
	uint32_t number = number_of(table, export_id);

	*homep = number ? table->entries[number - 1].home : export_id;
	return number;
}

uint64_t hf_export_table_id(void *user, uint32_t number)
{
	const struct hf_export_entry *entry = entry_at(user, number);

	return entry ? entry->export_id : 0;
}

uint64_t hf_export_table_home(void *user, uint32_t number)
{
	const struct hf_export_entry *entry = entry_at(user, number);

	return entry ? entry->home : 0;
}

struct hf_bytes hf_export_table_name(void *user, uint32_t number)
{
	const struct hf_export_entry *entry = entry_at(user, number);

	return hf_bytes_of_str(entry ? entry->name : "");
}

bool hf_export_table_find(void *user, struct hf_bytes name, uint32_t *numberp)
{
	const struct hf_export_table *table = user;

	/* One that a reload has added, and could not export, has no files. */
	for (size_t i = 0; i < table->n; i++)
		if (table->entries[i].device &&
		    hf_bytes_equal(hf_bytes_of_str(table->entries[i].name), name)) {
			*numberp = (uint32_t)(i + 1);
			return true;
		}
	return false;
}

bool hf_export_table_is_secure(void *user, uint32_t number)
{
	const struct hf_export_entry *entry = entry_at(user, number);

	return entry && entry->is_secure;
}

enum hf_transport hf_export_table_transport(void *user, uint32_t number)
{
	const struct hf_export_entry *entry = entry_at(user, number);

	return entry ? entry->transport : HF_TRANSPORT_ANY;
}

enum hf_local_locks hf_export_table_local_locks(void *user, uint32_t number)
{
	const struct hf_export_entry *entry = entry_at(user, number);

	return entry ? entry->local_locks : HF_LOCAL_LOCKS_OFF;
}

bool hf_export_table_demands_tls(void *user)
{
	const struct hf_export_table *table = user;

	for (size_t i = 0; i < table->n; i++)
		if (table->entries[i].transport != HF_TRANSPORT_ANY)
			return true;
	return false;
}

bool hf_export_table_has_client(void *user, const struct hf_addr *peer)
{
	const struct hf_export_table *table = user;
	struct hf_export_list list;
	bool has_client = false;

	if (hf_exports_list(table->exports, &list) < 0)
		return false;
	for (size_t i = 0; i < list.n && !has_client; i++) {
		int answer = hf_export_admit(list.items[i], peer, NULL);

		has_client = answer == HF_ADMITTED || answer == HF_REFUSED_PORT;
	}
	hf_export_list_clear(&list);
	return has_client;
}

static struct hf_bytes rehandle(const struct hf_export_table *table, struct hf_bytes handle,
				uint64_t export_id, uint8_t room[HF_LOCK_HANDLE_MAX])
{
	struct hf_handle made;

	if (!hf_exports_rehandle(table->exports, handle, export_id, &made))
		return (struct hf_bytes){ 0 };
	memcpy(room, made.bytes, made.len);
	return hf_bytes_of(room, made.len);
}

struct hf_bytes hf_export_table_key(void *user, uint32_t number, struct hf_bytes handle,
				    uint8_t room[HF_LOCK_HANDLE_MAX])
{
	const struct hf_export_entry *entry = entry_at(user, number);

	return entry ? rehandle(user, handle, entry->home, room) : handle;
}

struct hf_bytes hf_export_table_handle(void *user, uint32_t number, struct hf_bytes key,
				       uint8_t room[HF_LOCK_HANDLE_MAX])
{
	const struct hf_export_entry *entry = entry_at(user, number);

	if (!entry || entry->home == entry->export_id)
		return key;
	return rehandle(user, key, entry->export_id, room);
}
