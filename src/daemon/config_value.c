#include "daemon/config_value.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "daemon/config.h"
#include "daemon/config_endpoint.h"
#include "daemon/config_error.h"
#include "export/client_names.h"
#include "tls/tls.h"

/* Words are stored through an int pointer. */
static_assert(sizeof(enum hf_config_portmap) == sizeof(int), "enums are as wide as int");

static HF_PRINTF(2, 3) int wrong(struct hf_config_why *why, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why->text, sizeof(why->text), format, args);
	va_end(args);
	return HF_CONFIG_E_WRONG;
}

/* "is 'x'; give ..." for an invalid value */
static int wrong_value(struct hf_config_why *why, const struct hf_option *option, const char *text)
{
	char quoted[HF_CONFIG_QUOTE_SIZE], expected[HF_OPTION_TEXT_SIZE];

	if (*text == '\0')
		return wrong(why, "is empty; give %s", hf_option_expects(option, expected));
	return wrong(why, "is '%s'; give %s", hf_config_quote(quoted, sizeof(quoted), text),
		     hf_option_expects(option, expected));
}

/* Accepts only decimal digits. A leading zero is refused: some programs read it as octal, others do not. */
static bool parse_number(int64_t *numberp, const char *text)
{
	const char *digits = text + (*text == '-');
	char *end;
	long long number;

	if (!isdigit((unsigned char)digits[0]) || (digits[0] == '0' && (digits[1] || *text == '-')))
		return false;
	errno = 0;
	number = strtoll(text, &end, 10);
	if (*end || errno)
		return false;
	*numberp = number;
	return true;
}

static int set_number(int64_t *field, const struct hf_option *option, const char *text,
		      struct hf_config_why *why)
{
	int64_t number;

	if (!parse_number(&number, text) || number < option->min || number > option->max)
		return wrong_value(why, option, text);
	*field = number;
	return 0;
}

static int set_bool(bool *field, const struct hf_option *option, const char *text, struct hf_config_why *why)
{
	static const char *const yes[] = { "true", "yes", "on" };
	static const char *const no[] = { "false", "no", "off" };

	for (size_t i = 0; i < HF_ARRAY_SIZE(yes); i++) {
		if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
			*field = strcasecmp(text, yes[i]) == 0;
			return 0;
		}
	}
	return wrong_value(why, option, text);
}

static int set_word(int *field, const struct hf_option *option, const char *text, struct hf_config_why *why)
{
	struct hf_config_guess guess = { .word = text };
	size_t used;

	for (int i = 0; option->words[i]; i++) {
		if (strcmp(option->words[i], text) == 0) {
			*field = i;
			return 0;
		}
		hf_config_guess_offer(&guess, option->words[i]);
	}
	wrong_value(why, option, text);
	used = strlen(why->text);
	if (guess.best)
		snprintf(why->text + used, sizeof(why->text) - used, " (did you mean %s?)", guess.best);
	return HF_CONFIG_E_WRONG;
}

static int check_text(const struct hf_option *option, const char *text, struct hf_config_why *why)
{
	struct hf_endpoint endpoint;
	size_t len = strlen(text);

	if (len > (size_t)option->max)
		return wrong(why, "is %zu bytes long; give at most %" PRId64, len, option->max);
	if (len < (size_t)option->min)
		return wrong_value(why, option, text);
	if (!hf_config_check_text(text, why))
		return HF_CONFIG_E_WRONG;
	if (len == 0)
		return 0;
	if (option->type == HF_OPTION_PATH || option->check == HF_OPTION_EXPORT_NAME)
		return hf_config_check_path(text, why) ? 0 : HF_CONFIG_E_WRONG;
	if (option->check == HF_OPTION_HOST_NAME)
		return hf_config_check_host_name(text, why) ? 0 : HF_CONFIG_E_WRONG;
	if (option->check == HF_OPTION_COMMAND && *text != '/')
		return wrong_value(why, option, text);
	if (option->check == HF_OPTION_ENDPOINT && !hf_endpoint_parse(&endpoint, text))
		return wrong_value(why, option, text);
	return 0;
}

