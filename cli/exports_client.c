/* The clients of /etc/exports in the words of Holdfast's configuration. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "cli/exports.h"
#include "export/client_names.h"

#define MAX_CLIENT 1024

static bool refuse(struct import *import, const char *text, const char *why)
{
	import_say(import, import->line, "client %s: %s", text, why);
	return false;
}

/* The number of leading ones. -1: ones follow a zero. */
static int bits_of(uint32_t mask)
{
	int n = 0;

	for (; mask & 0x80000000; mask <<= 1)
		n++;
	return mask ? -1 : n;
}

/* "10.0.0.0/255.0.0.0" as "10.0.0.0/8" */
static bool read_network(struct import *import, const char *text, char *out, size_t size)
{
	const char *slash = strchr(text, '/');
	struct hf_network network;
	struct in_addr mask;

	if (inet_pton(AF_INET, slash + 1, &mask) == 1 && bits_of(ntohl(mask.s_addr)) >= 0)
		snprintf(out, size, "%.*s/%d", (int)(slash - text), text, bits_of(ntohl(mask.s_addr)));
	else
		snprintf(out, size, "%s", text);
	return hf_network_parse(&network, out) || refuse(import, text, "it is not a network");
}

static bool read_client(struct import *import, const char *text, enum import_kind *kindp, char *out,
			size_t size)
{
	struct hf_addr addr;

	snprintf(out, size, "%s", text);
	*kindp = IMPORT_HOST;
	if (*text == '\0' || strcmp(text, "*") == 0) {
		*kindp = IMPORT_ALL;
		snprintf(out, size, "any");
		return true;
	}
	if (*text == '@') {
		*kindp = IMPORT_NETGROUP;
		return refuse(import, text,
			      "netgroups are not supported; list the hosts that `getent netgroup` shows, or "
			      "a network or domain that they are in");
	}
	if (strncmp(text, "gss/", 4) == 0)
		return refuse(import, text, "AUTH_SYS alone is served");
	if (hf_client_name_is_pattern(text)) {
		*kindp = IMPORT_PATTERN;
		return hf_client_name_is_valid(text) ||
		       refuse(import, text, "a pattern of names ends with a domain, as in *.example.org");
	}
	if (strchr(text, '/')) {
		*kindp = IMPORT_NETWORK;
		return read_network(import, text, out, size);
	}
	if (strcasecmp(text, "any") == 0 || strcasecmp(text, "private") == 0)
		return refuse(import, text,
			      "it is a word of the configuration that stands for many clients; write the "
			      "host's full name or its address");
	return hf_addr_parse(&addr, text) || hf_client_name_is_valid(text) ||
	       refuse(import, text, "it is neither an address nor a host name");
}

static bool is_known(const struct import_export *export, const char *client)
{
	for (size_t i = 0; i < export->n; i++)
		if (strcmp(export->entries[i].client, client) == 0)
			return true;
	return false;
}

int import_add(struct import *import, struct import_export *export, char *client,
	       const struct import_options *options)
{
	hf_cleanup(hf_freep) char *given = client;
	struct import_entry entry = { .options = *options, .line = import->line }, *entries;
	char name[MAX_CLIENT];
	bool is_client;

	is_client = read_client(import, given, &entry.kind, name, sizeof(name));
	export->is_disabled |= !is_client || options->is_disabled;
	if (!is_client)
		return 0;
	if (is_known(export, name)) {
		import_say(import, import->line, "client %s: it is given twice for %s; the first one applies",
			   name, export->path);
		return 0;
	}
	entry.client = strdup(name);
	entries = entry.client ? reallocarray(export->entries, export->n + 1, sizeof(*entries)) : NULL;
	if (!entries) {
		free(entry.client);
		return -ENOMEM;
	}
	export->entries = entries;
	entries[export->n++] = entry;
	return 0;
}
