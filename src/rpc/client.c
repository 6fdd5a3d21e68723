/*
 * Calls: from the request to its one result.
 *
 * A call has a path of one or two transports. For each it finds the port and sends the call.
 * Then it has its reply, or knows why there is none. after_failure() decides whether the next
 * transport is tried.
 */
#include "rpc/client.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "rpc/client_internal.h"
#include "rpc/lookup.h"
#include "rpc/message.h"

/* The header of a call with AUTH_SYS and the longest name. */
#define MAX_HEADER 320
#define MAX_AGAIN  2 /* a call that began again this often ends at its deadline */

const struct hf_rpc_client_limits hf_rpc_client_default_limits = {
	.max_calls = 65536,
	.max_connections = 4096,
	.max_args = 65536,
	.max_reply = 65536,
	.max_ports = 16384,
	.port_age_ns = 60 * HF_NS_PER_S,
	.idle_ns = 60 * HF_NS_PER_S,
	.rpcbind_port = 111,
};

struct hf_rpc_pending {
	struct hf_rpc_client *client;
	struct hf_link link; /* of client->starting or ->running */
	hf_rpc_done_fn done;
	void *user;
	hf_rpc_send_fn send;
	void *send_user;
	struct hf_timer deadline;
	uint64_t timeout_ns;
	struct hf_loop_mark mark; /* when it began */
	uint8_t n_again;          /* so often it began again */
	struct hf_rpc_exchange exchange;
	struct hf_lookup_waiter waiter;
	struct hf_lookup_key key; /* of the port; its transport is the current one */
	enum hf_rpc_path whole_path;
	enum hf_rpc_transport path[2]; /* in this order */
	uint8_t n_path;                /* transports still to try, with the current one */
	bool is_port_given;            /* the caller gave it: no look-up */
	bool is_port_old;              /* cached, so asking again may help */
	bool is_for_port;              /* the caller wants only the port */
	bool is_done;                  /* its done function runs */
	unsigned int n_before;         /* the exchange's n_sent when it was last started */
	struct hf_rpc_result failure;  /* the one to report if no transport is left */
	uint8_t message[];
};

static void walk(struct hf_rpc_pending *pending);
static bool begin_again(struct hf_rpc_pending *pending);

static void release(struct hf_rpc_pending *pending, bool timed_out)
{
	hf_link_remove(&pending->link);
	hf_timer_stop(&pending->deadline);
	hf_lookup_leave(&pending->waiter);
	hf_exchange_stop(&pending->exchange, timed_out);
	pending->client->counts.calls--;
}

static void finish(struct hf_rpc_pending *pending, const struct hf_rpc_result *result)
{
	struct hf_rpc_client *client = pending->client;
	struct hf_rpc_result told = *result;

	told.n_sent = pending->exchange.n_sent;
	release(pending, result->outcome == HF_RPC_OUTCOME_TIMEOUT);
	pending->is_done = true;
	client->n_telling++;
	pending->done(pending->user, &told);
	client->n_telling--;
	free(pending);
}

struct hf_rpc_pending *hf_rpc_pending_cancel(struct hf_rpc_pending *pending)
{
	if (pending && !pending->is_done) {
		release(pending, false);
		free(pending);
	}
	return NULL;
}

/* "Not registered" is the result only if it is so for every transport. */
static void note_failure(struct hf_rpc_pending *pending, const struct hf_rpc_result *result)
{
	if (result->outcome == HF_RPC_OUTCOME_NOT_REGISTERED && pending->failure.outcome != HF_RPC_OUTCOME_OK)
		return;
	pending->failure = *result;
	pending->failure.results = NULL;
}

/* A cached port may be from before the peer's restart. */
static bool is_wrong_port(const struct hf_rpc_result *result)
{
	return result->stage != HF_RPC_STAGE_LOOKUP &&
	       (result->outcome == HF_RPC_OUTCOME_REFUSED || result->outcome == HF_RPC_OUTCOME_NO_PROGRAM ||
		result->outcome == HF_RPC_OUTCOME_TIMEOUT || result->outcome == HF_RPC_OUTCOME_BROKEN);
}

