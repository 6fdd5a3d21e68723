/*
 * What a request asks for: the path and the query of its target, decoded. The
 * parser is bounded and refuses everything unusual: NUL bytes, broken escapes,
 * bytes that are not UTF-8, a parameter that comes twice.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HF_API_MAX_TARGET   8192
#define HF_API_MAX_SEGMENTS 8
#define HF_API_MAX_PARAMS   8

struct hf_api_param {
	const char *name;
	const char *value;
};

struct hf_api_target {
	size_t n_segments;
	const char *segments[HF_API_MAX_SEGMENTS]; /* of the path; "/" has none */
	size_t n_params;
	struct hf_api_param params[HF_API_MAX_PARAMS];
	char text[HF_API_MAX_TARGET]; /* the memory that segments and parameters point into */
};

/* NULL, or what is wrong, in words for the caller. */
const char *hf_api_target_parse(struct hf_api_target *target, const char *uri);
/* NULL: not given. */
const char *hf_api_target_param(const struct hf_api_target *target, const char *name);

/* Does the path match a pattern such as "/api/v1/clients/{id}"? Then *idp is the text in place of {…}, or
 * NULL. */
bool hf_api_target_matches(const struct hf_api_target *target, const char *pattern, const char **idp);

/* Accepts only digits. Fails below @min; a number above @max becomes @max. */
bool hf_api_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *valuep);

/* A position in a list, as the caller passes it back: at most HF_API_CURSOR_WORDS numbers as hexadecimal
 * text. */
#define HF_API_CURSOR_WORDS 6
#define HF_API_CURSOR_TEXT  (HF_API_CURSOR_WORDS * 17 + 1)

void hf_api_cursor_format(const uint64_t *words, size_t n, char out[static HF_API_CURSOR_TEXT]);
bool hf_api_cursor_parse(const char *text, uint64_t *words, size_t n);
