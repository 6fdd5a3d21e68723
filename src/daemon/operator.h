/* Makes the operator's interface (src/api) from the configuration. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "api/api.h"

struct hf_cluster;
struct hf_config;
struct hf_exports;
struct hf_jobs;
struct hf_loop;
struct hf_nlm;
struct hf_ports;
struct hf_recovery;
struct hf_rpc_server;
struct hf_rpc_presence;
struct hf_tls;

/* A standby has only a loop, a cluster and a name. */
struct hf_operator_parts {
	struct hf_loop *loop;
	struct hf_recovery *recovery;     /* or NULL: a standby */
	struct hf_nlm *nlm;               /* or NULL */
	struct hf_rpc_server *rpc;        /* or NULL */
	struct hf_tls *tls;               /* or NULL */
	struct hf_rpc_presence *presence; /* or NULL */
	struct hf_cluster *cluster;       /* or NULL: no cluster */
	struct hf_exports *exports;       /* or NULL */
	struct hf_jobs *jobs;             /* or NULL */
	struct hf_api_limits limits;
	struct hf_api_reload_order reload;
	const char *server_name;
	uint16_t port; /* of the API where the configuration lets it choose one; 0: any */
};

/* Leaves *apip NULL if api.listen is empty. */
int hf_operator_new(struct hf_api **apip, const struct hf_config *config,
		    const struct hf_operator_parts *parts);
/* Fills in how callers on this host find @api; NULL: it is off. */
void hf_operator_tell(struct hf_api *api, const struct hf_config *config, struct hf_ports *ports);