static bool may_other_transport_help(const struct hf_rpc_result *result)
{
	return result->outcome == HF_RPC_OUTCOME_NOT_REGISTERED ||
	       (result->outcome == HF_RPC_OUTCOME_REFUSED && result->stage != HF_RPC_STAGE_LOOKUP);
}

/* A peer that does not know a call has not executed it. If several copies were sent, it may have executed
 * one. */
static void forget_unknown(struct hf_rpc_pending *pending, const struct hf_rpc_result *result)
{
	if (result->stage == HF_RPC_STAGE_REPLY && pending->exchange.n_sent == pending->n_before + 1 &&
	    (result->outcome == HF_RPC_OUTCOME_DENIED || result->outcome == HF_RPC_OUTCOME_NO_PROGRAM ||
	     result->outcome == HF_RPC_OUTCOME_NO_PROCEDURE))
		pending->exchange.n_sent = pending->n_before;
}

static void after_failure(struct hf_rpc_pending *pending, const struct hf_rpc_result *result)
{
	bool was_old = pending->is_port_old;

	note_failure(pending, result);
	forget_unknown(pending, result);
	if (!pending->is_port_given && is_wrong_port(result)) {
		hf_lookup_forget(pending->client, &pending->key);
		if (was_old) {
			walk(pending);
			return;
		}
	}
	if (pending->n_path > 1 && may_other_transport_help(result)) {
		pending->n_path--;
		pending->path[0] = pending->path[1];
		walk(pending);
		return;
	}
	if (!hf_loop_had_lease(pending->client->loop, &pending->mark))
		return; /* at its deadline it begins again */
	finish(pending, &pending->failure);
	/* @pending is freed here */
}

/* Did this process not listen, so that the peer may have answered? A process that stands still again and
 * again must have an end, too. */
static bool was_deaf(const struct hf_rpc_pending *pending)
{
	struct hf_loop *loop = pending->client->loop;

	return !hf_loop_had_lease(loop, &pending->mark) ||
	       (hf_loop_stood_still(loop, &pending->mark) && pending->n_again < MAX_AGAIN);
}

static void on_deadline(struct hf_timer *timer)
{
	struct hf_rpc_pending *pending = hf_container_of(timer, struct hf_rpc_pending, deadline);
	struct hf_rpc_result result;

	if (was_deaf(pending) && begin_again(pending))
		return;
	if (pending->waiter.lookup)
		result = hf_lookup_give_up(&pending->waiter);
	else
		result = hf_exchange_verdict(&pending->exchange);
	if (!pending->is_port_given && is_wrong_port(&result))
		hf_lookup_forget(pending->client, &pending->key);
	finish(pending, &result);
}

/* The path */

/* The caller's own port is the sender. */
static void hand_over(struct hf_rpc_pending *pending)
{
	struct hf_rpc_exchange *exchange = &pending->exchange;
	uint8_t *message = pending->message + HF_EXCHANGE_MARK;
	struct hf_rpc_result result = { .outcome = HF_RPC_OUTCOME_OK,
					.stage = HF_RPC_STAGE_REPLY,
					.transport = HF_RPC_UDP,
					.remote = exchange->remote };

	hf_loop_random(pending->client->loop, message, 4); /* the XID; there will be no reply */
	pending->send(pending->send_user, &exchange->local, &exchange->remote,
		      hf_bytes_of(message, exchange->len));
	exchange->n_sent++;
	finish(pending, &result);
}

static void name_port(struct hf_rpc_pending *pending)
{
	struct hf_rpc_result result = { .outcome = HF_RPC_OUTCOME_OK,
					.stage = HF_RPC_STAGE_LOOKUP,
					.transport = pending->exchange.transport,
					.remote = pending->exchange.remote };

	finish(pending, &result);
}

static void ask(struct hf_rpc_pending *pending, uint16_t port)
{
	struct hf_rpc_exchange *exchange = &pending->exchange;
	struct hf_rpc_result result;
	int r;

	exchange->transport = pending->path[0];
	exchange->remote.port = port;
	if (pending->is_for_port) {
		name_port(pending);
		return;
	}
	if (pending->send && exchange->transport == HF_RPC_UDP) {
		hand_over(pending);
		return;
	}
	pending->n_before = exchange->n_sent;
	r = hf_exchange_start(exchange);
	if (r < 0) {
		result = hf_exchange_not_started(exchange, r);
		after_failure(pending, &result);
	}
}

