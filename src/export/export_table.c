#include "export/export_table.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void hf_export_table_deinit(struct hf_export_table *table)
{
	for (size_t i = 0; i < table->n; i++)
		free(table->entries[i].name);
	free(table->entries);
	*table = (struct hf_export_table){ 0 };
}

static uint64_t home_on(const struct hf_export_table *table, dev_t device, uint64_t otherwise)
{
	for (size_t i = 0; i < table->n; i++)
		if (table->entries[i].device == device)
			return table->entries[i].home;
	return otherwise;
}

int hf_export_table_add(struct hf_export_table *table, const struct hf_export *export)
{
	struct hf_export_entry *entries;
	char *copy;

	if (hf_export_table_number(table, export->id))
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

void hf_export_table_note(struct hf_export_table *table, const struct hf_export *export)
{
	uint32_t number = hf_export_table_number(table, export->id);
	dev_t device = export->volume->root_stat.st_dev;
	struct hf_export_entry *entry;

	assert(number);
	entry = &table->entries[number - 1];
	if (entry->device != device) {
		entry->home = home_on(table, device, entry->export_id);
		entry->device = device;
	}
	entry->local_locks = hf_export_local_locks(export);
	entry->transport = export->settings.transport;
	entry->is_secure = false;
	for (size_t i = 0; i < export->settings.n_rules; i++)
		entry->is_secure |= export->settings.rules[i].secure;
}

uint32_t hf_export_table_number(const struct hf_export_table *table, uint64_t export_id)
{
	for (size_t i = 0; i < table->n; i++)
		if (table->entries[i].export_id == export_id)
			return (uint32_t)(i + 1);
	return 0;
}

bool hf_export_table_find(const struct hf_export_table *table, struct hf_bytes name, uint32_t *numberp)
{
	for (size_t i = 0; i < table->n; i++)
		if (hf_bytes_equal(hf_bytes_of_str(table->entries[i].name), name)) {
			*numberp = (uint32_t)(i + 1);
			return true;
		}
	return false;
}

const char *hf_export_table_name(const struct hf_export_table *table, uint32_t number)
{
	const struct hf_export_entry *entry = hf_export_table_at(table, number);

	return entry ? entry->name : "";
}

const struct hf_export_entry *hf_export_table_at(const struct hf_export_table *table, uint32_t number)
{
	return number >= 1 && number <= table->n ? &table->entries[number - 1] : NULL;
}

bool hf_export_table_demands_tls(const struct hf_export_table *table)
{
	for (size_t i = 0; i < table->n; i++)
		if (table->entries[i].transport != HF_TRANSPORT_ANY)
			return true;
	return false;
}

bool hf_export_table_has_local_locks(const struct hf_export_table *table)
{
	for (size_t i = 0; i < table->n; i++)
		if (table->entries[i].local_locks != HF_LOCAL_LOCKS_OFF)
			return true;
	return false;
}
