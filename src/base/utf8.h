/* UTF-8, one character at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character at @text into *codep and returns the number of its bytes. 0: the text does not start
 * with valid UTF-8; it is cut short, overlong, a surrogate or beyond U+10FFFF. */
static inline size_t hf_utf8_decode(const void *text, size_t len, uint32_t *codep)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char *p = text;
	uint32_t code;
	size_t n;

	if (len == 0)
		return 0;
	if (p[0] < 0x80) {
		*codep = p[0];
		return 1;
	}
	n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	if (p[0] < 0xc2 || p[0] > 0xf4 || n > len)
		return 0;
	code = p[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (p[i] & 0x3f);
	}
	if (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return 0;
	*codep = code;
	return n;
}

/* Does the character look like what it is? Not a control character, an invisible mark or line end, or one
 * that changes the text's direction. */
static inline bool hf_utf8_is_plain(uint32_t code)
{
	if (code < 0x20 || (code >= 0x7f && code < 0xa0))
		return false;
	if (code == 0x2028 || code == 0x2029 || code == 0xfeff)
		return false;
	if ((code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069))
		return false;
	return (code & 0xfffe) != 0xfffe;
}
