/*
 * Calls over UDP from other hosts that make, change or end a registration. The sender of a
 * datagram can be forged. So the server serves such a call only after its address has
 * answered: its rpcbind gives the port of the program to call back, or it accepts a
 * connection to the port that the call itself names. A call over TCP needs no such check.
 *
 * If too many calls wait, the server drops the one that has waited longest. A forged address
 * never answers, and a host that exists answers soon.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/nsm/internal.h"

/* Only a part of the calls that a UDP port may suspend. */
#define MAX_VISITORS      256
#define MAX_FROM_ONE_HOST 4

#define RPCBIND_PART 5 /* if the call names a port, rpcbind gets a fifth of the time */

struct visitor {
	struct hf_link link; /* of nsm->visitors */
	struct hf_nsm *nsm;
	struct hf_rpc_call *call;
	struct hf_rpc_pending *pending;
	uint32_t program, version; /* of the program to call back */
	uint16_t port;             /* from the call; 0: it names none */
	bool is_at_port;           /* the call's port is asked now, not rpcbind */
	void (*serve)(struct hf_nsm *nsm, struct hf_rpc_call *call, bool has_answered);
};

static void visitor_free(struct visitor *visitor)
{
	hf_link_remove(&visitor->link);
	visitor->nsm->n_visitors--;
	free(visitor);
}

static int ask(struct visitor *visitor, bool is_at_port);

/* A port from rpcbind is an answer. So is an accepted connection to the port in the call, even if nothing is
 * said on it. */
static bool has_answered(const struct visitor *visitor, const struct hf_rpc_result *result)
{
	return result->outcome == HF_RPC_OUTCOME_OK ||
	       (visitor->is_at_port && result->stage == HF_RPC_STAGE_REPLY);
}

static void on_reply(void *user, const struct hf_rpc_result *result)
{
	struct visitor *visitor = user;
	struct hf_nsm *nsm = visitor->nsm;
	struct hf_rpc_call *call = visitor->call;
	void (*serve)(struct hf_nsm * nsm, struct hf_rpc_call * call, bool has_answered) = visitor->serve;
	bool is_fine = has_answered(visitor, result);

	visitor->pending = NULL;
	if (!is_fine && visitor->port && !visitor->is_at_port && ask(visitor, true) == 0)
		return;
	visitor_free(visitor);
	hf_rpc_call_rewind(call);
	serve(nsm, call, is_fine);
}

static int ask(struct visitor *visitor, bool is_at_port)
{
	struct hf_nsm *nsm = visitor->nsm;
	uint64_t timeout_ns = nsm->options.timeout_ns, first_ns = timeout_ns / RPCBIND_PART;
	struct hf_rpc_request request = {
		.remote = *hf_rpc_call_peer(visitor->call),
		.local = *hf_rpc_call_local(visitor->call),
		.program = visitor->program,
		.version = visitor->version,
		.path = is_at_port ? HF_RPC_TCP_ONLY : HF_RPC_TCP_THEN_UDP, /* as the call-back itself goes */
		.timeout_ns = !visitor->port ? timeout_ns
			      : is_at_port   ? timeout_ns - first_ns
					     : first_ns,
		.fresh_connection = true,
		.fresh_port = true,
		.only_port = !is_at_port,
	};

	request.remote.port = is_at_port ? visitor->port : 0;
	visitor->is_at_port = is_at_port;
	return hf_rpc_client_call(nsm->options.client, &visitor->pending, &request, on_reply, visitor);
}

static uint16_t port_in(struct hf_bytes my_name, const struct hf_addr *peer)
{
	char name[HF_ADDR_TEXT + 8];

	if (my_name.len >= sizeof(name))
		return 0;
	memcpy(name, my_name.data, my_name.len);
	name[my_name.len] = '\0';
	return hf_nsm_port_in_name(name, peer);
}

static void give_up(struct visitor *visitor)
{
	hf_rpc_pending_cancel(visitor->pending);
	hf_rpc_call_drop(visitor->call); /* its sender repeats it */
	visitor_free(visitor);
}

static size_t count_from(const struct hf_nsm *nsm, const struct hf_addr *peer)
{
	size_t n = 0;

	hf_list_for_each(link, &nsm->visitors) {
		const struct visitor *visitor = hf_list_entry(link, struct visitor, link);

		n += hf_addr_same_host(hf_rpc_call_peer(visitor->call), peer);
	}
	return n;
}

static bool make_room_for(struct hf_nsm *nsm, const struct hf_addr *peer)
{
	if (count_from(nsm, peer) >= MAX_FROM_ONE_HOST) {
		nsm->n_visitors_refused_of_host++;
		return false;
	}
	if (nsm->n_visitors >= MAX_VISITORS) {
		nsm->n_visitors_refused++;
		give_up(hf_list_entry(hf_list_first(&nsm->visitors), struct visitor, link));
	}
	return true;
}

void hf_nsm_visit(struct hf_nsm *nsm, struct hf_rpc_call *call, const struct hf_nsm_my_id *my_id,
		  void (*serve)(struct hf_nsm *nsm, struct hf_rpc_call *call, bool has_answered))
{
	struct visitor *visitor =
		make_room_for(nsm, hf_rpc_call_peer(call)) ? calloc(1, sizeof(*visitor)) : NULL;

	if (!visitor) {
		hf_rpc_call_drop(call); /* its sender repeats it */
		return;
	}
	visitor->nsm = nsm;
	visitor->call = call;
	visitor->serve = serve;
	visitor->program = my_id->program;
	visitor->version = my_id->version;
	visitor->port = port_in(my_id->my_name, hf_rpc_call_peer(call));
	hf_list_push_back(&nsm->visitors, &visitor->link);
	nsm->n_visitors++;
	if (ask(visitor, false) < 0) {
		visitor_free(visitor);
		hf_rpc_call_drop(call);
		return;
	}
	if (hf_rpc_call_suspend(call) < 0) {
		hf_rpc_pending_cancel(visitor->pending);
		visitor_free(visitor);
	}
}

void hf_nsm_visitors_show_limits(const struct hf_nsm *nsm, struct hf_limit_use uses[HF_N_LIMITS])
{
	struct hf_limit_use *of_host = &uses[HF_LIMIT_UDP_MON_UNCONFIRMED_PER_ADDRESS];

	uses[HF_LIMIT_UDP_MON_UNCONFIRMED] = (struct hf_limit_use){ .used = nsm->n_visitors,
								    .max = MAX_VISITORS,
								    .refused = nsm->n_visitors_refused };
	*of_host =
		(struct hf_limit_use){ .max = MAX_FROM_ONE_HOST, .refused = nsm->n_visitors_refused_of_host };
	hf_list_for_each(link, &nsm->visitors) {
		const struct visitor *visitor = hf_list_entry(link, struct visitor, link);
		size_t n = count_from(nsm, hf_rpc_call_peer(visitor->call));

		if (n > of_host->used) {
			of_host->used = n;
			of_host->by = *hf_rpc_call_peer(visitor->call);
		}
	}
}

void hf_nsm_visitors_deinit(struct hf_nsm *nsm)
{
	struct hf_link *link;

	while ((link = hf_list_first(&nsm->visitors)))
		give_up(hf_list_entry(link, struct visitor, link));
}
