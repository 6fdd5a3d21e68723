/* The life of a client host: it boots, sends its notice, crashes, moves, is renamed, is cut off. */
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "sim.h"

#define LOCKD_PORT 40000
#define FIXED_PORT 4045 /* which an administrator chose: it says nothing of a restart */
#define STATD_PORT 50000
#define CALL_PORT  900   /* the source port of its calls; */
#define USER_PORT  45000 /* of a host without a reserved port */

#define LATE_STATDS 300 /* in a thousand: started before sm-notify has raised the number */

void host_settle_in(struct host *host)
{
	bool is_fixed = host->has_fixed_port || (host->world->options.has_more_forgers && host->index % 2);

	host->lockd_port = (uint16_t)(is_fixed ? FIXED_PORT : LOCKD_PORT + host->life);
	host->statd_port = (uint16_t)(STATD_PORT + host->life);
	host->server_state = host->newest_heard = 0;
	host->is_reclaiming = false;
	for (uint32_t i = 0; i < host->n_procs; i++)
		proc_init(&host->procs[i], host, i);
}

void host_move_to(struct host *host, uint32_t slot)
{
	struct world *world = host->world;

	world->by_slot[host->slot] = NULL;
	monitor_moved(host);
	host->slot = slot;
	host->promised_in = 0;
	world->by_slot[slot] = host;
	host->addr = (struct hf_addr){ .family = AF_INET,
				       .port = host->is_ordinary ? USER_PORT : CALL_PORT,
				       .ip = { 10, 0, 0, (uint8_t)slot } };
}

static void put_id(const struct host *host, struct hf_bytes name, char id[96])
{
	char text[HF_ADDR_TEXT];

	hf_addr_format(&host->addr, text, sizeof(text));
	snprintf(id, 96, "nlm:%s:%.*s", text, (int)name.len, (const char *)name.data);
}

bool host_get_stored_state(const struct host *host, struct hf_bytes name, int32_t *statep)
{
	char id[96];

	put_id(host, name, id);
	return disk_get_state_of(host->world, id, statep);
}

bool host_is_number_stored(const struct host *host)
{
	char id[96];

	put_id(host, hf_bytes_of_str(host->name), id);
	return disk_has_number(host->world, id, host->state);
}

bool host_is_known(const struct host *host)
{
	int32_t state = 0;

	return host_get_stored_state(host, hf_bytes_of_str(host->name), &state) && state != 0;
}

void host_announce(struct host *host)
{
	enum call_kind kind;
	char name[sizeof(host->name)];

	/* A notice with an unknown name, from an address with one known host, counts as that host's. */
	if (host->is_shared && !host_is_known(host))
		host->awakening = BY_FREE_ALL;
	kind = host->awakening == BY_FREE_ALL ? CALL_FREE_ALL : CALL_NOTIFY;
	host->n_evidence = 1;
	talk_call(host, NULL, kind, NULL, false);
	if (!*host->old_name)
		return;
	host->n_evidence++;
	memcpy(name, host->name, sizeof(name));
	memcpy(host->name, host->old_name, sizeof(name));
	talk_call(host, NULL, kind, NULL, false);
	memcpy(host->name, name, sizeof(name));
}

/* Which message tells the server of the restart? */
static void choose_awakening(struct host *host)
{
	host->awakening =
		(enum awakening)(rng_below(&host->rng, 10) < 7 ? BY_NOTIFY : 1 + rng_below(&host->rng, 2));
	if ((host->version == 1 && host->awakening == BY_FREE_ALL) ||
	    ((host->hides_state || host->is_shared || host->uses_reservations) &&
	     host->awakening == BY_STATE))
		host->awakening = BY_NOTIFY;
	if (host->is_unmonitored)
		host->awakening = BY_FREE_ALL;
	/* Linux puts into its locks the number that its statd gives. If only a LOCK tells of the restart, it
	 * has the new number. */
	host->has_late_statd =
		host->awakening == BY_NOTIFY && !host->is_shared && rng_chance(&host->rng, LATE_STATDS);
}

static void on_boot(struct hf_timer *timer)
{
	struct host *host = hf_container_of(timer, struct host, boot_timer);

	host->is_up = true;
	host->grace_until = host->world->now + host->grace_ns;
	host->state += 2;
	if (!host->world->options.n_acts)
		choose_awakening(host);
	host->statd_state = host->state - (host->has_late_statd ? 2 : 0);
	SAY(host->world, "%s  boots, life %u, state %d, statd says %d", host->name, host->life, host->state,
	    host->statd_state);
	host_settle_in(host);
	session_host_booted(host);
	if (host->awakening != BY_STATE)
		host_announce(host);
}

void host_die(struct host *host, bool moves, uint64_t downtime_ns)
{
	struct world *world = host->world;
	struct hf_link *link;

	if (!host->is_up)
		return;
	world->counts->host_crashes++;
	SAY(world, "%s  CRASHES", host->name);
	host->is_up = false;
	host->life++;
	host->n_evidence = 0;
	while ((link = hf_list_first(&host->calls)))
		talk_drop(hf_list_entry(link, struct call, link));
	hf_timer_stop(&host->connect_timer);
	hf_timer_stop(&host->reclaim_timer);
	stream_host_died(host);
	session_host_died(host);
	for (uint32_t i = 0; i < host->n_procs; i++) {
		hf_timer_stop(&host->procs[i].timer);
		pipe_stop(&host->procs[i]);
		patience_stop(&host->procs[i]);
		memset(host->procs[i].own->has, 0, sizeof(host->procs[i].own->has));
		reservation_forget(&host->procs[i]);
	}
	hf_timer_stop(&host->rename_timer);
	host->is_renaming = false;
	if (moves && world->n_slots < N_SLOTS && !host->is_shared)
		host_move_to(host, world->n_slots++);
	hf_timer_start(&host->boot_timer, downtime_ns);
}

