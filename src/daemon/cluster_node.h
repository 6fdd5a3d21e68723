/*
 * This process as a node of a cluster: what the configuration and the state directory say of
 * it, and its hf_cluster.
 *
 * In the state directory: `instance`, which tells this node from another one with its name,
 * and `cluster.known`, the last epoch and state number of the service that it saw.
 */
#pragma once

#include <stddef.h>

#include "base/cleanup.h"

struct hf_cluster;
struct hf_config;
struct hf_cluster_node;
struct hf_state_dir;

/* Before the sandbox: opens its sockets and forks the helper that runs cluster.fence. Logs what is wrong. */
int hf_cluster_node_new(struct hf_cluster_node **nodep, const struct hf_config *config);
struct hf_cluster_node *hf_cluster_node_free(struct hf_cluster_node *node);

HF_DEFINE_CLEANUP(struct hf_cluster_node *, hf_cluster_node_free)

/* When the rights are as they stay, before the sandbox: forks the witness. */
int hf_cluster_node_fork_witness(struct hf_cluster_node *node, const struct hf_config *config);
/* After the sandbox: begins to watch the database. Logs what is wrong. */
int hf_cluster_node_start(struct hf_cluster_node *node, const struct hf_config *config,
			  struct hf_state_dir *dir);
struct hf_cluster *hf_cluster_node_cluster(struct hf_cluster_node *node);

/* The exports, as nodes compare them: a line for each, in the order of their names. To be freed; NULL: no
 * memory. */
char *hf_cluster_node_describe_exports(const struct hf_config *config);
