#include "cluster/node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "cluster/fence.h"
#include "loop/loop.h"

#define LOOK_NS        (250 * HF_NS_PER_MS) /* at most this long until a standby sees a change */
#define FENCE_AGAIN_NS HF_NS_PER_S
#define TAKING_LEASES  20 /* to build the service; then something hangs */

struct hf_node {
	struct hf_node_options options; /* (c) but for exports and automatic */
	char *exports;
	enum hf_node_role role;
	char reason[HF_NODE_REASON];
	bool is_refused;
	uint64_t next_at;

	/* Watching */
	bool has_seen;
	struct hf_service_row seen;
	uint64_t changed_at;
	uint64_t history_at;        /* the database has had its present history since then */
	bool has_gone_back;         /* it had another one before that */
	uint64_t looked_at;         /* the last look was then; 0: look again before anything else */
	uint64_t away_since;        /* the database does not answer since then; 0: it does */
	uint64_t owner_first_until; /* the database was away: the owner comes first when it is back */
	uint64_t name_used_since;   /* 0: it is not */
	char unfit[HF_NODE_REASON]; /* why this host cannot serve now; empty: it can */

	/* Taking */
	uint64_t not_before;   /* this node could not serve a moment ago */
	uint64_t told_until;   /* an operator wants this node to serve; 0: none does */
	bool is_leaving;       /* its process ends: it claims nothing more */
	bool is_fenced;        /* the owner in @seen cannot write any more */
	bool has_fence_failed; /* for that owner, at the last try */
	char claim_reason[HF_NODE_REASON];

	/* Serving */
	char owner[HF_NODE_ID]; /* empty: this node has no term */
	uint64_t claimed_at;
	bool has_service; /* what was built for the last term may not have ended yet */
	uint64_t lease_ends;
	char heir[HF_NODE_NAME];
	char history[HF_SERVICE_HISTORY]; /* of the database, in which this node is sure of its lease */
	bool is_released;                 /* the service has ended, and the row can go */
};

int hf_node_new(struct hf_node **nodep, const struct hf_node_options *options, uint64_t now)
{
	struct hf_node *node = calloc(1, sizeof(*node));

	if (!node)
		return hf_trace(-ENOMEM);
	node->options = *options;
	node->next_at = now;
	if (hf_node_set_exports(node, options->exports) < 0)
		return hf_node_free(node), hf_trace(-ENOMEM);
	*nodep = node;
	return 0;
}

struct hf_node *hf_node_free(struct hf_node *node)
{
	if (!node)
		return NULL;
	hf_service_row_deinit(&node->seen);
	free(node->exports);
	free(node);
	return NULL;
}

void hf_node_set_automatic(struct hf_node *node, bool is_automatic)
{
	node->options.automatic = is_automatic;
}

bool hf_node_is_automatic(const struct hf_node *node)
{
	return node->options.automatic;
}

int hf_node_set_exports(struct hf_node *node, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return hf_trace(-ENOMEM);
	free(node->exports);
	node->exports = copy;
	return 0;
}

const char *hf_node_role_name(enum hf_node_role role)
{
	switch (role) {
	case HF_NODE_STANDBY:
		return "standby";
	case HF_NODE_MISMATCHED:
		return "mismatched";
	case HF_NODE_TAKING:
	case HF_NODE_ACTIVE:
		return "active";
	case HF_NODE_STOPPING:
		break;
	}
	return "stopping";
}

/* Watching */

static bool is_standing_by(const struct hf_node *node)
{
	return node->role == HF_NODE_STANDBY || node->role == HF_NODE_MISMATCHED;
}

/* The last term was this instance's. Its process is dead: two cannot have the same state directory. */
static bool was_ours(const struct hf_node *node)
{
	return node->seen.has_lease && strcmp(node->seen.instance, node->options.instance) == 0;
}

static bool has_changed(const struct hf_service_row *before, const struct hf_service_row *now)
{
	/* A database that goes back counts again what it has counted before. */
	return before->has_lease != now->has_lease || before->renewals != now->renewals ||
	       strcmp(before->history, now->history) != 0 ||
	       strcmp(before->lease_owner, now->lease_owner) != 0 || strcmp(before->owner, now->owner) != 0;
}

