/*
 * Programs that reserve files, as DOS and Windows do: SHARE with what they intend and what others must not
 * do, UNSHARE when they close the file. A file has one reservation of a program. The server counts them: one
 * too many is never given back, and one too few leaves a program without.
 */
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "lock/internal.h"
#include "proto/nlm/wire.h"
#include "sim.h"

#define RETRY_NS    (500 * MS)
#define ASKED_TWICE 50 /* in a thousand reclaims: by another call, which no replay cache knows */

static void call(struct proc *proc, enum call_kind kind, uint8_t file)
{
	talk_call(proc->host, proc, kind, &(struct span){ .file = file }, false);
}

/* Acting */

static void begin_close(struct proc *proc, uint8_t file)
{
	struct reservation *reservation = &proc->reservations[file];

	reservation->has = reservation->is_firm = reservation->is_phantom = reservation->is_lost = false;
	proc->phase = SHARING;
	call(proc, CALL_UNSHARE, file);
}

void reservation_open(struct proc *proc, uint8_t file, uint8_t access, uint8_t deny)
{
	proc->reservations[file] = (struct reservation){ .is_open = true, .access = access, .deny = deny };
	proc->phase = SHARING;
	call(proc, CALL_SHARE, file);
}

bool reservation_act(struct proc *proc)
{
	struct rng *rng = &proc->host->rng;
	uint8_t file = (uint8_t)rng_below(rng, proc->host->world->n_files);
	struct reservation *reservation = &proc->reservations[file];
	uint8_t access;

	if (reservation->is_open) {
		begin_close(proc, file);
		return true;
	}
	access = (uint8_t)rng_between(rng, 1, 3);
	reservation_open(proc, file, access, (uint8_t)rng_below(rng, 4));
	return true;
}

bool reservation_finish(struct proc *proc)
{
	for (uint8_t file = 0; file < MAX_FILES; file++)
		if (proc->reservations[file].is_open) {
			begin_close(proc, file);
			return true;
		}
	return false;
}

void reservation_forget(struct proc *proc)
{
	memset(proc->reservations, 0, sizeof(proc->reservations));
}

/* Answers */

static bool conflict(const struct reservation *a, const struct reservation *b)
{
	return (a->access & b->deny) || (a->deny & b->access);
}

/* Other programs cannot have back, as if nothing had happened, what they had before and did not reclaim in
 * time. */
static void outdate(const struct proc *proc, uint8_t file)
{
	struct world *world = proc->host->world;

	for (uint32_t i = 0; i < world->n_hosts; i++)
		for (uint32_t j = 0; j < world->hosts[i].n_procs; j++) {
			struct reservation *other = &world->hosts[i].procs[j].reservations[file];

			if (other->is_phantom && conflict(other, &proc->reservations[file]))
				other->is_lost = true;
		}
}

static void take(struct proc *proc, uint8_t file, uint64_t sent_at)
{
	const struct server *server = proc->host->world->server;
	struct reservation *reservation = &proc->reservations[file];

	reservation->is_firm = server->is_up && sent_at >= server->started_at;
	reservation->is_phantom =
		server_is_message_old(server, sent_at) || sent_at < proc->host->lacked_until;
	reservation->has = !reservation->is_phantom;
	reservation->is_lost = false;
	if (reservation->has)
		outdate(proc, file);
	SAY(proc->host->world, "%s  %u: has file %u for %u, denies %u", proc->host->name, proc->svid, file,
	    reservation->access, reservation->deny);
}

static void on_shared(struct proc *proc, const struct call *call, uint32_t stat, uint64_t sent_at)
{
	struct host *host = proc->host;
	uint8_t file = call->span.file;

	/* A reply from before a restart that the host knows of by now is worth nothing: the program closes
	 * the file, to be sure. */
	if (stat == HF_NLM_GRANTED_STAT && call->server_state == host->server_state && !host->is_reclaiming)
		take(proc, file, sent_at);
	else if (stat == HF_NLM_DENIED && call->sending.n == 1)
		proc->reservations[file].is_open = false;
	proc_go_on(proc);
}

