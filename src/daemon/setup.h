/* Translates the configuration into the options of the parts, one function for each. */
#pragma once

#include <stddef.h>

struct hf_args;
struct hf_config;
struct hf_loop;
struct hf_nsm_options;
struct hf_recovery_options;

#define HF_SETUP_NAME 256

/* The server's name for its peers: server.name, the service's name in a cluster, or the host's name. */
const char *hf_setup_server_name(const struct hf_config *config, char out[static HF_SETUP_NAME]);

/* The name of this node of the cluster: cluster.node, or the host's name */
const char *hf_setup_node_name(const struct hf_config *config, char out[static HF_SETUP_NAME]);

/* @options borrows from @config, @name and @store_path. */
void hf_setup_recovery(struct hf_recovery_options *options, const struct hf_config *config,
		       const struct hf_args *args, struct hf_loop *loop, const char *name,
		       const char *store_path);

/* For the limits of the RPC server; 0: recovery.release_silent_seconds is off, which needs it. */
int hf_setup_keepalive(const struct hf_config *config);

/* What a reload may change; see hf_nsm_change(). */
void hf_setup_nsm(struct hf_nsm_options *options, const struct hf_config *config);
