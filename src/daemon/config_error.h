/*
 * One line for the operator: where it is, what is wrong, what would be right.
 * Text from a file or the command line goes through hf_config_quote(), so that
 * it cannot break the line or colour the terminal.
 */
#pragma once

#include <stddef.h>

#include "base/macros.h"

#define HF_CONFIG_QUOTE_SIZE 96 /* enough to recognise a value */

/* Where a value came from: a line of a file, an argument of the command line, or neither (a default). */
struct hf_config_source {
	const char *file;
	unsigned int line; /* 0: the file as a whole */
	const char *flag;  /* "--set", "--export" */
	const char *text;  /* the text after the flag */
};

struct hf_config_error {
	char *out;
	size_t size;
};

/* Each returns HF_CONFIG_E_WRONG for the caller to return. */
int hf_config_complain(struct hf_config_error *error, const struct hf_config_source *source,
		       const char *format, ...) HF_PRINTF(3, 4);

/* "FILE:LINE", "--set KEY=VALUE" or "the defaults"; returns @out. */
const char *hf_config_source_format(const struct hf_config_source *source, char *out, size_t size);

/* Copies @text with everything that is not printable UTF-8 as \xNN; cut with "..." if it does not fit.
 * Returns @out. */
const char *hf_config_quote(char *out, size_t size, const char *text);

/* Finds the known word nearest to a wrong one: offer each candidate, then read best. */
struct hf_config_guess {
	const char *word;
	const char *best; /* NULL: no candidate is near enough to mention */
	size_t distance;
};

void hf_config_guess_offer(struct hf_config_guess *guess, const char *candidate);