/* The first line in which two texts differ, that of @ours; if that has ended, that of @theirs. */
static void find_difference(const char *ours, const char *theirs, char *out, size_t size)
{
	const char *line = ours, *other = theirs;
	size_t len;

	while (*line && *other) {
		len = strcspn(line, "\n") + 1;
		if (strncmp(line, other, len) != 0)
			break;
		line += len;
		other += len;
	}
	len = strcspn(*line ? line : other, "\n");
	snprintf(out, size, "%s has: %.*s", *line ? "this node" : "only the active node",
		 (int)HF_MIN(len, (size_t)200), *line ? line : other);
}

/* No node has served yet, but a server outside of a cluster may have used the store. The first claim decides
 * the key of the service, for good. */
static void compare_store(struct hf_node *node)
{
	const struct hf_service_row *row = &node->seen;

	if (row->is_locked) {
		snprintf(node->reason, sizeof(node->reason),
			 "a holdfastd outside of the cluster uses the store under the same name; stop it");
	} else if (row->key_print && row->key_print != node->options.key_print) {
		node->role = HF_NODE_MISMATCHED;
		snprintf(node->reason, sizeof(node->reason),
			 "the store has clients or locks of a server with another key of the file handles; "
			 "start the node first that has its handle.key in server.state_dir, or copy that "
			 "file to this node and restart it");
	}
}

static void compare(struct hf_node *node)
{
	const struct hf_service_row *row = &node->seen;
	char difference[300];

	node->role = HF_NODE_STANDBY;
	node->reason[0] = '\0';
	if (*node->unfit) {
		node->role = HF_NODE_MISMATCHED;
		snprintf(node->reason, sizeof(node->reason), "%s", node->unfit);
		return;
	}
	if (!row->has_lease) {
		compare_store(node);
		return;
	}
	if (node->options.key && memcmp(node->options.key, row->key, HF_SERVICE_KEY) != 0) {
		node->is_refused = true;
		snprintf(node->reason, sizeof(node->reason),
			 "the key of the file handles differs from the one of the service: the file "
			 "handle.key in "
			 "server.state_dir belongs to another server; remove it if no client uses its "
			 "handles");
		return;
	}
	/* The node that served last decides what the service is. */
	if (was_ours(node))
		return;
	if (row->lease_ns != node->options.lease_ns) {
		node->role = HF_NODE_MISMATCHED;
		snprintf(node->reason, sizeof(node->reason),
			 "cluster.lease_seconds is %g here and %g on node %s; make them equal",
			 (double)node->options.lease_ns / (double)HF_NS_PER_S,
			 (double)row->lease_ns / (double)HF_NS_PER_S, row->node);
	} else if (strcmp(node->exports, row->exports) != 0) {
		node->role = HF_NODE_MISMATCHED;
		find_difference(node->exports, row->exports, difference, sizeof(difference));
		snprintf(node->reason, sizeof(node->reason),
			 "the exports differ from those of node %s (%s); make them equal and reload",
			 row->node, difference);
	} else if (node->has_fence_failed) {
		snprintf(node->reason, sizeof(node->reason),
			 "cluster.fence failed for node %s: it may still write, so that this node does not "
			 "take over",
			 row->node);
	}
}

static bool copy_row(struct hf_node *node, const struct hf_service_row *row)
{
	char *exports = row->exports ? strdup(row->exports) : NULL;

	if (row->exports && !exports)
		return false;
	hf_service_row_deinit(&node->seen);
	node->seen = *row;
	node->seen.exports = exports;
	return true;
}

static const char *find_heir(const struct hf_node *node, const char *wanted)
{
	const struct hf_service_row *row = &node->seen;

	for (size_t i = 0; i < row->n_nodes; i++) {
		const struct hf_service_node *other = &row->nodes[i];

		if (strcmp(other->name, node->options.node) != 0 &&
		    (!*wanted || strcmp(other->name, wanted) == 0) &&
		    strcmp(other->role, hf_node_role_name(HF_NODE_STANDBY)) == 0 &&
		    other->seen_ago_ns < node->options.lease_ns)
			return other->name;
	}
	return NULL;
}