static void on_exchange_end(struct hf_rpc_exchange *exchange, const struct hf_rpc_result *result)
{
	struct hf_rpc_pending *pending = hf_container_of(exchange, struct hf_rpc_pending, exchange);

	if (result->outcome == HF_RPC_OUTCOME_OK)
		finish(pending, result);
	else
		after_failure(pending, result);
}

static void on_port(struct hf_lookup_waiter *waiter, const struct hf_rpc_result *result, uint16_t port)
{
	struct hf_rpc_pending *pending = hf_container_of(waiter, struct hf_rpc_pending, waiter);
	struct hf_rpc_result failure = *result;

	if (result->outcome == HF_RPC_OUTCOME_OK && port) {
		ask(pending, port);
		return;
	}
	if (result->outcome == HF_RPC_OUTCOME_OK)
		failure.outcome = HF_RPC_OUTCOME_NOT_REGISTERED;
	after_failure(pending, &failure);
}

/* The question itself could not be sent. */
static void lookup_failed(struct hf_rpc_pending *pending, int error)
{
	struct hf_rpc_result result = hf_exchange_not_started(&pending->exchange, error);

	result.stage = HF_RPC_STAGE_LOOKUP;
	result.remote.port = pending->client->limits.rpcbind_port;
	after_failure(pending, &result);
}

/* Tries the first transport of the path. */
static void walk(struct hf_rpc_pending *pending)
{
	struct hf_rpc_client *client = pending->client;
	uint64_t now = hf_loop_now(client->loop);
	uint64_t patience = pending->deadline.deadline > now ? pending->deadline.deadline - now : 0;
	uint16_t port;
	int r;

	if (pending->is_port_given) {
		ask(pending, pending->exchange.remote.port);
		return;
	}
	pending->key.transport = pending->path[0];
	r = hf_lookup_port(client, &pending->waiter, &pending->key, patience, &port);
	pending->is_port_old = r == HF_LOOKUP_KNOWN;
	if (r < 0)
		lookup_failed(pending, r);
	else if (r == HF_LOOKUP_KNOWN)
		ask(pending, port);
}

/* Beginnings. All calls of a turn begin at its end. So done is never called from inside hf_rpc_client_call(),
 * and the calls are sent together. */

static void on_start(struct hf_task *task)
{
	struct hf_rpc_client *client = hf_container_of(task, struct hf_rpc_client, start);
	struct hf_link *link;

	while ((link = hf_list_pop_front(&client->starting))) {
		hf_list_push_back(&client->running, link);
		walk(hf_list_entry(link, struct hf_rpc_pending, link));
	}
}

static void set_path(struct hf_rpc_pending *pending, enum hf_rpc_path path)
{
	bool udp_first = path == HF_RPC_UDP_ONLY || path == HF_RPC_UDP_THEN_TCP;

	pending->path[0] = udp_first ? HF_RPC_UDP : HF_RPC_TCP;
	pending->path[1] = udp_first ? HF_RPC_TCP : HF_RPC_UDP;
	pending->n_path = path == HF_RPC_UDP_THEN_TCP || path == HF_RPC_TCP_THEN_UDP ? 2 : 1;
}

/* What was sent may be lost, and what came may be unread. */
static bool begin_again(struct hf_rpc_pending *pending)
{
	struct hf_rpc_client *client = pending->client;

	if (hf_timer_start(&pending->deadline, pending->timeout_ns) < 0)
		return false;
	hf_lookup_leave(&pending->waiter);
	hf_exchange_stop(&pending->exchange, false);
	set_path(pending, pending->whole_path);
	pending->failure = (struct hf_rpc_result){ 0 };
	if (pending->n_again < MAX_AGAIN)
		pending->n_again++;
	pending->mark = hf_loop_mark(client->loop);
	hf_link_remove(&pending->link);
	hf_list_push_back(&client->starting, &pending->link);
	hf_loop_defer(client->loop, &client->start);
	return true;
}

