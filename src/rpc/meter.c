/*
 * Counts calls by lane and procedure. A lane has meters only if they were asked for. Without
 * them no clock is read and nothing is counted.
 *
 * Reading the clock costs a fifth of a NULL call. So calls that end one after the other form a
 * group, with one look at the clock at its beginning and one at its end. A call that was
 * answered at once counts for its part of that time, a suspended one for the time since it
 * came. A group ends when it is full and before its replies leave. So a reply is counted before
 * its client has it.
 *
 * A call whose reply is delayed (delay.h) belongs to no group. The delay counts it, and it takes until the
 * release.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "rpc/server_internal.h"

#define MAX_PROCS 64
#define MAX_GROUP 64 /* calls */
#define MAX_KINDS 16

/* Calls that ended in the same way. */
struct ended {
	struct hf_call_meter *meter;
	const char *result;
	uint64_t begun; /* 0: answered at once, in this group */
	uint64_t n;
};

struct hf_rpc_meters {
	struct hf_call_meter *calls[HF_RPC_MAX_PROGRAMS]; /* by entry, then by procedure */
	_Atomic uint64_t n_read;
	_Atomic uint64_t n_written;
	uint64_t group_begun; /* 0: no group */
	uint32_t n_ended;
	uint32_t n_calls; /* calls that these stand for */
	uint32_t n_on_the_spot;
	struct ended ended[MAX_KINDS];
};

/* A procedure has the same number and name in all versions that have it. */
uint32_t hf_rpc_meter_procs(const struct hf_rpc_program *program)
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

void hf_rpc_meters_free(struct hf_rpc_lane *lane)
{
	if (!lane->meters)
		return;
	hf_task_cancel(&lane->add_up);
	for (size_t i = 0; i < HF_RPC_MAX_PROGRAMS; i++)
		free(lane->meters->calls[i]);
	free(lane->meters);
	lane->meters = NULL;
}

static void add_up_later(struct hf_task *task)
{
	hf_rpc_meters_add_up(hf_container_of(task, struct hf_rpc_lane, add_up));
}

