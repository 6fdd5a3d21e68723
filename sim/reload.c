/*
 * The server's list of exports, in which each file is an export of its own. A file that is withdrawn (fate.c)
 * is not in the list. A server that runs learns of that by a reload, and what it has of the file stays. A run
 * that starts without the export has nothing of it in its tables:
 *
 *	- What programs were told that they have there stays stored, over any number of restarts (I3).
 *	- If a reload brings it back in the grace of the start, its programs may reclaim, as all others.
 *	- If a reload brings it back later, it is lost.
 *	- Until then an UNLOCK changes nothing of what is stored. The death of a client does (I5).
 *
 * Where TLS is demanded, and where the server asks for no file, all exports stay.
 */
#include "proto/nlm/nlm.h"
#include "recovery/internal.h"
#include "sim.h"

#define ALL ((uint8_t)((1u << MAX_FILES) - 1))

static bool has_list(const struct world *world)
{
	return world->worker.is_asked && !world->tls.exists;
}

static uint8_t list(const struct world *world)
{
	uint8_t files = ALL;

	for (uint8_t file = 0; file < MAX_FILES && has_list(world); file++)
		if (fate_is_withdrawn(world, file))
			files &= (uint8_t) ~(1u << file);
	return files;
}

void reload_server_starts(struct world *world)
{
	struct server *server = world->server;

	server->must_reload = false;
	server->was_complete = server->is_complete;
	server->exported = list(world);
}

bool reload_is_absent(const struct server *server, uint8_t file)
{
	return file >= MAX_FILES || !(server->exported >> file & 1);
}

bool reload_lacks_files(const struct server *server)
{
	return (server->exported & ALL) != ALL;
}

/* Names in the store */

static struct hf_bytes name_of(void *user, uint32_t export)
{
	static const char *const names[MAX_FILES] = { "/zero", "/one", "/two" };

	return hf_bytes_of_str(export >= 1 && export <= MAX_FILES ? names[export - 1] : "");
}

static bool find(void *user, struct hf_bytes name, uint32_t *exportp)
{
	const struct server *server = user;

	for (uint8_t file = 0; file < MAX_FILES; file++)
		if (!reload_is_absent(server, file) && hf_bytes_equal(name_of(NULL, file + 1u), name)) {
			*exportp = file + 1u;
			return true;
		}
	return false;
}

bool reload_get_exports(struct world *world, struct hf_recovery_exports *exports)
{
	*exports = (struct hf_recovery_exports){ .name = name_of, .find = find, .user = world->server };
	return has_list(world);
}

/* What is lost when grace is over */

static void lose_unit(struct proc *proc, uint8_t file, int unit)
{
	struct owned *own = proc->own;

	own->phantom[file][unit] = own->has[file][unit];
	own->lost_at[file][unit] = proc->host->world->now;
	own->has[file][unit] = 0;
	proc->host->world->counts->forfeits++;
}

static void lose(struct proc *proc, uint8_t file)
{
	struct reservation *reservation = &proc->reservations[file];

	for (int unit = 0; unit < N_UNITS; unit++)
		if (proc->own->has[file][unit])
			lose_unit(proc, file, unit);
	if (reservation->has) {
		reservation->has = false;
		reservation->is_phantom = true;
	}
}

static void lose_all(struct world *world, uint8_t file)
{
	for (uint32_t i = 0; i < world->n_hosts; i++)
		for (uint32_t j = 0; j < world->hosts[i].n_procs; j++)
			lose(&world->hosts[i].procs[j], file);
}

/* Reloads */

void reload_later(struct world *world)
{
	struct server *server = world->acting;

	if (!server->is_up || server->is_stopping)
		return;
	server->must_reload = true;
	server_wake(server);
}

void reload_act(struct world *world)
{
	struct server *server = world->server;
	uint8_t back = list(world) & (uint8_t)~server->exported;

	server->must_reload = false;
	if (!server->recovery || server->is_stopping || hf_phase_is_over(server->recovery))
		return; /* the next run, here or on another node, has the list as it is then */
	SAY(world, "server  loads its exports again");
	world->counts->reloads++;
	server->exported |= back;
	for (uint8_t file = 0; file < MAX_FILES; file++) {
		if (!(back >> file & 1))
			continue;
		world->counts->returns++;
		world->back_at[file] = world->now;
		if (server->recovery->phase.has_served)
			lose_all(world, file);
	}
	hf_recovery_exports_changed(server->recovery);
	hf_nlm_exports_changed(server->nlm);
}

bool reload_is_back_since(const struct world *world, uint8_t file, uint64_t since)
{
	return world->back_at[file] >= since && world->back_at[file];
}

/* Checks */

/* What the store lacks without a fault of the server. */
bool reload_may_lack(const struct world *world)
{
	return !world->server->was_complete || world->server->has_lost || database_is_behind(world);
}

/* Until grace is over, a list that is not complete decides nothing. */
static bool is_open(const struct world *world)
{
	return world->server->grace_is_on && reload_may_lack(world);
}

void reload_check_locks(struct world *world, struct proc *proc, uint8_t file)
{
	uint8_t stored[MAX_FILES][N_UNITS];

	disk_read_locks(world, disk_promised(world), proc->host, proc->svid, stored);
	for (int unit = 0; unit < N_UNITS; unit++) {
		if (proc->own->has[file][unit] <= stored[file][unit] || is_open(world))
			continue;
		if (reload_may_lack(world))
			lose_unit(proc, file, unit);
		else
			world_fail(world, "I3",
				   "%u of host %u has file %u unit %d, which is not exported, nor stored",
				   proc->svid, proc->host->index, file, unit);
	}
}

void reload_check_reservation(struct world *world, struct proc *proc, uint8_t file)
{
	struct reservation *reservation = &proc->reservations[file];

	if (!reservation->has || is_open(world) ||
	    disk_count_reservation(disk_promised(world), proc->host, proc->svid, file, reservation))
		return;
	if (reload_may_lack(world)) {
		reservation->has = false;
		reservation->is_phantom = true;
	} else {
		world_fail(world, "I3",
			   "%u of host %u has its reservation of file %u, which is not exported, nor stored",
			   proc->svid, proc->host->index, file);
	}
}
