#include "daemon/config_secret.h"

#include <string.h>
#include <strings.h>

#define STARS "***"

struct out {
	char *text;
	size_t size;
	size_t len;
	bool is_hiding;
};

static void put(struct out *out, const char *text, size_t len)
{
	if (len > out->size - 1 - out->len)
		len = out->size - 1 - out->len;
	memcpy(out->text + out->len, text, len);
	out->len += len;
	out->text[out->len] = '\0';
}

static void hide(struct out *out)
{
	put(out, STARS, strlen(STARS));
	out->is_hiding = true;
}

/* password, sslpassword, and future options of that kind */
static bool is_secret(const char *key, size_t len)
{
	static const char word[] = "password";
	size_t n = sizeof(word) - 1;

	return len >= n && strncasecmp(key + len - n, word, n) == 0;
}

/* postgresql://user:password@host/base?key=value&… */

static void put_query(struct out *out, const char *query)
{
	while (*query) {
		size_t len = strcspn(query, "&"), key = strcspn(query, "=&");
		bool hides = key < len && is_secret(query, key);

		put(out, query, hides ? key + 1 : len);
		if (hides)
			hide(out);
		query += len;
		put(out, query, *query ? 1 : 0);
		query += *query ? 1 : 0;
	}
}

static void put_uri(struct out *out, const char *uri)
{
	const char *user = strstr(uri, "://") + 3, *query = user + strcspn(user, "?");
	const char *colon = user + strcspn(user, ":@"), *at = NULL;

	/* Take the last '@': a password that was not escaped may contain others. */
	for (const char *p = strchr(user, '@'); p && p < query; p = strchr(p + 1, '@'))
		at = p;
	if (at && colon < at && *colon == ':') {
		put(out, uri, (size_t)(colon + 1 - uri));
		hide(out);
		uri = at;
	}
	put(out, uri, (size_t)(query - uri));
	put_query(out, query);
}

/* key = value key='va\'lue' … */

static const char *skip_value(const char *p)
{
	bool is_quoted = *p == '\'';

	for (p += is_quoted; *p && (is_quoted ? *p != '\'' : !strchr(" \t\n\r\f\v", *p)); p++)
		if (*p == '\\' && p[1])
			p++;
	return is_quoted && *p ? p + 1 : p;
}

static void put_pairs(struct out *out, const char *p)
{
	static const char blanks[] = " \t\n\r\f\v";

	while (*p) {
		const char *key = p + strspn(p, blanks), *value;
		size_t len = strcspn(key, "= \t\n\r\f\v");

		value = key + len + strspn(key + len, blanks);
		if (*key && *value != '=') { /* not a pair: it may be part of a password */
			put(out, p, (size_t)(key - p));
			hide(out);
			return;
		}
		if (*value == '=')
			value += 1 + strspn(value + 1, blanks);
		put(out, p, (size_t)(value - p));
		p = skip_value(value);
		if (is_secret(key, len) && p > value)
			hide(out);
		else
			put(out, value, (size_t)(p - value));
	}
}

bool hf_config_hide_secrets(const char *text, char *out, size_t size)
{
	struct out shown = { .text = out, .size = size };

	*out = '\0';
	if (strncmp(text, "postgres://", 11) == 0 || strncmp(text, "postgresql://", 13) == 0)
		put_uri(&shown, text);
	else
		put_pairs(&shown, text);
	return shown.is_hiding;
}
