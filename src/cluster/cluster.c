#include "cluster/cluster.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/macros.h"
#include "cluster/connections.h"
#include "cluster/fence.h"
#include "cluster/presence.h"
#include "cluster/witness.h"
#include "loop/loop.h"

#define WAIT_NS      (250 * HF_NS_PER_MS) /* so often it looks at links and lease */
#define REMEMBER_GAP HF_NS_PER_S          /* so soon it tries again to make durable what it knows */
/* So often connections are stored, if they change. Clients decide how many there are, so many are stored less
 * often. */
#define CONNECTIONS_GAP(len) (WAIT_NS * (1 + (len) / 65536))

struct hf_cluster {
	struct hf_cluster_options options; /* (c) */
	struct hf_service *service;        /* the thread's */
	uint64_t held_until;               /* the thread's: the lease for which it held the addresses last */
	uint8_t *stored;                   /* the thread's: the connections that the database has */
	size_t stored_len;
	uint64_t stored_at;
	uint64_t forgets_since; /* the thread's: what is known could not be made durable since then; 0: it
				   could */
	uint64_t remember_at;   /* the thread's: not before that */
	struct hf_lease lease;
	pthread_t thread;
	bool has_thread;

	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t wake;
	bool is_ending;
	bool is_claiming; /* the thread waits for the answer of the database */
	struct hf_node *node;
	uint8_t key[HF_CLUSTER_KEY];
	uint64_t known_epoch;
	int32_t known_state;
	bool must_remember;         /* what is known is not durable yet */
	bool must_set_exports;      /* the database has older ones */
	bool was_reachable;         /* the database, at the last step */
	bool had_lease;             /* at the last look; for the log */
	bool is_slow;               /* the database, for this lease; for the log */
	bool is_refused;            /* and the home loop was told */
	char unfit[HF_NODE_REASON]; /* by the daemon */

	/* This term */
	bool is_present;   /* the addresses are here, and the home loop was told */
	uint64_t began_at; /* without service since then */
	char predecessor[HF_NODE_NAME];
	bool must_report;
	uint64_t report_at; /* not before that */
	struct hf_service_takeover report;
	uint64_t n_continued, n_reclaimed;
	uint16_t port;       /* that clients connect to */
	bool must_withdraw;  /* ordered, and not done */
	bool is_withdrawing; /* ordered: the addresses do not come back in this term */

	/* Events */
	struct hf_loop *loop; /* NULL: none */
	hf_cluster_event_fn fn;
	void *user;
	struct hf_task task;
	bool is_posted;
	unsigned int events; /* bits of those that no loop has heard of */
};

static uint64_t read_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * HF_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void make_random(void *out, size_t len)
{
	uint8_t *p = out;

	while (len) {
		ssize_t n = getrandom(p, len, 0);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
	}
}

static void make_owner(char owner[static HF_NODE_ID])
{
	uint8_t bytes[(HF_NODE_ID - 1) / 2];

	make_random(bytes, sizeof(bytes));
	*hf_hex_put(owner, bytes, sizeof(bytes)) = '\0';
}

/* Events */

static void post_events(struct hf_cluster *cluster)
{
	if (cluster->loop && cluster->events && !cluster->is_posted) {
		cluster->is_posted = true;
		hf_loop_post(cluster->loop, &cluster->task);
	}
}

static void tell(struct hf_cluster *cluster, enum hf_cluster_event event)
{
	cluster->events |= 1u << event;
	post_events(cluster);
}

static void deliver(struct hf_task *task)
{
	struct hf_cluster *cluster = hf_container_of(task, struct hf_cluster, task);
	hf_cluster_event_fn fn;
	unsigned int events;
	void *user;

	pthread_mutex_lock(&cluster->lock);
	cluster->is_posted = false;
	fn = cluster->fn;
	user = cluster->user;
	events = fn ? cluster->events : 0;
	cluster->events &= ~events;
	pthread_mutex_unlock(&cluster->lock);
	for (enum hf_cluster_event i = HF_CLUSTER_CLAIMED; i <= HF_CLUSTER_WITHDRAWN; i++)
		if (events & 1u << i)
			fn(user, i);
}

void hf_cluster_set_listener(struct hf_cluster *cluster, struct hf_loop *loop, hf_cluster_event_fn fn,
			     void *user)
{
	struct hf_loop *before;

	pthread_mutex_lock(&cluster->lock);
	before = cluster->loop;
	cluster->loop = NULL;
	cluster->fn = NULL;
	pthread_mutex_unlock(&cluster->lock);
	if (before)
		hf_loop_drain(before); /* the task belongs to the loop until it has run */
	pthread_mutex_lock(&cluster->lock);
	cluster->loop = loop;
	cluster->fn = fn;
	cluster->user = user;
	post_events(cluster);
	pthread_mutex_unlock(&cluster->lock);
}

/* What follows from the node's state; with the lock */

