#include "daemon/cluster_node.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"
#include "base/hex.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "cluster/fence.h"
#include "cluster/presence.h"
#include "cluster/witness.h"
#include "daemon/args.h"
#include "daemon/config.h"
#include "daemon/options.h"
#include "daemon/sandbox.h"
#include "daemon/setup.h"
#include "daemon/state_dir.h"
#include "export/seal.h"
#include "loop/loop.h"

#define INSTANCE   "instance"
#define KNOWN      "cluster.known"
#define ERROR_SIZE 512

struct hf_cluster_node {
	struct hf_presence *presence; /* NULL: no addresses */
	struct hf_fence *fence;       /* NULL: none */
	struct hf_witness *witness;
	struct hf_service_address *addresses;
	size_t n_addresses;
	struct hf_cluster *cluster;
	struct hf_state_dir *dir;
	char node[HF_SETUP_NAME];
	char instance[HF_NODE_ID];
	char *exports;
	struct hf_seal_key key;
	int known_error; /* the cluster's thread's: of the last write of KNOWN, as the log has it; 0: none */
};

/* Exports */

static int by_name(const void *a, const void *b)
{
	const struct hf_config_export *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

/* As printable ASCII: the database accepts every name, and a line is a line. */
static void put_text(FILE *out, const char *text)
{
	for (; *text; text++)
		if (*text > ' ' && *text <= '~' && *text != '\\')
			fputc(*text, out);
		else
			fprintf(out, "\\x%02x", (unsigned char)*text);
}

/* Nothing for an export that demands nothing: nodes of older versions describe theirs so. */
static void put_transport(FILE *out, const struct hf_config_export *export)
{
	if (export->transport == HF_CONFIG_TRANSPORT_ANY)
		return;
	fprintf(out, " transport=%s", export->transport == HF_CONFIG_TRANSPORT_TLS ? "tls" : "mtls");
	for (size_t i = 0; i < export->identities.n; i++) {
		fputs(i ? "," : " identities=", out);
		put_text(out, export->identities.items[i].text);
	}
}

static void put_rule(FILE *out, const struct hf_config_rule *rule, bool is_sync)
{
	static const char *const squashes[] = {
		[HF_CONFIG_SQUASH_NONE] = "none",
		[HF_CONFIG_SQUASH_ROOT] = "root",
		[HF_CONFIG_SQUASH_ALL] = "all",
	};

	fprintf(out, " access=%s squash=%s anon=%" PRId64 ":%" PRId64 "%s%s clients=",
		rule->access == HF_CONFIG_ACCESS_RO ? "ro" : "rw", squashes[rule->squash], rule->anon_uid,
		rule->anon_gid, rule->secure ? " secure" : "", is_sync ? "" : " async");
	for (size_t i = 0; i < rule->clients.n; i++) {
		fputs(i ? "," : "", out);
		put_text(out, rule->clients.items[i].text);
	}
}

static void put_export(FILE *out, const struct hf_config_export *export)
{
	const struct hf_config_rule only = hf_config_own_rule(export);

	put_text(out, export->name);
	fputs(" path=", out);
	put_text(out, export->path);
	if (!export->rules.n)
		put_rule(out, &only, export->sync);
	for (size_t i = 0; i < export->rules.n; i++)
		put_rule(out, &export->rules.items[i], export->sync);
	put_transport(out, export);
	fputc('\n', out);
}

char *hf_cluster_node_describe_exports(const struct hf_config *config)
{
	size_t n = config->exports.n, len;
	hf_cleanup(hf_freep) const struct hf_config_export **sorted = calloc(n + 1, sizeof(*sorted));
	char *text = NULL;
	FILE *out = sorted ? open_memstream(&text, &len) : NULL;

	if (!out)
		return NULL;
	for (size_t i = 0; i < n; i++)
		sorted[i] = &config->exports.items[i];
	qsort(sorted, n, sizeof(*sorted), by_name);
	for (size_t i = 0; i < n; i++)
		put_export(out, sorted[i]);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

/* The state directory */

static int read_instance(struct hf_cluster_node *node)
{
	uint8_t bytes[(HF_NODE_ID - 1) / 2];
	int r = hf_state_dir_read(node->dir, INSTANCE, node->instance, sizeof(node->instance));

	if (r == 0 && strlen(node->instance) == HF_NODE_ID - 1)
		return 0;
	if (r < 0 && r != -ENOENT)
		return hf_trace(r);
	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return hf_trace(-EIO);
	*hf_hex_put(node->instance, bytes, sizeof(bytes)) = '\0';
	return hf_trace(hf_state_dir_save(node->dir, INSTANCE, node->instance, HF_NODE_ID - 1));
}

static void read_known(struct hf_cluster_node *node, uint64_t *epochp, int32_t *statep)
{
	char text[64];

	if (hf_state_dir_read(node->dir, KNOWN, text, sizeof(text)) < 0 ||
	    sscanf(text, "%" SCNu64 " %" SCNd32, epochp, statep) != 2)
		*epochp = 0, *statep = 0;
}

/* On the cluster's thread, which tries again. */
static int remember(void *user, uint64_t epoch, int32_t state)
{
	struct hf_cluster_node *node = user;
	char text[64];
	int len = snprintf(text, sizeof(text), "%" PRIu64 " %" PRId32 "\n", epoch, state);
	int r = hf_state_dir_save(node->dir, KNOWN, text, (size_t)len);

	if (r < 0 && r != node->known_error)
		hf_log_warn("cannot write to the state directory; it is tried again",
			    "file=" KNOWN " error=%s", strerrorname_np(-r));
	else if (r == 0 && node->known_error)
		hf_log_info("can write to the state directory again", "file=" KNOWN);
	node->known_error = r;
	return r;
}

/* Making and freeing */

static int read_addresses(struct hf_cluster_node *node, const struct hf_config *config)
{
	const struct hf_config_service_addresses *wanted = &config->cluster.addresses;

	node->addresses = calloc(wanted->n + 1, sizeof(*node->addresses));
	if (!node->addresses)
		return hf_trace(-ENOMEM);
	node->n_addresses = wanted->n;
	for (size_t i = 0; i < wanted->n; i++)
		if (hf_service_address_parse(&node->addresses[i], wanted->items[i].text))
			return hf_trace(-EINVAL);
	return 0;
}

static int make_presence(struct hf_cluster_node *node)
{
	char error[ERROR_SIZE] = "";
	int r;

	if (!node->n_addresses)
		return 0;
	r = hf_presence_new(&node->presence, node->addresses, node->n_addresses, error, sizeof(error));
	if (r < 0)
		hf_log_error("cannot use cluster.addresses", "reason=%s", *error ? error : strerror(-r));
	return r;
}

int hf_cluster_node_fork_witness(struct hf_cluster_node *node, const struct hf_config *config)
{
	const struct hf_witness_options options = {
		.postgres = config->store.postgres,
		.service = config->cluster.service,
		.lease_ns = (uint64_t)config->cluster.lease_seconds * HF_NS_PER_S,
		.addresses = node->addresses,
		.n_addresses = node->n_addresses,
		.confine = hf_sandbox_enter,
	};

	return hf_witness_new(&node->witness, &options);
}

int hf_cluster_node_new(struct hf_cluster_node **nodep, const struct hf_config *config)
{
	hf_cleanup(hf_cluster_node_freep) struct hf_cluster_node *node = calloc(1, sizeof(*node));
	int r;

	if (!node)
		return hf_trace(-ENOMEM);
	r = read_addresses(node, config);
	if (r == 0)
		r = make_presence(node);
	if (r == 0 && *config->cluster.fence)
		r = hf_fence_new(&node->fence, config->cluster.fence);
	if (r < 0)
		return hf_trace(r);
	*nodep = node;
	node = NULL;
	return 0;
}

struct hf_cluster_node *hf_cluster_node_free(struct hf_cluster_node *node)
{
	if (!node)
		return NULL;
	hf_cluster_free(node->cluster);
	hf_witness_free(node->witness);
	hf_presence_free(node->presence);
	free(node->addresses);
	if (node->fence)
		hf_fence_free(node->fence);
	free(node->exports);
	free(node);
	return NULL;
}

int hf_cluster_node_start(struct hf_cluster_node *node, const struct hf_config *config,
			  struct hf_state_dir *dir)
{
	struct hf_cluster_options options = {
		.postgres = config->store.postgres,
		.node = {
			.service = config->cluster.service,
			.node = hf_setup_node_name(config, node->node),
			.instance = node->instance,
			.version = HF_VERSION,
			.lease_ns = (uint64_t)config->cluster.lease_seconds * HF_NS_PER_S,
			.automatic = config->cluster.automatic,
			.has_fence = node->fence != NULL,
		},
		.fence = node->fence,
		.witness = node->witness,
		.presence = node->presence,
		.remember = remember,
		.user = node,
	};
	int r;

	node->dir = dir;
	if (config->store.lock_durability == HF_CONFIG_DURABILITY_NONE)
		hf_log_warn(
			"locks are not stored (store.lock_durability: none): clients must reclaim after each "
			"takeover",
			"service=%s", config->cluster.service);
	r = hf_seal_key_find(&node->key, config->server.state_dir);
	if (r < 0 && r != -ENOENT)
		return hf_trace(r);
	if (r == 0) {
		options.node.key = node->key.bytes;
		options.node.key_print = hf_seal_key_print(&node->key);
	}
	r = read_instance(node);
	if (r < 0)
		return hf_trace(r);
	read_known(node, &options.known_epoch, &options.known_state);
	options.node.exports = node->exports = hf_cluster_node_describe_exports(config);
	if (!node->exports)
		return hf_trace(-ENOMEM);
	r = hf_cluster_new(&node->cluster, &options);
	if (r == 0)
		r = hf_cluster_start(node->cluster);
	return hf_trace(r);
}

struct hf_cluster *hf_cluster_node_cluster(struct hf_cluster_node *node)
{
	return node->cluster;
}