static int set_text(char **field, const struct hf_option *option, const char *text, struct hf_config_why *why)
{
	char *copy;
	int r;

	r = check_text(option, text, why);
	if (r)
		return r;
	copy = strdup(text);
	if (!copy)
		return -ENOMEM;
	if (option->type == HF_OPTION_PATH || option->check == HF_OPTION_EXPORT_NAME)
		hf_config_trim_slashes(copy);
	free(*field);
	*field = copy;
	return 0;
}

int hf_config_value_set(void *field, const struct hf_option *option, const char *text,
			struct hf_config_why *why)
{
	switch (option->type) {
	case HF_OPTION_TEXT:
	case HF_OPTION_PATH:
		return set_text(field, option, text, why);
	case HF_OPTION_NUMBER:
		return set_number(field, option, text, why);
	case HF_OPTION_BOOL:
		return set_bool(field, option, text, why);
	case HF_OPTION_WORD:
		return set_word(field, option, text, why);
	case HF_OPTION_ADDRESSES:
	case HF_OPTION_CLIENTS:
	case HF_OPTION_SERVICE_ADDRESSES:
	case HF_OPTION_NAMES:
		break;
	case HF_OPTION_RULES:
		if (strcmp(text, "[]") == 0)
			return 0;
		return wrong_value(why, option, text);
	}
	assert(!"a list is read with hf_config_value_add()");
	return -EINVAL;
}

/* The items with one more, whose first member is a copy of @text; NULL: no memory, nothing has changed. */
static void *append(void *items, size_t n, const void *item, size_t size, const char *text)
{
	char *copy = strdup(text);
	uint8_t *more = copy ? reallocarray(items, n + 1, size) : NULL;

	if (!more) {
		free(copy);
		return NULL;
	}
	memcpy(more + n * size, item, size);
	memcpy(more + n * size, &copy, sizeof(copy));
	return more;
}

static int add_address(struct hf_config_addresses *list, const char *text, struct hf_config_why *why)
{
	struct hf_config_address address = { 0 }, *items;
	char quoted[HF_CONFIG_QUOTE_SIZE];

	hf_config_quote(quoted, sizeof(quoted), text);
	if (!hf_addr_parse(&address.addr, text))
		return wrong(
			why,
			"contains '%s', which is not an address of this host; give addresses without port, "
			"like 0.0.0.0 or ::1",
			quoted);
	for (size_t i = 0; i < list->n; i++) {
		const struct hf_config_address *other = &list->items[i];

		if (hf_addr_same_host(&other->addr, &address.addr))
			return wrong(why, "contains '%s' twice; give each address once", quoted);
		if (other->addr.family == address.addr.family &&
		    (hf_addr_is_any(&other->addr) || hf_addr_is_any(&address.addr)))
			return wrong(why, "contains '%s' beside '%s', one of which means all; give either",
				     quoted, other->text);
	}
	items = append(list->items, list->n, &address, sizeof(address), text);
	if (!items)
		return -ENOMEM;
	list->items = items;
	list->n++;
	return 0;
}

/* The word that @text is but for case: names of hosts do not differ by it. NULL: none */
static const char *find_word(const char *text)
{
	if (strcasecmp(text, "any") == 0)
		return "any";
	return strcasecmp(text, "private") == 0 ? "private" : NULL;
}

/* Every other name may be that of a host, however near it is to a word: amy, pirate. */
static bool parse_name(struct hf_config_client *client, const char *text)
{
	client->kind = hf_client_name_is_pattern(text) ? HF_CONFIG_CLIENT_DOMAIN : HF_CONFIG_CLIENT_HOST;
	return hf_client_name_is_valid(text) && !find_word(text);
}

static bool parse_client(struct hf_config_client *client, const char *text)
{
	if (strcmp(text, "any") == 0)
		client->kind = HF_CONFIG_CLIENT_ANY;
	else if (strcmp(text, "private") == 0)
		client->kind = HF_CONFIG_CLIENT_PRIVATE;
	else if (!hf_network_parse(&client->network, text))
		return parse_name(client, text);
	return true;
}

