/*
 * Calling a waiter back when it has its lock.
 *
 * The lock is in the table, provisionally, before the client is called, and stays provisional until the
 * client has answered. The client is called at the end of a turn of the loop, after the BLOCKED reply has
 * left, and only once the grant is durable. Each try has its own time. Tries go on with growing gaps until
 * grant_give_up_ns. If none of them can have reached the client by then, the next waiter gets the lock: a
 * client that is still there asks again by itself. Each grant runs for itself, so a silent client delays no
 * other.
 *
 * A client that has taken its lock answers GRANTED once, and DENIED from then on, since its process does not
 * wait any more. So after several tries a DENIED may be the answer to a repetition, and after a try without
 * an answer the answer may be lost. In both cases the client may rely on the lock, and the lock stays. If the
 * client does not want it, it sends CANCEL or UNLOCK.
 *
 * A client in a grace period of its own answers DENIED_GRACE_PERIOD. It has taken nothing, and wants to be
 * called again. Its grace uses up none of its time, and that try does not make a later DENIED doubtful. The
 * cookie is the same for all tries, so a GRANTED_RES with that status may be a copy of the answer to an
 * earlier try. One that comes while the server calls by GRANTED is such a copy, and says nothing of that
 * call.
 *
 * The answer to a LOCK is GRANTED, which is one exchange. The answer to a LOCK_MSG is GRANTED_MSG, to which
 * the client answers with a call, GRANTED_RES, known by the server's cookie. Some systems know only one of
 * the two: a try that failed is followed by one of the other kind.
 *
 * A grant lives until the lock table says waiter_gone. If there is no memory for its ending, the ending is
 * tried again until there is some, and the client is not called meanwhile.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "loop/timer.h"
#include "proto/nlm/internal.h"
#include "proto/nlm/op.h"
#include "rpc/client.h"

#define TRY_NS     (5 * HF_NS_PER_S)
#define GIVE_UP_NS (30 * HF_NS_PER_S)
#define FIRST_GAP  (1 * HF_NS_PER_S)
#define MOST_GAP   (10 * HF_NS_PER_S)
#define GRACE_NS   (15 * 60 * HF_NS_PER_S) /* longer than the grace period of any client */

typedef int (*ending_fn)(struct hf_locks *locks, uint64_t id);

struct grant {
	struct hf_hash_node by_id;
	struct hf_hash_node by_cookie;
	struct hf_link link; /* in nlm->starting, until the first try */
	struct hf_link all;  /* in nlm->grants */
	struct hf_nlm *nlm;
	struct hf_client *client;
	struct hf_promise promise;
	struct hf_timer timer; /* the next try, or the end of waiting for GRANTED_RES */
	struct hf_rpc_pending *pending;
	uint64_t id; /* the lock table's */
	uint64_t cookie;
	uint64_t granted_at;
	uint64_t began; /* when the client's time began */
	uint64_t try_ends;
	uint64_t gap_ns;
	unsigned int n_sent; /* messages of the tries that are over */
	ending_fn ending;    /* decided, but there was no memory for it; NULL: not decided */
	struct hf_nlm_route route;
	uint32_t export; /* whose handle the client has */
	bool by_msg;
	bool was_told_by_msg; /* in the last try: its answer is a GRANTED_RES */
	bool is_exclusive;
	int32_t svid;
	uint64_t offset;
	uint64_t len;
	uint32_t handle_len;
	uint32_t oh_len;
	uint8_t handle[HF_NLM_MAX_HANDLE];
	uint8_t oh[]; /* as long as it is */
};

static void tell(struct grant *grant);

/* Finding */

static uint64_t hash_of(const struct hf_nlm *nlm, uint64_t number)
{
	return hf_siphash(&nlm->key, &number, sizeof(number));
}

static struct grant *find_by_id(struct hf_nlm *nlm, uint64_t id)
{
	hf_hash_for_each(node, &nlm->grants_by_id, hash_of(nlm, id)) {
		struct grant *grant = hf_container_of(node, struct grant, by_id);

		if (grant->id == id)
			return grant;
	}
	return NULL;
}

static struct grant *find_by_cookie(struct hf_nlm *nlm, struct hf_bytes bytes)
{
	uint64_t cookie;