static void note_lease(struct hf_cluster *cluster)
{
	uint64_t ends = hf_node_lease_ends(cluster->node);
	uint64_t now = read_clock();
	bool has_lease = ends > now;

	hf_lease_set(&cluster->lease, ends, now);
	if (has_lease == cluster->had_lease)
		return;
	cluster->had_lease = has_lease;
	if (!has_lease && hf_node_role(cluster->node) == HF_NODE_ACTIVE)
		hf_log_error("the lease of the service is over: this node has not reached the database in "
			     "time, and "
			     "serves no client until it does",
			     "service=%s node=%s", cluster->options.node.service, cluster->options.node.node);
	else if (has_lease && hf_node_role(cluster->node) == HF_NODE_ACTIVE)
		hf_log_info("the lease of the service is renewed: this node serves again",
			    "service=%s node=%s", cluster->options.node.service, cluster->options.node.node);
}

/* From the claim to the end of the term. */
static void tell_witness(struct hf_cluster *cluster)
{
	if (cluster->options.witness)
		hf_witness_tell(cluster->options.witness, hf_node_owner(cluster->node));
}

/* A node that is deposed has no service any more; the events before it have no meaning. */
static void note_role(struct hf_cluster *cluster, enum hf_node_role before)
{
	enum hf_node_role role = hf_node_role(cluster->node);
	bool was_serving = before == HF_NODE_TAKING || before == HF_NODE_ACTIVE || before == HF_NODE_STOPPING;
	bool is_standing_by = role == HF_NODE_STANDBY || role == HF_NODE_MISMATCHED;

	note_lease(cluster);
	if (hf_node_is_refused(cluster->node)) {
		if (cluster->is_refused)
			return;
		cluster->is_refused = true;
		hf_log_error("this node cannot take part in the cluster", "service=%s node=%s reason=%s",
			     cluster->options.node.service, cluster->options.node.node,
			     hf_node_reason(cluster->node));
		tell(cluster, HF_CLUSTER_REFUSED);
		return;
	}
	if (role == before)
		return;
	if (role == HF_NODE_TAKING || (was_serving && is_standing_by))
		tell_witness(cluster);
	if (role == HF_NODE_STOPPING)
		tell(cluster, HF_CLUSTER_HANDS_OVER);
	if (role == HF_NODE_MISMATCHED)
		hf_log_warn("this node cannot take the service over", "service=%s node=%s reason=%s",
			    cluster->options.node.service, cluster->options.node.node,
			    hf_node_reason(cluster->node));
	else if (before == HF_NODE_MISMATCHED)
		hf_log_info("this node can take the service over", "service=%s node=%s",
			    cluster->options.node.service, cluster->options.node.node);
	if (was_serving && is_standing_by)
		cluster->must_report = false;
}

/* Steps. Each is called without the lock: it blocks. */

static void make_self(struct hf_cluster *cluster, struct hf_service_self *self, char reason[HF_NODE_REASON])
{
	const struct hf_node_options *options = &cluster->options.node;

	snprintf(reason, HF_NODE_REASON, "%s", hf_node_reason(cluster->node));
	*self = (struct hf_service_self){
		.node = options->node,
		.instance = options->instance,
		.role = hf_node_role_name(hf_node_role(cluster->node)),
		.reason = reason,
		.version = options->version,
		.gone_ns = options->lease_ns + options->lease_ns / 3,
		.history = hf_node_history(cluster->node),
	};
}

static void note_reached(struct hf_cluster *cluster, bool is_reached)
{
	if (is_reached == cluster->was_reachable)
		return;
	cluster->was_reachable = is_reached;
	if (is_reached)
		hf_log_info("the database of the cluster answers", "service=%s",
			    cluster->options.node.service);
	else
		hf_log_warn("the database of the cluster does not answer", "service=%s reason=%s",
			    cluster->options.node.service, hf_service_message(cluster->service));
}

/* Three steps must fit into the lease. A step that was not answered says nothing about the pace. */
static void note_pace(struct hf_cluster *cluster, uint64_t took_ns)
{
	bool is_slow = took_ns > cluster->options.node.lease_ns / 3;

	if (is_slow && !cluster->is_slow)
		hf_log_warn("the database is too slow for cluster.lease_seconds: make it longer on all nodes",
			    "service=%s answer_seconds=%.3f lease_seconds=%g", cluster->options.node.service,
			    (double)took_ns / (double)HF_NS_PER_S,
			    (double)cluster->options.node.lease_ns / (double)HF_NS_PER_S);
	cluster->is_slow = is_slow;
}

/* Beyond what the database has: it may have gone back. */
static void learn(struct hf_cluster *cluster, uint64_t epoch, int32_t state)
{
	cluster->must_remember |= epoch > cluster->known_epoch || state > cluster->known_state;
	cluster->known_epoch = HF_MAX(cluster->known_epoch, epoch);
	cluster->known_state = HF_MAX(cluster->known_state, state);
}