static int wrong_client(struct hf_config_why *why, const char *text)
{
	const char *word = strcmp(text, "*") == 0 ? "any" : find_word(text);
	struct hf_config_guess guess = { .word = word ? word : text };
	char quoted[HF_CONFIG_QUOTE_SIZE];

	if (*text == '@')
		return wrong(why,
			     "contains '%s', and netgroups are not supported; list the hosts that 'getent "
			     "netgroup "
			     "%s' shows, or a network or domain that they are in",
			     hf_config_quote(quoted, sizeof(quoted), text), quoted + 1);
	hf_config_guess_offer(&guess, "private");
	hf_config_guess_offer(&guess, "any");
	return wrong(why,
		     "contains '%s'; give addresses, networks like 10.0.0.0/8, host names, domains like "
		     "*.example.org, private or any%s%s%s",
		     hf_config_quote(quoted, sizeof(quoted), text), guess.best ? " (did you mean " : "",
		     guess.best ? guess.best : "", guess.best ? "?)" : "");
}

static int add_client(struct hf_config_clients *list, const char *text, struct hf_config_why *why)
{
	struct hf_config_client client = { 0 }, *items;

	if (!parse_client(&client, text))
		return wrong_client(why, text);
	items = append(list->items, list->n, &client, sizeof(client), text);
	if (!items)
		return -ENOMEM;
	list->items = items;
	list->n++;
	return 0;
}

static int add_service_address(struct hf_config_service_addresses *list, const char *text,
			       struct hf_config_why *why)
{
	struct hf_config_service_address address = { 0 }, *items;
	char quoted[HF_CONFIG_QUOTE_SIZE];
	int r;

	hf_config_quote(quoted, sizeof(quoted), text);
	r = hf_service_address_parse(&address.address, text);
	if (r)
		return wrong(why, "contains '%s', which %s", quoted, hf_service_address_explain(r));
	for (size_t i = 0; i < list->n; i++)
		if (hf_addr_same_host(&list->items[i].address.addr, &address.address.addr))
			return wrong(why, "contains '%s' beside '%s'; give each address once", quoted,
				     list->items[i].text);
	items = append(list->items, list->n, &address, sizeof(address), text);
	if (!items)
		return -ENOMEM;
	list->items = items;
	list->n++;
	return 0;
}

static bool is_visible(const char *text)
{
	for (; *text; text++)
		if (*text <= ' ' || *text > '~')
			return false;
	return true;
}

static int add_name(struct hf_config_names *list, const char *text, struct hf_config_why *why)
{
	struct hf_config_name name = { 0 }, *items;
	char quoted[HF_CONFIG_QUOTE_SIZE];

	hf_config_quote(quoted, sizeof(quoted), text);
	if (*text == '\0' || strlen(text) > HF_TLS_MAX_NAME || !is_visible(text))
		return wrong(why,
			     "contains '%s', which is no name of a certificate; give names like "
			     "client1.example.com, of at most %d visible characters",
			     quoted, HF_TLS_MAX_NAME);
	for (size_t i = 0; i < list->n; i++)
		if (strcasecmp(list->items[i].text, text) == 0)
			return wrong(why, "contains '%s' twice; give each name once", quoted);
	items = append(list->items, list->n, &name, sizeof(name), text);
	if (!items)
		return -ENOMEM;
	list->items = items;
	list->n++;
	return 0;
}

static size_t list_length(const void *field, const struct hf_option *option)
{
	if (option->type == HF_OPTION_ADDRESSES)
		return ((const struct hf_config_addresses *)field)->n;
	if (option->type == HF_OPTION_SERVICE_ADDRESSES)
		return ((const struct hf_config_service_addresses *)field)->n;
	if (option->type == HF_OPTION_NAMES)
		return ((const struct hf_config_names *)field)->n;
	return ((const struct hf_config_clients *)field)->n;
}

static const char *list_text(const void *field, const struct hf_option *option, size_t i)
{
	if (option->type == HF_OPTION_ADDRESSES)
		return ((const struct hf_config_addresses *)field)->items[i].text;
	if (option->type == HF_OPTION_SERVICE_ADDRESSES)
		return ((const struct hf_config_service_addresses *)field)->items[i].text;
	if (option->type == HF_OPTION_NAMES)
		return ((const struct hf_config_names *)field)->items[i].text;
	return ((const struct hf_config_clients *)field)->items[i].text;
}

