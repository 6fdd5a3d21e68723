/* Where we listen: every address of the configuration, each with the same port for TCP and UDP. */
#pragma once

#include <stdint.h>

struct hf_config;
struct hf_rpc_lane;
struct hf_rpc_server;

/* A family of addresses that this host does not have is left out; *netidsp: those that we listen on
 * (proto/portmap/netid.h). What goes wrong is in the log, with what to do. */
int hf_listen_all(struct hf_rpc_server *server, struct hf_rpc_lane *home, const struct hf_config *config,
		  uint16_t *portp, unsigned int *netidsp);
