/*
 * A standby: the process while another node serves. It has the API, examines its exports, and
 * waits for events of the cluster. It serves no RPC.
 */
#pragma once

struct hf_args;
struct hf_config;
struct hf_cluster_node;
struct hf_ports;
struct hf_state_dir;

enum hf_standby_end {
	HF_STANDBY_CLAIMED, /* the service is this node's */
	HF_STANDBY_STOPPED, /* by a signal */
	HF_STANDBY_REFUSED, /* this node cannot take part; the log says why */
};

struct hf_standby_options {
	/* A reload replaces its exports and the log level. */
	struct hf_config *config;
	const struct hf_args *args;
	struct hf_cluster_node *node;
	struct hf_state_dir *state_dir;
	struct hf_ports *ports; /* of the API alone */
	const char *server_name;
};

/* Runs until the end of being a standby: enum hf_standby_end, or -errno. */
int hf_standby_run(const struct hf_standby_options *options);
