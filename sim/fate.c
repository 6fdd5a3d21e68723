/*
 * What happens to files. They are deleted, their export is withdrawn and comes back, some hosts may not use
 * it for a while, or no host may write, or the disk has errors. Then a program that asks for a lock or a
 * reservation is refused. Its locks stay, and it can always give them up.
 *
 * The server may cache a right only as long as it is told of every change: to the list of exports, and to a
 * file, which the kernel reports. No kernel reports that a disk has errors, or works again; and a refusal may
 * be cached for a moment. So a grant is compared with what was true when the call was made, a refusal with
 * what was true at any time since shortly before.
 */
#include <errno.h>

#include "export/export.h"
#include "proto/nlm/wire.h"
#include "sim.h"

#define CHANCE   500 /* in a thousand schedules with questions about files */
#define LONGEST  (40 * SECOND)
#define MEMORY   (1 * SECOND) /* how long the server caches an answer */
#define FOR_EVER UINT64_MAX
#define RESTARTS 350 /* in a thousand changes to which files there are: by a restart of the server */

static const struct {
	const char *name;
	int answer;
	uint8_t weight;
} kinds[N_FATE_KINDS] = {
	[FATE_DELETED] = { "is deleted", HF_CHECK_STALE, 2 },
	[FATE_WITHDRAWN] = { "is not exported any more", HF_CHECK_STALE, 5 },
	[FATE_BARRED] = { "is for others", HF_CHECK_ACCESS, 3 },
	[FATE_READ_ONLY] = { "is read only", HF_CHECK_READ_ONLY, 2 },
	[FATE_BROKEN] = { "cannot be read", -EIO, 1 },
};

static bool applies(const struct fate *fate, uint8_t file, const struct host *host, bool for_writing)
{
	if (!fate->is_on || fate->file != file)
		return false;
	if (fate->kind == FATE_BARRED)
		return host && (fate->hosts >> host->index & 1);
	return for_writing || fate->kind != FATE_READ_ONLY;
}

static int answer(const struct fates *fates, uint8_t file, const struct host *host, bool for_writing)
{
	for (uint32_t i = 0; i < fates->n; i++)
		if (applies(&fates->all[i], file, host, for_writing))
			return kinds[fates->all[i].kind].answer;
	return HF_CHECK_OK;
}

int fate_of(struct world *world, const struct hf_addr *peer, uint8_t file, bool for_writing)
{
	/* By the address alone: two hosts behind one address have the same rights. */
	int r = answer(&world->fates, file, net_host(world, peer), for_writing);

	if (r != HF_CHECK_OK)
		world->counts->refusals++;
	return r;
}

/* Only what is configured: a file that is deleted is in its export. */
int fate_in_list(struct world *world, const struct hf_addr *peer, uint8_t file)
{
	const struct host *host = net_host(world, peer);

	for (uint32_t i = 0; i < world->fates.n; i++) {
		const struct fate *fate = &world->fates.all[i];

		if ((fate->kind == FATE_WITHDRAWN || fate->kind == FATE_BARRED) &&
		    applies(fate, file, host, false))
			return kinds[fate->kind].answer;
	}
	return HF_CHECK_OK;
}

bool fate_is_withdrawn(const struct world *world, uint8_t file)
{
	for (uint32_t i = 0; i < world->fates.n; i++)
		if (world->fates.all[i].kind == FATE_WITHDRAWN && world->fates.all[i].is_on &&
		    world->fates.all[i].file == file)
			return true;
	return false;
}

/* Changes */

static void note(struct world *world, uint8_t file)
{
	for (uint32_t i = 0; i < world->n_hosts; i++)
		for (int for_writing = 0; for_writing < 2; for_writing++) {
			struct right *right = &world->fates.rights[file][i][for_writing];
			int now = answer(&world->fates, file, &world->hosts[i], for_writing);

			if (right->answer != now)
				*right = (struct right){ now, world->now };
		}
}

static void turn(struct fate *fate, bool is_on)
{
	struct world *world = fate->world;

	fate->is_on = is_on;
	if (fate->kind == FATE_DELETED)
		world->fates.changed[fate->file] = ++world->fates.n_changes;
	else if (fate->kind != FATE_BROKEN)
		world->fates.n_loads++;
	world_note(world, 6, fate->file);
	SAY(world, "files   file %u %s%s (hosts %x)", fate->file, is_on ? "" : "not any more: it ",
	    kinds[fate->kind].name, fate->hosts);
	note(world, fate->file);
	if (fate->kind != FATE_DELETED && fate->kind != FATE_BROKEN)
		reload_later(world);
}

static void on_fate(struct hf_timer *timer)
{
	struct fate *fate = hf_container_of(timer, struct fate, timer);

	turn(fate, !fate->is_on);
	if (fate->kind == FATE_WITHDRAWN && rng_chance(&fate->world->fates.rng, RESTARTS))
		plan_restart(fate->world);
	if (fate->is_on && fate->lasts != FOR_EVER)
		hf_timer_start(timer, fate->lasts);
}

static enum fate_kind choose_kind(struct rng *rng)
{
	uint64_t sum = 0, n;

