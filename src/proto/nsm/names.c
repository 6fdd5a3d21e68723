/* Which host is meant? Names, addresses, and the kinds of registration. */
#include <string.h>
#include <strings.h>

#include "client/host_name.h"
#include "proto/nsm/internal.h"

bool hf_nsm_is_us(const struct hf_nsm *nsm, struct hf_bytes name, const struct hf_addr *local)
{
	char text[HF_ADDR_TEXT];

	return hf_nsm_names_match(name, hf_bytes_of_str(nsm->server_name)) ||
	       hf_nsm_names_match(name, hf_bytes_of_str("localhost")) ||
	       hf_bytes_equal(name, hf_bytes_of_str(hf_addr_format(local, text, sizeof(text))));
}

bool hf_nsm_is_local_watch(const struct hf_nsm *nsm, const struct hf_client *client)
{
	return strcmp(client->protocol, HF_NSM_PROTOCOL) == 0 && client->mon_name &&
	       hf_addr_is_loopback(&client->local) &&
	       !hf_nsm_is_us(nsm, hf_bytes_of_str(client->mon_name), &client->local);
}

/* After SM_UNMON a client may still exist, because of references to it. */
bool hf_nsm_is_watching(const struct hf_nsm *nsm, const struct hf_client *client)
{
	return hf_nsm_is_local_watch(nsm, client) && hf_client_is_registered(client);
}

/* Names */

static uint32_t first_part(struct hf_bytes name)
{
	const uint8_t *dot = name.len ? memchr(name.data, '.', name.len) : NULL;

	return dot ? (uint32_t)(dot - name.data) : name.len;
}

static bool equal_but_case(struct hf_bytes a, struct hf_bytes b)
{
	return a.len == b.len && strncasecmp((const char *)a.data, (const char *)b.data, a.len) == 0;
}

bool hf_nsm_names_match(struct hf_bytes a, struct hf_bytes b)
{
	uint32_t a_first = first_part(a), b_first = first_part(b);

	if (equal_but_case(a, b))
		return true;
	/* Two names with dots are both complete, and differ. "10" is not short for "10.0.0.1". */
	if ((a_first != a.len && b_first != b.len) || hf_host_name_is_address(a) ||
	    hf_host_name_is_address(b))
		return false;
	return equal_but_case(hf_bytes_of(a.data, a_first), hf_bytes_of(b.data, b_first));
}

struct hf_addr hf_nsm_host_of(const struct hf_rpc_call *call)
{
	struct hf_addr host = *hf_rpc_call_peer(call);

	host.port = 0;
	return host;
}

uint64_t hf_nsm_hash_host(const struct hf_nsm *nsm, const struct hf_addr *host)
{
	return hf_siphash(&nsm->key, host, sizeof(*host));
}

uint16_t hf_nsm_port_in_name(const char *name, const struct hf_addr *address)
{
	struct hf_addr parsed;

	if (!hf_addr_parse_with_port(&parsed, name) || !hf_addr_same_host(&parsed, address))
		return 0;
	return parsed.port;
}