static void remember(struct hf_cluster *cluster, uint64_t now)
{
	uint64_t epoch;
	int32_t state;
	bool must;

	pthread_mutex_lock(&cluster->lock);
	must = cluster->must_remember && now >= cluster->remember_at;
	if (must)
		cluster->must_remember = false;
	epoch = cluster->known_epoch;
	state = cluster->known_state;
	pthread_mutex_unlock(&cluster->lock);
	if (!must)
		return;
	if (cluster->options.remember(cluster->options.user, epoch, state) == 0) {
		cluster->forgets_since = cluster->remember_at = 0;
		return;
	}
	if (!cluster->forgets_since)
		cluster->forgets_since = now;
	cluster->remember_at = now + REMEMBER_GAP;
	pthread_mutex_lock(&cluster->lock);
	cluster->must_remember = true;
	pthread_mutex_unlock(&cluster->lock);
}

/* Clients are told of the state number only when this node will know it after a restart, too. A state
 * directory that cannot be written must not keep the service from them, so this waits no longer than a lease.
 */
static bool may_tell_clients(const struct hf_cluster *cluster, uint64_t now)
{
	return !cluster->forgets_since || now >= cluster->forgets_since + cluster->options.node.lease_ns;
}

static void look(struct hf_cluster *cluster, enum hf_node_step step)
{
	hf_cleanup(hf_freep) char *exports = NULL;
	char reason[HF_NODE_REASON], owner[HF_NODE_ID];
	struct hf_service_self self;
	struct hf_service_row row;
	enum hf_node_role before;
	uint64_t sent, heard;
	bool is_answered;
	int r;

	pthread_mutex_lock(&cluster->lock);
	make_self(cluster, &self, reason);
	snprintf(owner, sizeof(owner), "%s", hf_node_owner(cluster->node));
	if (step == HF_NODE_RENEW && cluster->must_set_exports)
		exports = strdup(hf_node_exports(cluster->node));
	pthread_mutex_unlock(&cluster->lock);
	sent = read_clock();
	r = step == HF_NODE_RENEW ? hf_service_renew(cluster->service, &self, owner, exports, &row)
				  : hf_service_look(cluster->service, &self, &row);
	heard = read_clock();

	pthread_mutex_lock(&cluster->lock);
	before = hf_node_role(cluster->node);
	is_answered = r == 0 || r == -ESTALE || r == -EEXIST;
	note_reached(cluster, is_answered);
	if (is_answered)
		note_pace(cluster, heard - sent);
	if (r == 0 || r == -ESTALE) {
		learn(cluster, row.epoch, row.sm_state);
		if (r == 0)
			hf_node_saw(cluster->node, step, &row, sent, heard);
		hf_service_row_deinit(&row);
	}
	/* It was not sure any more that the service is still its own. */
	if (r == 0 && step == HF_NODE_RENEW && !*hf_node_owner(cluster->node)) {
		hf_log_warn(
			"another database has taken the place of the one before while the lease was over: "
			"this node gives the service up, and takes it again if no other node has it",
			"service=%s", cluster->options.node.service);
		tell(cluster, HF_CLUSTER_DEPOSED);
	}
	/* A reload that ended meanwhile has set newer ones. */
	if (r == 0 && exports && strcmp(exports, hf_node_exports(cluster->node)) == 0)
		cluster->must_set_exports = false;
	if (r == -ESTALE) {
		hf_log_warn("another node has taken the service over", "service=%s node=%s",
			    cluster->options.node.service, row.node);
		hf_node_deposed(cluster->node, heard);
		tell(cluster, HF_CLUSTER_DEPOSED);
	} else if (r == -EEXIST) {
		hf_node_name_is_used(cluster->node, heard);
	} else if (r < 0) {
		hf_node_failed(cluster->node, heard);
	}
	note_role(cluster, before);
	pthread_mutex_unlock(&cluster->lock);
	remember(cluster, heard);
}

