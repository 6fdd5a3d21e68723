/*
 * The one table of options. The YAML parser, --set, --print-config and the
 * manual page holdfast.yaml(5) are made from it. It contains only data, so that
 * the program that writes the manual needs nothing else.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hf_option_type {
	HF_OPTION_TEXT,              /* char *; min and max bound its bytes */
	HF_OPTION_PATH,              /* char *; empty (if min is 0) or absolute */
	HF_OPTION_NUMBER,            /* int64_t within min and max */
	HF_OPTION_BOOL,              /* bool */
	HF_OPTION_WORD,              /* an enum whose values are the indexes of words[] */
	HF_OPTION_ADDRESSES,         /* struct hf_config_addresses */
	HF_OPTION_CLIENTS,           /* struct hf_config_clients */
	HF_OPTION_SERVICE_ADDRESSES, /* struct hf_config_service_addresses */
	HF_OPTION_NAMES,             /* struct hf_config_names */
	HF_OPTION_RULES,             /* struct hf_config_rules; each rule has the keys with in_rules */
};

/* Checks of a text beyond its length */
enum hf_option_check {
	HF_OPTION_ANY_TEXT,
	HF_OPTION_HOST_NAME,
	HF_OPTION_ENDPOINT,
	HF_OPTION_EXPORT_NAME,
	HF_OPTION_COMMAND, /* a program by its absolute path, and its arguments */
};

struct hf_option {
	const char *section;
	const char *key;
	enum hf_option_type type;
	enum hf_option_check check;
	const char *preset; /* the default, in the form that --set takes */
	int64_t min;
	int64_t max;
	const char *const *words; /* ends with NULL */
	size_t offset;            /* in struct hf_config; for "exports" in struct hf_config_export */
	bool in_rules;            /* a rule of an export may have it, too */
	size_t rule_offset;       /* in struct hf_config_rule */
	bool is_live;             /* SIGHUP may change it */
	bool has_secrets;         /* a connection string: shown without its passwords */
	const char *help;         /* one sentence */
};

struct hf_option_section {
	const char *name;
	const char *help; /* one sentence */
};

#define HF_OPTION_NAME_SIZE 64        /* room for "section.key" */
#define HF_OPTION_TEXT_SIZE 256       /* room for the description of valid values */
#define HF_OPTION_MAX       64        /* rows, at most */
#define HF_OPTION_LIST      "exports" /* the section that is a list: each entry has its keys */

extern const struct hf_option hf_options[];
extern const size_t hf_n_options;
extern const struct hf_option_section hf_option_sections[];
extern const size_t hf_n_option_sections;

/* Look-up; NULL if there is none */
const struct hf_option *hf_option_find(const char *section, const char *key);
const struct hf_option *hf_option_find_by_name(const char *name); /* "server.port" */
bool hf_option_is_section(const char *name);

/* Questions */
bool hf_option_is_list(const struct hf_option *option);
bool hf_option_is_per_export(const struct hf_option *option);
bool hf_option_in_section(const struct hf_option *option, const struct hf_option_section *section);
size_t hf_option_index(const struct hf_option *option);

/* Text for people; both return @out */
const char *hf_option_name(const struct hf_option *option, char out[HF_OPTION_NAME_SIZE]);
/* The valid values: "a whole number from 0 to 65535", "rw or ro", ... */
const char *hf_option_expects(const struct hf_option *option, char out[HF_OPTION_TEXT_SIZE]);
