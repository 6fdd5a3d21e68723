#include "daemon/operator.h"

#include <stdio.h>

#include "api/api.h"
#include "daemon/config.h"
#include "daemon/config_endpoint.h"
#include "rpc/server.h"

static void show_counts(void *user, struct hf_api_rpc_counts *countsp)
{
	struct hf_rpc_counts counts;

	hf_rpc_server_counts(user, &counts);
	countsp->connections = counts.connections;
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

int hf_operator_new(struct hf_api **apip, const struct hf_config *config,
		    const struct hf_operator_parts *parts)
{
	struct hf_endpoint endpoint;
	struct hf_api_options options = {
		.loop = parts->loop,
		.recovery = parts->recovery,
		.nlm = parts->nlm,
		.exports = parts->exports,
		.jobs = parts->jobs,
		.rpc = { show_counts, show_meters, parts->rpc },
		.token_file = config->api.token_file,
		.state_dir = config->server.state_dir,
		.server_name = parts->server_name,
		.measures = config->metrics.enabled,
	};

	if (!hf_endpoint_parse(&endpoint, config->api.listen) || endpoint.kind == HF_ENDPOINT_OFF)
		return 0;
	if (endpoint.kind == HF_ENDPOINT_UNIX)
		options.path = endpoint.path;
	else
		options.listen = endpoint.addr;
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
