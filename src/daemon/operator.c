#include "daemon/operator.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "base/error.h"
#include "daemon/config.h"
#include "daemon/config_endpoint.h"
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
	struct hf_endpoint endpoint;
	struct hf_api_options options = {
		.loop = parts->loop,
		.recovery = parts->recovery,
		.nlm = parts->nlm,
		.tls = parts->tls,
		.exports = parts->exports,
		.jobs = parts->jobs,
		.limits = parts->limits,
		.cluster = { .cluster = parts->cluster,
			     .has_fence = *config->cluster.fence != '\0',
			     .is_automatic = config->cluster.automatic },
		.token_file = config->api.token_file,
		.state_dir = config->server.state_dir,
		.server_name = parts->server_name,
		.measures = config->metrics.enabled,
	};

	if (!hf_endpoint_parse(&endpoint, config->api.listen) || endpoint.kind == HF_ENDPOINT_OFF)
		return 0;
	if (parts->rpc)
		options.rpc = (struct hf_api_rpc){ show_counts, show_meters, parts->rpc };
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
	return hf_api_new(apip, &options);
}

void hf_operator_address(const struct hf_config *config, uint16_t port, char *out, size_t size)
{
	struct hf_endpoint endpoint;
	struct hf_addr *addr = &endpoint.addr;

	*out = '\0';
	if (!hf_endpoint_parse(&endpoint, config->api.listen) || endpoint.kind == HF_ENDPOINT_OFF)
		return;
	if (endpoint.kind == HF_ENDPOINT_UNIX) {
		snprintf(out, size, "unix:%s", endpoint.path);
		return;
	}
	if (hf_addr_is_any(addr))
		hf_addr_parse(addr, addr->family == AF_INET6 ? "::1" : "127.0.0.1");
	addr->port = port;
	hf_addr_format_with_port(addr, out, size);
}