static void begin_to_stop(struct hf_node *node, const char *heir, uint64_t now)
{
	snprintf(node->heir, sizeof(node->heir), "%s", heir);
	node->role = HF_NODE_STOPPING;
	snprintf(node->reason, sizeof(node->reason), "hands the service over%s%s", *heir ? " to node " : "",
		 heir);
	node->next_at = HF_MIN(node->next_at, now + node->options.lease_ns / 3);
}

/* May it have the service? */

static uint64_t lease_over_at(const struct hf_node *node)
{
	return node->changed_at + node->seen.lease_ns + node->seen.lease_ns / 3;
}

/* A look after that time still saw no change. To wait alone is not enough: this node may have been cut off
 * from the database. */
static bool saw_lease_over(const struct hf_node *node)
{
	return node->looked_at >= HF_MAX(lease_over_at(node), node->owner_first_until);
}

/* A replica has taken the place of the database since the owner was last sure of its lease. The claim of
 * another node may be lost, which still has its lease. */
static bool is_in_doubt(const struct hf_node *node)
{
	const struct hf_service_row *row = &node->seen;
	bool is_other = row->has_lease ? strcmp(row->history, row->lease_history) != 0 : node->has_gone_back;
	uint64_t lease_ns = row->has_lease ? row->lease_ns : node->options.lease_ns;

	return is_other && node->looked_at < node->history_at + lease_ns + lease_ns / 3;
}

/* For so long an operator's order to take holds: until the lease of a silent owner is over, and the fence has
 * failed once and then succeeded. cli/cluster.c waits longer than that. */
static uint64_t order_ns(const struct hf_node *node)
{
	return 2 * node->options.lease_ns + 2 * HF_FENCE_TIMEOUT_MS * HF_NS_PER_MS;
}

static bool is_told(const struct hf_node *node, uint64_t now)
{
	return now < node->told_until;
}

/* Why may this node claim the service, by its last look? NULL: it may not. */
static const char *find_claim(const struct hf_node *node, uint64_t now)
{
	const struct hf_service_row *row = &node->seen;
	bool wants = node->options.automatic || is_told(node, now);

	if (!node->has_seen || !node->looked_at || node->role != HF_NODE_STANDBY || node->is_refused ||
	    node->is_leaving || now < node->not_before)
		return NULL;
	/* The service of the term before must not go on with the lease of a new one. */
	if (is_in_doubt(node) || node->has_service)
		return NULL;
	if (!row->has_lease) {
		if (!wants || row->is_locked)
			return NULL;
		return row->exists ? "the store joined the cluster" : "first start";
	}
	if (!*row->lease_owner) {
		bool is_heir = strcmp(row->heir, node->options.node) == 0;

		return is_heir || (wants && (!*row->heir || saw_lease_over(node))) ? "handed over" : NULL;
	}
	if (was_ours(node))
		return "restart";
	return wants && saw_lease_over(node) ? "the lease was over" : NULL;
}

/* An operator wants the service here, and the node that serves it does not know that yet. */
static bool must_ask(const struct hf_node *node, uint64_t now)
{
	const struct hf_service_row *row = &node->seen;

	return is_told(node, now) && !node->is_leaving && node->has_seen && node->looked_at &&
	       node->role == HF_NODE_STANDBY && row->has_lease && *row->lease_owner && !was_ours(node) &&
	       strcmp(row->wanted, node->options.node) != 0 && now < lease_over_at(node);
}

static void stand_by(struct hf_node *node, uint64_t now);

void hf_node_saw(struct hf_node *node, enum hf_node_step step, const struct hf_service_row *row,
		 uint64_t sent, uint64_t heard)
{
	bool is_new = !node->has_seen || has_changed(&node->seen, row);
	bool is_other = !node->history_at || strcmp(node->seen.history, row->history) != 0;
	const char *heir;

	if (!copy_row(node, row)) {
		hf_node_failed(node, heard);
		return;
	}
	if (is_new) {
		node->changed_at = heard;
		node->is_fenced = node->has_fence_failed = false;
	}
	if (is_other) {
		node->has_gone_back = node->history_at != 0;
		node->history_at = heard;
	}
	/* Another node would often have to start over where the owner has all in its memory. */
	if (node->away_since && heard - node->away_since > node->options.lease_ns / 2)
		node->owner_first_until = heard + node->options.lease_ns / 3;
	node->away_since = 0;
	node->has_seen = true;
	node->name_used_since = 0;
	if (step == HF_NODE_RENEW) {
		if (strcmp(row->history, node->history) != 0 && heard >= node->lease_ends) {
			stand_by(node, heard);
			return;
		}
		memcpy(node->history, row->history, sizeof(node->history));
		if (node->is_released)
			return;
		node->lease_ends = sent + node->options.lease_ns;
		node->next_at = sent + node->options.lease_ns / 3;
		heir = node->role == HF_NODE_ACTIVE && *row->wanted ? find_heir(node, row->wanted) : NULL;
		if (heir)
			begin_to_stop(node, heir, heard);
		return;
	}
	if (is_standing_by(node))
		compare(node);
	node->looked_at = heard;
	node->next_at = must_ask(node, heard) || find_claim(node, heard)
				? heard
				: heard + HF_MIN(LOOK_NS, node->options.lease_ns / 6);
}