static int make_meters(struct hf_rpc_lane *lane)
{
	const struct hf_rpc_server *server = lane->server;

	hf_task_init(&lane->add_up, add_up_later);
	lane->meters = calloc(1, sizeof(*lane->meters));
	if (!lane->meters)
		return hf_trace(-ENOMEM);
	for (size_t i = 0; i < server->n_entries; i++) {
		uint32_t n = server->entries[i].n_procs;

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
	struct hf_rpc_meters *meters = call->lane->meters;

	if (call->header.procedure >= entry->n_procs)
		return;
	call->meter = &meters->calls[entry->index][call->header.procedure];
	call->result = "OK";
	if (!meters->group_begun)
		meters->group_begun = hf_loop_clock(call->lane->loop);
	call->begun = meters->group_begun;
}

void hf_rpc_meters_add_up(struct hf_rpc_lane *lane)
{
	struct hf_rpc_meters *meters = lane->meters;
	uint64_t now, part;

	if (!meters)
		return;
	if (!meters->n_ended) {
		meters->group_begun = 0;
		meters->n_on_the_spot = 0;
		return;
	}
	now = hf_loop_clock(lane->loop);
	part = meters->n_on_the_spot && now > meters->group_begun
		       ? (now - meters->group_begun) / meters->n_on_the_spot
		       : 0;
	for (uint32_t i = 0; i < meters->n_ended; i++) {
		const struct ended *ended = &meters->ended[i];

		hf_call_meter_add(ended->meter, ended->result, ended->begun ? now - ended->begun : part,
				  ended->n);
	}
	meters->n_ended = meters->n_calls = meters->n_on_the_spot = 0;
	meters->group_begun = 0;
}

/* Calls often alternate, a LOCK and its UNLOCK: so the last two kinds are compared. */
static bool has_counted(struct hf_rpc_meters *meters, const struct hf_call_meter *meter, const char *result)
{
	for (uint32_t i = meters->n_ended; i > 0 && meters->n_ended - i < 2; i--) {
		struct ended *ended = &meters->ended[i - 1];

		if (ended->meter == meter && ended->result == result && !ended->begun) {
			ended->n++;
			return true;
		}
	}
	return false;
}

static void note_end(struct hf_rpc_lane *lane, struct hf_call_meter *meter, const char *result,
		     uint64_t begun)
{
	struct hf_rpc_meters *meters = lane->meters;
	bool is_full = ++meters->n_calls == MAX_GROUP;

	meters->n_on_the_spot += !begun;
	if (begun || !has_counted(meters, meter, result)) {
		meters->ended[meters->n_ended++] =
			(struct ended){ .meter = meter, .result = result, .begun = begun, .n = 1 };
		is_full |= meters->n_ended == MAX_KINDS;
		if (meters->n_calls == 1)
			hf_loop_defer(lane->loop, &lane->add_up);
	}
	if (is_full)
		hf_rpc_meters_add_up(lane);
}

/* Calls whose replies are delayed */

/* Where there are many kinds: one of the same procedure and result that was begun a little earlier. */
static struct hf_rpc_delayed *find_delayed(struct hf_rpc_delay *delay, const struct hf_call_meter *meter,
					   const char *result, uint64_t begun)
{
	bool is_many = delay->n_delayed >= HF_RPC_DELAYED_MANY;

	for (uint32_t i = delay->n_delayed; i > 0 && (is_many || delay->n_delayed - i < 2); i--) {
		struct hf_rpc_delayed *delayed = &delay->delayed[i - 1];

		if (delayed->meter == meter && delayed->result == result &&
		    (delayed->begun == begun || is_many))
			return delayed;
	}
	return NULL;
}

/* False: there is no room. Not inline: most replies leave at once, and their way is shorter without this. */
static HF_NOINLINE bool note_delayed(struct hf_rpc_delay *delay, struct hf_rpc_lane *lane,
				     struct hf_call_meter *meter, const char *result, uint64_t begun)
{
	struct hf_rpc_delayed *delayed = find_delayed(delay, meter, result, begun);

	if (!delayed && delay->n_delayed == HF_RPC_DELAYED_KINDS)
		return false;
	delay->lane = lane;
	if (!delayed) {
		delayed = &delay->delayed[delay->n_delayed++];
		*delayed = (struct hf_rpc_delayed){ .meter = meter, .result = result, .begun = begun };
	}
	delayed->n++;
	delay->last = (uint32_t)(delayed - delay->delayed);
	return true;
}

/* At once: there may be no room for another kind. */
void hf_rpc_delay_change_result(struct hf_rpc_delay *delay, uint32_t where, const char *result)
{
	struct hf_rpc_delayed *delayed;

	if (where >= delay->n_delayed)
		return;
	delayed = &delay->delayed[where];
	delayed->n--;
	hf_call_meter_add(delayed->meter, result, hf_loop_clock(delay->lane->loop) - delayed->begun, 1);
}

void hf_rpc_meters_add_up_delayed(struct hf_rpc_delay *delay)
{
	uint64_t now = delay->n_delayed ? hf_loop_clock(delay->lane->loop) : 0;

	for (uint32_t i = 0; i < delay->n_delayed; i++) {
		const struct hf_rpc_delayed *delayed = &delay->delayed[i];

		if (delayed->n)
			hf_call_meter_add(delayed->meter, delayed->result, now - delayed->begun, delayed->n);
	}
	delay->n_delayed = 0;
}

void hf_rpc_meter_end(struct hf_rpc_call *call, const char *result)
{
	struct hf_rpc_lane *lane = call->lane;
	struct hf_rpc_delay *delay = call->connection ? call->connection->delay : NULL;

	if (delay && note_delayed(delay, lane, call->meter, result, call->begun))
		lane->meters->n_on_the_spot += !call->is_suspended; /* it had its part of the group's time */
	else
		note_end(lane, call->meter, result, call->is_suspended ? call->begun : 0);
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
	struct hf_rpc_meters *meters = call->lane->meters;

	if (call->begun) {
		hf_metric_add(&meters->n_read, n_read);
		hf_metric_add(&meters->n_written, n_written);
	}
}

/* Reading the meters */

void hf_rpc_server_show_meters(const struct hf_rpc_server *server, hf_rpc_meter_fn fn, void *user)
{
	for (size_t lane = 0; lane < server->n_lanes; lane++) {
		const struct hf_rpc_meters *meters = server->lanes[lane]->meters;

		for (size_t i = 0; meters && i < server->n_entries; i++) {
			const struct hf_rpc_program *program = server->entries[i].program;

			for (uint32_t proc = 0; proc < server->entries[i].n_procs; proc++)
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