static void claim(struct hf_cluster *cluster)
{
	hf_cleanup(hf_freep) char *exports = NULL;
	hf_cleanup(hf_freep) uint8_t *connections = NULL;
	const struct hf_service_row *seen = hf_node_seen(cluster->node); /* only this thread changes it */
	char reason[HF_NODE_REASON], owner[HF_NODE_ID];
	struct hf_service_self self;
	struct hf_service_claim wanted = { .owner = owner,
					   .lease_ns = cluster->options.node.lease_ns,
					   .key = cluster->key };
	enum hf_node_role before;
	size_t len = 0;
	uint64_t sent, at;
	bool must_claim;
	int r;

	make_owner(owner);
	pthread_mutex_lock(&cluster->lock);
	make_self(cluster, &self, reason);
	if (seen->has_lease)
		memcpy(cluster->key, seen->key, sizeof(cluster->key));
	wanted.exports = exports = strdup(hf_node_exports(cluster->node));
	if (!exports)
		hf_node_failed(cluster->node, read_clock());
	/* Its process may have been told to end meanwhile. */
	must_claim = exports && hf_node_next(cluster->node, &at) == HF_NODE_CLAIM;
	cluster->is_claiming = must_claim;
	pthread_mutex_unlock(&cluster->lock);
	if (!must_claim)
		return;
	hf_log_info("takes the service", "service=%s node=%s from=%s reason=%s",
		    cluster->options.node.service, self.node, *seen->node ? seen->node : "none",
		    hf_node_claim_reason(cluster->node));
	sent = read_clock();
	r = hf_service_claim(cluster->service, &self, seen, &wanted);
	if (r == 0 && cluster->options.presence &&
	    hf_service_get_connections(cluster->service, &connections, &len) == 0) {
		hf_presence_set_old_connections(cluster->options.presence, connections, len);
	}

	pthread_mutex_lock(&cluster->lock);
	cluster->is_claiming = false;
	before = hf_node_role(cluster->node);
	note_reached(cluster, r == 0 || r == -ESTALE);
	if (r == 0) {
		snprintf(cluster->predecessor, sizeof(cluster->predecessor), "%s", seen->node);
		cluster->is_present = false;
		cluster->events = 0; /* of earlier terms */
		cluster->began_at = seen->has_lease ? hf_node_changed_at(cluster->node) : sent;
		cluster->must_withdraw = cluster->is_withdrawing = false;
		free(cluster->stored); /* the database has those of the node before */
		cluster->stored = NULL;
		hf_node_claimed(cluster->node, owner, sent);
		tell(cluster, HF_CLUSTER_CLAIMED);
	} else if (r == -ESTALE) {
		hf_log_info("does not take the service: it changed meanwhile", "service=%s reason=%s",
			    cluster->options.node.service, hf_service_message(cluster->service));
		hf_node_not_claimed(cluster->node, read_clock());
	} else {
		hf_log_warn("cannot take the service", "service=%s reason=%s", cluster->options.node.service,
			    hf_service_message(cluster->service));
		hf_node_failed(cluster->node, read_clock());
	}
	note_role(cluster, before);
	pthread_cond_broadcast(&cluster->wake); /* hf_cluster_leave() may wait for it */
	pthread_mutex_unlock(&cluster->lock);
}

static void fence(struct hf_cluster *cluster)
{
	const char *node = hf_node_seen(cluster->node)->node;
	char message[HF_FENCE_MESSAGE] = "";
	int r;

	hf_log_warn("runs cluster.fence, because the lease was over", "service=%s node=%s",
		    cluster->options.node.service, node);
	r = hf_fence_run(cluster->options.fence, node, HF_FENCE_TIMEOUT_MS, message, sizeof(message));
	if (r == HF_FENCE_OK)
		hf_log_info("cluster.fence succeeded", "node=%s said=%s", node, message);
	else if (r != -ECANCELED)
		hf_log_error("cluster.fence failed: this node does not take over, since the other one may "
			     "still write",
			     "node=%s said=%s", node, message);
	pthread_mutex_lock(&cluster->lock);
	hf_node_fenced(cluster->node, r == HF_FENCE_OK, read_clock());
	pthread_mutex_unlock(&cluster->lock);
}

static void ask(struct hf_cluster *cluster)
{
	int r = hf_service_ask(cluster->service, cluster->options.node.node);

	pthread_mutex_lock(&cluster->lock);
	note_reached(cluster, r == 0);
	if (r == 0)
		hf_node_asked(cluster->node, read_clock());
	else
		hf_node_failed(cluster->node, read_clock());
	pthread_mutex_unlock(&cluster->lock);
}

static void hand_over(struct hf_cluster *cluster)
{
	char owner[HF_NODE_ID], heir[HF_NODE_NAME];
	enum hf_node_role before;
	int r;

	if (cluster->options.presence)
		hf_presence_give_up(cluster->options.presence);
	pthread_mutex_lock(&cluster->lock);
	snprintf(owner, sizeof(owner), "%s", hf_node_owner(cluster->node));
	snprintf(heir, sizeof(heir), "%s", hf_node_heir(cluster->node));
	pthread_mutex_unlock(&cluster->lock);
	r = hf_service_hand_over(cluster->service, owner, heir);
	pthread_mutex_lock(&cluster->lock);
	before = hf_node_role(cluster->node);
	note_reached(cluster, r == 0 || r == -ESTALE);
	if (r == 0) {
		hf_log_info("handed the service over", "service=%s to=%s", cluster->options.node.service,
			    *heir ? heir : "any");
		hf_node_handed_over(cluster->node, read_clock());
	} else if (r == -ESTALE) {
		hf_node_deposed(cluster->node, read_clock());
	} else {
		hf_node_failed(cluster->node, read_clock());
	}
	note_role(cluster, before);
	pthread_cond_broadcast(&cluster->wake); /* hf_cluster_leave() may wait for it */
	pthread_mutex_unlock(&cluster->lock);
}