static void forfeit(struct reservation *reservation, struct world *world)
{
	reservation->has = false;
	reservation->is_phantom = true;
	world->counts->forfeits++;
}

/* The number of its restart may have come between the grant and its reply: see learns_number(). */
static void on_reclaimed(struct proc *proc, const struct call *call, uint32_t stat, uint64_t sent_at)
{
	struct host *host = proc->host;
	struct reservation *reservation = &proc->reservations[call->span.file];

	if (reclaim_retries(call, stat)) {
		reclaim_go_on(host, RETRY_NS);
		return;
	}
	if (stat == HF_NLM_GRANTED_STAT && host->world->server->is_complete &&
	    host->world->server->durability != HF_STORE_NONE && rng_chance(&host->rng, ASKED_TWICE)) {
		SAY(host->world, "%s  does not hear that, and asks again", host->name);
	} else if (stat == HF_NLM_GRANTED_STAT) {
		if (reservation->is_lost)
			world_fail(host->world, "I3",
				   "%u of host %u reclaims its reservation of file %u, which was another's "
				   "since",
				   proc->svid, host->index, call->span.file);
		take(proc, call->span.file, sent_at);
		host->world->counts->reclaimed++;
		if (call->made_at < host->lacked_until)
			forfeit(reservation, host->world);
	} else {
		if (reservation->has && !fate_refuses(call, stat) && !reclaim_has_lost_place(host) &&
		    host->world->server->is_up && host->world->server->life == call->server_life)
			world_fail(host->world, "I4",
				   "%u of host %u may not reclaim its reservation of file %u: %u", proc->svid,
				   host->index, call->span.file, stat);
		reservation->has = reservation->is_phantom = reservation->is_lost = false;
	}
	reclaim_go_on(host, MS);
}

static void on_closed(struct proc *proc, uint8_t file)
{
	struct reservation *reservation = &proc->reservations[file];

	if (reservation->n_unheard) {
		reservation->n_unheard--;
		call(proc, CALL_UNSHARE, file);
		return;
	}
	reservation->is_open = false;
	proc_go_on(proc);
}

void reservation_close_again(struct proc *proc)
{
	call(proc, CALL_UNSHARE, proc->closing);
}

void reservation_answer(struct proc *proc, struct call *call, uint32_t stat, uint64_t sent_at)
{
	switch (call->kind) {
	case CALL_SHARE:
		on_shared(proc, call, stat, sent_at);
		break;
	case CALL_RESHARE:
		on_reclaimed(proc, call, stat, sent_at);
		break;
	default:
		if ((stat == HF_NLM_DENIED_GRACE_PERIOD && proc->host->world->options.continues) ||
		    (identity_refuses(call, stat) && identity_may_use(call->host, call->span.file))) {
			proc->closing = call->span.file; /* it could not be stored */
			proc_pause(proc, CLOSING, RETRY_NS);
			break;
		}
		if (stat != HF_NLM_GRANTED_STAT && !identity_refuses(call, stat))
			world_fail(proc->host->world, "I6", "an UNSHARE of host %u is answered %u",
				   proc->host->index, stat);
		on_closed(proc, call->span.file);
		break;
	}
}

/* After the server's restart */

void reservation_loosen(struct proc *proc, bool was_over)
{
	for (uint8_t file = 0; file < MAX_FILES; file++) {
		struct reservation *reservation = &proc->reservations[file];

		if (was_over && reservation->has && !reservation->is_firm &&
		    (reload_may_lack(proc->host->world) ||
		     !reload_is_absent(proc->host->world->server, file))) {
			reservation->has = false;
			reservation->is_phantom = true;
		}
		reservation->is_firm = false;
	}
}

/* A server that does not know what there was counts both. So a program that asked twice closes twice. */
void reservation_unheard(const struct call *call)
{
	if (!call->proc->host->world->server->is_complete)
		call->proc->reservations[call->span.file].n_unheard++;
}