static int check(const struct hf_rpc_client *client, const struct hf_rpc_request *request)
{
	if (!hf_addr_is_callable(&request->remote))
		return -EADDRNOTAVAIL;
	if (request->local.family && request->local.family != request->remote.family)
		return -EAFNOSUPPORT;
	if (request->args_len > client->limits.max_args)
		return -EMSGSIZE;
	if (request->timeout_ns == 0 || request->args_len % 4 ||
	    (request->machine && strlen(request->machine) > HF_RPC_MAX_NAME))
		return -EINVAL;
	return client->counts.calls >= client->limits.max_calls ? -EBUSY : 0;
}

static struct hf_addr without_port(struct hf_addr addr)
{
	addr.port = 0;
	return addr;
}

static uint32_t put_message(uint8_t *message, size_t size, const struct hf_rpc_request *request)
{
	struct hf_rpc_outgoing call = {
		.program = request->program,
		.version = request->version,
		.procedure = request->procedure,
		.auth_sys = request->machine != NULL,
		.machine = request->machine,
	};
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, message, size);
	hf_rpc_put_call(&out, &call);
	hf_xdr_put_fixed(&out, request->args, (uint32_t)request->args_len);
	assert(hf_xdr_out_is_ok(&out));
	return (uint32_t)(out.p - message);
}

static void set_exchange(struct hf_rpc_pending *pending, const struct hf_rpc_request *request)
{
	struct hf_rpc_exchange *exchange = &pending->exchange;

	hf_exchange_init(exchange, pending->client, on_exchange_end);
	exchange->remote = request->remote;
	exchange->local = without_port(request->local);
	exchange->message = pending->message;
	exchange->reserved = request->reserved_port;
	exchange->fresh = request->fresh_connection;
	exchange->one_way = request->one_way;
	exchange->first_gap_ns = request->first_gap_ns;
	exchange->transport = pending->path[0];
}

/* One block for a call, with its message. */
static struct hf_rpc_pending *pending_new(struct hf_rpc_client *client, const struct hf_rpc_request *request)
{
	uint8_t header[MAX_HEADER];
	struct hf_rpc_request bare = *request;
	struct hf_rpc_pending *pending;
	size_t size;

	bare.args_len = 0;
	size = put_message(header, sizeof(header), &bare) + request->args_len;
	pending = calloc(1, sizeof(*pending) + HF_EXCHANGE_MARK + size);
	if (!pending)
		return NULL;
	pending->client = client;
	hf_timer_init(&pending->deadline, client->loop, on_deadline);
	hf_link_init(&pending->waiter.link);
	pending->waiter.fn = on_port;
	pending->is_port_given = request->remote.port != 0;
	pending->is_for_port = request->only_port;
	pending->key = (struct hf_lookup_key){ .remote = without_port(request->remote),
					       .local = without_port(request->local),
					       .program = request->program,
					       .version = request->version,
					       .is_fresh = request->fresh_port };
	pending->whole_path = request->path;
	set_path(pending, request->path);
	set_exchange(pending, request);
	pending->exchange.len = put_message(pending->message + HF_EXCHANGE_MARK, size, request);
	return pending;
}

int hf_rpc_client_call(struct hf_rpc_client *client, struct hf_rpc_pending **pendingp,
		       const struct hf_rpc_request *request, hf_rpc_done_fn done, void *user)
{
	struct hf_rpc_pending *pending;
	int r = check(client, request);

	if (r < 0)
		return r;
	pending = pending_new(client, request);
	if (!pending)
		return hf_trace(-ENOMEM);
	pending->done = done;
	pending->user = user;
	pending->send = request->one_way ? request->send : NULL;
	pending->send_user = request->send_user;
	pending->timeout_ns = request->timeout_ns;
	pending->mark = hf_loop_mark(client->loop);
	r = hf_timer_start(&pending->deadline, request->timeout_ns);
	if (r < 0) {
		free(pending);
		return hf_trace(r);
	}
	hf_list_push_back(&client->starting, &pending->link);
	hf_loop_defer(client->loop, &client->start);
	client->counts.calls++;
	if (pendingp)
		*pendingp = pending;
	return 0;
}

