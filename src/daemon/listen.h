/* Listens on every address of the configuration, with the same port for TCP and UDP. */
#pragma once

#include <stdint.h>

struct hf_config;
struct hf_rpc_lane;
struct hf_rpc_server;

/* Skips an address family that this host does not have. *netidsp: the transports that the server listens on
 * (proto/portmap/netid.h). Logs errors, with what to do. */
int hf_listen_all(struct hf_rpc_server *server, struct hf_rpc_lane *home, const struct hf_config *config,
		  uint16_t *portp, unsigned int *netidsp);
