/* From the configuration to the operator's interface, src/api. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hf_api;
struct hf_config;
struct hf_exports;
struct hf_jobs;
struct hf_loop;
struct hf_nlm;
struct hf_recovery;
struct hf_rpc_server;

struct hf_operator_parts {
	struct hf_loop *loop;
	struct hf_recovery *recovery;
	struct hf_nlm *nlm;
	struct hf_rpc_server *rpc;
	struct hf_exports *exports; /* or NULL */
	struct hf_jobs *jobs;       /* or NULL */
	const char *server_name;
};

/* Leaves *apip NULL where api.listen is empty. */
int hf_operator_new(struct hf_api **apip, const struct hf_config *config,
		    const struct hf_operator_parts *parts);
/* Where this host reaches the API, as host:port or unix:/path; @port: the one that it has. Empty: it is off.
 */
void hf_operator_address(const struct hf_config *config, uint16_t port, char *out, size_t size);
