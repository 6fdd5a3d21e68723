/* After the server's restart: reclaims the locks that the host's programs believe to have, one after the
 * other. */
#include <string.h>

#include "proto/nlm/wire.h"
#include "sim.h"

#define RETRY_NS (500 * MS)
#define N_PLACES (MAX_PROCS * MAX_FILES * N_UNITS)
#define PATIENCE 800 /* of reclaims that are refused because of the file: they are repeated; */
#define STUBBORN 990 /* by every second host */
#define FAILURES 150 /* in a thousand reclaims of reservations: the store fails just then */

static uint8_t value_at(struct host *host, uint32_t place, struct proc **procp, struct span *span)
{
	struct proc *proc = &host->procs[place / (MAX_FILES * N_UNITS)];
	uint32_t file = place / N_UNITS % MAX_FILES, unit = place % N_UNITS;

	if (place / (MAX_FILES * N_UNITS) >= host->n_procs || thread_is_second(proc))
		return 0;
	*procp = proc;
	span->file = (uint8_t)file;
	span->last = (uint8_t)unit;
	return proc->own->has[file][unit] ? proc->own->has[file][unit] : proc->own->phantom[file][unit];
}

static void end(struct host *host)
{
	host->is_reclaiming = false;
	SAY(host->world, "%s  has reclaimed", host->name);
}

/* A reclaim that cannot be stored is repeated, and must not count twice. */
static bool reclaim_reservation(struct host *host)
{
	struct world *world = host->world;
	struct rng *rng = &host->reclaim_rng;

	if (!reservation_reclaim(host))
		return false;
	if (!world->is_calm && rng_chance(rng, FAILURES))
		world->disk.fails_until =
			HF_MAX(world->disk.fails_until, world->now + rng_between(rng, MS, 2 * SECOND));
	return true;
}

static void next(struct host *host)
{
	struct proc *proc = NULL, *other;
	struct span span = { 0 }, look;
	uint8_t value = 0;

	while (host->reclaim_at < N_PLACES && !(value = value_at(host, host->reclaim_at, &proc, &span)))
		host->reclaim_at++;
	if (host->reclaim_at >= N_PLACES) {
		if (!reclaim_reservation(host))
			end(host);
		return;
	}
	span.first = span.last;
	span.mode = value;
	while (++host->reclaim_at % N_UNITS && value_at(host, host->reclaim_at, &other, &look) == value)
		span.last++;
	talk_call(host, proc, CALL_RECLAIM, &span, false);
}

static void on_timer(struct hf_timer *timer)
{
	struct host *host = hf_container_of(timer, struct host, reclaim_timer);

	if (host->is_up && host->is_reclaiming)
		next(host);
}

void reclaim_go_on(struct host *host, uint64_t delay_ns)
{
	hf_timer_start(&host->reclaim_timer, delay_ns);
}

void reclaim_init(struct host *host)
{
	rng_init(&host->reclaim_rng, host->world->options.seed, 400 + host->index);
	world_timer(host->world, &host->reclaim_timer, on_timer);
}

static void drop_calls(struct host *host)
{
	hf_list_for_each_safe(link, &host->calls) {
		struct call *call = hf_list_entry(link, struct call, link);

		if (call->kind == CALL_RESHARE)
			reservation_unheard(call);
		if (call->kind == CALL_RECLAIM || call->kind == CALL_RESHARE)
			talk_drop(call);
	}
}

/* Lost in an earlier epoch of the server, and claimed in this one, in which it does not know what others got
 * in between. Only a server with all locks in its store can refuse that. */
static void forget_lost(struct host *host)
{
	for (uint32_t i = 0; i < host->n_procs; i++) {
		struct proc *proc = &host->procs[i];

		memset(proc->own->phantom, 0, sizeof(proc->own->phantom));
		for (int file = 0; file < MAX_FILES; file++)
			proc->reservations[file].is_phantom = proc->reservations[file].is_lost = false;
	}
}

