#include "api/target.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Decoding, in place: the result is never longer */

static int hex_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static bool is_utf8(const char *text)
{
	size_t len = strlen(text);
	uint32_t code;

	while (len) {
		size_t n = hf_utf8_decode(text, len, &code);

		if (n == 0 || code < 0x20 || code == 0x7f)
			return false;
		text += n;
		len -= n;
	}
	return true;
}

static bool decode(char *text, bool plus_is_blank)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		int high, low;

		if (*from == '+' && plus_is_blank) {
			*to++ = ' ';
			continue;
		}
		if (*from != '%') {
			*to++ = *from;
			continue;
		}
		high = hex_of(from[1]);
		low = high < 0 ? -1 : hex_of(from[2]);
		if (low < 0 || (high == 0 && low == 0))
			return false;
		*to++ = (char)(high * 16 + low);
		from += 2;
	}
	*to = '\0';
	return is_utf8(text);
}

/* Path */

static const char *split_path(struct hf_api_target *target, char *path)
{
	char *rest = path;

	if (*path != '/')
		return "the path must begin with /";
	rest++;
	while (rest && (*rest || target->n_segments)) {
		char *segment = strsep(&rest, "/");

		if (!*segment)
			return "the path has an empty part";
		if (target->n_segments == HF_API_MAX_SEGMENTS)
			return "the path has too many parts";
		if (!decode(segment, false))
			return "the path has a broken escape or bytes that are not UTF-8";
		target->segments[target->n_segments++] = segment;
	}
	return NULL;
}

/* Query */

static const char *add_param(struct hf_api_target *target, char *param)
{
	char *value = strchr(param, '=');

	if (value)
		*value++ = '\0';
	if (!decode(param, true) || (value && !decode(value, true)))
		return "the query has a broken escape or bytes that are not UTF-8";
	if (hf_api_target_param(target, param))
		return "the query has a parameter twice";
	if (target->n_params == HF_API_MAX_PARAMS)
		return "the query has too many parameters";
	target->params[target->n_params++] = (struct hf_api_param){ param, value ? value : "" };
	return NULL;
}

static const char *split_query(struct hf_api_target *target, char *query)
{
	while (query) {
		char *param = strsep(&query, "&");
		const char *wrong = *param ? add_param(target, param) : NULL;

		if (wrong)
			return wrong;
	}
	return NULL;
}

const char *hf_api_target_parse(struct hf_api_target *target, const char *uri)
{
	size_t len = strlen(uri);
	const char *wrong;
	char *query;

	target->n_segments = target->n_params = 0;
	if (len >= sizeof(target->text))
		return "the target is too long";
	memcpy(target->text, uri, len + 1);
	query = strchr(target->text, '?');
	if (query)
		*query++ = '\0';
	wrong = split_path(target, target->text);
	return wrong ? wrong : split_query(target, query);
}

const char *hf_api_target_param(const struct hf_api_target *target, const char *name)
{
	for (size_t i = 0; i < target->n_params; i++)
		if (strcmp(target->params[i].name, name) == 0)
			return target->params[i].value;
	return NULL;
}

bool hf_api_target_matches(const struct hf_api_target *target, const char *pattern, const char **idp)
{
	*idp = NULL;
	for (size_t i = 0; i < target->n_segments; i++) {
		size_t len;

		if (*pattern++ != '/')
			return false;
		len = strcspn(pattern, "/");
		if (len && *pattern == '{')
			*idp = target->segments[i];
		else if (len == 0 || len != strlen(target->segments[i]) ||
			 memcmp(pattern, target->segments[i], len) != 0)
			return false;
		pattern += len;
	}
	return *pattern == '\0' || (target->n_segments == 0 && strcmp(pattern, "/") == 0);
}

/* Values */

bool hf_api_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *valuep)
{
	uint64_t value = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value) || value > max)
			value = max;
	}
	*valuep = value;
	return value >= min;
}

void hf_api_cursor_format(const uint64_t *words, size_t n, char out[static HF_API_CURSOR_TEXT])
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++)
		len += (size_t)snprintf(out + len, HF_API_CURSOR_TEXT - len, "%s%llx", i ? "." : "",
					(unsigned long long)words[i]);
}

bool hf_api_cursor_parse(const char *text, uint64_t *words, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		size_t digits = 0;

		if (i && *text++ != '.')
			return false;
		for (words[i] = 0; hex_of(*text) >= 0 && digits < 16; digits++)
			words[i] = words[i] << 4 | (uint64_t)hex_of(*text++);
		if (digits == 0)
			return false;
	}
	return *text == '\0';
}
