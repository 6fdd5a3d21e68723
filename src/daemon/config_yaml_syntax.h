/* What libyaml says of a text that is no YAML, in words for an operator. */
#pragma once

#include <stddef.h>
#include <yaml.h>

#include "daemon/config_error.h"

struct hf_yaml_text {
	const unsigned char *data;
	size_t len;
};

/* 0, or HF_CONFIG_E_WRONG with a complaint about the first byte that is not UTF-8: libyaml would name the
 * byte after it, and take a text of 16-bit characters for YAML. */
int hf_yaml_check_encoding(const struct hf_yaml_text *text, const char *file, struct hf_config_error *error);

/* Returns HF_CONFIG_E_WRONG with a complaint about the line, or -ENOMEM where that was libyaml's trouble. */
int hf_yaml_complain_of_syntax(const yaml_parser_t *parser, const struct hf_yaml_text *text, const char *file,
			       struct hf_config_error *error);
