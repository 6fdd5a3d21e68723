/*
 * Tells one client of the server's restart: this is recovery's teller.
 *
 * A statd gets an SM_NOTIFY from the server's address that its host knows: first under the
 * server's name, then under that address as text. Some statds compare the notice with nothing
 * but the name that they were asked to monitor. If the client used more of the server's
 * addresses, one notice follows for each, under that address as text: its statd takes a notice
 * for what was locked through the address that the notice gives. A client that registered by
 * SM_MON gets the call that it asked for, on a new connection. If a lock manager of this host
 * watches a peer by its name, the name is looked up first, each time, because addresses change.
 * The look-up is part of the time for this try.
 *
 * The server may not have that address any more. Then it calls from another one. A statd takes
 * a notice from there only under the address as text, so the reply to that one counts.
 *
 * Each name has the time of a try for itself: a slow statd answers one after another. A client is
 * told again until all names that count are answered. The next try goes on with the name that was
 * not answered; a statd that has heard of a state number ignores it the next time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "loop/timer.h"
#include "proto/nsm/internal.h"

#define EXTRA_NS HF_NS_PER_S

struct telling {
	struct hf_link link;
	struct hf_nsm *nsm;
	struct hf_client *client; /* a reference */
	struct hf_addr remote;
	struct hf_addr local; /* the server's address that calls; family 0: any */
	struct hf_nsm_lookup *lookup;
	struct hf_timer timer; /* of the look-up */
	uint64_t timeout_ns;   /* for each name */
	uint64_t deadline;     /* of the present one */
	struct hf_rpc_pending *pending;
	int32_t state;
	size_t n_names;     /* that were given before the present one */
	uint32_t n_dropped; /* addresses that the client had dropped when they got their numbers */
	bool is_gone;       /* the server does not have the address that the client used */
	void (*done)(void *context, bool was_told, const char *why_not);
	void *context;
};

static void telling_free(struct telling *telling)
{
	hf_link_remove(&telling->link);
	hf_timer_stop(&telling->timer);
	hf_nsm_lookup_abandon(telling->lookup);
	hf_client_unref(telling->client);
	free(telling);
}

static void finish(struct telling *telling, bool was_told, const char *why_not)
{
	void (*done)(void *context, bool was_told, const char *why_not) = telling->done;
	void *context = telling->context;

	telling_free(telling);
	done(context, was_told, why_not);
}

static void on_reply(void *user, const struct hf_rpc_result *result);

/* The server's name number @n; NULL: there is none. An address may be added during a telling: as the last
 * one, or, if it may be forged, before the others. Then one name is given twice, and none is left out. */
static const char *name_of_server(const struct telling *telling, size_t n, char *text, size_t size)
{
	const struct hf_client *client = telling->client;
	struct hf_addr address = client->local;

	if (n == 0)
		return telling->nsm->server_name;
	if (client->callback.host || !address.family ||
	    (n > 1 && !hf_client_other_local(client, n - 2, &address)))
		return NULL;
	return hf_addr_format(&address, text, size);
}

static int notify(struct telling *telling, uint64_t timeout_ns)
{
	char text[HF_ADDR_TEXT];
	const char *name = name_of_server(telling, telling->n_names, text, sizeof(text));
	uint8_t args[HF_NSM_MAX_STATUS];
	struct hf_rpc_request request = {
		.remote = telling->remote,
		.local = telling->local,
		.program = HF_NSM_PROGRAM,
		.version = 1,
		.procedure = HF_NSM_NOTIFY,
		.path = HF_RPC_UDP_THEN_TCP,
		.args = args,
		.timeout_ns = timeout_ns,
		.reserved_port = true,
	};
	struct hf_xdr_out out;

	if (!name)
		return -ENOENT; /* the client is not registered any more */
	hf_xdr_out_init(&out, args, sizeof(args));
	hf_nsm_put_stat_chge(&out, hf_bytes_of_str(name), telling->state);
	request.args_len = (size_t)(out.p - args);
	return hf_rpc_client_call(telling->nsm->options.client, &telling->pending, &request, on_reply,
				  telling);
}

static int call_program(struct telling *telling, uint64_t timeout_ns)
{
	const struct hf_client *client = telling->client;
	uint8_t args[HF_NSM_MAX_STATUS];
	struct hf_rpc_request request = {
		.remote = client->address,
		.local = telling->local,
		.program = client->callback.program,
		.version = client->callback.version,
		.procedure = client->callback.procedure,
		.path = HF_RPC_TCP_ONLY,
		.args = args,
		.timeout_ns = timeout_ns,
		.reserved_port = true,
		.fresh_connection = true,
	};
	struct hf_xdr_out out;

	request.remote.port = hf_nsm_port_in_name(client->callback.host, &client->address);
	hf_xdr_out_init(&out, args, sizeof(args));
	hf_nsm_put_status(&out, hf_bytes_of_str(telling->nsm->server_name), telling->state, client->priv);
	request.args_len = (size_t)(out.p - args);
	return hf_rpc_client_call(telling->nsm->options.client, &telling->pending, &request, on_reply,
				  telling);
}

static bool calls_program(const struct telling *telling)
{
	return telling->client->callback.host && !hf_nsm_is_local_watch(telling->nsm, telling->client);
}

static int call(struct telling *telling, uint64_t timeout_ns)
{
	return calls_program(telling) ? call_program(telling, timeout_ns) : notify(telling, timeout_ns);
}