	if (bytes.len != HF_NLM_COOKIE)
		return NULL;
	memcpy(&cookie, bytes.data, HF_NLM_COOKIE);
	hf_hash_for_each(node, &nlm->grants_by_cookie, hash_of(nlm, cookie)) {
		struct grant *grant = hf_container_of(node, struct grant, by_cookie);

		if (grant->cookie == cookie)
			return grant;
	}
	return NULL;
}

/* Answers; after each of them @grant is gone, or waits for memory alone */

/* hf_client_unref() reaps a client that holds nothing. @grant's own reference goes before the lock is gone,
 * so another one is needed. */
static int end_as(struct grant *grant, ending_fn ending)
{
	struct hf_client *client = hf_client_ref(grant->client);
	int r = ending(grant->nlm->locks, grant->id);

	hf_client_unref(client);
	return r;
}

static void finish(struct grant *grant, ending_fn ending)
{
	if (end_as(grant, ending) >= 0)
		return;
	grant->ending = ending;
	hf_timer_start(&grant->timer, FIRST_GAP);
}

static void let_lock_stay(struct grant *grant)
{
	grant->nlm->counts.grants_kept++;
	hf_log_info("no clear answer to GRANTED: the client keeps the lock", "client=%s", grant->client->id);
	finish(grant, hf_lock_grant_assume);
}

/*
 * A process that goes on has heard of its grant, and the answer was lost. It may change a part of the range
 * and wait for all of it again: another call would then look like the answer to the new request. Without
 * memory the grant is left, and the next try finds it.
 */
void hf_nlm_call_off_changed(struct hf_nlm *nlm, const struct hf_lock_target *owner)
{
	hf_lock_assume_changed(nlm->locks, owner);
}

static void abandon(struct grant *grant)
{
	if (grant->n_sent) {
		let_lock_stay(grant);
		return;
	}
	grant->nlm->counts.grants_abandoned++;
	hf_log_info("client not reached by GRANTED: the next waiter gets the lock", "client=%s",
		    grant->client->id);
	end_as(grant, hf_lock_grant_refuse);
}

static void retry_later(struct grant *grant, uint64_t gap_ns)
{
	uint64_t give_up = grant->nlm->options.grant_give_up_ns;

	if (hf_loop_now(grant->nlm->options.loop) + gap_ns - grant->began >= give_up ||
	    hf_timer_start(&grant->timer, gap_ns) < 0) {
		abandon(grant);
		return;
	}
	grant->gap_ns = HF_MIN(2 * gap_ns, MOST_GAP);
}

/* The client is in a grace period. If the server sent the call more than once, the client may have taken
 * another copy.
 */
static void put_off(struct grant *grant)
{
	uint64_t now = hf_loop_now(grant->nlm->options.loop);

	grant->n_sent += grant->pending != NULL;
	if (grant->n_sent == 1)
		grant->n_sent = 0;
	hf_rpc_pending_cancel(
		grant->pending); /* GRANTED_RES may come before the empty reply to GRANTED_MSG */
	grant->pending = NULL;
	if (now - grant->granted_at < GRACE_NS)
		grant->began = now;
	retry_later(grant, MOST_GAP);
}

static void answer(struct grant *grant, enum hf_nlm_stat stat)
{
	struct hf_nlm *nlm = grant->nlm;

	if (grant->ending) {
		finish(grant, grant->ending);
		return;
	}
	switch (stat) {
	case HF_NLM_GRANTED_STAT:
		nlm->counts.grants_told++;
		finish(grant, hf_lock_grant_confirm);
		break;
	case HF_NLM_DENIED_GRACE_PERIOD:
		put_off(grant);
		break;
	default:
		if (grant->n_sent + (grant->pending != NULL) > 1) {
			let_lock_stay(grant);
			break;
		}
		nlm->counts.grants_refused++;
		end_as(grant, hf_lock_grant_refuse);
		break;
	}
}

/* Tries */

