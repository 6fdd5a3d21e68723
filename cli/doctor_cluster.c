/* The cluster as seen from this node: can another node take over, and can this one? */
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

#define STALE_LEASES  4  /* a node that was not seen for so many leases, */
#define STALE_S       10 /* and so many seconds more, is gone */
#define COMMITS_LEASE 10 /* commits that must fit into one lease */

static double seconds(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static bool is(const json_t *node, const char *role)
{
	return cli_text_is(node, "role", role);
}

/* For a sentence */
static const char *named(const json_t *object, const char *key)
{
	const char *text = cli_text(object, key);

	return text ? text : "-";
}

/* Nodes */

static time_t seen_at(const json_t *node)
{
	const char *seen = cli_text(node, "last_seen");
	struct tm tm = { 0 };

	return seen && strptime(seen, "%Y-%m-%dT%H:%M:%S", &tm) ? timegm(&tm) : 0;
}

/* All these times are of the database's clock. The node that was seen last tells what the time is there. */
static time_t last_seen_of_all(const json_t *nodes)
{
	const json_t *node;
	time_t last = 0;
	size_t i;

	json_array_foreach(nodes, i, node) if (seen_at(node) > last) last = seen_at(node);
	return last;
}

static void tell_of_node(struct cli_findings *findings, const json_t *node, double silent, bool is_gone)
{
	char what[512];

	if (is_gone) {
		snprintf(what, sizeof(what), "the node %s was not seen for %.0f s", named(node, "name"),
			 silent);
		cli_find(findings, CLI_NOTE, what, "it cannot take over",
			 "start holdfastd there, and look at its way to the database");
	} else if (is(node, "mismatched")) {
		snprintf(what, sizeof(what), "the node %s is mismatched%s%s", named(node, "name"),
			 cli_text(node, "reason") ? ": " : "",
			 cli_text(node, "reason") ? cli_text(node, "reason") : "");
		cli_find(findings, CLI_BAD, what, "it does not take over when the active node is gone",
			 "make its exports and its lease those of the active node, and reload it");
	} else {
		snprintf(what, sizeof(what), "the node %s is %s", named(node, "name"), named(node, "role"));
		cli_find(findings, CLI_FINE, what, NULL, NULL);
	}
}

static void tell_of_counts(struct cli_findings *findings, size_t n_active, size_t n_ready)
{
	if (n_active > 1)
		cli_find(findings, CLI_BAD, "several nodes say that they are active",
			 "at most one has the lease; the others answer no client",
			 "look at their logs, and at their way to the database");
	if (n_ready == 0)
		cli_find(findings, CLI_BAD, "no standby is ready",
			 "if the active node dies, the service is down until it is back",
			 "start holdfastd on another node, with the same cluster.service and exports");
}

static void check_nodes(struct cli_findings *findings, const json_t *cluster)
{
	const json_t *nodes = json_object_get(cluster, "nodes"), *node;
	double lease = seconds(json_object_get(cluster, "lease"), "seconds");
	double patience = STALE_LEASES * lease + STALE_S;
	const char *own = cli_text(cluster, "node"), *version = NULL;
	size_t i, n_active = 0, n_ready = 0;
	time_t now = last_seen_of_all(nodes);
	bool differ = false;

	json_array_foreach(nodes, i, node)
	{
		double silent = difftime(now, seen_at(node));
		bool is_gone = silent > patience;

		if (!own || !cli_text_is(node, "name", own))
			tell_of_node(findings, node, silent, is_gone);
		if (is_gone)
			continue;
		/* An active node is seen each third of its lease. One that died keeps its last role. */
		n_active += is(node, "active") && silent <= lease + 1;
		n_ready += is(node, "standby");
		differ |= version && !cli_text_is(node, "version", version);
		version = cli_text(node, "version");
	}
	tell_of_counts(findings, n_active, n_ready);
	if (differ)
		cli_find(findings, CLI_NOTE, "the nodes run different versions",
			 "nothing during an upgrade; a takeover changes the version that serves",
			 "install the same version on all nodes");
}

/* A node with a reason does less than its role says: it is mismatched, does not serve, or cannot take over.
 */
static void check_this_node(struct cli_findings *findings, const json_t *cluster)
{
	const char *reason = cli_text(cluster, "reason");
	char what[1024];

	snprintf(what, sizeof(what), "this node %s is %s for the service %s%s%s", named(cluster, "node"),
		 named(cluster, "role"), named(cluster, "service"), reason ? ": " : "", reason ? reason : "");
	if (is(cluster, "mismatched"))
		cli_find(findings, CLI_BAD, what, "it does not take over when the active node is gone",
			 "make its exports and its lease those of the active node, and reload it");
	else if (is(cluster, "stopping"))
		cli_find(findings, CLI_BAD, what, "it answers no client",
			 "look at its way to the database, and at the database");
	else if (reason)
		cli_find(findings, CLI_BAD, what, "it may not serve when it should",
			 "look at the log of this node");
	else
		cli_find(findings, CLI_FINE, what, NULL, NULL);
	if (!json_is_true(json_object_get(cluster, "automatic")))
		cli_find(findings, CLI_NOTE, "this node takes over only when told",
			 "nothing, if another program says `holdfast cluster take`",
			 "otherwise set cluster.automatic: true");
}

static void check_lease(struct cli_findings *findings, const json_t *cluster)
{
	static const char mend[] =
		"look at the logs of the nodes; `holdfast cluster take` on the one that is to serve";
	const json_t *lease = json_object_get(cluster, "lease");
	const char *holder = cli_text(lease, "holder");
	double ago = seconds(lease, "renewed_seconds_ago");
	char what[512];

	if (!holder) {
		cli_find(findings, CLI_BAD, "no node serves", "clients wait", mend);
	} else if (ago > 2 * seconds(lease, "seconds")) {
		snprintf(what, sizeof(what),
			 "the node %s has not renewed its lease for %.0f s, and no node took over", holder,
			 ago);
		cli_find(findings, CLI_BAD, what, "clients wait", mend);
	}
}

static void check_fence(struct cli_findings *findings, const json_t *cluster)
{
	if (json_is_true(json_object_get(cluster, "fence")))
		cli_find(findings, CLI_FINE, "a fence is configured", NULL, NULL);
	else
		cli_find(
			findings, CLI_NOTE, "no fence is configured",
			"a write that the old node's kernel began before its lease ended may reach the files "
			"after a takeover, over the writes of the new node",
			"set cluster.fence to a command that cuts the old node off its disk, or powers it "
			"off");
}

/* Addresses, on this host */

/* The kernel has no carrier to tell of an interface that is down. */
static bool has_link(const char *interface)
{
	char path[128], carrier[8] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/net/%s/carrier", interface);
	file = fopen(path, "re");
	if (!file)
		return true; /* it cannot be seen here */
	if (!fgets(carrier, sizeof(carrier), file))
		*carrier = '0';
	fclose(file);
	return *carrier == '1';
}

static void check_address(struct cli_findings *findings, const char *address)
{
	const char *percent = strchr(address, '%'), *interface = percent ? percent + 1 : "";
	char what[512];

	if (!if_nametoindex(interface)) {
		snprintf(what, sizeof(what), "the interface of the service's address %s is missing here",
			 address);
		cli_find(findings, CLI_BAD, what,
			 "this node cannot have the address, so clients do not reach it after a takeover",
			 "correct cluster.addresses, or set up the interface");
	} else if (!has_link(interface)) {
		snprintf(what, sizeof(what), "the interface of the service's address %s has no link",
			 address);
		cli_find(findings, CLI_BAD, what, "clients do not reach this node at that address",
			 "look at the cable, the switch and `ip link`");
	} else {
		snprintf(what, sizeof(what), "the interface of the service's address %s is here", address);
		cli_find(findings, CLI_FINE, what, NULL, NULL);
	}
}

/* The database's pace */

/* The value of a line "NAME VALUE" of the metrics; -1: there is none. */
static double metric(const char *metrics, const char *name)
{
	size_t len = strlen(name);

	for (const char *line = metrics; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, len) == 0 && line[len] == ' ')
			return strtod(line + len, NULL);
	}
	return -1;
}