void hf_node_failed(struct hf_node *node, uint64_t now)
{
	if (!node->away_since)
		node->away_since = now;
	node->looked_at = 0;
	node->next_at = now + HF_MIN(LOOK_NS, node->options.lease_ns / 12);
}

void hf_node_name_is_used(struct hf_node *node, uint64_t now)
{
	if (!node->name_used_since)
		node->name_used_since = now;
	node->next_at = now + LOOK_NS;
	snprintf(node->reason, sizeof(node->reason),
		 "another holdfastd takes part in the cluster as node %s; give each node a name of its own "
		 "(cluster.node)",
		 node->options.node);
	/* The other one was seen lately. If it lives, it is seen again. */
	if (now - node->name_used_since > 2 * node->options.lease_ns)
		node->is_refused = true;
}

/* Taking */

/* The last term was a node's of this name, by another state directory if not by this one: this machine was
 * installed anew. A look succeeds only if no other instance of this name was seen lately. */
static bool had_our_name(const struct hf_node *node)
{
	return strcmp(node->seen.node, node->options.node) == 0;
}

/* Without the consent of the node before: it may live and just be out of sight. The command for this node's
 * own name would switch this machine off. */
static bool must_fence(const struct hf_node *node)
{
	return node->options.has_fence && node->seen.has_lease && *node->seen.lease_owner &&
	       !was_ours(node) && !had_our_name(node) && !node->is_fenced;
}

void hf_node_fenced(struct hf_node *node, bool succeeded, uint64_t now)
{
	node->is_fenced = succeeded;
	node->has_fence_failed = !succeeded;
	node->next_at = now;
	if (succeeded)
		return;
	node->looked_at = 0;
	node->next_at = now + FENCE_AGAIN_NS;
	compare(node);
}

/* The next look shows whether the row has the wish. */
void hf_node_asked(struct hf_node *node, uint64_t now)
{
	node->looked_at = 0;
	node->next_at = now;
}

void hf_node_claimed(struct hf_node *node, const char *owner, uint64_t sent)
{
	snprintf(node->owner, sizeof(node->owner), "%s", owner);
	node->role = HF_NODE_TAKING;
	node->reason[0] = '\0';
	node->told_until = 0;
	node->is_released = false;
	node->has_service = true;
	node->claimed_at = sent;
	memcpy(node->history, node->seen.history, sizeof(node->history));
	node->lease_ends = sent + node->options.lease_ns;
	node->next_at = sent + node->options.lease_ns / 3;
	if (node->is_leaving) /* no service was built for this term, and none will be */
		hf_node_released(node, false, sent);
}

void hf_node_not_claimed(struct hf_node *node, uint64_t now)
{
	node->looked_at = 0;
	node->next_at = now;
}

/* Serving */

void hf_node_serves(struct hf_node *node)
{
	if (node->role == HF_NODE_TAKING)
		node->role = HF_NODE_ACTIVE;
}

static void stand_by(struct hf_node *node, uint64_t now)
{
	node->role = HF_NODE_STANDBY;
	node->reason[0] = node->owner[0] = node->heir[0] = '\0';
	node->lease_ends = 0;
	node->is_released = false;
	node->has_seen = false; /* it looks at the row anew, from now on */
	node->looked_at = 0;
	node->next_at = now;
}

void hf_node_deposed(struct hf_node *node, uint64_t now)
{
	stand_by(node, now);
}

