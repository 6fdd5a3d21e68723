#include "export/client_names.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "export/lookups.h"
#include "loop/loop.h"

#define MAX_ADDRESSES 64    /* of one name */
#define MAX_HOSTS     65536 /* names of the configuration */
#define MAX_PEERS     4096  /* addresses of clients */
#define MAX_WAITING   256   /* questions of each kind */
#define N_THREADS     2     /* for each kind */
#define FRESH_NS      (60 * HF_NS_PER_S)
#define NONE_FRESH_NS (10 * HF_NS_PER_S)
#define STALE_NS      (1800 * HF_NS_PER_S)
#define RETRY_NS      (3 * HF_NS_PER_S)

struct hf_client_names {
	struct hf_lookups *hosts; /* by name: addresses */
	struct hf_lookups *peers; /* by address: its confirmed name */
};

/* An address as a key: without port, interface and padding */
struct key {
	uint8_t family;
	uint8_t ip[16];
};

static struct key key_of(const struct hf_addr *addr)
{
	struct key key = { .family = addr->family };

	memcpy(key.ip, addr->ip, sizeof(key.ip));
	return key;
}

static struct hf_addr addr_of(const struct key *key)
{
	struct hf_addr addr = { .family = key->family };

	memcpy(addr.ip, key->ip, sizeof(addr.ip));
	return addr;
}

/* Asking, on threads that wait */

static int find_addresses(const struct hf_resolver *resolver, const char *name, struct key *keys, size_t *np)
{
	struct hf_addr addrs[MAX_ADDRESSES];
	int r;

	*np = 0;
	r = resolver->find_addresses(resolver->user, name, addrs, MAX_ADDRESSES, np);
	for (size_t i = 0; i < *np; i++)
		keys[i] = key_of(&addrs[i]);
	return r;
}

static int ask_host(void *user, struct hf_bytes key, uint8_t *answer, size_t *lenp)
{
	char name[HF_CLIENT_NAME_MAX + 1];
	struct key keys[MAX_ADDRESSES];
	size_t n;
	int r;

	memcpy(name, key.data, key.len);
	name[key.len] = '\0';
	r = find_addresses(user, name, keys, &n);
	*lenp = r < 0 ? 0 : n * sizeof(keys[0]);
	memcpy(answer, keys, *lenp);
	return r;
}

static bool has_key(const struct key *keys, size_t n, const struct key *key)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(&keys[i], key, sizeof(*key)) == 0)
			return true;
	return false;
}

/* The answer is the name, if the name has the address, too. A name that looks like an address would confirm
 * itself. */
static int ask_peer(void *user, struct hf_bytes bytes, uint8_t *answer, size_t *lenp)
{
	const struct hf_resolver *resolver = user;
	char name[HF_CLIENT_NAME_MAX + 1] = "";
	struct key keys[MAX_ADDRESSES], key;
	struct hf_addr addr;
	size_t n = 0;
	int r;

	memcpy(&key, bytes.data, sizeof(key));
	addr = addr_of(&key);
	r = resolver->find_name(resolver->user, &addr, name);
	if (r == 0 && hf_client_name_is_valid(name) && !hf_client_name_is_pattern(name))
		r = find_addresses(resolver, name, keys, &n);
	*lenp = 0;
	if (r == 0 && has_key(keys, n, &key)) {
		*lenp = strlen(name);
		memcpy(answer, name, *lenp);
	}
	return r;
}

static void report_host(void *user, struct hf_bytes key, int error)
{
	char name[HF_CLIENT_NAME_MAX + 1];

	hf_log_quote(name, sizeof(name), (const char *)key.data, key.len);
	if (error)
		hf_log_warn("cannot look up a host of an export; it is tried again", "host=%s error=%s", name,
			    strerrorname_np(-error));
	else
		hf_log_warn("a host of an export has no address; its clients are refused", "host=%s", name);
}

/* An address without a name, or with one that is not confirmed, is nothing unusual: its client is refused,
 * and that is logged. */
static void report_peer(void *user, struct hf_bytes bytes, int error)
{
	char text[HF_ADDR_TEXT];
	struct hf_addr addr;
	struct key key;

	if (!error)
		return;
	memcpy(&key, bytes.data, sizeof(key));
	addr = addr_of(&key);
	hf_log_warn("cannot look up the name of a client; it is tried again", "peer=%s error=%s",
		    hf_addr_format(&addr, text, sizeof(text)), strerrorname_np(-error));
}

/* Questions */

struct search {
	struct key key;
	const char *pattern;
	bool is_found;
};

static bool search_addresses(void *user, struct hf_bytes answer)
{
	struct search *search = user;

	for (size_t at = 0; at < answer.len; at += sizeof(struct key))
		search->is_found |= memcmp(answer.data + at, &search->key, sizeof(struct key)) == 0;
	return true; /* the configuration names the host */
}