void host_take_along(struct host *host, enum crash_kind kind, uint32_t n_operations)
{
	host->ends_with = kind;
	host->ends_in = n_operations;
}

void host_is_acknowledged(struct host *host)
{
	enum crash_kind kind = host->ends_with;

	host->ends_with = CRASH_NONE;
	if (kind != CRASH_NONE && !host->world->is_calm)
		server_arm(host->world, kind, host->ends_in);
}

/* A program takes nothing new until it has given up all that it took under the old name. */
static void rename_now(struct host *host)
{
	host->is_renaming = false;
	memcpy(host->old_name, host->name, sizeof(host->name));
	snprintf(host->name, sizeof(host->name), "new%u", host->index);
	SAY(host->world, "%s  was %s", host->name, host->old_name);
	for (uint32_t i = 0; i < host->n_procs; i++)
		host->procs[i].wants_out = true;
}

/* Linux takes its name when it begins to talk to a server, and uses it as long as anything is under way. A
 * late call under the old name, when the new one has locks already, looks like that of another host. */
static void on_rename(struct hf_timer *timer)
{
	struct host *host = hf_container_of(timer, struct host, rename_timer);
	uint64_t now = host->world->now;

	if (!hf_list_is_empty(&host->calls))
		host->quiet_since = now;
	/* The server knows a renamed host by the port that the old name called from last. A forged LOCK by
	 * datagram moves it, so that nothing of the old name is taken for the new one's. And a notice that
	 * nothing decides stays unanswered for longer than programs wait for a new name in the end. */
	if (host->has_forged_lock || (host->n_evidence && host->world->is_ending))
		host->is_renaming = false;
	else if (now - host->quiet_since > STRAGGLER_NS)
		rename_now(host);
	else
		hf_timer_start(timer, 200 * MS);
}

void host_rename(struct host *host)
{
	if (!host->is_up || host->world->options.continues || *host->old_name || host->is_renaming ||
	    host->is_shared || host->uses_reservations || host->has_threads || patience_is_unheard(host))
		return;
	host->is_renaming = true;
	host->quiet_since = host->world->now;
	hf_timer_start(&host->rename_timer, MS);
}

static void on_healed(struct hf_timer *timer)
{
	struct host *host = hf_container_of(timer, struct host, cut_timer);

	SAY(host->world, "%s  is connected again", host->name);
	host->cut_in = host->cut_out = false;
}

void host_set_cut(struct host *host, bool in, bool out, uint64_t lasts_ns)
{
	host->cut_in = in;
	host->cut_out = out;
	if (!in && !out)
		host->healed_at = host->world->now;
	hf_timer_stop(&host->cut_timer);
	if (in || out)
		hf_timer_start(&host->cut_timer, lasts_ns);
}

void host_init(struct world *world, uint32_t index)
{
	static const char *const names[MAX_HOSTS] = { "alpha", "beta", "gamma", "delta", "omega" };
	struct host *host = &world->hosts[index];
	struct rng *rng = &host->rng;
	uint64_t dice;

	rng_init(rng, world->options.seed, 600 + index);
	host->next_xid = 1000 + (uint32_t)rng_below(rng, 64);
	dice = rng_below(rng, 10);
	host->knows_granted = dice != 0;
	host->knows_granted_msg = dice != 1;
	if (rng_chance(rng, 150))
		host->grace_ns = rng_between(rng, 5 * SECOND, 90 * SECOND);
	host->grace_until = world->now + host->grace_ns;
	rng_init(rng, world->options.seed, 100 + index);
	host->world = world;
	host->index = index;
	hf_list_init(&host->calls);
	world_timer(world, &host->boot_timer, on_boot);
	world_timer(world, &host->cut_timer, on_healed);
	world_timer(world, &host->rename_timer, on_rename);
	reclaim_init(host);
	snprintf(host->name, sizeof(host->name), "%s", rng_chance(rng, 150) ? "localhost" : names[index]);
	host->flavour = (enum flavour)rng_below(rng, 3);
	if (world->options.has_tls && host->flavour == BSD)
		host->flavour = LINUX_TCP; /* else few hosts could use TLS */
	dice = rng_below(rng, 10);
	host->version = dice < 7 ? 4 : (dice < 9 ? 3 : 1);
	host->server = world->server_addrs[rng_below(rng, 2)];
	host->server.port = SERVER_PORT;
	host->state = host->statd_state = 1 + 2 * (int32_t)rng_between(rng, 1, 20);
	host->hides_state = rng_chance(rng, 150);
	host->has_udp = host->flavour != LINUX_TCP || rng_chance(rng, 500);
	host->has_tcp = host->flavour == LINUX_TCP || rng_chance(rng, 500);
	host->life = host->told_life = 1;
	host->is_up = true;
	host->n_procs =
		omits(world, (uint32_t)OMIT_HOST_0 << index) ? 0 : (uint32_t)rng_between(rng, 1, MAX_PROCS);
	host->is_unmonitored = host->version != 1 && host->flavour != BSD && rng_chance(rng, 80);
	host->uses_reservations = host->version != 1 && !host->is_unmonitored && rng_chance(rng, 250);
	world->has_reservations |= host->uses_reservations;
	ordinary_init(host);
	if (!nat_join(host))
		host_move_to(host, world->n_slots++);
	pipe_init(host);
	part_init(host);
	patience_init(host);
	host->has_threads = !host->is_shared && !host->uses_reservations && rng_chance(rng, 250);
	host_settle_in(host);
}