void reclaim_server_starts(struct host *host)
{
	if (host->world->server->is_complete)
		return;
	forget_lost(host);
	if (!host->is_reclaiming)
		return;
	drop_calls(host);
	host->reclaim_at = 0;
	reclaim_go_on(host, RETRY_NS);
}

void reclaim_begin(struct host *host, int32_t state)
{
	if (host->is_unmonitored)
		return; /* its locks are lost */
	drop_calls(host);
	for (uint32_t i = 0; i < host->n_procs; i++) {
		struct proc *proc = &host->procs[i];

		memset(proc->downgraded, 0, sizeof(proc->downgraded));
		/* It does not reclaim a lock that it wants to change: the two calls would cross. */
		if (proc->blocks && (proc->phase == LOCKING || proc->phase == WAITING))
			proc_give_up(proc, &proc->span);
	}
	if (!host->world->server->is_complete)
		forget_lost(host);
	hf_timer_stop(&host->reclaim_timer);
	host->is_reclaiming = true;
	host->reclaim_at = 0;
	next(host);
}

/* As the name that it has now: a host that was renamed is a further client. */
static bool is_registered(const struct host *host)
{
	struct world *world = host->world;
	struct hf_client *client;
	uint64_t serial = 0;
	bool is_found = false;

	while (!is_found && world->server->recovery &&
	       (client = hf_clients_next(hf_recovery_clients(world->server->recovery), serial))) {
		serial = client->serial;
		is_found = hf_client_is_registered(client) && strcmp(client->name, host->name) == 0 &&
			   check_host_of(world, &client->locking) == host;
		hf_client_unref(client);
	}
	return is_found;
}

/* The database that went back may have the registration of another client again, which had made room for this
 * one. */
bool reclaim_has_lost_place(const struct host *host)
{
	return host->world->server->has_lost && !is_registered(host);
}

/* No room: tap.c judges whether the server may say so. There may be no place for a host that is not
 * registered, because the database has lost that, or the host was renamed. */
static bool lacks_room(const struct call *call, uint32_t stat)
{
	const struct host *host = call->host;

	return stat == HF_NLM_DENIED_NOLOCKS &&
	       (host->world->flood.limits.locks_per_client || !is_registered(host));
}

/* Was it refused although it has, or should have, the lock? */
static void check_refusal(struct host *host, const struct call *call, uint32_t stat)
{
	const struct proc *proc = call->proc;
	const struct span *span = &call->span;

	for (int unit = span->first; unit <= span->last; unit++)
		if (proc->own->has[span->file][unit] < span->mode)
			return;
	if (fate_refuses(call, stat) || lacks_room(call, stat))
		return;
	if (host->world->server->is_up && host->world->server->life == call->server_life)
		world_fail(host->world, "I4", "%u of host %u may not reclaim file %u, %u-%u: %u", proc->svid,
			   host->index, span->file, span->first, span->last, stat);
}

/* The file is not available, and may be before grace ends. Any other refusal is final, as for Linux. */
bool reclaim_retries(const struct call *call, uint32_t stat)
{
	struct host *host = call->host;

	return fate_refuses(call, stat) && !host->world->is_ending &&
	       rng_chance(&host->reclaim_rng, host->index % 2 ? STUBBORN : PATIENCE);
}

void reclaim_answer(struct host *host, struct call *call, uint32_t stat, uint64_t sent_at)
{
	const struct span *span = &call->span;

	if (reclaim_retries(call, stat)) {
		host->reclaim_at -= span->last - span->first + 1u;
		hf_timer_start(&host->reclaim_timer, RETRY_NS);
		return;
	}
	switch (stat) {
	case HF_NLM_GRANTED_STAT:
		proc_reclaims(call->proc, span, sent_at);
		proc_take(call->proc, span, sent_at);
		proc_be_content(call->proc);
		if (thread_other(call->proc))
			proc_be_content(thread_other(call->proc));
		host->world->counts->reclaimed++;
		break;
	default:
		check_refusal(host, call, stat);
		proc_give_up(call->proc, span);
		break;
	}
	next(host);
}
