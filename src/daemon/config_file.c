/* Reads the YAML tree of a configuration file into the struct, key by key. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/config_load.h"
#include "daemon/config_value.h"
#include "daemon/config_yaml.h"

struct walk {
	struct hf_config_load *load;
	const struct hf_yaml *yaml;
	const char *file;
	const struct hf_yaml_node *rules; /* of the export that is read; NULL: none yet */
};

/* Where keys are read into: a section, an export or a rule of one */
struct place {
	const char *section;
	void *base;
	bool is_rule;
};

#define complain(w, line_number, ...)                                                              \
	hf_config_complain(&(w)->load->error,                                                      \
			   &(struct hf_config_source){ .file = (w)->file, .line = (line_number) }, \
			   __VA_ARGS__)

static const char *kind_name(const struct hf_yaml_node *node)
{
	if (node->kind == HF_YAML_LIST)
		return "a list";
	if (node->kind == HF_YAML_MAP)
		return "a mapping";
	return "a single value";
}

/* Passes 0 and -errno on; turns a reason into a complaint. */
static int report(struct walk *w, int r, const struct hf_option *option, unsigned int line,
		  const struct hf_config_why *why)
{
	char name[HF_OPTION_NAME_SIZE];

	if (r <= 0)
		return r;
	return complain(w, line, "%s %s", hf_option_name(option, name), why->text);
}

static int walk_list(struct walk *w, const struct hf_option *option, void *field,
		     const struct hf_yaml_node *node)
{
	struct hf_yaml_cursor cursor = hf_yaml_children(w->yaml, node);
	char name[HF_OPTION_NAME_SIZE], expected[HF_OPTION_TEXT_SIZE];
	const struct hf_yaml_node *item;
	struct hf_config_why why;
	int r;

	hf_config_value_clear(field, option);
	while ((item = hf_yaml_next(&cursor))) {
		if (item->kind != HF_YAML_SCALAR)
			return complain(w, item->line, "%s contains %s; give %s",
					hf_option_name(option, name), kind_name(item),
					hf_option_expects(option, expected));
		r = hf_config_value_add(field, option, item->text, &why);
		if (r)
			return report(w, r, option, item->line, &why);
	}
	r = hf_config_value_finish(field, option, &why);
	return report(w, r, option, node->line, &why);
}

static bool is_text(const struct hf_option *option)
{
	return option->type == HF_OPTION_TEXT || option->type == HF_OPTION_PATH;
}

static int walk_scalar(struct walk *w, const struct hf_option *option, void *field,
		       const struct hf_yaml_node *node)
{
	bool needs_plain = option->type == HF_OPTION_NUMBER || option->type == HF_OPTION_BOOL;
	char name[HF_OPTION_NAME_SIZE], expected[HF_OPTION_TEXT_SIZE];
	struct hf_config_why why;
	int r;

	if (needs_plain && !node->is_plain)
		return complain(w, node->line, "%s is a text in quotes; give %s, without quotes",
				hf_option_name(option, name), hf_option_expects(option, expected));
	r = hf_config_value_set(field, option, hf_yaml_is_null(node) ? "" : node->text, &why);
	return report(w, r, option, node->line, &why);
}

static int walk_value(struct walk *w, const struct hf_option *option, void *field,
		      const struct hf_yaml_node *node)
{
	bool is_rules = option->type == HF_OPTION_RULES;
	enum hf_yaml_kind kind = hf_option_is_list(option) || is_rules ? HF_YAML_LIST : HF_YAML_SCALAR;
	char name[HF_OPTION_NAME_SIZE], expected[HF_OPTION_TEXT_SIZE];

	hf_option_name(option, name);
	hf_option_expects(option, expected);
	if (hf_yaml_is_null(node) && !is_text(option))
		return complain(w, node->line, "%s has no value; give %s", name, expected);
	if (node->kind != kind)
		return complain(w, node->line, "%s is %s; give %s", name, kind_name(node), expected);
	if (is_rules) {
		w->rules = node; /* for later: keys of the export that follow are defaults of the rules, too
				  */
		return 0;
	}
	if (kind == HF_YAML_LIST)
		return walk_list(w, option, field, node);
	return walk_scalar(w, option, field, node);
}

/* "name, listen, port" */
static void list_keys(const char *section, char *out, size_t size)
{
	size_t used = 0;

	out[0] = '\0';
	for (size_t i = 0; i < hf_n_options && used < size; i++)
		if (strcmp(hf_options[i].section, section) == 0)
			used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
						 hf_options[i].key);
}