static void report(struct hf_cluster *cluster)
{
	struct hf_service_takeover takeover;
	char owner[HF_NODE_ID];
	int r;

	pthread_mutex_lock(&cluster->lock);
	takeover = cluster->report;
	snprintf(owner, sizeof(owner), "%s", hf_node_owner(cluster->node));
	pthread_mutex_unlock(&cluster->lock);
	r = hf_service_report(cluster->service, owner, &takeover);
	pthread_mutex_lock(&cluster->lock);
	note_reached(cluster, r == 0 || r == -ESTALE);
	if (r == 0 || r == -ESTALE)
		cluster->must_report = false;
	else
		cluster->report_at = read_clock() + WAIT_NS;
	pthread_mutex_unlock(&cluster->lock);
	if (r < 0 || !*takeover.from)
		return;
	look(cluster, HF_NODE_RENEW); /* so that this node shows it, too */
	pthread_mutex_lock(&cluster->lock);
	tell(cluster, HF_CLUSTER_REPORTED);
	pthread_mutex_unlock(&cluster->lock);
}

/* The next node makes these clients speak. */
static void store_connections(struct hf_cluster *cluster)
{
	hf_cleanup(hf_freep) uint8_t *bytes = NULL;
	char owner[HF_NODE_ID];
	uint16_t port;
	size_t len;

	pthread_mutex_lock(&cluster->lock);
	port = cluster->port;
	snprintf(owner, sizeof(owner), "%s", hf_node_owner(cluster->node));
	pthread_mutex_unlock(&cluster->lock);
	cluster->stored_at = read_clock();
	bytes = hf_connections_read(port, &len);
	if (!bytes ||
	    (cluster->stored && len == cluster->stored_len && memcmp(bytes, cluster->stored, len) == 0))
		return;
	if (hf_service_put_connections(cluster->service, owner, hf_bytes_of(bytes, (uint32_t)len)) < 0)
		return;
	free(cluster->stored);
	cluster->stored = bytes;
	cluster->stored_len = len;
	bytes = NULL;
}

/* The next node is told of the connections first. */
static void withdraw(struct hf_cluster *cluster)
{
	if (cluster->options.presence && hf_presence_is_held(cluster->options.presence)) {
		store_connections(cluster);
		hf_presence_give_up(cluster->options.presence);
	}
	pthread_mutex_lock(&cluster->lock);
	cluster->must_withdraw = false;
	tell(cluster, HF_CLUSTER_WITHDRAWN);
	pthread_mutex_unlock(&cluster->lock);
}

/* The thread */

static void tell_present(struct hf_cluster *cluster)
{
	pthread_mutex_lock(&cluster->lock);
	if (!cluster->is_present)
		tell(cluster, HF_CLUSTER_PRESENT);
	cluster->is_present = true;
	pthread_mutex_unlock(&cluster->lock);
}

/* The home loop hears nothing while it waits for a disk. Without this process another node can serve. */
static void end_if_stuck(struct hf_cluster *cluster, uint64_t now)
{
	if (!hf_node_is_stuck(cluster->node, now))
		return;
	hf_log_error("this node has the service and cannot serve it: a disk, for instance, does not answer; "
		     "it ends, so that another node can take over",
		     "service=%s node=%s", cluster->options.node.service, cluster->options.node.node);
	_exit(EXIT_FAILURE);
}

/* Links and addresses follow the role. Returns when to look again. */
static uint64_t attend(struct hf_cluster *cluster, uint64_t now)
{
	struct hf_presence *presence = cluster->options.presence;
	char why[HF_NODE_REASON] = "";
	bool has_links = !presence || hf_presence_has_links(presence, why, sizeof(why));
	enum hf_node_role before, role;
	uint64_t ends;
	bool serves, is_withdrawing;

	pthread_mutex_lock(&cluster->lock);
	before = hf_node_role(cluster->node);
	hf_node_set_unfit(cluster->node, has_links ? cluster->unfit : why, now);
	note_role(cluster, before);
	end_if_stuck(cluster, now);
	ends = hf_node_lease_ends(cluster->node);
	role = hf_node_role(cluster->node);
	is_withdrawing = cluster->is_withdrawing;
	serves = role == HF_NODE_ACTIVE && ends > now && !is_withdrawing;
	pthread_mutex_unlock(&cluster->lock);
	if (presence && serves && ends != cluster->held_until) {
		cluster->held_until = ends;
		hf_presence_hold(presence, ends - now, now);
	} else if (presence && !serves && role != HF_NODE_STOPPING && !is_withdrawing) {
		hf_presence_give_up(presence);
	}
	remember(cluster, now);
	if (serves && may_tell_clients(cluster, now))
		tell_present(cluster);
	return HF_MIN(now + WAIT_NS, presence ? hf_presence_run(presence, now) : UINT64_MAX);
}

