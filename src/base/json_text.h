/* A character in a JSON string, for lines that are written without a tree of values (log.c, audit.c). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#define HF_JSON_CHARACTER 8 /* bytes, at most */

/* Writes the first character of @text; *lenp is how many bytes that took. A character that could be taken for
 * something else on a terminal, such as a line end or a change of direction, is escaped. Returns the bytes of
 * @text that it used. *is_validp: they are UTF-8. Otherwise one byte is used, and stands as U+FFFD. */
static inline size_t hf_json_put_character(char out[HF_JSON_CHARACTER], size_t *lenp, const char *text,
					   size_t len, bool *is_validp)
{
	uint32_t code;
	size_t n = hf_utf8_decode(text, len, &code);

	*is_validp = n != 0;
	if (n == 0)
		*lenp = (size_t)snprintf(out, HF_JSON_CHARACTER, "\\ufffd");
	else if (code == '"' || code == '\\')
		*lenp = (size_t)snprintf(out, HF_JSON_CHARACTER, "\\%c", (char)code);
	else if (code <= 0xffff && !hf_utf8_is_plain(code))
		*lenp = (size_t)snprintf(out, HF_JSON_CHARACTER, "\\u%04x", (unsigned int)(code & 0xffff));
	else
		memcpy(out, text, *lenp = n);
	return n ? n : 1;
}