static int unknown_key(struct walk *w, const char *section, const struct hf_yaml_node *key)
{
	struct hf_config_guess guess = { .word = key->text };
	char quoted[HF_CONFIG_QUOTE_SIZE], keys[256];

	hf_config_quote(quoted, sizeof(quoted), key->text);
	for (size_t i = 0; i < hf_n_options; i++)
		if (strcmp(hf_options[i].section, section) == 0)
			hf_config_guess_offer(&guess, hf_options[i].key);
	if (guess.best)
		return complain(w, key->line, "unknown key %s.%s; did you mean %s.%s?", section, quoted,
				section, guess.best);
	for (size_t i = 0; i < hf_n_options; i++)
		if (strcmp(hf_options[i].key, key->text) == 0)
			return complain(w, key->line, "unknown key %s.%s; did you mean %s.%s?", section,
					quoted, hf_options[i].section, quoted);
	list_keys(section, keys, sizeof(keys));
	return complain(w, key->line, "unknown key %s.%s; the keys of %s are %s", section, quoted, section,
			keys);
}

static int check_key(struct walk *w, const struct hf_yaml_node *key)
{
	if (key->kind == HF_YAML_SCALAR)
		return 0;
	return complain(w, key->line, "%s where a key should be; write 'key: value'", kind_name(key));
}

static int not_of_rule(struct walk *w, const struct hf_option *option, unsigned int line)
{
	char name[HF_OPTION_NAME_SIZE];

	return complain(w, line,
			"%s is the same for all clients of an export; move it from the rule to the export",
			hf_option_name(option, name));
}

/* @lines records the line of each key. */
static int walk_keys(struct walk *w, struct place place, const struct hf_yaml_node *node,
		     unsigned int lines[HF_OPTION_MAX])
{
	struct hf_yaml_cursor cursor = hf_yaml_children(w->yaml, node);
	char name[HF_OPTION_NAME_SIZE];
	const struct hf_yaml_node *key, *value;
	int r;

	while ((key = hf_yaml_next(&cursor)) && (value = hf_yaml_next(&cursor))) {
		const struct hf_option *option;
		unsigned int *linep;

		r = check_key(w, key);
		if (r)
			return r;
		option = hf_option_find(place.section, key->text);
		if (!option)
			return unknown_key(w, place.section, key);
		if (place.is_rule && !option->in_rules)
			return not_of_rule(w, option, key->line);
		linep = &lines[hf_option_index(option)];
		if (*linep)
			return complain(w, key->line, "%s is given twice, first in line %u; remove one",
					hf_option_name(option, name), *linep);
		*linep = key->line;
		r = walk_value(w, option,
			       place.is_rule ? hf_config_rule_field(place.base, option)
					     : hf_config_field(place.base, option),
			       value);
		if (r)
			return r;
	}
	return 0;
}

static int walk_section(struct walk *w, const char *section, const struct hf_yaml_node *node)
{
	unsigned int lines[HF_OPTION_MAX] = { 0 };
	int r;

	if (hf_yaml_is_null(node))
		return 0; /* every key below it is commented out */
	if (node->kind != HF_YAML_MAP)
		return complain(w, node->line, "%s is %s; give its keys, indented, on lines below it",
				section, kind_name(node));
	r = walk_keys(w, (struct place){ section, w->load->config, false }, node, lines);
	for (size_t i = 0; i < hf_n_options; i++)
		if (lines[i])
			w->load->sources[i] = (struct hf_config_source){ .file = w->file, .line = lines[i] };
	return r;
}

static int walk_rule(struct walk *w, struct hf_config_export *export, const struct hf_yaml_node *node)
{
	size_t clients = hf_option_index(hf_option_find(HF_OPTION_LIST, "clients"));
	unsigned int lines[HF_OPTION_MAX] = { 0 };
	struct hf_config_rule *rule;
	int r;

	if (node->kind != HF_YAML_MAP)
		return complain(w, node->line, "a rule of an export is %s; start it with '- clients: [...]'",
				hf_yaml_is_null(node) ? "empty" : kind_name(node));
	if (export->rules.n == HF_CONFIG_MAX_ITEMS)
		return complain(w, node->line, "exports.rules has more than %d entries; give at most that",
				HF_CONFIG_MAX_ITEMS);
	rule = hf_config_add_rule(export);
	if (!rule)
		return -ENOMEM;
	r = walk_keys(w, (struct place){ HF_OPTION_LIST, rule, true }, node, lines);
	if (r == 0 && !lines[clients])
		return complain(w, node->line,
				"a rule without clients; give it some, like 'clients: [192.0.2.0/24]'");
	return r;
}

static int walk_rules(struct walk *w, struct hf_config_export *export, unsigned int clients_line)
{
	struct hf_yaml_cursor cursor = hf_yaml_children(w->yaml, w->rules);
	const struct hf_yaml_node *node;
	int r;

	while ((node = hf_yaml_next(&cursor))) {
		if (clients_line)
			return complain(w, clients_line,
					"exports.clients is given, and exports.rules, too; put these clients "
					"into a rule");
		r = walk_rule(w, export, node);
		if (r)
			return r;
	}
	return 0;
}