static int init_tables(struct hf_rpc_client *client)
{
	if (hf_hashtable_init(&client->xids) < 0 || hf_hashtable_init(&client->connections) < 0 ||
	    hf_hashtable_init(&client->lookups) < 0 || hf_hashtable_init(&client->ports) < 0)
		return -ENOMEM;
	return 0;
}

int hf_rpc_client_new(struct hf_rpc_client **clientp, struct hf_loop *loop,
		      const struct hf_rpc_client_limits *limits)
{
	hf_cleanup(hf_rpc_client_freep) struct hf_rpc_client *client = calloc(1, sizeof(*client));

	if (!client)
		return hf_trace(-ENOMEM);
	client->loop = loop;
	client->limits = limits ? *limits : hf_rpc_client_default_limits;
	hf_loop_random(loop, &client->key, sizeof(client->key));
	hf_list_init(&client->starting);
	hf_list_init(&client->running);
	hf_list_init(&client->channels);
	hf_list_init(&client->all_connections);
	hf_list_init(&client->idle);
	hf_list_init(&client->ports_by_age);
	hf_task_init(&client->start, on_start);
	if (init_tables(client) < 0)
		return hf_trace(-ENOMEM);
	*clientp = client;
	client = NULL;
	return 0;
}

static void cancel_all(struct hf_list *calls)
{
	struct hf_link *link;

	while ((link = hf_list_first(calls)))
		hf_rpc_pending_cancel(hf_list_entry(link, struct hf_rpc_pending, link));
}

struct hf_rpc_client *hf_rpc_client_free(struct hf_rpc_client *client)
{
	if (!client)
		return NULL;
	assert(client->n_telling == 0);
	cancel_all(&client->starting);
	cancel_all(&client->running);
	hf_task_cancel(&client->start);
	hf_lookup_deinit(client);
	hf_rpc_client_udp_deinit(client);
	hf_rpc_client_tcp_deinit(client);
	assert(client->xids.n == 0 && client->counts.calls == 0);
	hf_hashtable_deinit(&client->xids);
	free(client);
	return NULL;
}

void hf_rpc_client_set_rpcbind_port(struct hf_rpc_client *client, uint16_t port)
{
	client->limits.rpcbind_port = port;
}

uint16_t hf_rpc_client_rpcbind_port(const struct hf_rpc_client *client)
{
	return client->limits.rpcbind_port;
}

void hf_rpc_client_counts(const struct hf_rpc_client *client, struct hf_rpc_client_counts *countsp)
{
	*countsp = client->counts;
	countsp->connections = client->n_connections;
	countsp->ports = client->ports.n;
}

const char *hf_rpc_outcome_text(enum hf_rpc_outcome outcome)
{
	static const char *const texts[] = {
		[HF_RPC_OUTCOME_OK] = "answered",
		[HF_RPC_OUTCOME_TIMEOUT] = "no answer in time",
		[HF_RPC_OUTCOME_NOT_REGISTERED] = "program not registered with rpcbind",
		[HF_RPC_OUTCOME_REFUSED] = "connection refused",
		[HF_RPC_OUTCOME_UNREACHABLE] = "unreachable",
		[HF_RPC_OUTCOME_NO_ROOM] = "the server has no socket or memory for the call",
		[HF_RPC_OUTCOME_BROKEN] = "connection broken",
		[HF_RPC_OUTCOME_DENIED] = "credentials or RPC version denied",
		[HF_RPC_OUTCOME_NO_PROGRAM] = "program or version not available",
		[HF_RPC_OUTCOME_NO_PROCEDURE] = "procedure not available",
		[HF_RPC_OUTCOME_NO_SENSE] = "arguments not understood or system error",
		[HF_RPC_OUTCOME_GARBAGE] = "reply not understood",
	};

	return texts[outcome];
}

const char *hf_rpc_stage_text(enum hf_rpc_stage stage)
{
	static const char *const texts[] = {
		[HF_RPC_STAGE_LOOKUP] = "lookup",
		[HF_RPC_STAGE_CONNECT] = "connect",
		[HF_RPC_STAGE_SEND] = "send",
		[HF_RPC_STAGE_REPLY] = "reply",
	};

	return texts[stage];
}
