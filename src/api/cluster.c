/*
 * The nodes of the cluster, an operator's orders to them, and what a standby answers.
 *
 * A standby has no service: no locks, no clients, no exports. It shows the cluster
 * and its own health, and refuses all other calls with the name of the active node.
 */
#include "cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/log.h"

const char *hf_api_role(const struct hf_api *api)
{
	struct hf_cluster_view view;

	if (!api->options.cluster.cluster)
		return NULL;
	hf_cluster_view(api->options.cluster.cluster, &view);
	return hf_node_role_name(view.role);
}

static void fail(struct hf_api_request *request, unsigned int code, const char *error, const char *format,
		 ...) HF_PRINTF(4, 5);

static void fail(struct hf_api_request *request, unsigned int code, const char *error, const char *format,
		 ...)
{
	char text[3 * HF_NODE_NAME + HF_NODE_REASON];
	const char *message;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	message = hf_api_copy(request, text, strlen(text));
	if (message)
		hf_api_fail(request, code, error, message);
}

/* What a standby answers */

/* "a standby; b is active", "mismatched; no node is active" */
static void describe_standby(char *out, size_t size, const struct hf_cluster_view *view)
{
	const char *role = view->role == HF_NODE_STANDBY ? "a standby" : hf_node_role_name(view->role);
	bool has_active = *view->holder && strcmp(view->holder, view->node) != 0;

	if (view->role == HF_NODE_TAKING || view->role == HF_NODE_ACTIVE)
		snprintf(out, size, "taking the service over, and does not serve yet");
	else
		snprintf(out, size, "%s; %s is active", role, has_active ? view->holder : "no node");
}

void hf_api_refuse_as_standby(struct hf_api_request *request)
{
	struct hf_cluster_view view;
	char standby[HF_NODE_NAME + 64];

	hf_cluster_view(request->api->options.cluster.cluster, &view);
	describe_standby(standby, sizeof(standby), &view);
	fail(request, 503, "standby", "The node %s of the service %s is %s.", view.node, view.service,
	     standby);
}

/* A node serves with a service and a lease. */
void hf_api_query_ready_in_cluster(struct hf_api_request *request)
{
	struct hf_cluster_view view;

	hf_cluster_view(request->api->options.cluster.cluster, &view);
	if (hf_api_is_standby(request->api))
		request->not_ready = view.role == HF_NODE_TAKING || view.role == HF_NODE_ACTIVE
					     ? "starting"
					     : hf_node_role_name(view.role);
	else if (view.role == HF_NODE_STOPPING || !view.lease_left_ns)
		fail(request, 503, "not_serving", "This node does not serve now%s%s.",
		     *view.reason ? ": " : "", view.reason);
}

void hf_api_query_standby_status(struct hf_api_request *request)
{
	struct hf_api_status *status = &request->status;
	struct hf_cluster_view view;
	char standby[HF_NODE_NAME + 64], reason[sizeof(standby) + 32];

	hf_cluster_view(request->api->options.cluster.cluster, &view);
	describe_standby(standby, sizeof(standby), &view);
	snprintf(reason, sizeof(reason), "this node is %s", standby);
	status->grace.reason = hf_api_copy(request, reason, strlen(reason));
	status->epoch = view.epoch;
	status->backend = "postgres"; /* the only store of a cluster */
}

/* GET */

static json_t *takeover_of(const struct hf_cluster_takeover *takeover)
{
	if (!takeover->at)
		return json_null();
	return json_pack("{s:o,s:o,s:o,s:o,s:s,s:o}", "at", hf_api_render_time(takeover->at), "from",
			 hf_api_render_text(*takeover->from ? takeover->from : NULL), "to",
			 hf_api_render_text(takeover->to), "reason", hf_api_render_text(takeover->reason),
			 "result", takeover->continued ? "continued" : "reclaimed", "seconds",
			 hf_api_render_seconds((uint64_t)(takeover->seconds * 1e9)));
}

static json_t *nodes_of(const struct hf_cluster_view *view)
{
	json_t *nodes = json_array();

	for (size_t i = 0; i < view->n_nodes; i++) {
		const struct hf_cluster_node_view *node = &view->nodes[i];

		json_array_append_new(nodes,
				      json_pack("{s:s,s:s,s:o,s:s,s:o}", "name", node->name, "role",
						hf_node_role_name(node->role), "reason",
						hf_api_render_text(*node->reason ? node->reason : NULL),
						"version", node->version, "last_seen",
						hf_api_render_time(node->last_seen)));
	}
	return nodes;
}