	for (int i = 0; i < N_FATE_KINDS; i++)
		sum += kinds[i].weight;
	n = rng_below(rng, sum);
	for (int i = 0; i < N_FATE_KINDS; i++) {
		if (n < kinds[i].weight)
			return (enum fate_kind)i;
		n -= kinds[i].weight;
	}
	return FATE_WITHDRAWN;
}

static void make(struct world *world, struct fate *fate)
{
	struct rng *rng = &world->fates.rng;
	uint64_t trouble = world->knobs.trouble_ns;

	fate->world = world;
	fate->kind = choose_kind(rng);
	fate->file = (uint8_t)rng_below(rng, world->n_files);
	fate->hosts = (uint8_t)rng_between(rng, 1, (1u << MAX_HOSTS) - 1);
	fate->lasts = rng_between(rng, MS, LONGEST);
	world_timer(world, &fate->timer, on_fate);
	if (fate->kind == FATE_DELETED) { /* late, or there would not be much to do */
		fate->lasts = FOR_EVER;
		hf_timer_start(&fate->timer, rng_between(rng, trouble / 2, trouble));
	} else {
		hf_timer_start(&fate->timer, rng_below(rng, trouble));
	}
}

void fate_init(struct world *world)
{
	struct fates *fates = &world->fates;

	rng_init(&fates->rng, world->options.seed, 8);
	if (!world->worker.is_asked || !rng_chance(&fates->rng, CHANCE) || omits(world, OMIT_FATES))
		return;
	fates->n = (uint32_t)rng_between(&fates->rng, 1, MAX_FATES);
	for (uint32_t i = 0; i < fates->n; i++)
		make(world, &fates->all[i]);
}

/* A deleted file does not come back. */
void fate_stop(struct world *world)
{
	for (uint32_t i = 0; i < world->fates.n; i++) {
		struct fate *fate = &world->fates.all[i];

		hf_timer_stop(&fate->timer);
		if (fate->is_on && fate->lasts != FOR_EVER)
			turn(fate, false);
	}
}

void fate_hear(struct fates *fates)
{
	fates->n_heard = fates->n_changes;
}

bool fate_is_unheard(const struct fates *fates, uint8_t file, uint64_t since)
{
	return fates->changed[file] <= since || fates->changed[file] > fates->n_heard;
}

/* What was true for a call */

static const struct right *right_of(const struct call *call)
{
	struct world *world = call->host->world;
	const struct host *host = call->host->gateway ? call->host->gateway : call->host;
	bool is_reservation = call->kind == CALL_SHARE || call->kind == CALL_RESHARE;
	bool for_writing = is_reservation ? call->proc->reservations[call->span.file].access & 2
					  : call->span.mode == HF_LOCK_EXCLUSIVE;

	return &world->fates.rights[call->span.file][host->index][for_writing];
}

/* For so long the server may remember an answer, by a clock that stands still while its machine sleeps. */
static uint64_t memory_of(const struct world *world)
{
	return MEMORY + world->acting->node.slept_ns;
}

static bool has_changed(const struct call *call)
{
	uint64_t changed_at = right_of(call)->changed_at;

	return changed_at && changed_at + memory_of(call->host->world) >= call->made_at;
}

static bool was_bad(const struct call *call)
{
	return right_of(call)->answer != HF_CHECK_OK || has_changed(call) || identity_may_refuse(call);
}

bool fate_refuses(const struct call *call, uint32_t stat)
{
	bool is_named = stat == HF_NLM_STALE_FH || stat == HF_NLM_ROFS || stat == HF_NLM_FAILED;

	/* The old versions have no such status. */
	return (is_named || (stat == HF_NLM_DENIED_NOLOCKS && call->host->version != 4)) && was_bad(call);
}

void fate_check_answer(const struct call *call, uint32_t stat)
{
	struct world *world = call->host->world;
	const struct right *right = right_of(call);
	uint64_t memory = right->answer < 0 ? memory_of(world) : 0; /* of errors of a disk */
	bool has_none = right->answer != HF_CHECK_OK && right->changed_at + memory < call->made_at;

	if (has_none && (stat == HF_NLM_GRANTED_STAT || stat == HF_NLM_BLOCKED))
		world_fail(world, "FILE", "%u of host %u is answered %u for file %u, and may not use it",
			   call->proc->svid, call->host->index, stat, call->span.file);
	if ((stat == HF_NLM_STALE_FH || stat == HF_NLM_ROFS || stat == HF_NLM_FAILED) && !was_bad(call))
		world_fail(world, "FILE", "%u of host %u is refused file %u, and may use it: %u",
			   call->proc->svid, call->host->index, call->span.file, stat);
}

static bool may_speak(const struct server *server)
{
	return !server->is_stopping && (!server->node.machine || node_may_act(server));
}

/* A client that the list does not have any more is granted nothing from the reload on, which ends its waits.
 * A server that stops does not load its list again. A node that stood still over the reload has not loaded it
 * yet; what it grants without its lease, no client hears. */
void fate_check_granted(struct world *world, const struct host *host, uint32_t svid, uint8_t file)
{
	const struct hf_addr *addr = host && host->gateway ? &host->gateway->addr : host ? &host->addr : NULL;

	if (addr && may_speak(world->server) && fate_in_list(world, addr, file) != HF_CHECK_OK)
		world_fail(world, "FILE",
			   "%u of host %u is granted what it waited for in file %u, and may not use it", svid,
			   host->index, file);
}
