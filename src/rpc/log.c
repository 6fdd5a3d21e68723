/*
 * What does the log say of connections that are refused or closed, and of calls that took long?
 *
 * Only suspended calls and delayed replies (delay.h) take long: others are answered in the turn of the loop
 * in which they came, and look at nothing here. The call of a delayed reply has ended, so only its connection
 * is known.
 */
#include "base/log.h"
#include "rpc/server_internal.h"

/* Connections */

void hf_rpc_log_closed(struct hf_rpc_lane *lane, const struct hf_addr *peer, const char *what,
		       const char *why)
{
	char text[HF_ADDR_TEXT];
	uint64_t n_suppressed;

	if (hf_log_limit_allow(&lane->refusals, hf_loop_now(lane->loop), &n_suppressed))
		hf_log_warn(what, "peer=%s reason=%s more=%llu", hf_addr_format(peer, text, sizeof(text)),
			    why, (unsigned long long)n_suppressed);
}

void hf_rpc_note_refusal(struct hf_rpc_lane *lane, enum hf_limit limit, const struct hf_addr *peer,
			 const char *what, const char *why)
{
	hf_rpc_count(&lane->n_refused);
	hf_rpc_count(&lane->refused[limit]);
	hf_rpc_log_closed(lane, peer, what, why);
}

/* Slow calls */

static const struct hf_rpc_program *program_of(const struct hf_rpc_call *call)
{
	const struct hf_rpc_server *server = call->lane->server;

	for (size_t i = 0; i < server->n_entries; i++)
		if (server->entries[i].program->program == call->header.program)
			return server->entries[i].program;
	return NULL;
}

static const char *procedure_of(const struct hf_rpc_program *program, const struct hf_rpc_header *header)
{
	for (uint32_t i = 0; i < program->n_versions; i++) {
		const struct hf_rpc_version *version = &program->versions[i];

		if (version->version == header->version && header->procedure < version->n_procs)
			return version->procs[header->procedure].name;
	}
	return NULL;
}

/* Home may have turned it off meanwhile. */
static bool is_slow(const struct hf_rpc_lane *lane, uint64_t ns)
{
	uint64_t slow_ns = hf_rpc_slow_ns(lane);

	return slow_ns && ns >= slow_ns;
}

uint64_t hf_rpc_call_age(const struct hf_rpc_call *call)
{
	return call->is_suspended ? hf_loop_now(call->lane->loop) - call->suspended_at : 0;
}

void hf_rpc_look_at_time(struct hf_rpc_call *call)
{
	struct hf_rpc_lane *lane = call->lane;
	uint64_t ns = hf_rpc_call_age(call), n_suppressed;
	const struct hf_rpc_program *program;
	char peer[HF_ADDR_TEXT];

	if (!is_slow(lane, ns))
		return;
	program = program_of(call);
	if (!program || program->logs_slow_calls ||
	    !hf_log_limit_allow(&lane->slow_calls, hf_loop_now(lane->loop), &n_suppressed))
		return;
	hf_log_warn("a slow call", "peer=%s program=%s procedure=%s ms=%llu more=%llu",
		    hf_addr_format(hf_rpc_call_peer(call), peer, sizeof(peer)), program->name,
		    procedure_of(program, &call->header), (unsigned long long)(ns / HF_NS_PER_MS),
		    (unsigned long long)n_suppressed);
}

void hf_rpc_look_at_delay(struct hf_rpc_connection *c)
{
	struct hf_rpc_lane *lane = c->lane;
	uint64_t now = hf_loop_now(lane->loop), n_suppressed;
	char peer[HF_ADDR_TEXT];

	if (!c->delayed_at || !is_slow(lane, now - c->delayed_at) ||
	    !hf_log_limit_allow(&lane->slow_calls, now, &n_suppressed))
		return;
	hf_log_warn("slow replies: what they say was not stored before", "peer=%s ms=%llu more=%llu",
		    hf_addr_format(&c->peer, peer, sizeof(peer)),
		    (unsigned long long)((now - c->delayed_at) / HF_NS_PER_MS),
		    (unsigned long long)n_suppressed);
}
