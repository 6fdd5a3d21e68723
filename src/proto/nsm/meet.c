/*
 * Is there a host at this address at all?
 *
 * The sender of a datagram can be forged, and need not even exist. If such addresses have
 * too many registrations or locks, a call over UDP waits until its address has answered. Any
 * answer is enough: its rpcbind answers a NULL call or accepts a connection, or the host
 * refuses the connection. Only the host at that address sees what the server sends,
 * so only it can answer.
 *
 * The server asks an address once for all of its calls (a meeting). A forger can make any
 * number of addresses wait here, and none of them answers. A host that exists answers within
 * one exchange. So if no room is left, the server gives up the address that has waited
 * longest.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "proto/nsm/internal.h"

/* The UDP port suspends the calls that wait here. It can suspend four times as many. */
#define MAX_GUESTS        1024 /* also of meetings: a meeting may have lost its guests */
#define MAX_FROM_ONE_HOST 16

#define CONNECT_AFTER_NS (50 * HF_NS_PER_MS) /* sooner than in ask.c: a LOCK waits for it */

struct hf_nsm_meeting {
	struct hf_hash_node node; /* of nsm->meetings */
	struct hf_link link;      /* of nsm->meetings_by_age */
	struct hf_nsm *nsm;
	struct hf_addr host, local;
	struct hf_rpc_pending *question; /* NULL: not under way */
	struct hf_nsm_attempt attempt;
	struct hf_list guests;
	size_t n_guests;
};

static struct hf_nsm_meeting *find(const struct hf_nsm *nsm, const struct hf_addr *host)
{
	hf_hash_for_each(node, &nsm->meetings, hf_nsm_hash_host(nsm, host)) {
		struct hf_nsm_meeting *meeting = hf_container_of(node, struct hf_nsm_meeting, node);

		if (hf_addr_equal(&meeting->host, host))
			return meeting;
	}
	return NULL;
}

/* A guest that is served here may begin another meeting with the same address. */
static void end(struct hf_nsm_meeting *meeting, bool has_answered)
{
	struct hf_nsm *nsm = meeting->nsm;
	struct hf_link *link;

	hf_hashtable_remove(&nsm->meetings, &meeting->node);
	hf_link_remove(&meeting->link);
	hf_rpc_pending_cancel(meeting->question);
	hf_nsm_attempt_cancel(&meeting->attempt);
	nsm->n_guests -= meeting->n_guests;
	while ((link = hf_list_pop_front(&meeting->guests))) {
		struct hf_nsm_guest *guest = hf_list_entry(link, struct hf_nsm_guest, link);

		guest->meeting = NULL;
		guest->fn(guest, has_answered);
	}
	free(meeting);
}

static void on_reply(void *user, const struct hf_rpc_result *result)
{
	struct hf_nsm_meeting *meeting = user;
	bool has_answered = !hf_nsm_is_silence(result);

	meeting->question = NULL;
	if (has_answered || !hf_nsm_attempt_is_under_way(&meeting->attempt))
		end(meeting, has_answered);
}

static void on_attempt(struct hf_nsm_attempt *attempt, enum hf_nsm_attempt_answer answer)
{
	struct hf_nsm_meeting *meeting = hf_container_of(attempt, struct hf_nsm_meeting, attempt);
	bool has_answered = answer != HF_NSM_ATTEMPT_SILENT;

	if (has_answered || !meeting->question)
		end(meeting, has_answered);
}

/* The call has a port: to look one up, the server would connect to rpcbind as well. */
static int ask(struct hf_nsm_meeting *meeting)
{
	struct hf_nsm *nsm = meeting->nsm;
	struct hf_rpc_request request = {
		.remote = meeting->host,
		.local = meeting->local,
		.program = HF_NSM_RPCBIND,
		.version = HF_NSM_RPCBIND_VERSION,
		.path = HF_RPC_UDP_ONLY,
		.timeout_ns = nsm->options.timeout_ns,
	};
	int r = hf_nsm_attempt_start(&meeting->attempt, &meeting->host, &meeting->local, CONNECT_AFTER_NS);

	request.remote.port = hf_rpc_client_rpcbind_port(nsm->options.client);
	if (r == 0)
		r = hf_rpc_client_call(nsm->options.client, &meeting->question, &request, on_reply, meeting);
	return r;
}

