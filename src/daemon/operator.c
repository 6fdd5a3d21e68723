#include "daemon/operator.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "api/keys.h"
#include "base/error.h"
#include "daemon/certificates.h"
#include "daemon/config.h"
#include "daemon/config_endpoint.h"
#include "daemon/ports_file.h"
#include "rpc/presence.h"
#include "rpc/server.h"

static void show_counts(void *user, struct hf_api_rpc_counts *countsp)
{
	struct hf_rpc_counts counts;

	hf_rpc_server_counts(user, &counts);
	countsp->connections = counts.connections;
	countsp->tls = counts.tls;
	countsp->mtls = counts.mtls;
	countsp->datagrams = counts.datagrams;
	countsp->refused = counts.refused;
	countsp->dropped = counts.dropped;
	countsp->replayed = counts.replayed;
	hf_rpc_server_count_data(user, &countsp->n_read, &countsp->n_written);
}

static void show_meters(void *user, hf_api_meter_fn fn, void *context)
{
	hf_rpc_server_show_meters(user, fn, context);
}

static bool find_connected(void *user, const struct hf_addr *address, hf_api_tls_peer_fn fn, void *context)
{
	return hf_rpc_presence_find_connected(user, address, fn, context);
}

/* "192.0.2.10/24%eth0 2001:db8::10/64%eth0" */
static char *join_addresses(const struct hf_config_service_addresses *addresses)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	for (size_t i = 0; i < addresses->n; i++)
		fprintf(out, "%s%s", i ? " " : "", addresses->items[i].text);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

int hf_operator_new(struct hf_api **apip, const struct hf_config *config,
		    const struct hf_operator_parts *parts)
{
	hf_cleanup(hf_freep) char *addresses = NULL;
	hf_cleanup(hf_api_keys_unrefp) struct hf_api_keys *keys = NULL;
	struct hf_endpoint endpoint;
	struct hf_api_options options = {
		.loop = parts->loop,
		.recovery = parts->recovery,
		.nlm = parts->nlm,
		.tls = parts->tls,
		.exports = parts->exports,
		.jobs = parts->jobs,
		.limits = parts->limits,
		.reload = parts->reload,
		.cluster = { .cluster = parts->cluster, .has_fence = *config->cluster.fence != '\0' },
		.token_file = config->api.token_file,
		.view_token_file = config->api.view_token_file,
		.state_dir = config->server.state_dir,
		.server_name = parts->server_name,
		.measures = config->metrics.enabled,
	};
	int r;

	if (!hf_endpoint_parse(&endpoint, config->api.listen) || endpoint.kind == HF_ENDPOINT_OFF)
		return 0;
	if (parts->rpc)
		options.rpc = (struct hf_api_rpc){ show_counts, show_meters, parts->rpc };
	if (parts->presence)
		options.presence = (struct hf_api_presence){ find_connected, parts->presence };
	addresses = join_addresses(&config->cluster.addresses);
	if (!addresses)
		return hf_trace(-ENOMEM);
	options.cluster.addresses = addresses;
	if (endpoint.kind == HF_ENDPOINT_UNIX)
		options.path = endpoint.path;
	else
		options.listen = endpoint.addr;
	if (!options.listen.port)
		options.listen.port = parts->port;
	r = hf_certificates_load_api(&keys, config);
	if (r < 0)
		return r;
	options.keys = keys;
	r = hf_api_new(apip, &options);
	if (r == 0)
		hf_certificates_tell_api(keys);
	return r;
}

void hf_operator_tell(struct hf_api *api, const struct hf_config *config, struct hf_ports *ports)
{
	struct hf_endpoint endpoint;
	struct hf_addr *addr = &endpoint.addr;
	char text[HF_ADDR_TEXT];

	*ports->api_address = *ports->api_pin = '\0';
	if (!api || !hf_endpoint_parse(&endpoint, config->api.listen))
		return;
	ports->api = hf_api_port(api);
	if (endpoint.kind == HF_ENDPOINT_UNIX) {
		snprintf(ports->api_address, sizeof(ports->api_address), "unix:%s", endpoint.path);
		return;
	}
	if (hf_addr_is_any(addr))
		hf_addr_parse(addr, addr->family == AF_INET6 ? "::1" : "127.0.0.1");
	addr->port = ports->api;
	snprintf(ports->api_address, sizeof(ports->api_address), "%s%s",
		 hf_api_is_https(api) ? "https://" : "", hf_addr_format_with_port(addr, text, sizeof(text)));
	hf_api_pin(api, ports->api_pin);
}