static void on_told(void *user, const struct hf_rpc_result *result)
{
	struct grant *grant = user;
	uint64_t now = hf_loop_now(grant->nlm->options.loop);
	struct hf_nlm_res res;

	grant->pending = NULL;
	grant->n_sent += result->n_sent;
	if (grant->ending)
		return;
	if (result->outcome == HF_RPC_OUTCOME_OK && !grant->by_msg) /* GRANTED_MSG has only been sent */
		grant->client->answered_at = now;
	if (result->outcome == HF_RPC_OUTCOME_OK && grant->by_msg) {
		grant->by_msg = false; /* for the next try, if GRANTED_RES does not come by then */
		hf_timer_start(&grant->timer, grant->try_ends - HF_MIN(grant->try_ends, now));
		return;
	}
	if (result->outcome == HF_RPC_OUTCOME_OK) {
		hf_nlm_get_res(&res, result->results);
		if (hf_xdr_in_is_ok(result->results)) {
			answer(grant, res.stat);
			return;
		}
	}
	hf_log_debug("a GRANTED call failed", "client=%s stage=%s outcome=%s", grant->client->id,
		     hf_rpc_stage_text(result->stage), hf_rpc_outcome_text(result->outcome));
	grant->by_msg = !grant->by_msg;
	retry_later(grant, grant->gap_ns);
}

static void tell_again(struct grant *grant)
{
	grant->nlm->counts.grants_retried++;
	tell(grant);
}

static void on_timer(struct hf_timer *timer)
{
	struct grant *grant = hf_container_of(timer, struct grant, timer);

	if (grant->ending)
		finish(grant, grant->ending);
	else if (hf_loop_now(grant->nlm->options.loop) - grant->began >= grant->nlm->options.grant_give_up_ns)
		abandon(grant);
	else
		tell_again(grant);
}

static size_t encode(const struct grant *grant, uint8_t *data, size_t size)
{
	const struct hf_nlm_args args = {
		.cookie = hf_bytes_of(&grant->cookie, HF_NLM_COOKIE),
		.exclusive = grant->is_exclusive,
		.caller = hf_client_name(grant->client),
		.handle = hf_bytes_of(grant->handle, grant->handle_len),
		.oh = hf_bytes_of(grant->oh, grant->oh_len),
		.svid = grant->svid,
		.offset = grant->offset,
		.len = grant->len,
	};
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, data, size);
	hf_nlm_put_granted(&out, grant->route.version, &args);
	return (size_t)(out.p - data);
}

static void tell(struct grant *grant)
{
	struct hf_nlm *nlm = grant->nlm;
	const struct hf_addr *local = hf_nlm_route_local(&nlm->locals, grant->route);
	uint8_t args[HF_NLM_MAX_CALL];
	struct hf_rpc_request request = {
		.remote = grant->client->address,
		.local = local ? *local : grant->client->local,
		.program = HF_NLM_PROGRAM,
		.version = grant->route.version,
		.procedure = grant->by_msg ? HF_NLM_GRANTED_MSG : HF_NLM_GRANTED,
		.path = grant->route.is_tcp ? HF_RPC_TCP_THEN_UDP : HF_RPC_UDP_THEN_TCP,
		.args = args,
		.args_len = encode(grant, args, sizeof(args)),
		.machine = nlm->server_name,
		.reserved_port = true,
		.one_way = grant->by_msg,
	};
	uint64_t now = hf_loop_now(nlm->options.loop);
	int r;

	request.timeout_ns = /* the last try is shorter */
		HF_MIN(nlm->options.grant_try_ns, grant->began + nlm->options.grant_give_up_ns - now);
	grant->try_ends = now + request.timeout_ns;
	grant->was_told_by_msg = grant->by_msg;
	r = hf_rpc_client_call(nlm->options.client, &grant->pending, &request, on_told, grant);
	if (r < 0) {
		hf_trace(r);
		grant->pending = NULL;
		retry_later(grant, grant->gap_ns);
	}
}

/* Making and freeing */

static void start_grants(struct hf_task *task)
{
	struct hf_nlm *nlm = hf_container_of(task, struct hf_nlm, start_grants);
	struct hf_link *link;

	while ((link = hf_list_pop_front(&nlm->starting)))
		tell(hf_list_entry(link, struct grant, link));
}