static int begin(struct hf_nsm_meeting **meetingp, struct hf_nsm *nsm, const struct hf_addr *host,
		 const struct hf_addr *local)
{
	struct hf_nsm_meeting *meeting = calloc(1, sizeof(*meeting));
	int r;

	if (!meeting)
		return hf_trace(-ENOMEM);
	meeting->nsm = nsm;
	meeting->host = *host;
	meeting->local = *local;
	meeting->local.port = 0;
	hf_list_init(&meeting->guests);
	hf_nsm_attempt_init(&meeting->attempt, nsm, on_attempt);
	hf_hashtable_insert(&nsm->meetings, &meeting->node, hf_nsm_hash_host(nsm, host));
	hf_list_push_back(&nsm->meetings_by_age, &meeting->link);
	r = ask(meeting);
	if (r < 0) {
		end(meeting, false);
		return r;
	}
	*meetingp = meeting;
	return 0;
}

static void give_up_oldest(struct hf_nsm *nsm)
{
	struct hf_link *link = hf_list_first(&nsm->meetings_by_age);

	end(hf_list_entry(link, struct hf_nsm_meeting, link), false);
}

int hf_nsm_meet(struct hf_nsm *nsm, const struct hf_rpc_call *call, struct hf_nsm_guest *guest)
{
	struct hf_addr host = hf_nsm_host_of(call);
	struct hf_nsm_meeting *meeting;
	int r = 0;

	if (nsm->is_ending)
		return -EBUSY;
	meeting = find(nsm, &host);
	if (meeting && meeting->n_guests >= MAX_FROM_ONE_HOST) {
		nsm->n_guests_refused_of_host++;
		return -EBUSY;
	}
	if (nsm->n_guests >= MAX_GUESTS || nsm->meetings.n >= MAX_GUESTS) {
		nsm->n_guests_refused++;
		give_up_oldest(nsm);
		meeting = find(nsm, &host); /* it may be the one that was given up */
	}
	if (!meeting)
		r = begin(&meeting, nsm, &host, hf_rpc_call_local(call));
	if (r < 0)
		return r;
	guest->meeting = meeting;
	hf_list_push_back(&meeting->guests, &guest->link);
	meeting->n_guests++;
	nsm->n_guests++;
	return 0;
}

void hf_nsm_guest_leave(struct hf_nsm_guest *guest)
{
	struct hf_nsm_meeting *meeting = guest->meeting;

	if (!meeting)
		return;
	hf_link_remove(&guest->link);
	guest->meeting = NULL;
	meeting->n_guests--;
	meeting->nsm->n_guests--;
}

void hf_nsm_meetings_show_limits(const struct hf_nsm *nsm, struct hf_limit_use uses[HF_N_LIMITS])
{
	struct hf_limit_use *of_host = &uses[HF_LIMIT_UDP_LOCKS_UNCONFIRMED_PER_ADDRESS];

	uses[HF_LIMIT_UDP_LOCKS_UNCONFIRMED] = (struct hf_limit_use){ .used = nsm->n_guests,
								      .max = MAX_GUESTS,
								      .refused = nsm->n_guests_refused };
	*of_host =
		(struct hf_limit_use){ .max = MAX_FROM_ONE_HOST, .refused = nsm->n_guests_refused_of_host };
	hf_list_for_each(link, &nsm->meetings_by_age) {
		const struct hf_nsm_meeting *meeting = hf_list_entry(link, struct hf_nsm_meeting, link);

		if (meeting->n_guests > of_host->used) {
			of_host->used = meeting->n_guests;
			of_host->by = meeting->host;
		}
	}
}

int hf_nsm_meetings_init(struct hf_nsm *nsm)
{
	return hf_trace(hf_hashtable_init(&nsm->meetings));
}

void hf_nsm_meetings_deinit(struct hf_nsm *nsm)
{
	while (!hf_list_is_empty(&nsm->meetings_by_age))
		give_up_oldest(nsm);
	hf_hashtable_deinit(&nsm->meetings);
}