static void run_step(struct hf_cluster *cluster, enum hf_node_step step)
{
	switch (step) {
	case HF_NODE_LOOK:
	case HF_NODE_RENEW:
		look(cluster, step);
		break;
	case HF_NODE_ASK:
		ask(cluster);
		break;
	case HF_NODE_FENCE:
		fence(cluster);
		break;
	case HF_NODE_CLAIM:
		claim(cluster);
		break;
	case HF_NODE_HAND_OVER:
		hand_over(cluster);
		break;
	case HF_NODE_NOTHING:
		break;
	}
}

/* With the lock. The kernel's clock for waiting stands still while the machine sleeps, which only delays. */
static void wait_until(struct hf_cluster *cluster, uint64_t at, uint64_t now)
{
	struct timespec ts;
	uint64_t left = HF_MIN(at - now, WAIT_NS);

	clock_gettime(CLOCK_MONOTONIC, &ts);
	left += (uint64_t)ts.tv_nsec;
	ts.tv_sec += (time_t)(left / HF_NS_PER_S);
	ts.tv_nsec = (long)(left % HF_NS_PER_S);
	pthread_cond_clockwait(&cluster->wake, &cluster->lock, CLOCK_MONOTONIC, &ts);
}

static void *run(void *user)
{
	struct hf_cluster *cluster = user;

	for (;;) {
		uint64_t now = read_clock(), at, attend_at = attend(cluster, now);
		bool must_report, must_store, must_withdraw, is_ending;
		enum hf_node_step step;

		pthread_mutex_lock(&cluster->lock);
		step = hf_node_next(cluster->node, &at);
		now = read_clock();
		if (step == HF_NODE_NOTHING)
			at = UINT64_MAX;
		must_report = cluster->must_report && now >= cluster->report_at;
		must_store = hf_node_role(cluster->node) == HF_NODE_ACTIVE &&
			     now >= cluster->stored_at + CONNECTIONS_GAP(cluster->stored_len);
		must_withdraw = cluster->must_withdraw;
		is_ending = cluster->is_ending;
		if (!is_ending && at > now && !must_report && !must_store && !must_withdraw &&
		    attend_at > now)
			wait_until(cluster, HF_MIN(at, attend_at), now);
		pthread_mutex_unlock(&cluster->lock);
		if (is_ending)
			return NULL;
		if (must_withdraw)
			withdraw(cluster);
		else if (at <= now)
			run_step(cluster, step);
		else if (must_report)
			report(cluster);
		else if (must_store)
			store_connections(cluster);
	}
}

/* Making and freeing */

int hf_cluster_new(struct hf_cluster **clusterp, const struct hf_cluster_options *options)
{
	struct hf_cluster *cluster = calloc(1, sizeof(*cluster));
	int r;

	if (!cluster)
		return hf_trace(-ENOMEM);
	cluster->options = *options;
	cluster->known_epoch = options->known_epoch;
	cluster->known_state = options->known_state;
	cluster->was_reachable = true;
	if (options->node.key)
		memcpy(cluster->key, options->node.key, sizeof(cluster->key));
	else
		make_random(cluster->key, sizeof(cluster->key));
	pthread_mutex_init(&cluster->lock, NULL);
	pthread_cond_init(&cluster->wake, NULL);
	hf_task_init(&cluster->task, deliver);
	r = hf_node_new(&cluster->node, &options->node, read_clock());
	/* A database that does not answer is asked again within the lease. */
	if (r == 0)
		r = hf_service_new(&cluster->service, options->postgres, options->node.service,
				   options->node.lease_ns / 2);
	if (r < 0) {
		hf_cluster_free(cluster);
		return hf_trace(r);
	}
	*clusterp = cluster;
	return 0;
}

struct hf_cluster *hf_cluster_free(struct hf_cluster *cluster)
{
	if (!cluster)
		return NULL;
	if (cluster->has_thread) {
		pthread_mutex_lock(&cluster->lock);
		cluster->is_ending = true;
		pthread_cond_broadcast(&cluster->wake);
		pthread_mutex_unlock(&cluster->lock);
		if (cluster->options.fence)
			hf_fence_cancel(cluster->options.fence);
		pthread_join(cluster->thread, NULL);
	}
	hf_service_free(cluster->service);
	hf_node_free(cluster->node);
	free(cluster->stored);
	pthread_cond_destroy(&cluster->wake);
	pthread_mutex_destroy(&cluster->lock);
	free(cluster);
	return NULL;
}

int hf_cluster_start(struct hf_cluster *cluster)
{
	int r = pthread_create(&cluster->thread, NULL, run, cluster);

	if (r)
		return hf_trace(-r);
	cluster->has_thread = true;
	return 0;
}

/* The service of this term */

const struct hf_lease *hf_cluster_lease(struct hf_cluster *cluster)
{
	return &cluster->lease;
}