static int walk_export(struct walk *w, const struct hf_yaml_node *node)
{
	struct hf_config_source source = { .file = w->file, .line = node->line };
	const unsigned int *lines;
	struct hf_config_export *export;
	int r;

	if (node->kind != HF_YAML_MAP)
		return complain(w, node->line, "an export is %s; start it with '- path: /srv/data'",
				hf_yaml_is_null(node) ? "empty" : kind_name(node));
	r = hf_config_add_export(w->load, &source, &export);
	if (r)
		return r;
	w->rules = NULL;
	r = walk_keys(w, (struct place){ HF_OPTION_LIST, export, false }, node,
		      w->load->exports[w->load->config->exports.n - 1].lines);
	lines = w->load->exports[w->load->config->exports.n - 1].lines;
	if (r == 0 && w->rules)
		r = walk_rules(w, export, lines[hf_option_index(hf_option_find(HF_OPTION_LIST, "clients"))]);
	if (r)
		return r;
	if (*export->path == '\0')
		return complain(w, node->line,
				"an export without a path; give it one, like 'path: /srv/data'");
	return 0;
}

static int walk_exports(struct walk *w, const struct hf_yaml_node *node)
{
	struct hf_yaml_cursor cursor = hf_yaml_children(w->yaml, node);
	const struct hf_yaml_node *item;
	int r;

	if (hf_yaml_is_null(node))
		return 0;
	if (node->kind != HF_YAML_LIST)
		return complain(w, node->line,
				"exports is %s; give a list, each entry starting with '- path: /srv/data'",
				kind_name(node));
	while ((item = hf_yaml_next(&cursor))) {
		r = walk_export(w, item);
		if (r)
			return r;
	}
	return 0;
}

static void list_sections(char *out, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < hf_n_option_sections && used < size; i++) {
		const char *join = i == 0 ? "" : i + 1 < hf_n_option_sections ? ", " : " and ";

		used += (size_t)snprintf(out + used, size - used, "%s%s", join, hf_option_sections[i].name);
	}
}

static int unknown_section(struct walk *w, const struct hf_yaml_node *key)
{
	const struct hf_option *option = hf_option_find_by_name(key->text);
	struct hf_config_guess guess = { .word = key->text };
	char quoted[HF_CONFIG_QUOTE_SIZE], names[256];

	hf_config_quote(quoted, sizeof(quoted), key->text);
	for (size_t i = 0; !option && i < hf_n_options; i++)
		if (strcmp(hf_options[i].key, key->text) == 0)
			option = &hf_options[i];
	if (option)
		return complain(w, key->line,
				"unknown key %s; write '%s:', and '  %s: ...' on a line below it", quoted,
				option->section, option->key);
	for (size_t i = 0; i < hf_n_option_sections; i++)
		hf_config_guess_offer(&guess, hf_option_sections[i].name);
	if (guess.best)
		return complain(w, key->line, "unknown key %s; did you mean %s?", quoted, guess.best);
	list_sections(names, sizeof(names));
	return complain(w, key->line, "unknown key %s; the keys are %s", quoted, names);
}

static size_t section_index(const char *name)
{
	size_t i = 0;

	while (strcmp(hf_option_sections[i].name, name) != 0)
		i++;
	return i;
}

static int walk_root(struct walk *w, const struct hf_yaml_node *root)
{
	struct hf_yaml_cursor cursor = hf_yaml_children(w->yaml, root);
	unsigned int lines[HF_OPTION_MAX] = { 0 }; /* of the sections */
	const struct hf_yaml_node *key, *value;
	int r;

	while ((key = hf_yaml_next(&cursor)) && (value = hf_yaml_next(&cursor))) {
		unsigned int *linep;

		r = check_key(w, key);
		if (r)
			return r;
		if (!hf_option_is_section(key->text))
			return unknown_section(w, key);
		linep = &lines[section_index(key->text)];
		if (*linep)
			return complain(w, key->line, "%s is given twice, first in line %u; merge the two",
					key->text, *linep);
		*linep = key->line;
		if (strcmp(key->text, HF_OPTION_LIST) == 0)
			r = walk_exports(w, value);
		else
			r = walk_section(w, key->text, value);
		if (r)
			return r;
	}
	return 0;
}

static unsigned int count_lines(const char *text, size_t len)
{
	unsigned int n = 1;

	for (size_t i = 0; i < len; i++)
		n += text[i] == '\n';
	return n;
}

int hf_config_read_yaml(struct hf_config_load *load, const char *file, const void *text, size_t len)
{
	hf_cleanup(hf_yaml_deinit) struct hf_yaml yaml = { 0 };
	struct walk w = { load, &yaml, file, NULL };
	const struct hf_yaml_node *root;
	int r;

	if (len > HF_CONFIG_MAX_BYTES)
		return complain(&w, count_lines(text, HF_CONFIG_MAX_BYTES),
				"here the file passes 1 MiB; give a smaller one");
	r = hf_yaml_init(&yaml, file, text, len, &load->error);
	if (r)
		return r;
	root = hf_yaml_root(&yaml);
	if (!root || hf_yaml_is_null(root))
		return 0;
	if (root->kind != HF_YAML_MAP)
		return complain(&w, root->line,
				"%s where a section should be; write 'server:', 'exports:', ...",
				kind_name(root));
	return walk_root(&w, root);
}