static void start_soon(struct grant *grant)
{
	grant->began = hf_loop_now(grant->nlm->options.loop); /* the store's time does not count */
	grant->granted_at = grant->began;
	hf_list_push_back(&grant->nlm->starting, &grant->link);
	hf_loop_defer(grant->nlm->options.loop, &grant->nlm->start_grants);
}

static void on_promise(struct hf_promise *promise, bool is_durable)
{
	struct grant *grant = hf_container_of(promise, struct grant, promise);

	if (is_durable)
		start_soon(grant);
	else
		end_as(grant, hf_lock_grant_put_back);
}

static void grant_free(struct grant *grant)
{
	struct hf_nlm *nlm = grant->nlm;

	hf_hashtable_remove(&nlm->grants_by_id, &grant->by_id);
	hf_hashtable_remove(&nlm->grants_by_cookie, &grant->by_cookie);
	hf_link_remove(&grant->link);
	hf_link_remove(&grant->all);
	hf_timer_stop(&grant->timer);
	hf_promise_cancel(&grant->promise);
	hf_rpc_pending_cancel(grant->pending);
	hf_client_unref(grant->client);
	nlm->counts.grants_in_flight--;
	free(grant);
}

/*
 * A secret between the client and the server. For a stored waiter it follows from the waiter's id and the key
 * of the handles: the run that goes on after a crash understands the answer to a call that was sent before.
 */
static uint64_t make_cookie(struct hf_nlm *nlm, const struct hf_lock_view *waiter)
{
	const struct hf_siphash_key key = { .k0 = nlm->options.secret, .k1 = ~nlm->options.secret };
	uint64_t cookie;

	if (waiter->tag && nlm->options.secret)
		return hf_siphash(&key, &waiter->tag, sizeof(waiter->tag));
	hf_loop_random(nlm->options.loop, &cookie, sizeof(cookie));
	return cookie;
}

static struct grant *grant_new(struct hf_nlm *nlm, const struct hf_lock_view *waiter)
{
	struct grant *grant = calloc(1, sizeof(*grant) + waiter->who.oh.len);
	struct hf_handle room;
	struct hf_bytes handle;

	if (!grant)
		return NULL;
	grant->nlm = nlm;
	grant->client = hf_client_ref(hf_container_of(waiter->who.client, struct hf_client, locking));
	grant->id = waiter->id;
	grant->cookie = make_cookie(nlm, waiter);
	grant->gap_ns = FIRST_GAP;
	grant->route = hf_nlm_route_unpack(waiter->user);
	/* The run before may have sent any number of calls, and their answers may still come. */
	grant->n_sent = grant->route.was_told ? 2 : 0;
	grant->by_msg = grant->route.is_msg;
	grant->is_exclusive = waiter->mode == HF_LOCK_EXCLUSIVE;
	grant->svid = (int32_t)waiter->who.owner_id;
	grant->offset = waiter->offset;
	grant->len = waiter->len;
	grant->export = waiter->who.export;
	handle = hf_nlm_find_handle(nlm, grant->export, waiter->who.handle, &room);
	grant->handle_len = handle.len;
	memcpy(grant->handle, handle.data, handle.len);
	grant->oh_len = waiter->who.oh.len;
	if (grant->oh_len)
		memcpy(grant->oh, waiter->who.oh.data, grant->oh_len);
	hf_link_init(&grant->link);
	hf_list_push_back(&nlm->grants, &grant->all);
	hf_timer_init(&grant->timer, nlm->options.loop, on_timer);
	hf_hashtable_insert(&nlm->grants_by_id, &grant->by_id, hash_of(nlm, grant->id));
	hf_hashtable_insert(&nlm->grants_by_cookie, &grant->by_cookie, hash_of(nlm, grant->cookie));
	nlm->counts.grants_in_flight++;
	return grant;
}

/* Called from inside the lock table, which must not be called back here. */
static void on_granted(void *user, const struct hf_lock_view *waiter)
{
	struct hf_nlm *nlm = user;
	struct grant *grant = grant_new(nlm, waiter);

	if (!grant) {
		hf_log_error("no memory for a GRANTED call: the client gets the lock when it asks again",
			     "%s", "");
		return;
	}
	/* A grant of the run before is stored. If the client is, too, it may have been told: then the grant
	 * is not put back. */
	if ((grant->route.was_told && grant->client->registration_ticket == 0) ||
	    hf_delays_add(&nlm->delays, &grant->promise, HF_SAYS_GRANTED, grant->client, on_promise))
		start_soon(grant);
}

