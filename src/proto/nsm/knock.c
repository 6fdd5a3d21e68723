/*
 * Does a host accept a connection to its rpcbind, or refuse it?
 *
 * A host without an rpcbind may give no answer over UDP. It refuses a connection at once.
 *
 * A connection to an address without a host lasts until its time is over, and has a socket. A
 * forger can name any number of such addresses. So the server has at most MAX_UNDER_WAY knocks
 * under way, for all purposes together, and the others wait to begin. A knock that has had
 * LEAST_NS without an answer gives way to one that waits. The newest one is next: if more come
 * than the server can serve, the older ones would be given up soon after they have begun.
 */
#include "proto/nsm/internal.h"

#define MAX_UNDER_WAY 64 /* each has a descriptor */
#define LEAST_NS      (50 * HF_NS_PER_MS)

static void end_quietly(struct hf_nsm_knock *knock)
{
	struct hf_nsm *nsm = knock->nsm;

	hf_timer_stop(&knock->timer);
	hf_link_remove(&knock->link);
	nsm->n_knocking -= knock->pending != NULL;
	knock->pending = hf_rpc_pending_cancel(knock->pending);
}

static void end(struct hf_nsm_knock *knock, enum hf_nsm_knock_answer answer)
{
	end_quietly(knock);
	knock->fn(knock, answer);
	/* @knock may be freed here */
}

static enum hf_nsm_knock_answer answer_of(const struct hf_rpc_result *result)
{
	if (result->outcome == HF_RPC_OUTCOME_REFUSED)
		return HF_NSM_KNOCK_REFUSED;
	if (result->stage == HF_RPC_STAGE_REPLY)
		return HF_NSM_KNOCK_ACCEPTED;
	return hf_nsm_is_silence(result) ? HF_NSM_KNOCK_SILENT : HF_NSM_KNOCK_ACCEPTED;
}

static struct hf_nsm_knock *oldest(struct hf_nsm *nsm)
{
	return hf_list_entry(hf_list_first(&nsm->knocks), struct hf_nsm_knock, link);
}

/* Later in this turn of the loop, or when the oldest knock has had its time. */
static void serve_later(struct hf_nsm *nsm)
{
	uint64_t now = hf_loop_now(nsm->options.loop), due = now;

	if (hf_list_is_empty(&nsm->knocks_waiting))
		return;
	if (nsm->n_knocking >= MAX_UNDER_WAY)
		due = oldest(nsm)->began + LEAST_NS;
	(void)hf_timer_start(&nsm->knock_timer, due > now ? due - now : 0);
}

static void on_result(void *user, const struct hf_rpc_result *result)
{
	struct hf_nsm_knock *knock = user;
	struct hf_nsm *nsm = knock->nsm;

	end(knock, answer_of(result));
	serve_later(nsm);
}

static void begin(struct hf_nsm_knock *knock)
{
	struct hf_nsm *nsm = knock->nsm;
	uint64_t now = hf_loop_now(nsm->options.loop);
	struct hf_rpc_request request = {
		.remote = knock->host,
		.local = knock->local,
		.program = HF_NSM_RPCBIND,
		.version = HF_NSM_RPCBIND_VERSION,
		.path = HF_RPC_TCP_ONLY,
		.timeout_ns = knock->until > now ? knock->until - now : 0,
		.fresh_connection = true,
	};

	request.remote.port = hf_rpc_client_rpcbind_port(nsm->options.client);
	if (hf_rpc_client_call(nsm->options.client, &knock->pending, &request, on_result, knock) < 0) {
		knock->pending = NULL;
		end(knock, HF_NSM_KNOCK_SILENT);
		return;
	}
	knock->began = now;
	nsm->n_knocking++;
	hf_link_remove(&knock->link);
	hf_list_push_back(&nsm->knocks, &knock->link);
}

static bool make_room(struct hf_nsm *nsm)
{
	if (nsm->n_knocking < MAX_UNDER_WAY)
		return true;
	if (hf_loop_now(nsm->options.loop) - oldest(nsm)->began < LEAST_NS)
		return false;
	end(oldest(nsm), HF_NSM_KNOCK_SILENT);
	return true;
}

static void serve(struct hf_nsm *nsm)
{
	/* make_room() may end the knock that waits, too. */
	while (!hf_list_is_empty(&nsm->knocks_waiting) && make_room(nsm)) {
		struct hf_link *link = hf_list_last(&nsm->knocks_waiting);

		if (link)
			begin(hf_list_entry(link, struct hf_nsm_knock, link));
	}
	serve_later(nsm);
}

static void on_knock_timer(struct hf_timer *timer)
{
	serve(hf_container_of(timer, struct hf_nsm, knock_timer));
}

static void on_due(struct hf_timer *timer)
{
	struct hf_nsm_knock *knock = hf_container_of(timer, struct hf_nsm_knock, timer);
	struct hf_nsm *nsm = knock->nsm;

	knock->until = hf_loop_now(nsm->options.loop) + nsm->options.timeout_ns;
	hf_list_push_back(&nsm->knocks_waiting, &knock->link);
	serve(nsm);
}

void hf_nsm_knock_init(struct hf_nsm_knock *knock, struct hf_nsm *nsm, hf_nsm_knock_fn fn)
{
	*knock = (struct hf_nsm_knock){ .nsm = nsm, .fn = fn };
	hf_link_init(&knock->link);
	hf_timer_init(&knock->timer, nsm->options.loop, on_due);
}

int hf_nsm_knock(struct hf_nsm_knock *knock, const struct hf_addr *host, const struct hf_addr *local,
		 uint64_t after_ns)
{
	knock->host = *host;
	knock->local = *local;
	return hf_timer_start(&knock->timer, after_ns);
}

bool hf_nsm_knock_is_under_way(const struct hf_nsm_knock *knock)
{
	return knock->pending;
}

void hf_nsm_knock_cancel(struct hf_nsm_knock *knock)
{
	end_quietly(knock);
	serve_later(knock->nsm);
}

void hf_nsm_knocks_init(struct hf_nsm *nsm)
{
	hf_list_init(&nsm->knocks);
	hf_list_init(&nsm->knocks_waiting);
	hf_timer_init(&nsm->knock_timer, nsm->options.loop, on_knock_timer);
}

void hf_nsm_knocks_deinit(struct hf_nsm *nsm)
{
	hf_timer_stop(&nsm->knock_timer);
}