static uint64_t time_left(const struct telling *telling)
{
	uint64_t now = hf_loop_now(telling->nsm->options.loop);

	return telling->deadline > now ? telling->deadline - now : 0;
}

/* Did the kernel refuse the address to call from? */
static bool is_without_address(const struct telling *telling, const struct hf_rpc_result *result)
{
	/* EINVAL: the socket was bound before the address went */
	return telling->local.family && result->outcome == HF_RPC_OUTCOME_UNREACHABLE &&
	       (result->error == -EADDRNOTAVAIL || result->error == -EINVAL);
}

static bool call_from_elsewhere(struct telling *telling)
{
	telling->is_gone = true;
	telling->local = (struct hf_addr){ 0 };
	return call(telling, time_left(telling)) == 0;
}

/* A statd that answered the server's name has been told, if it knows the address that the notice came from.
 */
static bool is_extra(const struct telling *telling)
{
	return telling->n_names == 1 && !telling->is_gone;
}

static int give_name(struct telling *telling)
{
	uint64_t timeout_ns = is_extra(telling) ? HF_MIN(telling->timeout_ns, EXTRA_NS) : telling->timeout_ns;

	telling->deadline = hf_loop_now(telling->nsm->options.loop) + timeout_ns;
	return call(telling, timeout_ns);
}

/* The present name is done with. If the notice came from another address, the server's name alone may have
 * told the statd nothing: the next try gives it again, with the address as text. */
static void note_name(struct telling *telling)
{
	struct hf_client *client = telling->client;

	if (telling->n_dropped != client->n_dropped) /* only the server's own name has the same number */
		telling->n_names = 0;
	telling->n_dropped = client->n_dropped;
	telling->n_names++;
	if (!telling->is_gone || telling->n_names > 1)
		hf_client_note_named(client, telling->state, telling->n_names);
}

static void give_next_name(struct telling *telling)
{
	char text[HF_ADDR_TEXT];

	note_name(telling);
	while (name_of_server(telling, telling->n_names, text, sizeof(text))) {
		if (give_name(telling) == 0)
			return;
		if (!is_extra(telling)) {
			finish(telling, false, "it could not be called");
			return;
		}
		note_name(telling);
	}
	hf_client_note_named(telling->client, 0, 0); /* an operator may have it told again */
	finish(telling, true, NULL);
}

static void on_reply(void *user, const struct hf_rpc_result *result)
{
	struct telling *telling = user;

	telling->pending = NULL;
	if (is_without_address(telling, result) && call_from_elsewhere(telling))
		return;
	if (result->outcome != HF_RPC_OUTCOME_OK && !is_extra(telling)) {
		finish(telling, false, hf_nsm_why_not(result));
		return;
	}
	give_next_name(telling);
}

/* Peers by name */

static void on_found(void *user, const struct hf_addr *address)
{
	struct telling *telling = user;

	telling->lookup = NULL;
	hf_timer_stop(&telling->timer);
	if (!address) {
		finish(telling, false, "its name has no address");
		return;
	}
	telling->remote = *address;
	if (call(telling, time_left(telling)) < 0)
		finish(telling, false, "it could not be called");
}

static void on_late(struct hf_timer *timer)
{
	finish(hf_container_of(timer, struct telling, timer), false, "its name was not found in time");
}

static int look_up(struct telling *telling, uint64_t timeout_ns)
{
	int r = hf_timer_start(&telling->timer, timeout_ns);

	if (r < 0)
		return hf_trace(r);
	telling->lookup = hf_nsm_look_up(telling->nsm, telling->client->mon_name, on_found, telling);
	return telling->lookup ? 0 : hf_trace(-ENOMEM);
}

static int begin(struct telling *telling, uint64_t timeout_ns)
{
	const struct hf_client *client = telling->client;

	telling->timeout_ns = timeout_ns;
	telling->deadline = hf_loop_now(telling->nsm->options.loop) + timeout_ns;
	telling->n_names = hf_client_count_named(client, telling->state);
	telling->n_dropped = client->n_dropped;
	if (!hf_nsm_is_local_watch(telling->nsm, client))
		telling->local = client->local;
	else if (hf_addr_is_loopback(&client->address))
		return look_up(telling, timeout_ns); /* only the peer's name is known */
	return give_name(telling);
}

static int tell(void *user, struct hf_client *client, int32_t our_state, uint64_t timeout_ns,
		void (*done)(void *context, bool was_told, const char *why_not), void *context)
{
	struct hf_nsm *nsm = user;
	struct telling *telling = calloc(1, sizeof(*telling));
	int r;

	if (!telling)
		return hf_trace(-ENOMEM);
	telling->nsm = nsm;
	hf_client_renumber(client);
	telling->client = hf_client_ref(client);
	telling->remote = client->address;
	hf_timer_init(&telling->timer, nsm->options.loop, on_late);
	telling->state = our_state;
	telling->done = done;
	telling->context = context;
	hf_list_push_back(&nsm->tellings, &telling->link);
	r = begin(telling, timeout_ns);
	if (r < 0)
		telling_free(telling);
	return r;
}

const struct hf_recovery_teller hf_nsm_teller = { .tell = tell };

void hf_nsm_tellings_deinit(struct hf_nsm *nsm)
{
	struct hf_link *link;

	while ((link = hf_list_first(&nsm->tellings))) {
		struct telling *telling = hf_list_entry(link, struct telling, link);

		hf_rpc_pending_cancel(telling->pending);
		telling_free(telling);
	}
}