void hf_cluster_owner(struct hf_cluster *cluster, char owner[static HF_NODE_ID])
{
	pthread_mutex_lock(&cluster->lock);
	snprintf(owner, HF_NODE_ID, "%s", hf_node_owner(cluster->node));
	pthread_mutex_unlock(&cluster->lock);
}

void hf_cluster_key(struct hf_cluster *cluster, uint8_t key[static HF_CLUSTER_KEY])
{
	pthread_mutex_lock(&cluster->lock);
	memcpy(key, cluster->key, HF_CLUSTER_KEY);
	pthread_mutex_unlock(&cluster->lock);
}

void hf_cluster_known(struct hf_cluster *cluster, uint64_t *epochp, int32_t *statep)
{
	pthread_mutex_lock(&cluster->lock);
	*epochp = cluster->known_epoch;
	*statep = cluster->known_state;
	pthread_mutex_unlock(&cluster->lock);
}

void hf_cluster_serves(struct hf_cluster *cluster, const struct hf_cluster_term *term)
{
	struct hf_service_takeover *takeover = &cluster->report;

	pthread_mutex_lock(&cluster->lock);
	hf_node_serves(cluster->node);
	cluster->port = term->port;
	learn(cluster, term->epoch, term->state);
	/* Deposed meanwhile: a report without an owner would change a row that was handed over. */
	if (!*hf_node_owner(cluster->node)) {
		pthread_mutex_unlock(&cluster->lock);
		return;
	}
	*takeover = (struct hf_service_takeover){
		.continued = term->continues,
		.seconds = (double)(read_clock() - cluster->began_at) / (double)HF_NS_PER_S,
	};
	snprintf(takeover->from, sizeof(takeover->from), "%s", cluster->predecessor);
	snprintf(takeover->to, sizeof(takeover->to), "%s", cluster->options.node.node);
	snprintf(takeover->reason, sizeof(takeover->reason), "%s", hf_node_claim_reason(cluster->node));
	cluster->must_report = true;
	if (*takeover->from) {
		if (term->continues)
			cluster->n_continued++;
		else
			cluster->n_reclaimed++;
	}
	pthread_cond_broadcast(&cluster->wake);
	pthread_mutex_unlock(&cluster->lock);
}

void hf_cluster_withdraw(struct hf_cluster *cluster)
{
	pthread_mutex_lock(&cluster->lock);
	cluster->must_withdraw = cluster->is_withdrawing = true;
	pthread_cond_broadcast(&cluster->wake);
	pthread_mutex_unlock(&cluster->lock);
}

void hf_cluster_released(struct hf_cluster *cluster, bool has_failed)
{
	enum hf_node_role before;

	pthread_mutex_lock(&cluster->lock);
	before = hf_node_role(cluster->node);
	hf_node_released(cluster->node, has_failed, read_clock());
	note_role(cluster, before);
	cluster->events &= ~(1u << HF_CLUSTER_HANDS_OVER);
	pthread_cond_broadcast(&cluster->wake);
	pthread_mutex_unlock(&cluster->lock);
}

int hf_cluster_set_exports(struct hf_cluster *cluster, const char *exports)
{
	int r;

	pthread_mutex_lock(&cluster->lock);
	r = hf_node_set_exports(cluster->node, exports);
	if (r == 0)
		cluster->must_set_exports = true;
	pthread_mutex_unlock(&cluster->lock);
	return r;
}

void hf_cluster_set_automatic(struct hf_cluster *cluster, bool is_automatic)
{
	pthread_mutex_lock(&cluster->lock);
	hf_node_set_automatic(cluster->node, is_automatic);
	pthread_cond_broadcast(&cluster->wake);
	pthread_mutex_unlock(&cluster->lock);
}

void hf_cluster_set_unfit(struct hf_cluster *cluster, const char *why)
{
	pthread_mutex_lock(&cluster->lock);
	snprintf(cluster->unfit, sizeof(cluster->unfit), "%s", why);
	pthread_mutex_unlock(&cluster->lock);
}

void hf_cluster_begin_to_leave(struct hf_cluster *cluster)
{
	pthread_mutex_lock(&cluster->lock);
	hf_node_leave(cluster->node, read_clock());
	pthread_mutex_unlock(&cluster->lock);
	hf_cluster_released(cluster, false);
}

void hf_cluster_leave(struct hf_cluster *cluster)
{
	const struct hf_node_options *options = &cluster->options.node;
	struct hf_service_self self = { .node = options->node, .instance = options->instance };
	uint64_t give_up_at = read_clock() + options->lease_ns, now;

	hf_cluster_begin_to_leave(cluster);
	pthread_mutex_lock(&cluster->lock);
	while ((cluster->is_claiming || hf_node_role(cluster->node) == HF_NODE_STOPPING) &&
	       (now = read_clock()) < give_up_at)
		wait_until(cluster, give_up_at, now);
	cluster->is_ending = true;
	pthread_cond_broadcast(&cluster->wake);
	pthread_mutex_unlock(&cluster->lock);
	if (cluster->options.fence)
		hf_fence_cancel(cluster->options.fence);
	pthread_join(cluster->thread, NULL);
	cluster->has_thread = false;
	if (cluster->was_reachable)
		(void)hf_service_forget(cluster->service, &self);
}

