#include "proto/portmap/embedded.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "loop/loop.h"
#include "rpc/server.h"

#define ANY_PORT_TRIES 16 /* a port that is free on TCP may be in use on UDP */

static const struct hf_rpc_limits limits = {
	.max_connections = 4096,
	.max_connections_per_host = 256,
	.max_gathering = 8 << 20,
	.max_unread = 256 << 10,
	.max_suspended_per_connection = 16,
	.max_suspended_bytes = 1 << 20,
	.max_charged = 32 << 20,
	.max_reply = 256 << 10,
	.idle_ns = 60 * HF_NS_PER_S,
	.stall_ns = 30 * HF_NS_PER_S,
	.stuck_ns = 5 * HF_NS_PER_S,
};

struct hf_embedded {
	struct hf_rpcbind rpcbind;
	struct hf_rpc_server *server;
	struct hf_rpc_lane *lane; /* owned by the server */
};

static int make_server(struct hf_embedded *embedded, struct hf_loop *loop)
{
	int r = hf_rpc_server_new(&embedded->server, &limits);

	if (r == 0)
		r = hf_rpc_server_add_program(embedded->server, &hf_rpcbind_program, &embedded->rpcbind);
	if (r == 0)
		r = hf_rpc_server_add_lane(embedded->server, loop, &embedded->lane);
	return hf_trace(r);
}

static int listen_on_all(struct hf_embedded *embedded, const struct hf_addr *listen, size_t n_listen,
			 uint16_t *portp)
{
	for (size_t i = 0; i < n_listen; i++) {
		int r = hf_rpc_server_listen_tcp(embedded->server, &listen[i], portp);

		if (r == 0)
			r = hf_rpc_server_listen_udp(embedded->server, &listen[i], portp);
		if (r < 0)
			return r;
	}
	return 0;
}

static int offer_all(struct hf_rpcbind *rpcbind, unsigned int netids, uint16_t port,
		     const struct hf_portmap_offer *offers, size_t n_offers)
{
	int r = hf_rpcbind_offer(rpcbind, &hf_rpcbind_program, netids, port);

	for (size_t i = 0; i < n_offers && r == 0; i++)
		r = hf_rpcbind_offer(rpcbind, offers[i].program, offers[i].netids, offers[i].port);
	return r;
}

static unsigned int netids_of(const struct hf_addr *listen, size_t n_listen)
{
	unsigned int netids = 0;

	for (size_t i = 0; i < n_listen; i++)
		netids |= hf_netids_of(listen[i].family);
	return netids;
}

static int new_at(struct hf_embedded **embeddedp, struct hf_loop *loop, const struct hf_addr *listen,
		  size_t n_listen, uint16_t *portp)
{
	hf_cleanup(hf_embedded_freep) struct hf_embedded *embedded = calloc(1, sizeof(*embedded));
	int r;

	if (!embedded)
		return hf_trace(-ENOMEM);
	hf_rpcbind_init(&embedded->rpcbind);
	r = make_server(embedded, loop);
	if (r == 0)
		r = listen_on_all(embedded, listen, n_listen, portp);
	if (r < 0)
		return r; /* the caller logs what to do */
	*embeddedp = embedded;
	embedded = NULL;
	return 0;
}

int hf_embedded_new(struct hf_embedded **embeddedp, struct hf_loop *loop, const struct hf_addr *listen,
		    size_t n_listen, const struct hf_portmap_offer *offers, size_t n_offers, uint16_t *portp)
{
	hf_cleanup(hf_embedded_freep) struct hf_embedded *embedded = NULL;
	uint16_t port = 0;
	int r = -EADDRINUSE;

	for (int i = 0; i < (*portp ? 1 : ANY_PORT_TRIES) && r == -EADDRINUSE; i++) {
		port = *portp;
		r = new_at(&embedded, loop, listen, n_listen, &port);
	}
	if (r == 0)
		r = offer_all(&embedded->rpcbind, netids_of(listen, n_listen), port, offers, n_offers);
	if (r < 0)
		return r;
	*portp = port;
	*embeddedp = embedded;
	embedded = NULL;
	return 0;
}

void hf_embedded_show_limits(const struct hf_embedded *embedded, struct hf_limit_use uses[HF_N_LIMITS])
{
	hf_rpc_server_show_limits(embedded->server, uses);
}

struct hf_embedded *hf_embedded_free(struct hf_embedded *embedded)
{
	if (!embedded)
		return NULL;
	hf_rpc_server_free(embedded->server);
	hf_rpcbind_deinit(&embedded->rpcbind);
	free(embedded);
	return NULL;
}

void hf_embedded_close(struct hf_embedded *embedded)
{
	hf_rpc_lane_close(embedded->lane);
}

const struct hf_rpcbind *hf_embedded_rpcbind(const struct hf_embedded *embedded)
{
	return &embedded->rpcbind;
}