static void check_pace(struct cli_findings *findings, const json_t *cluster)
{
	double lease = seconds(json_object_get(cluster, "lease"), "seconds"), sum, n;
	struct cli_response response = { 0 };
	char what[256];

	if (cli_request(findings->cli, "GET", "/metrics", &response) == 0 && response.status == 200) {
		sum = metric(response.body, "holdfast_store_commit_seconds_sum");
		n = metric(response.body, "holdfast_store_commit_seconds_count");
		snprintf(what, sizeof(what), "a commit takes %.1f ms on average, and the lease is %g s",
			 n > 0 ? 1000 * sum / n : 0, lease);
		if (n > 0 && COMMITS_LEASE * sum / n > lease)
			cli_find(findings, CLI_BAD, what,
				 "a slow moment of the database ends the lease, and the service moves or "
				 "stops",
				 "raise cluster.lease_seconds on all nodes, or find out why the database is "
				 "slow");
		else if (n > 0)
			cli_find(findings, CLI_FINE, what, NULL, NULL);
	}
	free(response.body);
}

void cli_doctor_cluster(struct cli_findings *findings)
{
	struct cli_response response = { 0 };
	json_t *cluster = NULL;
	const json_t *address;
	size_t i;

	if (cli_request(findings->cli, "GET", "/api/v1/cluster", &response) == 0 && response.status == 200)
		cluster = json_loadb(response.body, response.len, 0, NULL);
	free(response.body);
	if (!cluster)
		return;
	check_this_node(findings, cluster);
	check_lease(findings, cluster);
	check_nodes(findings, cluster);
	check_fence(findings, cluster);
	check_pace(findings, cluster);
	json_array_foreach(json_object_get(cluster, "addresses"), i, address)
	{
		if (json_is_string(address))
			check_address(findings, json_string_value(address));
	}
	json_decref(cluster);
}