static void on_waiter_gone(void *user, const struct hf_lock_view *waiter, enum hf_lock_end why)
{
	struct grant *grant = find_by_id(user, waiter->id);

	if (!grant)
		return;
	hf_nlm_note_grant_reply(user, &waiter->who);
	grant_free(grant);
}

static size_t describe(void *user, const struct hf_lock_view *waiter, uint8_t *route)
{
	struct hf_nlm *nlm = user;

	static_assert(HF_NLM_STORED_ROUTE <= HF_RECOVERY_MAX_ROUTE, "a route must fit");
	return hf_nlm_route_encode(&nlm->locals, hf_nlm_route_unpack(waiter->user), waiter->offset,
				   waiter->len, route);
}

static bool restore(void *user, struct hf_bytes bytes, bool was_granted, struct hf_recovery_route *routep)
{
	struct hf_nlm *nlm = user;
	struct hf_nlm_route route;

	if (!hf_nlm_route_decode(&nlm->locals, bytes, &route, &routep->offset, &routep->len))
		return false;
	route.was_told = was_granted;
	routep->local = hf_nlm_route_local(&nlm->locals, route);
	routep->user = hf_nlm_route_pack(route);
	return true;
}

static const struct hf_recovery_waiter_events waiter_events = {
	.describe = describe,
	.restore = restore,
	.granted = on_granted,
	.waiter_gone = on_waiter_gone,
};

void hf_nlm_grants_init(struct hf_nlm *nlm)
{
	hf_list_init(&nlm->starting);
	hf_list_init(&nlm->grants);
	hf_task_init(&nlm->start_grants, start_grants);
	if (!nlm->options.grant_try_ns)
		nlm->options.grant_try_ns = TRY_NS;
	if (!nlm->options.grant_give_up_ns)
		nlm->options.grant_give_up_ns = GIVE_UP_NS;
	hf_recovery_set_waiter_events(nlm->options.recovery, &waiter_events, nlm);
}

void hf_nlm_grants_deinit(struct hf_nlm *nlm)
{
	struct hf_link *link;

	hf_recovery_set_waiter_events(nlm->options.recovery, NULL, NULL);
	hf_task_cancel(&nlm->start_grants);
	while ((link = hf_list_first(&nlm->grants)))
		grant_free(hf_list_entry(link, struct grant, all));
	hf_hashtable_deinit(&nlm->grants_by_id);
	hf_hashtable_deinit(&nlm->grants_by_cookie);
}

static bool is_called_again(void *user, uint64_t id)
{
	const struct grant *grant = find_by_id(user, id);

	return grant && grant->n_sent && (grant->pending || grant->was_told_by_msg);
}

bool hf_nlm_is_called_again(const struct hf_nlm_op *op)
{
	return hf_lock_any_grant(op->nlm->locks, &op->target, op->range, is_called_again, op->nlm);
}

static bool is_outdated(const struct grant *grant, enum hf_nlm_stat stat)
{
	return stat == HF_NLM_DENIED_GRACE_PERIOD && !grant->was_told_by_msg;
}

/* The client's answer to GRANTED_MSG. The cookie is a secret between the client and the server. The address
 * must fit, too. */
void hf_nlm_proc_granted_res(void *service, struct hf_rpc_call *call)
{
	struct hf_nlm *nlm = service;
	struct hf_nlm_res res;
	struct grant *grant;

	hf_nlm_get_res(&res, hf_rpc_call_args(call));
	if (!hf_xdr_in_is_ok(hf_rpc_call_args(call))) {
		hf_rpc_reply_garbage(call);
		return;
	}
	grant = find_by_cookie(nlm, res.cookie);
	if (grant && !is_outdated(grant, res.stat) &&
	    hf_addr_same_host(&grant->client->address, hf_rpc_call_peer(call)) &&
	    !(HF_UNLIKELY(nlm->has_demands) &&
	      hf_nlm_refuses_answer(nlm, call, grant->export, grant->client)))
		answer(grant, res.stat);
	hf_rpc_reply_void(call);
}