int hf_config_value_add(void *field, const struct hf_option *option, const char *text,
			struct hf_config_why *why)
{
	assert(hf_option_is_list(option));
	if (list_length(field, option) >= (size_t)option->max)
		return wrong(why, "has more than %" PRId64 " entries; give at most that", option->max);
	if (!hf_config_check_text(text, why))
		return HF_CONFIG_E_WRONG;
	if (option->type == HF_OPTION_ADDRESSES)
		return add_address(field, text, why);
	if (option->type == HF_OPTION_SERVICE_ADDRESSES)
		return add_service_address(field, text, why);
	if (option->type == HF_OPTION_NAMES)
		return add_name(field, text, why);
	return add_client(field, text, why);
}

int hf_config_value_finish(const void *field, const struct hf_option *option, struct hf_config_why *why)
{
	char expected[HF_OPTION_TEXT_SIZE];

	if (list_length(field, option) >= (size_t)option->min)
		return 0;
	return wrong(why, "is an empty list; give %s", hf_option_expects(option, expected));
}

/* Removes the brackets of "[a, b]". */
static void strip_brackets(char *text)
{
	size_t len = strlen(text);

	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		text[len - 1] = '\0';
		memmove(text, text + 1, len - 1);
	}
}

/* The next entry of "a, b" without surrounding blanks and quotes; NULL at the end. */
static char *next_entry(char **rest)
{
	char *entry = strsep(rest, ",");
	size_t len;

	if (!entry)
		return NULL;
	entry += strspn(entry, " \t\"'");
	for (len = strlen(entry); len && strchr(" \t\"'", entry[len - 1]); len--)
		;
	entry[len] = '\0';
	return entry;
}

static int read_list(void *field, const struct hf_option *option, const char *text, struct hf_config_why *why)
{
	hf_cleanup(hf_freep) char *copy = strdup(text);
	char *rest = copy, *entry;
	int r;

	if (!copy)
		return -ENOMEM;
	strip_brackets(copy);
	hf_config_value_clear(field, option);
	while (*copy && (entry = next_entry(&rest))) {
		r = hf_config_value_add(field, option, entry, why);
		if (r)
			return r;
	}
	return hf_config_value_finish(field, option, why);
}

int hf_config_value_read(void *field, const struct hf_option *option, const char *text,
			 struct hf_config_why *why)
{
	if (hf_option_is_list(option))
		return read_list(field, option, text, why);
	return hf_config_value_set(field, option, text, why);
}

static bool lists_equal(const void *a, const void *b, const struct hf_option *option)
{
	size_t n = list_length(a, option);

	if (n != list_length(b, option))
		return false;
	for (size_t i = 0; i < n; i++)
		if (strcmp(list_text(a, option, i), list_text(b, option, i)) != 0)
			return false;
	return true;
}

static bool rules_equal(const struct hf_config_rules *a, const struct hf_config_rules *b)
{
	bool are_equal = a->n == b->n;

	for (size_t i = 0; i < a->n && are_equal; i++)
		for (size_t j = 0; j < hf_n_options && are_equal; j++)
			if (hf_options[j].in_rules)
				are_equal = hf_config_value_equal(hf_config_rule_field_const(&a->items[i],
											     &hf_options[j]),
								  hf_config_rule_field_const(&b->items[i],
											     &hf_options[j]),
								  &hf_options[j]);
	return are_equal;
}

bool hf_config_value_equal(const void *a, const void *b, const struct hf_option *option)
{
	switch (option->type) {
	case HF_OPTION_TEXT:
	case HF_OPTION_PATH:
		return strcmp(*(char *const *)a, *(char *const *)b) == 0;
	case HF_OPTION_NUMBER:
		return *(const int64_t *)a == *(const int64_t *)b;
	case HF_OPTION_BOOL:
		return *(const bool *)a == *(const bool *)b;
	case HF_OPTION_WORD:
		return *(const int *)a == *(const int *)b;
	case HF_OPTION_ADDRESSES:
	case HF_OPTION_CLIENTS:
	case HF_OPTION_SERVICE_ADDRESSES:
	case HF_OPTION_NAMES:
		return lists_equal(a, b, option);
	case HF_OPTION_RULES:
		return rules_equal(a, b);
	}
	return false;
}

static void print_quoted(const char *text, FILE *out)
{
	putc('"', out);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putc('\\', out);
		putc(*text, out);
	}
	putc('"', out);
}

