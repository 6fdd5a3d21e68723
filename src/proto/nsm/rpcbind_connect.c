/*
 * Does a host accept a connection to its rpcbind, or refuse it?
 *
 * A host without an rpcbind may give no answer over UDP. It refuses a connection at once.
 *
 * A connection to an address without a host lasts until its time is over, and has a socket. A
 * forger can name any number of such addresses. So the server has at most MAX_UNDER_WAY attempts
 * under way, for all purposes together, and the others wait to begin. An attempt that has had
 * LEAST_NS without an answer gives way to one that waits. The newest one is next: if more come
 * than the server can serve, the older ones would be given up soon after they have begun.
 */
#include "proto/nsm/internal.h"

#define MAX_UNDER_WAY 64 /* each has a descriptor */
#define LEAST_NS      (50 * HF_NS_PER_MS)

static void end_quietly(struct hf_nsm_attempt *attempt)
{
	struct hf_nsm *nsm = attempt->nsm;

	hf_timer_stop(&attempt->timer);
	hf_link_remove(&attempt->link);
	nsm->n_attempting -= attempt->pending != NULL;
	attempt->pending = hf_rpc_pending_cancel(attempt->pending);
}

static void end(struct hf_nsm_attempt *attempt, enum hf_nsm_attempt_answer answer)
{
	end_quietly(attempt);
	attempt->fn(attempt, answer);
	/* @attempt may be freed here */
}

static enum hf_nsm_attempt_answer answer_of(const struct hf_rpc_result *result)
{
	if (result->outcome == HF_RPC_OUTCOME_REFUSED)
		return HF_NSM_ATTEMPT_REFUSED;
	if (result->stage == HF_RPC_STAGE_REPLY)
		return HF_NSM_ATTEMPT_ACCEPTED;
	return hf_nsm_is_silence(result) ? HF_NSM_ATTEMPT_SILENT : HF_NSM_ATTEMPT_ACCEPTED;
}

static struct hf_nsm_attempt *oldest(struct hf_nsm *nsm)
{
	return hf_list_entry(hf_list_first(&nsm->attempts), struct hf_nsm_attempt, link);
}

/* Later in this turn of the loop, or when the oldest attempt has had its time. */
static void serve_later(struct hf_nsm *nsm)
{
	uint64_t now = hf_loop_now(nsm->options.loop), due = now;

	if (hf_list_is_empty(&nsm->attempts_waiting))
		return;
	if (nsm->n_attempting >= MAX_UNDER_WAY)
		due = oldest(nsm)->began + LEAST_NS;
	(void)hf_timer_start(&nsm->attempt_timer, due > now ? due - now : 0);
}

static void on_result(void *user, const struct hf_rpc_result *result)
{
	struct hf_nsm_attempt *attempt = user;
	struct hf_nsm *nsm = attempt->nsm;

	end(attempt, answer_of(result));
	serve_later(nsm);
}

static void begin(struct hf_nsm_attempt *attempt)
{
	struct hf_nsm *nsm = attempt->nsm;
	uint64_t now = hf_loop_now(nsm->options.loop);
	struct hf_rpc_request request = {
		.remote = attempt->host,
		.local = attempt->local,
		.program = HF_NSM_RPCBIND,
		.version = HF_NSM_RPCBIND_VERSION,
		.path = HF_RPC_TCP_ONLY,
		.timeout_ns = attempt->until > now ? attempt->until - now : 0,
		.fresh_connection = true,
	};

	request.remote.port = hf_rpc_client_rpcbind_port(nsm->options.client);
	if (hf_rpc_client_call(nsm->options.client, &attempt->pending, &request, on_result, attempt) < 0) {
		attempt->pending = NULL;
		end(attempt, HF_NSM_ATTEMPT_SILENT);
		return;
	}
	attempt->began = now;
	nsm->n_attempting++;
	hf_link_remove(&attempt->link);
	hf_list_push_back(&nsm->attempts, &attempt->link);
}

static bool make_room(struct hf_nsm *nsm)
{
	if (nsm->n_attempting < MAX_UNDER_WAY)
		return true;
	if (hf_loop_now(nsm->options.loop) - oldest(nsm)->began < LEAST_NS)
		return false;
	end(oldest(nsm), HF_NSM_ATTEMPT_SILENT);
	return true;
}

static void serve(struct hf_nsm *nsm)
{
	/* make_room() may end the attempt that waits, too. */
	while (!hf_list_is_empty(&nsm->attempts_waiting) && make_room(nsm)) {
		struct hf_link *link = hf_list_last(&nsm->attempts_waiting);

		if (link)
			begin(hf_list_entry(link, struct hf_nsm_attempt, link));
	}
	serve_later(nsm);
}

static void on_attempt_timer(struct hf_timer *timer)
{
	serve(hf_container_of(timer, struct hf_nsm, attempt_timer));
}

static void on_due(struct hf_timer *timer)
{
	struct hf_nsm_attempt *attempt = hf_container_of(timer, struct hf_nsm_attempt, timer);
	struct hf_nsm *nsm = attempt->nsm;

	attempt->until = hf_loop_now(nsm->options.loop) + nsm->options.timeout_ns;
	hf_list_push_back(&nsm->attempts_waiting, &attempt->link);
	serve(nsm);
}

void hf_nsm_attempt_init(struct hf_nsm_attempt *attempt, struct hf_nsm *nsm, hf_nsm_attempt_fn fn)
{
	*attempt = (struct hf_nsm_attempt){ .nsm = nsm, .fn = fn };
	hf_link_init(&attempt->link);
	hf_timer_init(&attempt->timer, nsm->options.loop, on_due);
}

int hf_nsm_attempt_start(struct hf_nsm_attempt *attempt, const struct hf_addr *host,
			 const struct hf_addr *local, uint64_t after_ns)
{
	attempt->host = *host;
	attempt->local = *local;
	return hf_timer_start(&attempt->timer, after_ns);
}

bool hf_nsm_attempt_is_under_way(const struct hf_nsm_attempt *attempt)
{
	return attempt->pending;
}

void hf_nsm_attempt_cancel(struct hf_nsm_attempt *attempt)
{
	end_quietly(attempt);
	serve_later(attempt->nsm);
}

void hf_nsm_attempts_init(struct hf_nsm *nsm)
{
	hf_list_init(&nsm->attempts);
	hf_list_init(&nsm->attempts_waiting);
	hf_timer_init(&nsm->attempt_timer, nsm->options.loop, on_attempt_timer);
}

void hf_nsm_attempts_deinit(struct hf_nsm *nsm)
{
	hf_timer_stop(&nsm->attempt_timer);
}
