/*
 * One value of the configuration: read, compared, printed and freed by the row
 * of its option. @field points into struct hf_config or hf_config_export at the
 * option's offset.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "daemon/config.h"
#include "daemon/config_text.h"
#include "daemon/options.h"

/* The field of @option in @base, a struct hf_config or, for options of exports, a struct hf_config_export */
static inline void *hf_config_field(void *base, const struct hf_option *option)
{
	return (char *)base + option->offset;
}

static inline const void *hf_config_field_const(const void *base, const struct hf_option *option)
{
	return (const char *)base + option->offset;
}

/* The field of an option with in_rules */
static inline void *hf_config_rule_field(struct hf_config_rule *rule, const struct hf_option *option)
{
	return (char *)rule + option->rule_offset;
}

static inline const void *hf_config_rule_field_const(const struct hf_config_rule *rule,
						     const struct hf_option *option)
{
	return (const char *)rule + option->rule_offset;
}

/* Reading. 0, HF_CONFIG_E_WRONG with a reason to follow the option's name, or -ENOMEM. Replaces the present
 * value. */
int hf_config_value_set(void *field, const struct hf_option *option, const char *text,
			struct hf_config_why *why);
/* The same for a list: clear, add each entry, finish. Finish refuses an empty list. */
int hf_config_value_add(void *field, const struct hf_option *option, const char *text,
			struct hf_config_why *why);
int hf_config_value_finish(const void *field, const struct hf_option *option, struct hf_config_why *why);
/* Reads a value of any type from the text of --set or of a default; a list is "a,b" or "[a, b]". */
int hf_config_value_read(void *field, const struct hf_option *option, const char *text,
			 struct hf_config_why *why);

/* The rest of its life */
bool hf_config_value_equal(const void *a, const void *b, const struct hf_option *option);
void hf_config_value_print(const void *field, const struct hf_option *option, FILE *out); /* as YAML */
void hf_config_value_clear(void *field, const struct hf_option *option);

/* One more rule, without clients, otherwise as its export. NULL: out of memory. */
struct hf_config_rule *hf_config_add_rule(struct hf_config_export *export);
