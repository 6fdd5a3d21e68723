/*
 * Counting calls, by lane and procedure. A lane has meters only where somebody
 * wants them: without, no clock is read and nothing is counted.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "rpc/server_internal.h"

#define MAX_PROCS 64

struct hf_rpc_meters {
	struct hf_call_meter *calls[HF_RPC_MAX_PROGRAMS]; /* by entry, then by procedure */
	_Atomic uint64_t n_read;
	_Atomic uint64_t n_written;
};

/* The procedures of all versions have the same numbers and names where they have any. */
static uint32_t n_procs_of(const struct hf_rpc_program *program)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < program->n_versions; i++)
		n = HF_MAX(n, program->versions[i].n_procs);
	return HF_MIN(n, (uint32_t)MAX_PROCS);
}

static const char *proc_name(const struct hf_rpc_program *program, uint32_t number)
{
	for (uint32_t i = program->n_versions; i-- > 0;) {
		const struct hf_rpc_version *version = &program->versions[i];

		if (number < version->n_procs && version->procs[number].name)
			return version->procs[number].name;
	}
	return NULL;
}

/* Life */

void hf_rpc_meters_free(struct hf_rpc_lane *lane)
{
	if (!lane->meters)
		return;
	for (size_t i = 0; i < HF_RPC_MAX_PROGRAMS; i++)
		free(lane->meters->calls[i]);
	free(lane->meters);
	lane->meters = NULL;
}

static int make_meters(struct hf_rpc_lane *lane)
{
	const struct hf_rpc_server *server = lane->server;

	lane->meters = calloc(1, sizeof(*lane->meters));
	if (!lane->meters)
		return hf_trace(-ENOMEM);
	for (size_t i = 0; i < server->n_entries; i++) {
		uint32_t n = n_procs_of(server->entries[i].program);

		lane->meters->calls[i] = calloc(HF_MAX(n, 1u), sizeof(struct hf_call_meter));
		if (!lane->meters->calls[i])
			return hf_trace(-ENOMEM);
	}
	return 0;
}

int hf_rpc_server_measure(struct hf_rpc_server *server)
{
	int r = 0;

	for (size_t i = 0; i < server->n_lanes && r == 0; i++)
		r = server->lanes[i]->meters ? 0 : make_meters(server->lanes[i]);
	return r;
}

/* Counting */

void hf_rpc_meter_begin(struct hf_rpc_call *call, const struct hf_rpc_entry *entry)
{
	if (call->header.procedure >= n_procs_of(entry->program))
		return;
	call->entry = (uint8_t)(entry - call->lane->server->entries);
	call->result = "OK";
	call->n_read = call->n_written = 0;
	/* Where one call ends in a turn, the next begins: one look at the clock for both. */
	if (!call->lane->metered_at)
		call->lane->metered_at = hf_loop_clock(call->lane->loop);
	call->begun = call->lane->metered_at;
}

void hf_rpc_meter_end(struct hf_rpc_call *call, const char *result)
{
	struct hf_rpc_meters *meters = call->lane->meters;
	uint64_t now;

	if (!call->begun)
		return;
	now = hf_loop_clock(call->lane->loop);
	hf_call_meter_add(&meters->calls[call->entry][call->header.procedure], result,
			  now > call->begun ? now - call->begun : 0);
	hf_metric_add(&meters->n_read, call->n_read);
	hf_metric_add(&meters->n_written, call->n_written);
	call->lane->metered_at = now;
	call->begun = 0;
}

bool hf_rpc_call_is_measured(const struct hf_rpc_call *call)
{
	return call->begun != 0;
}

void hf_rpc_call_note(struct hf_rpc_call *call, const char *result)
{
	call->result = result;
}

void hf_rpc_call_note_data(struct hf_rpc_call *call, size_t n_read, size_t n_written)
{
	call->n_read = n_read;
	call->n_written = n_written;
}

/* Sight */

void hf_rpc_server_show_meters(const struct hf_rpc_server *server, hf_rpc_meter_fn fn, void *user)
{
	for (size_t lane = 0; lane < server->n_lanes; lane++) {
		const struct hf_rpc_meters *meters = server->lanes[lane]->meters;

		for (size_t i = 0; meters && i < server->n_entries; i++) {
			const struct hf_rpc_program *program = server->entries[i].program;

			for (uint32_t proc = 0; proc < n_procs_of(program); proc++)
				if (proc_name(program, proc))
					fn(user, program->program, proc, proc_name(program, proc),
					   &meters->calls[i][proc]);
		}
	}
}

void hf_rpc_server_count_data(const struct hf_rpc_server *server, uint64_t *n_readp, uint64_t *n_writtenp)
{
	*n_readp = *n_writtenp = 0;
	for (size_t lane = 0; lane < server->n_lanes; lane++) {
		const struct hf_rpc_meters *meters = server->lanes[lane]->meters;

		if (!meters)
			continue;
		*n_readp += hf_metric_read(&meters->n_read);
		*n_writtenp += hf_metric_read(&meters->n_written);
	}
}
