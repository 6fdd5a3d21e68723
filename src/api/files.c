#include "api/files.h"

#include <stdio.h>
#include <string.h>

#include "api/internal.h"
#include "base/utf8.h"
#include "export/export.h"
#include "vfs/file.h"

/* JSON is UTF-8; a file name need not be. */
static void replace_non_utf8(char *text)
{
	uint32_t code;
	size_t n;

	for (size_t len = strlen(text); len; text += n, len -= n) {
		n = hf_utf8_decode(text, len, &code);
		if (n == 0) {
			*text = '?';
			n = 1;
		}
	}
}

bool hf_api_file_path(struct hf_exports *exports, struct hf_bytes handle, char *out, size_t size)
{
	hf_cleanup(hf_export_unrefp) struct hf_export *export = NULL;
	hf_cleanup(hf_file_unrefp) struct hf_file *file = NULL;

	if (!exports || hf_exports_resolve(exports, handle, false, &export, &file) != 0)
		return false;
	if (!hf_export_path_of(export, file, true, out, size))
		return false;
	replace_non_utf8(out);
	return true;
}

static const struct hf_api_export_row *row_of(const struct hf_api_export_row *rows, size_t n,
					      const struct hf_export *export)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(rows[i].name, export->settings.name) == 0)
			return &rows[i];
	return NULL;
}

static json_t *export_of_row(const char *name, const char *path, const struct hf_api_export_row *row)
{
	return json_pack("{s:s,s:s?,s:I,s:I,s:I}", "name", name, "path", path, "clients",
			 (json_int_t)(row ? row->n_clients : 0), "locks",
			 (json_int_t)(row ? row->n_locks : 0), "waiters",
			 (json_int_t)(row ? row->n_waiters : 0));
}

static json_t *clients_of(const struct hf_export_rule *rule)
{
	json_t *clients = json_array();

	for (size_t i = 0; i < rule->n_clients; i++)
		json_array_append_new(clients, json_string(rule->clients[i].text));
	return clients;
}

/* Takes @clients. */
static json_t *rule_of(const struct hf_export_rule *rule, json_t *clients)
{
	static const char *const squashes[] = {
		[HF_SQUASH_NONE] = "none",
		[HF_SQUASH_ROOT] = "root",
		[HF_SQUASH_ALL] = "all",
	};

	return json_pack("{s:o,s:s,s:s,s:I,s:I,s:b}", "clients", clients, "access",
			 rule->read_only ? "ro" : "rw", "squash", squashes[rule->squash], "anon_uid",
			 (json_int_t)rule->anon_uid, "anon_gid", (json_int_t)rule->anon_gid, "secure",
			 (int)rule->secure);
}

static json_t *export_of(const struct hf_export *export, const struct hf_api_export_row *row)
{
	json_t *item = export_of_row(export->settings.name, export->settings.path, row);
	json_t *allowed = json_array(), *rules = json_array();
	bool is_read_only = true;

	for (size_t i = 0; i < export->settings.n_rules; i++) {
		const struct hf_export_rule *rule = &export->settings.rules[i];
		json_t *clients = clients_of(rule);

		json_array_extend(allowed, clients);
		json_array_append_new(rules, rule_of(rule, clients));
		is_read_only &= rule->read_only;
	}
	json_object_set_new(item, "allowed", allowed);
	json_object_set_new(item, "access", json_string(is_read_only ? "ro" : "rw"));
	json_object_set_new(item, "rules", rules);
	json_object_set_new(item, "sync", json_boolean(!export->settings.async));
	return item;
}

json_t *hf_api_exports_of(struct hf_exports *exports, const struct hf_api_export_row *rows, size_t n_rows)
{
	struct hf_export_list list = { 0 };
	json_t *items = json_array();

	if (exports && hf_exports_list(exports, &list) < 0)
		list = (struct hf_export_list){ 0 };
	for (size_t i = 0; i < list.n; i++)
		json_array_append_new(items, export_of(list.items[i], row_of(rows, n_rows, list.items[i])));
	for (size_t i = 0; i < n_rows; i++) {
		bool is_export = false;

		for (size_t j = 0; j < list.n; j++)
			is_export |= row_of(&rows[i], 1, list.items[j]) != NULL;
		if (!is_export && (rows[i].n_locks || rows[i].n_waiters || !exports))
			json_array_append_new(items, export_of_row(rows[i].name, NULL, &rows[i]));
	}
	if (list.n)
		hf_export_list_clear(&list);
	return items;
}