enum hf_named hf_client_names_is_host(struct hf_client_names *names, const char *name,
				      const struct hf_addr *client)
{
	struct search search = { .key = key_of(client) };

	if (hf_lookups_get(names->hosts, hf_bytes_of_str(name), search_addresses, &search) != HF_LOOKUP_KNOWN)
		return HF_NAMED_UNKNOWN;
	return search.is_found ? HF_NAMED_YES : HF_NAMED_NO;
}

static bool match_name(void *user, struct hf_bytes answer)
{
	struct search *search = user;
	char name[HF_CLIENT_NAME_MAX + 1];

	memcpy(name, answer.data, answer.len);
	name[answer.len] = '\0';
	search->is_found = answer.len && fnmatch(search->pattern, name, FNM_CASEFOLD | FNM_NOESCAPE) == 0;
	return search->is_found;
}

enum hf_named hf_client_names_is_in_domain(struct hf_client_names *names, const char *pattern,
					   const struct hf_addr *client)
{
	struct search search = { .key = key_of(client), .pattern = pattern };

	if (hf_lookups_get(names->peers, hf_bytes_of(&search.key, sizeof(search.key)), match_name, &search) !=
	    HF_LOOKUP_KNOWN)
		return HF_NAMED_UNKNOWN;
	return search.is_found ? HF_NAMED_YES : HF_NAMED_NO;
}

void hf_client_names_show_limits(struct hf_client_names *names, struct hf_limit_use uses[HF_N_LIMITS])
{
	hf_lookups_show_limit(names->hosts, &uses[HF_LIMIT_NAME_LOOKUPS]); /* the longer queue counts */
	hf_lookups_show_limit(names->peers, &uses[HF_LIMIT_NAME_LOOKUPS]);
	hf_lookups_show_remembered(names->hosts, &uses[HF_LIMIT_NAMES_REMEMBERED]);
	hf_lookups_show_remembered(names->peers, &uses[HF_LIMIT_ADDRESSES_REMEMBERED]);
}

void hf_client_names_renew(struct hf_client_names *names)
{
	hf_lookups_renew(names->hosts);
	hf_lookups_renew(names->peers);
}

void hf_client_names_wait(struct hf_client_names *names, const char *name, const struct hf_addr *client,
			  uint64_t ns)
{
	struct key key = key_of(client);

	if (name)
		hf_lookups_wait(names->hosts, hf_bytes_of_str(name), ns);
	else
		hf_lookups_wait(names->peers, hf_bytes_of(&key, sizeof(key)), ns);
}

/* Names as text */

bool hf_client_name_is_pattern(const char *text)
{
	return strpbrk(text, "*?[") != NULL;
}

static bool is_number(const char *text)
{
	return *text && text[strspn(text, "0123456789")] == '\0';
}

/* The last part of a name is never a number; otherwise it would be an address, or a part of one. */
bool hf_client_name_is_valid(const char *text)
{
	const char *last = strrchr(text, '.');
	size_t len = strlen(text);

	if (len == 0 || len > HF_CLIENT_NAME_MAX || strstr(text, "..") || *text == '.' || *text == '-')
		return false;
	for (const char *p = text; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("-._*?[]", *p))
			return false;
	if (hf_client_name_is_pattern(text))
		return last && last[1] && !strpbrk(last, "*?[]") && !is_number(last + 1);
	return !strchr(text, ']') && !is_number(last ? last + 1 : text) && (!last || last[1]);
}

/* Making and freeing */

int hf_client_names_new(struct hf_client_names **namesp, const struct hf_resolver *resolver)
{
	hf_cleanup(hf_client_names_freep) struct hf_client_names *names = calloc(1, sizeof(*names));
	struct hf_lookups_options options = {
		.ask = ask_host,
		.report = report_host,
		.what = "hosts of exports",
		.max_entries = MAX_HOSTS,
		.max_waiting = MAX_WAITING,
		.max_threads = N_THREADS,
		.max_answer = MAX_ADDRESSES * sizeof(struct key),
		.fresh_ns = FRESH_NS,
		.fresh_empty_ns = NONE_FRESH_NS,
		.stale_ns = STALE_NS,
		.retry_ns = RETRY_NS,
		.now = resolver->now,
		.user = (void *)(uintptr_t)resolver,
	};
	int r;

	if (!names)
		return hf_trace(-ENOMEM);
	r = hf_lookups_new(&names->hosts, &options);
	options.ask = ask_peer;
	options.report = report_peer;
	options.what = "names of clients";
	options.max_entries = MAX_PEERS;
	if (r == 0)
		r = hf_lookups_new(&names->peers, &options);
	if (r < 0)
		return r;
	*namesp = names;
	names = NULL;
	return 0;
}

struct hf_client_names *hf_client_names_free(struct hf_client_names *names)
{
	if (!names)
		return NULL;
	hf_lookups_free(names->hosts);
	hf_lookups_free(names->peers);
	free(names);
	return NULL;
}
