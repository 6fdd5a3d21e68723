#include "daemon/config_endpoint.h"

#include <stdio.h>
#include <string.h>

#define UNIX_PREFIX "unix:"
#define LOCALHOST   "localhost:"

static bool parse_unix(struct hf_endpoint *endpoint, const char *path)
{
	size_t len = strlen(path);

	if (path[0] != '/' || len < 2 || len >= sizeof(endpoint->path))
		return false;
	endpoint->kind = HF_ENDPOINT_UNIX;
	memcpy(endpoint->path, path, len + 1);
	return true;
}

static bool parse_tcp(struct hf_endpoint *endpoint, const char *text)
{
	char local[HF_ADDR_TEXT];

	if (strncmp(text, LOCALHOST, strlen(LOCALHOST)) == 0) {
		snprintf(local, sizeof(local), "127.0.0.1:%s", text + strlen(LOCALHOST));
		text = local;
	}
	endpoint->kind = HF_ENDPOINT_TCP;
	return hf_addr_parse_with_port(&endpoint->addr, text);
}

bool hf_endpoint_parse(struct hf_endpoint *endpoint, const char *text)
{
	memset(endpoint, 0, sizeof(*endpoint));
	if (*text == '\0')
		return true;
	if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
		return parse_unix(endpoint, text + strlen(UNIX_PREFIX));
	return parse_tcp(endpoint, text);
}