static json_t *addresses_of(const char *text)
{
	json_t *addresses = json_array();

	for (size_t len; *text; text += len + (text[len] == ' ')) {
		len = strcspn(text, " ");
		json_array_append_new(addresses, json_stringn(text, len));
	}
	return addresses;
}

json_t *hf_api_render_cluster(struct hf_api_request *request)
{
	const struct hf_api_cluster *options = &request->api->options.cluster;
	struct hf_cluster_view view;
	bool has_holder;

	hf_cluster_view(options->cluster, &view);
	has_holder = *view.holder != '\0';
	return json_pack("{s:s,s:s,s:s,s:o,s:I,s:{s:o,s:o,s:o,s:o},s:o,s:o,s:o,s:b,s:b}", "service",
			 view.service, "node", view.node, "role", hf_node_role_name(view.role), "reason",
			 hf_api_render_text(*view.reason ? view.reason : NULL), "epoch",
			 (json_int_t)view.epoch, "lease", "holder",
			 hf_api_render_text(has_holder ? view.holder : NULL), "renewed_seconds_ago",
			 has_holder ? hf_api_render_seconds(view.renewed_ago_ns) : json_null(), "seconds",
			 hf_api_render_seconds(view.lease_ns), "seconds_left",
			 hf_api_render_seconds(view.lease_left_ns), "nodes", nodes_of(&view), "last_takeover",
			 takeover_of(&view.last_takeover), "addresses", addresses_of(options->addresses),
			 "fence", options->has_fence, "automatic", view.is_automatic);
}

static bool has_cluster(struct hf_api_request *request)
{
	if (!request->api->options.cluster.cluster)
		hf_api_fail(request, 404, "not_found",
			    "This server is no node of a cluster: cluster.service is empty.");
	return !request->code;
}

int hf_api_query_cluster(struct hf_api_request *request)
{
	has_cluster(request);
	return HF_API_DONE;
}

/* Orders; the log names the operator's address */

static void end_order(struct hf_api_request *request, int r, const char *why)
{
	if (r < 0)
		fail(request, 409, "refused", "%s", *why ? why : strerror(-r));
}

int hf_api_query_move(struct hf_api_request *request)
{
	struct hf_cluster *cluster = request->api->options.cluster.cluster;
	const char *to = hf_api_target_param(&request->target, "to");
	char why[HF_NODE_REASON] = "", standby[HF_NODE_NAME + 64], quoted[256];
	struct hf_cluster_view view;
	int r;

	if (!has_cluster(request))
		return HF_API_DONE;
	if (to && !*to) {
		hf_api_fail(request, 400, "bad_request", "to must be the name of a node.");
		return HF_API_DONE;
	}
	hf_cluster_view(cluster, &view);
	if (hf_api_is_standby(request->api)) {
		describe_standby(standby, sizeof(standby), &view);
		fail(request, 409, "not_active",
		     "Only the active node can hand the service over; the node %s is %s.", view.node,
		     standby);
		return HF_API_DONE;
	}
	r = hf_cluster_move(cluster, to, why, sizeof(why));
	hf_log_info("an operator moves the service", "peer=%s to=%s answer=\"%s\"", request->peer,
		    to ? hf_log_quote(quoted, sizeof(quoted), to, strlen(to)) : "any", r < 0 ? why : "done");
	end_order(request, r, why);
	return HF_API_DONE;
}

int hf_api_query_take(struct hf_api_request *request)
{
	char why[HF_NODE_REASON] = "";
	int r;

	if (!has_cluster(request))
		return HF_API_DONE;
	r = hf_cluster_take(request->api->options.cluster.cluster, why, sizeof(why));
	hf_log_info("an operator has this node take the service", "peer=%s answer=\"%s\"", request->peer,
		    r < 0 ? why : "done");
	end_order(request, r, why);
	return HF_API_DONE;
}

/* The event */

void hf_api_tell_takeover(struct hf_api *api)
{
	struct hf_cluster_view view;
	json_t *takeover;
	char *text;

	hf_cluster_view(api->options.cluster.cluster, &view);
	if (!view.last_takeover.at)
		return;
	takeover = takeover_of(&view.last_takeover);
	/* Every event has the time at which it was told. */
	json_object_set_new(takeover, "time",
			    json_real((double)(hf_loop_wall(api->options.loop) / HF_NS_PER_MS) / 1000.0));
	text = json_dumps(takeover, JSON_COMPACT | JSON_REAL_PRECISION(15));
	if (text)
		hf_events_add(&api->events, "takeover", text, strlen(text));
	free(text);
	json_decref(takeover);
}
