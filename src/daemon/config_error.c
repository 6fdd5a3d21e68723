#include "daemon/config_error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "daemon/config.h"
#include "daemon/config_text.h"

#define GUESS_MAX 40 /* the longest word that is compared */

const char *hf_config_quote(char *out, size_t size, const char *text)
{
	size_t len = strlen(text);
	size_t used = 0;
	uint32_t code;

	for (size_t i = 0; i < len;) {
		size_t n = hf_utf8_decode(text + i, len - i, &code);
		bool plain = n && hf_utf8_is_plain(code);
		size_t need = plain ? n : 4;

		if (used + need + 4 > size) {
			snprintf(out + used, size - used, "...");
			return out;
		}
		if (plain)
			memcpy(out + used, text + i, n);
		else
			snprintf(out + used, size - used, "\\x%02x", (unsigned char)text[i]);
		used += need;
		i += plain ? n : 1;
	}
	out[used] = '\0';
	return out;
}

const char *hf_config_source_format(const struct hf_config_source *source, char *out, size_t size)
{
	char quoted[400];

	if (source->file) {
		hf_config_quote(quoted, sizeof(quoted), source->file);
		if (source->line)
			snprintf(out, size, "%s:%u", quoted, source->line);
		else
			snprintf(out, size, "%s", quoted);
	} else if (source->flag) {
		snprintf(out, size, "%s %s", source->flag,
			 hf_config_quote(quoted, sizeof(quoted), source->text));
	} else {
		snprintf(out, size, "the defaults");
	}
	return out;
}

int hf_config_complain(struct hf_config_error *error, const struct hf_config_source *source,
		       const char *format, ...)
{
	char where[440], what[600];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	snprintf(error->out, error->size, "%s: %s", hf_config_source_format(source, where, sizeof(where)),
		 what);
	return HF_CONFIG_E_WRONG;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Counts the edits between two words. Swapping two neighbours is one edit: people type "prot" for "port". */
static size_t count_edits(const char *a, size_t n_a, const char *b, size_t n_b)
{
	size_t row[GUESS_MAX + 1][GUESS_MAX + 1];

	for (size_t i = 0; i <= n_a; i++)
		row[i][0] = i;
	for (size_t j = 0; j <= n_b; j++)
		row[0][j] = j;
	for (size_t i = 1; i <= n_a; i++) {
		for (size_t j = 1; j <= n_b; j++) {
			size_t change = row[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

			row[i][j] = least(change, least(row[i - 1][j], row[i][j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[i][j] = least(row[i][j], row[i - 2][j - 2] + 1);
		}
	}
	return row[n_a][n_b];
}

void hf_config_guess_offer(struct hf_config_guess *guess, const char *candidate)
{
	size_t n_word = strnlen(guess->word, GUESS_MAX + 1);
	size_t n_candidate = strnlen(candidate, GUESS_MAX + 1);
	size_t edits;

	if (n_word > GUESS_MAX || n_candidate > GUESS_MAX)
		return;
	edits = count_edits(guess->word, n_word, candidate, n_candidate);
	/* A third of the letters may be wrong; beyond that it is another word. */
	if (edits > (n_candidate + 2) / 3 || edits >= n_candidate)
		return;
	if (!guess->best || edits < guess->distance) {
		guess->best = candidate;
		guess->distance = edits;
	}
}