bool reservation_reclaim(struct host *host)
{
	for (uint32_t i = 0; i < host->n_procs; i++)
		for (uint8_t file = 0; file < MAX_FILES; file++) {
			const struct reservation *reservation = &host->procs[i].reservations[file];

			if ((reservation->has && !reservation->is_firm) || reservation->is_phantom) {
				call(&host->procs[i], CALL_RESHARE, file);
				return true;
			}
		}
	return false;
}

/* Checks */

/* I3: it would be there after a crash. But see check_one() on a database that went back. */
void reservation_check_told(struct world *world, struct proc *proc, const struct call *call)
{
	uint8_t file = call->span.file;

	if (world->server->durability == HF_STORE_NONE || database_is_behind(world) ||
	    world->server->has_lost)
		return;
	if (!disk_count_reservation(disk_promised(world), proc->host, proc->svid, file,
				    &proc->reservations[file]))
		world_fail(world, "I3",
			   "%u of host %u is told that it has its reservation of file %u, not stored",
			   proc->svid, proc->host->index, file);
}

/* What the lock table has, for all programs. */
struct table {
	uint32_t n[MAX_HOSTS][MAX_PROCS][MAX_FILES];
	bool is_unreclaimed[MAX_HOSTS][MAX_PROCS][MAX_FILES];
	uint32_t n_all; /* with those that are unreclaimed */
};

static void see(struct table *table, struct world *world, struct host *host,
		const struct hf_lock_reservation *reservation)
{
	struct hf_bytes oh = hf_oh_bytes(&reservation->oh);
	uint8_t file = reservation->file->handle[0];
	char text[40] = "";
	uint32_t svid;

	memcpy(text, oh.data, HF_MIN(oh.len, sizeof(text) - 1));
	svid = (uint32_t)strtoul(text, NULL, 10);
	table->n_all += reservation->count + reservation->n_unreclaimed;
	if (!host)
		return;
	if (svid / 100 < host->told_life)
		world_fail(world, "I5", "host %u was restarted and said so, and %u still has a reservation",
			   host->index, svid);
	for (uint32_t i = 0; i < host->n_procs; i++) {
		const struct reservation *mine = &host->procs[i].reservations[file];

		if (host->procs[i].svid == svid && reservation->access == mine->access &&
		    reservation->deny == mine->deny) {
			table->n[host->index][i][file] = reservation->count;
			table->is_unreclaimed[host->index][i][file] = reservation->n_unreclaimed != 0;
		}
	}
}

static void read_table(struct table *table, struct world *world)
{
	struct hf_clients *clients = hf_recovery_clients(world->server->recovery);
	struct hf_client *client;
	uint64_t serial = 0;

	memset(table, 0, sizeof(*table));
	while ((client = hf_clients_next(clients, serial))) {
		struct host *host = nat_owner(world, &client->address, client->name);

		serial = client->serial;
		hf_list_for_each(pos, &client->locking.reservations)
			see(table, world, host, hf_list_entry(pos, struct hf_lock_reservation, in_client));
		hf_client_unref(client);
	}
}

/* A database that went back may lack the number of the host's last restart. SHARE has none. So the next LOCK
 * tells of that restart, perhaps in a later run of the server, and what was reclaimed before goes, even while
 * the reply to the reclaim is under way. */
static bool learns_number(const struct host *host)
{
	return host->lacks_number && host->numbered_at == host->world->now;
}

/* I3, I6. What the store has of it says nothing here: a database may go back while the server runs, and the
 * server writes everything anew. */
static void check_one(struct world *world, struct proc *proc, uint8_t file, const struct table *table,
		      bool may_forfeit)
{
	const struct server *server = world->server;
	struct reservation *reservation = &proc->reservations[file];
	uint32_t host = proc->host->index, index = (uint32_t)(proc - proc->host->procs);

	if (!reservation->has || table->n[host][index][file])
		return;
	if (!reservation->is_firm && server->grace_is_on &&
	    (!server->is_complete || table->is_unreclaimed[host][index][file]))
		return; /* it must be reclaimed, and the client does not have it before */
	if ((!reservation->is_firm && may_forfeit) || learns_number(proc->host)) {
		forfeit(reservation, world);
		return;
	}
	world_fail(world, reservation->is_firm ? "I6" : "I3",
		   "%u of host %u was told that it has its reservation of file %u, and has not%s", proc->svid,
		   proc->host->index, file, server->grace_is_on ? ", in grace" : "");
}

