/* What libyaml reports about a text that is not YAML, in words for an operator. */
#pragma once

#include <stddef.h>
#include <yaml.h>

#include "daemon/config_error.h"

struct hf_yaml_text {
	const unsigned char *data;
	size_t len;
};

/* 0, or HF_CONFIG_E_WRONG with a complaint about the first byte that is not UTF-8. libyaml would name the
 * byte after it, and would accept a text of 16-bit characters. */
int hf_yaml_check_encoding(const struct hf_yaml_text *text, const char *file, struct hf_config_error *error);

/* Returns HF_CONFIG_E_WRONG with a complaint about the line, or -ENOMEM if libyaml ran out of memory. */
int hf_yaml_complain_of_syntax(const yaml_parser_t *parser, const struct hf_yaml_text *text, const char *file,
			       struct hf_config_error *error);
