#include "daemon/listen.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "daemon/config.h"
#include "proto/portmap/netid.h"
#include "rpc/server.h"

#define PORT_TRIES 32

/* Where listening failed. */
struct place {
	const char *transport;
	const char *address;
};

static int try_listen(struct hf_rpc_server *server, const struct hf_config_addresses *addresses,
		      uint16_t *portp, unsigned int *netidsp, struct place *place)
{
	*netidsp = 0;
	for (size_t i = 0; i < addresses->n; i++) {
		const struct hf_config_address *address = &addresses->items[i];
		int r = hf_rpc_server_listen_tcp(server, &address->addr, portp);

		*place = (struct place){ "tcp", address->text };
		if (r == -EAFNOSUPPORT) {
			hf_log_warn("this host has no such addresses", "address=%s", address->text);
			continue;
		}
		if (r == 0) {
			place->transport = "udp";
			r = hf_rpc_server_listen_udp(server, &address->addr, portp);
		}
		if (r < 0)
			return r;
		*netidsp |= hf_netids_of(address->addr.family);
	}
	return *netidsp ? 0 : -EAFNOSUPPORT;
}

static void explain(const struct place *place, uint16_t port, int error)
{
	const char *sentence = "cannot listen: choose other addresses in server.listen";

	if (error == -EADDRINUSE)
		sentence =
			"cannot listen: another server has the port; stop it, or choose another server.port";
	else if (error == -EACCES)
		sentence = "cannot listen: ports below 1024 need root or CAP_NET_BIND_SERVICE";
	hf_log_error(sentence, "transport=%s address=%s port=%u error=%s", place->transport, place->address,
		     port, strerrorname_np(-error));
}

/* With port 0 any port will do. A port that is free on one address may be used on another, so try several. */
int hf_listen_all(struct hf_rpc_server *server, struct hf_rpc_lane *home, const struct hf_config *config,
		  uint16_t *portp, unsigned int *netidsp)
{
	uint16_t wanted = (uint16_t)config->server.port, port = wanted;
	struct place place = { "-", "-" };
	int r = 0;

	for (int try = 0; try < PORT_TRIES; try++) {
		port = wanted;
		r = try_listen(server, &config->server.listen, &port, netidsp, &place);
		if (r != -EADDRINUSE || wanted)
			break;
		hf_rpc_lane_stop_listening(home);
	}
	if (r < 0)
		explain(&place, port, r);
	*portp = port;
	return r;
}