/* I10: a program that is refused because nothing can be promised has nothing. It had closed the file before.
 */
void reservation_check_refused(struct world *world, const struct call *call)
{
	const struct proc *proc = call->proc;
	struct table table;

	if (!call->by_tcp || call->sending.n != 1 || call->server_life != world->server->life ||
	    !world->server->recovery)
		return;
	read_table(&table, world);
	if (table.n[proc->host->index][proc - proc->host->procs][call->span.file])
		world_fail(world, "I10", "%u of host %u is refused its reservation of file %u, and has it",
			   proc->svid, proc->host->index, call->span.file);
}

/* I5: no program has a reservation twice. So after it closes the file it has none, except for what it asked
 * for again without a reply. */
static void check_left(struct world *world, const struct call *call, uint32_t n)
{
	const struct proc *proc = call->proc;

	if (n && call->sending.n == 1 && !proc->reservations[call->span.file].n_unheard)
		world_fail(world, "I5",
			   "%u of host %u has closed file %u, and still has its reservation of it",
			   proc->svid, proc->host->index, call->span.file);
}

void reservation_check_closed(struct world *world, const struct call *call)
{
	const struct proc *proc = call->proc;
	uint8_t file = call->span.file;
	struct table table;
	uint32_t n;

	read_table(&table, world);
	n = table.n[proc->host->index][proc - proc->host->procs][file];
	check_left(world, call, n);
	if (world->server->grace_is_on || database_is_behind(world) || reload_is_absent(world->server, file))
		return; /* the table does not have what is yet to be reclaimed */
	if (disk_count_reservation(disk_promised(world), proc->host, proc->svid, file,
				   &proc->reservations[file]) > n)
		world_fail(world, "I10",
			   "%u of host %u is told that its reservation of file %u is closed; it is stored",
			   proc->svid, proc->host->index, file);
}

/* I1 */
static void check_conflicts(struct world *world, const struct proc *proc, uint8_t file)
{
	const struct reservation *mine = &proc->reservations[file];

	for (uint32_t i = 0; mine->has && i < world->n_hosts; i++)
		for (uint32_t j = 0; world->hosts[i].is_up && j < world->hosts[i].n_procs; j++) {
			const struct proc *other = &world->hosts[i].procs[j];
			const struct reservation *theirs = &other->reservations[file];

			if (theirs->has && other != proc && conflict(theirs, mine))
				world_fail(world, "I1",
					   "%u of host %u and %u of host %u both have reserved file %u",
					   proc->svid, proc->host->index, other->svid, other->host->index,
					   file);
		}
}

void reservation_check(struct world *world, bool may_forfeit)
{
	struct table table;

	if (!world->has_reservations)
		return;
	read_table(&table, world);
	for (uint32_t i = 0; i < world->n_hosts; i++)
		for (uint32_t j = 0; world->hosts[i].is_up && j < world->hosts[i].n_procs; j++)
			for (uint8_t file = 0; file < MAX_FILES; file++) {
				struct proc *proc = &world->hosts[i].procs[j];

				if (reload_is_absent(world->server, file))
					reload_check_reservation(world, proc, file);
				else
					check_one(world, proc, file, &table, may_forfeit);
				check_conflicts(world, proc, file);
			}
	for (uint32_t i = 0; i < world->n_hosts; i++)
		if (learns_number(&world->hosts[i])) {
			world->hosts[i].lacks_number = false;
			world->hosts[i].lacked_until = world->now;
		}
}

/* I10 */
void reservation_check_stored(struct world *world)
{
	struct table table;
	uint32_t n;

	if (!world->has_reservations)
		return;
	read_table(&table, world);
	n = disk_count_reservations(world, &world->disk.cached);
	if (n != table.n_all)
		world_fail(world, "I10", "there are %u reservations, and %u are stored", table.n_all, n);
}
