/*
 * What a request asks for: the path and the query of its target, decoded. It is
 * bounded, and whatever is not plain is refused: NUL bytes, broken escapes, bytes
 * that are no UTF-8, the same parameter twice.
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
	char text[HF_API_MAX_TARGET]; /* what they point into */
};

/* NULL, or what is wrong with it, in words for the caller. */
const char *hf_api_target_parse(struct hf_api_target *target, const char *uri);
/* NULL: not given. */
const char *hf_api_target_param(const struct hf_api_target *target, const char *name);

/* Does the path match "/api/v1/clients/{id}"? Then *idp is what stands for {…}, or NULL. */
bool hf_api_target_matches(const struct hf_api_target *target, const char *pattern, const char **idp);

/* Digits alone, within min and max; more than max is max. */
bool hf_api_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *valuep);

/* A place in a list, as the caller keeps it: at most HF_API_CURSOR_WORDS numbers as hexadecimal text. */
#define HF_API_CURSOR_WORDS 6
#define HF_API_CURSOR_TEXT  (HF_API_CURSOR_WORDS * 17 + 1)

void hf_api_cursor_format(const uint64_t *words, size_t n, char out[static HF_API_CURSOR_TEXT]);
bool hf_api_cursor_parse(const char *text, uint64_t *words, size_t n);