/* Orders */

int hf_cluster_move(struct hf_cluster *cluster, const char *to, char *why, size_t size)
{
	enum hf_node_role before;
	int r;

	pthread_mutex_lock(&cluster->lock);
	before = hf_node_role(cluster->node);
	r = hf_node_move(cluster->node, to ? to : "", read_clock(), why, size);
	note_role(cluster, before);
	pthread_cond_broadcast(&cluster->wake);
	pthread_mutex_unlock(&cluster->lock);
	return r;
}

int hf_cluster_take(struct hf_cluster *cluster, char *why, size_t size)
{
	int r;

	pthread_mutex_lock(&cluster->lock);
	r = hf_node_take(cluster->node, read_clock(), why, size);
	pthread_cond_broadcast(&cluster->wake);
	pthread_mutex_unlock(&cluster->lock);
	return r;
}

/* What is shown */

static enum hf_node_role parse_role(const char *name)
{
	static const enum hf_node_role roles[] = { HF_NODE_STANDBY, HF_NODE_MISMATCHED, HF_NODE_ACTIVE };

	for (size_t i = 0; i < HF_ARRAY_SIZE(roles); i++)
		if (strcmp(name, hf_node_role_name(roles[i])) == 0)
			return roles[i];
	return HF_NODE_STOPPING;
}

static void show_nodes(struct hf_cluster_view *view, const struct hf_service_row *row)
{
	for (size_t i = 0; i < row->n_nodes; i++) {
		struct hf_cluster_node_view *node = &view->nodes[view->n_nodes++];

		snprintf(node->name, sizeof(node->name), "%s", row->nodes[i].name);
		snprintf(node->version, sizeof(node->version), "%s", row->nodes[i].version);
		snprintf(node->reason, sizeof(node->reason), "%s", row->nodes[i].reason);
		node->role = parse_role(row->nodes[i].role);
		node->last_seen = row->nodes[i].seen_at;
		/* What the database has of this node is as old as its last look. */
		if (strcmp(node->name, view->node) == 0)
			node->role = view->role;
	}
}

static void show_takeover(struct hf_cluster_takeover *view, const struct hf_service_takeover *takeover)
{
	view->at = takeover->at;
	snprintf(view->from, sizeof(view->from), "%s", takeover->from);
	snprintf(view->to, sizeof(view->to), "%s", takeover->to);
	snprintf(view->reason, sizeof(view->reason), "%s", takeover->reason);
	view->continued = takeover->continued;
	view->seconds = takeover->seconds;
}

void hf_cluster_view(struct hf_cluster *cluster, struct hf_cluster_view *viewp)
{
	const struct hf_node_options *options = &cluster->options.node;
	const struct hf_service_row *row;
	uint64_t now, ends;

	memset(viewp, 0, sizeof(*viewp));
	pthread_mutex_lock(&cluster->lock);
	now = read_clock();
	row = hf_node_seen(cluster->node);
	ends = hf_node_lease_ends(cluster->node);
	snprintf(viewp->service, sizeof(viewp->service), "%s", options->service);
	snprintf(viewp->node, sizeof(viewp->node), "%s", options->node);
	snprintf(viewp->reason, sizeof(viewp->reason), "%s", hf_node_reason(cluster->node));
	viewp->role = hf_node_role(cluster->node);
	viewp->lease_left_ns = ends > now ? ends - now : 0;
	if (viewp->role == HF_NODE_ACTIVE && !viewp->lease_left_ns) {
		viewp->role = HF_NODE_STOPPING;
		snprintf(viewp->reason, sizeof(viewp->reason),
			 "the lease is over: the database was not reached in time");
	}
	viewp->is_automatic = hf_node_is_automatic(cluster->node);
	viewp->epoch = cluster->known_epoch;
	if (*hf_node_owner(cluster->node))
		snprintf(viewp->holder, sizeof(viewp->holder), "%s", options->node);
	else if (*row->lease_owner)
		snprintf(viewp->holder, sizeof(viewp->holder), "%s", row->node);
	viewp->lease_ns = row->has_lease ? row->lease_ns : options->lease_ns;
	viewp->renewed_ago_ns =
		ends ? now + options->lease_ns - ends : now - hf_node_changed_at(cluster->node);
	show_nodes(viewp, row);
	show_takeover(&viewp->last_takeover, &row->takeover);
	viewp->n_continued = cluster->n_continued;
	viewp->n_reclaimed = cluster->n_reclaimed;
	pthread_mutex_unlock(&cluster->lock);
}