void hf_node_released(struct hf_node *node, bool has_failed, uint64_t now)
{
	if (has_failed)
		node->not_before = now + node->options.lease_ns;
	node->has_service = false;
	node->next_at = now;
	if (is_standing_by(node))
		return;
	node->role = HF_NODE_STOPPING;
	node->is_released = true;
	node->lease_ends = 0;
	node->next_at = now;
}

void hf_node_handed_over(struct hf_node *node, uint64_t now)
{
	stand_by(node, now);
}

/* The next step */

enum hf_node_step hf_node_next(struct hf_node *node, uint64_t *atp)
{
	const char *why;

	*atp = node->next_at;
	if (node->is_refused)
		return HF_NODE_NOTHING;
	if (!is_standing_by(node))
		return node->is_released ? HF_NODE_HAND_OVER : HF_NODE_RENEW;
	if (must_ask(node, node->next_at))
		return HF_NODE_ASK;
	why = find_claim(node, node->next_at);
	if (!why)
		return HF_NODE_LOOK;
	snprintf(node->claim_reason, sizeof(node->claim_reason), "%s", why);
	return must_fence(node) ? HF_NODE_FENCE : HF_NODE_CLAIM;
}

/* Orders */

int hf_node_move(struct hf_node *node, const char *to, uint64_t now, char *why, size_t size)
{
	const char *heir;

	if (node->role != HF_NODE_ACTIVE) {
		snprintf(why, size, "This node does not serve; the active node is %s.",
			 *node->seen.node ? node->seen.node : "unknown");
		return -EBUSY;
	}
	heir = find_heir(node, to);
	if (!heir) {
		snprintf(why, size, *to ? "The node %s is not a ready standby." : "No standby is ready%s.",
			 to);
		return -EBUSY;
	}
	begin_to_stop(node, heir, now);
	return 0;
}

int hf_node_take(struct hf_node *node, uint64_t now, char *why, size_t size)
{
	if (!is_standing_by(node)) {
		snprintf(why, size, "This node serves already.");
		return -EBUSY;
	}
	if (node->role == HF_NODE_MISMATCHED || !node->has_seen || node->is_refused) {
		snprintf(why, size, "%s",
			 *node->reason ? node->reason : "This node has not seen the database yet.");
		return -EBUSY;
	}
	node->told_until = now + order_ns(node);
	node->next_at = now;
	return 0;
}

void hf_node_set_unfit(struct hf_node *node, const char *why, uint64_t now)
{
	const char *heir;

	snprintf(node->unfit, sizeof(node->unfit), "%s", why);
	if (is_standing_by(node))
		compare(node);
	heir = *why && node->role == HF_NODE_ACTIVE ? find_heir(node, "") : NULL;
	if (heir)
		begin_to_stop(node, heir, now);
}

void hf_node_leave(struct hf_node *node, uint64_t now)
{
	node->is_leaving = true;
	if (node->role == HF_NODE_ACTIVE || node->role == HF_NODE_TAKING)
		begin_to_stop(node, "", now);
}

/* Questions */

enum hf_node_role hf_node_role(const struct hf_node *node)
{
	return node->role;
}

const char *hf_node_reason(const struct hf_node *node)
{
	return node->reason;
}

bool hf_node_is_stuck(const struct hf_node *node, uint64_t now)
{
	return node->role == HF_NODE_TAKING &&
	       now > node->claimed_at + TAKING_LEASES * node->options.lease_ns;
}

bool hf_node_is_refused(const struct hf_node *node)
{
	return node->is_refused;
}

uint64_t hf_node_lease_ends(const struct hf_node *node)
{
	return node->lease_ends;
}

const char *hf_node_exports(const struct hf_node *node)
{
	return node->exports;
}

const char *hf_node_owner(const struct hf_node *node)
{
	return node->owner;
}

const char *hf_node_heir(const struct hf_node *node)
{
	return node->heir;
}

const char *hf_node_history(const struct hf_node *node)
{
	return node->history;
}

const struct hf_service_row *hf_node_seen(const struct hf_node *node)
{
	return &node->seen;
}

uint64_t hf_node_changed_at(const struct hf_node *node)
{
	return node->changed_at;
}

const char *hf_node_claim_reason(const struct hf_node *node)
{
	return node->claim_reason;
}