/* Quote on and off: other YAML readers take them bare as true and false. */
static void print_word(const char *word, FILE *out)
{
	bool looks_bool = strcmp(word, "on") == 0 || strcmp(word, "off") == 0;

	fprintf(out, looks_bool ? "\"%s\"" : "%s", word);
}

static void print_list(const void *field, const struct hf_option *option, FILE *out)
{
	putc('[', out);
	for (size_t i = 0; i < list_length(field, option); i++) {
		fputs(i ? ", " : "", out);
		print_quoted(list_text(field, option, i), out);
	}
	putc(']', out);
}

static void print_rule(const struct hf_config_rule *rule, FILE *out)
{
	const char *lead = "{";

	for (size_t i = 0; i < hf_n_options; i++) {
		if (!hf_options[i].in_rules)
			continue;
		fprintf(out, "%s%s: ", lead, hf_options[i].key);
		hf_config_value_print(hf_config_rule_field_const(rule, &hf_options[i]), &hf_options[i], out);
		lead = ", ";
	}
	putc('}', out);
}

/* A line for each. */
static void print_rules(const struct hf_config_rules *rules, FILE *out)
{
	putc('[', out);
	for (size_t i = 0; i < rules->n; i++) {
		fputs(i ? ",\n      " : "\n      ", out);
		print_rule(&rules->items[i], out);
	}
	putc(']', out);
}

void hf_config_value_print(const void *field, const struct hf_option *option, FILE *out)
{
	switch (option->type) {
	case HF_OPTION_TEXT:
	case HF_OPTION_PATH:
		print_quoted(*(char *const *)field, out);
		break;
	case HF_OPTION_NUMBER:
		fprintf(out, "%" PRId64, *(const int64_t *)field);
		break;
	case HF_OPTION_BOOL:
		fputs(*(const bool *)field ? "true" : "false", out);
		break;
	case HF_OPTION_WORD:
		print_word(option->words[*(const int *)field], out);
		break;
	case HF_OPTION_ADDRESSES:
	case HF_OPTION_CLIENTS:
	case HF_OPTION_SERVICE_ADDRESSES:
	case HF_OPTION_NAMES:
		print_list(field, option, out);
		break;
	case HF_OPTION_RULES:
		print_rules(field, out);
		break;
	}
}

static void clear_addresses(struct hf_config_addresses *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->items[i].text);
	free(list->items);
	*list = (struct hf_config_addresses){ 0 };
}

static void clear_clients(struct hf_config_clients *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->items[i].text);
	free(list->items);
	*list = (struct hf_config_clients){ 0 };
}

static void clear_service_addresses(struct hf_config_service_addresses *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->items[i].text);
	free(list->items);
	*list = (struct hf_config_service_addresses){ 0 };
}

static void clear_names(struct hf_config_names *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->items[i].text);
	free(list->items);
	*list = (struct hf_config_names){ 0 };
}

struct hf_config_rule *hf_config_add_rule(struct hf_config_export *export)
{
	struct hf_config_rules *rules = &export->rules;
	struct hf_config_rule *items = reallocarray(rules->items, rules->n + 1, sizeof(*items));

	if (!items)
		return NULL;
	rules->items = items;
	items[rules->n] = hf_config_own_rule(export);
	items[rules->n].clients = (struct hf_config_clients){ 0 };
	return &items[rules->n++];
}

static void clear_rules(struct hf_config_rules *rules)
{
	for (size_t i = 0; i < rules->n; i++)
		clear_clients(&rules->items[i].clients);
	free(rules->items);
	*rules = (struct hf_config_rules){ 0 };
}

void hf_config_value_clear(void *field, const struct hf_option *option)
{
	switch (option->type) {
	case HF_OPTION_TEXT:
	case HF_OPTION_PATH:
		free(*(char **)field);
		*(char **)field = NULL;
		break;
	case HF_OPTION_ADDRESSES:
		clear_addresses(field);
		break;
	case HF_OPTION_CLIENTS:
		clear_clients(field);
		break;
	case HF_OPTION_SERVICE_ADDRESSES:
		clear_service_addresses(field);
		break;
	case HF_OPTION_NAMES:
		clear_names(field);
		break;
	case HF_OPTION_RULES:
		clear_rules(field);
		break;
	case HF_OPTION_NUMBER:
	case HF_OPTION_BOOL:
	case HF_OPTION_WORD:
		break;
	}
}
