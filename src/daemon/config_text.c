#include "daemon/config_text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "daemon/config_error.h"

bool hf_config_check_text(const char *text, struct hf_config_why *why)
{
	size_t len = strlen(text);
	char quoted[HF_CONFIG_QUOTE_SIZE];
	uint32_t code = 0;

	for (size_t i = 0; i < len;) {
		size_t n = hf_utf8_decode(text + i, len - i, &code);

		if (n == 0 || !hf_utf8_is_plain(code)) {
			snprintf(why->text, sizeof(why->text),
				 "is '%s', which contains %s; give printable UTF-8",
				 hf_config_quote(quoted, sizeof(quoted), text),
				 n ? "a control character" : "bytes that are not UTF-8");
			return false;
		}
		i += n;
	}
	return true;
}

bool hf_config_check_host_name(const char *text, struct hf_config_why *why)
{
	char quoted[HF_CONFIG_QUOTE_SIZE];

	for (const char *p = text; *p; p++) {
		if (isalnum((unsigned char)*p) || (p > text && *p == '-') || strchr("._:", *p))
			continue;
		snprintf(why->text, sizeof(why->text),
			 "is '%s', which is not a host name; give letters, digits, '.' and '-', like "
			 "nfs1.example.org",
			 hf_config_quote(quoted, sizeof(quoted), text));
		return false;
	}
	return true;
}

static bool has_dot_part(const char *path)
{
	while (*path) {
		size_t len;

		path += strspn(path, "/");
		len = strcspn(path, "/");
		if ((len == 1 && path[0] == '.') || (len == 2 && path[0] == '.' && path[1] == '.'))
			return true;
		path += len;
	}
	return false;
}

bool hf_config_check_path(const char *text, struct hf_config_why *why)
{
	char quoted[HF_CONFIG_QUOTE_SIZE];

	hf_config_quote(quoted, sizeof(quoted), text);
	if (text[0] != '/')
		snprintf(why->text, sizeof(why->text), "is '%s'; give a path that starts with '/'", quoted);
	else if (has_dot_part(text))
		snprintf(why->text, sizeof(why->text), "is '%s'; give the path without '.' and '..' parts",
			 quoted);
	else
		return true;
	return false;
}

void hf_config_trim_slashes(char *path)
{
	char *to = path;

	for (const char *from = path; *from; from++)
		if (*from != '/' || to == path || to[-1] != '/')
			*to++ = *from;
	if (to > path + 1 && to[-1] == '/')
		to--;
	*to = '\0';
}
