/*
 * Every short sequence of what one host can do: it locks, reserves, is restarted, repeats its notice, while
 * the server is killed, or forgets the host. Each act ends before the next one begins, no message is lost,
 * and there is no other host. So what breaks a rule is the order of the acts alone. A number says which
 * sequence, and of what kind of host; the seeds of a run are these numbers, from 0.
 *
 * The random schedules of plan.c reach such an order only now and then: each of these acts is rare there.
 *
 *	tcp:said:statd:chosen:own:LBnK
 *	|   |    |     |      |   the acts, see below
 *	|   |    |     |      the name in its notices: that of its LOCKs, its `long` one, or one
 *	|   |    |     |      that has nothing to do with it (`other`)
 *	|   |    |     the lock manager's port: `chosen` by the system at each start, or `fixed`
 *	|   |    what the statd answers to SM_STAT: a number (`statd`), a refusal (`secretive`), nothing
 *	|   |    (`silent`)
 *	|   the number in its LOCKs: `said`, or `hidden`
 *	how it calls: over TCP from a reserved port, from an `ordinary` one, or over UDP
 */
#include <stdio.h>
#include <string.h>

#include "client/client.h"
#include "sim.h"

#define MAX_WAIT (30 * SECOND)
#define SHORT    (10 * SECOND)
#define LONG     (400 * SECOND) /* the server forgets a host without locks, and asks a host anew */

/* Those of a forger come last: they are there with --forgers only. */
static const char acts[] = "LSUBbqFfncawKkxyz";
#define N_FORGERIES 3

static uint32_t count_acts(const struct sim_options *options)
{
	return (uint32_t)sizeof(acts) - 1 - (options->has_more_forgers ? 0 : N_FORGERIES);
}

enum {
	WAY_TCP,
	WAY_ORDINARY,
	WAY_UDP
};
enum {
	NUMBER_SAID,
	NUMBER_HIDDEN
};
enum {
	STATD_ANSWERS,
	STATD_SECRETIVE,
	STATD_SILENT
};
enum {
	PORT_CHOSEN,
	PORT_FIXED
};

static const char *const ways[] = { [WAY_TCP] = "tcp", [WAY_ORDINARY] = "ordinary", [WAY_UDP] = "udp" };
static const char *const numbers[] = { [NUMBER_SAID] = "said", [NUMBER_HIDDEN] = "hidden" };
static const char *const statds[] = {
	[STATD_ANSWERS] = "statd", [STATD_SECRETIVE] = "secretive", [STATD_SILENT] = "silent"
};
static const char *const ports[] = { [PORT_CHOSEN] = "chosen", [PORT_FIXED] = "fixed" };
static const char *const names[] = { [NAMED_OWN] = "own", [NAMED_LONG] = "long", [NAMED_OTHER] = "other" };

struct sequence {
	uint32_t way, number, statd, port, name;
	char acts[MAX_ACTS + 1];
};

/* Names */

static uint32_t take_digit(uint64_t *restp, uint32_t base)
{
	uint32_t digit = (uint32_t)(*restp % base);

	*restp /= base;
	return digit;
}

static struct sequence decode(const struct sim_options *options)
{
	uint64_t rest = options->seed;
	struct sequence sequence = {
		.way = take_digit(&rest, HF_ARRAY_SIZE(ways)),
		.number = take_digit(&rest, HF_ARRAY_SIZE(numbers)),
		.statd = take_digit(&rest, HF_ARRAY_SIZE(statds)),
		.port = take_digit(&rest, HF_ARRAY_SIZE(ports)),
		.name = take_digit(&rest, HF_ARRAY_SIZE(names)),
	};

	for (uint32_t i = 0; i < options->n_acts; i++)
		sequence.acts[i] = acts[take_digit(&rest, count_acts(options))];
	return sequence;
}

uint64_t sequence_count(const struct sim_options *options)
{
	uint64_t n = HF_ARRAY_SIZE(ways) * HF_ARRAY_SIZE(numbers) * HF_ARRAY_SIZE(statds) *
		     HF_ARRAY_SIZE(ports) * HF_ARRAY_SIZE(names);

	for (uint32_t i = 0; i < options->n_acts; i++)
		n *= count_acts(options);
	return n;
}

void sequence_name(const struct sim_options *options, char *text, size_t size)
{
	struct sequence sequence = decode(options);

	snprintf(text, size, "%s:%s:%s:%s:%s:%s", ways[sequence.way], numbers[sequence.number],
		 statds[sequence.statd], ports[sequence.port], names[sequence.name], sequence.acts);
}

static bool read_word(const char **textp, const char *const *words, uint32_t n, uint64_t *digitp)
{
	for (uint32_t i = 0; i < n; i++) {
		size_t len = strlen(words[i]);

		if (strncmp(*textp, words[i], len) == 0 && (*textp)[len] == ':') {
			*textp += len + 1;
			*digitp = i;
			return true;
		}
	}
	return false;
}

bool sequence_read(struct sim_options *options, const char *text)
{
	uint64_t digits[5], value = 0;

	if (!read_word(&text, ways, HF_ARRAY_SIZE(ways), &digits[0]) ||
	    !read_word(&text, numbers, HF_ARRAY_SIZE(numbers), &digits[1]) ||
	    !read_word(&text, statds, HF_ARRAY_SIZE(statds), &digits[2]) ||
	    !read_word(&text, ports, HF_ARRAY_SIZE(ports), &digits[3]) ||
	    !read_word(&text, names, HF_ARRAY_SIZE(names), &digits[4]) || !*text || strlen(text) > MAX_ACTS)
		return false;
	options->n_acts = (uint32_t)strlen(text);
	options->has_more_forgers = strpbrk(text, acts + sizeof(acts) - 1 - N_FORGERIES) != NULL;
	for (uint32_t i = options->n_acts; i--;) {
		const char *act = strchr(acts, text[i]);

		if (!act)
			return false;
		value = value * count_acts(options) + (uint64_t)(act - acts);
	}
	value = value * HF_ARRAY_SIZE(names) + digits[4];
	value = value * HF_ARRAY_SIZE(ports) + digits[3];
	value = value * HF_ARRAY_SIZE(statds) + digits[2];
	value = value * HF_ARRAY_SIZE(numbers) + digits[1];
	options->seed = value * HF_ARRAY_SIZE(ways) + digits[0];
	return true;
}

/* The world */

static void make_host(struct world *world, const struct sequence *sequence)
{
	struct host *host = &world->hosts[0];

	/* Nothing of it begins before it is as it shall be. */
	world->options.omit |= OMIT_HOST_0 | OMIT_ORDINARY;
	host_init(world, 0);
	snprintf(host->name, sizeof(host->name), "alpha");
	host->flavour = sequence->way == WAY_UDP ? LINUX_UDP : LINUX_TCP;
	host->is_ordinary = sequence->way == WAY_ORDINARY;
	host->version = 4;
	host->hides_state = sequence->number == NUMBER_HIDDEN;
	host->is_secretive = sequence->statd == STATD_SECRETIVE;
	host->is_silent = sequence->statd == STATD_SILENT;
	host->has_fixed_port = sequence->port == PORT_FIXED;
	host->notice_name = (enum notice_name)sequence->name;
	host->has_udp = host->has_tcp = host->knows_granted = host->knows_granted_msg = true;
	host->grace_ns = host->grace_until = 0;
	host->n_procs = 1;
	host->is_unmonitored = host->has_threads = host->pipelines = host->changes_parts =
		host->is_impatient = false;
	host->uses_reservations = world->has_reservations = strchr(sequence->acts, 'S') != NULL;
	host_move_to(host, host->slot);
	host_settle_in(host);
}

void sequence_make(struct world *world)
{
	struct server *server = world->server;
	struct sequence sequence = decode(&world->options);

	server->durability = HF_STORE_MACHINE;
	server->window_ns = 5 * SECOND;
	server->notify_retry_ns = 30 * SECOND;
	server->notify_parallel = server->max_clients = 100;
	server->early_end = true;
	server->idle_ns = 300 * SECOND;
	world->knobs.longest_ns = world->knobs.think_ns = 10 * MS;
	world->n_files = MAX_FILES;
	world->n_hosts = 1;
	world->has_forger = world->options.has_more_forgers;
	make_host(world, &sequence);
}

/* Waiting */

static bool is_serving(const struct world *world)
{
	return world->server->is_up && !world->server->is_stopping;
}

static bool is_quiet(const struct world *world)
{
	const struct host *host = &world->hosts[0];

	return is_serving(world) && host->is_up && hf_list_is_empty(&host->calls) && !host->is_reclaiming &&
	       host->procs[0].phase == IDLE;
}

static void settle(struct world *world)
{
	uint64_t until = world->now + MAX_WAIT;

	while (!world->has_failed && world->now < until && !is_quiet(world))
		world_step(world);
}

/* Acts. Each returns false if it makes no sense now. */

static bool is_told(const struct host *host)
{
	return host->told_life == host->life;
}

/* A host tells of its restart before it takes anything that does not carry its new number, or if it had
 * anything without a number: the next LOCK would not tell of the restart then (decisions/0018-notices.md). */
static bool act_lock(struct world *world)
{
	struct host *host = &world->hosts[0];
	struct span span = { .first = (uint8_t)world->sequence.n_locks,
			     .last = (uint8_t)world->sequence.n_locks,
			     .mode = HF_LOCK_EXCLUSIVE };

	if (world->sequence.n_locks == N_UNITS ||
	    (!is_told(host) && (host->hides_state || host->statd_state != host->state ||
				host->awakening == BY_FREE_ALL || world->sequence.n_reserved)))
		return false;
	world->sequence.n_locks++;
	proc_lock(&host->procs[0], &span, false);
	return true;
}

static bool act_reserve(struct world *world)
{
	struct host *host = &world->hosts[0];

	for (uint8_t file = 0; file < MAX_FILES && is_told(host); file++)
		if (!host->procs[0].reservations[file].is_open) {
			world->sequence.n_reserved++;
			reservation_open(&host->procs[0], file, 1, 0);
			return true;
		}
	return false;
}

static bool act_give_up(struct world *world)
{
	struct proc *proc = &world->hosts[0].procs[0];
	uint64_t until = world->now + MAX_WAIT;

	proc->wants_out = true;
	proc_nudge(proc);
	while (!world->has_failed && proc->wants_out && world->now < until)
		world_step(world);
	return !proc->wants_out; /* else it has to tell of its restart first */
}

static bool act_boot(struct world *world, enum awakening awakening, bool is_late, bool is_numbered)
{
	struct host *host = &world->hosts[0];

	if (awakening == BY_STATE && (host->hides_state || world->sequence.n_reserved))
		return false;
	/* The server asks a host when it takes its first lock. If another name, or a forger, is in the play,
	 * nothing else tells the host's two lives apart. */
	if (host->notice_name == NAMED_OTHER || world->has_forger)
		world_run_until(world, world->now + SHORT);
	host->awakening = awakening;
	host->has_late_statd = is_late;
	host->frees_without_number = !is_numbered;
	world->sequence.n_locks = 0;
	world->sequence.is_statd_moved = false;
	world->sequence.is_late_unknown = is_late && !host_is_known(host);
	world->sequence.is_number_unknown = awakening == BY_STATE || !is_numbered;
	host_die(host, false, 2 * SECOND);
	return true;
}

/* The server knows the number of this life, or remembers the notice. */
static bool act_repeat(struct world *world)
{
	struct host *host = &world->hosts[0];

	if (!is_told(host)) {
		if (host->n_evidence)
			return false; /* it is repeated by itself */
		host_announce(host);
		world->sequence.is_number_unknown = false;
		return true;
	}
	if (!host_is_number_stored(host) && (host->life == 1 || world->sequence.is_number_unknown))
		return false;
	talk_call(host, NULL, CALL_NOTIFY, NULL, false);
	return true;
}

static bool act_close(struct world *world)
{
	struct host *host = &world->hosts[0];
	struct conn *conn = host->conn;

	if (!conn)
		return false;
	host_disconnected(host, conn);
	stream_close(conn, false);
	return true;
}

static bool act_restart_statd(struct world *world)
{
	struct host *host = &world->hosts[0];

	if (world->sequence.is_late_unknown)
		return false;
	world_run_until(world, world->now + SHORT); /* the server asks no statd that is not there any more */
	host->statd_port += 1000;
	world->sequence.is_statd_moved = true;
	host->statd_state = host->state;
	return true;
}

static bool act_kill(struct world *world, bool waits)
{
	struct host *host = &world->hosts[0];

	world->sequence.is_number_unknown = true;
	world->sequence.is_late_unknown |= host->statd_state != host->state;
	server_crash(world, CRASH_DAEMON);
	do
		world_step(world);
	while (!world->has_failed && (!is_serving(world) || (waits && world->server->grace_is_on)));
	return true;
}

static bool act_forge(struct world *world, char name)
{
	struct host *host = &world->hosts[0];

	/* If only the statd's port tells, it tells of a restart (decisions/0018-notices.md). */
	if (host->is_silent || host->is_secretive ||
	    (host->promised_in && !rogue_can_be_denied(world, host)) ||
	    (host->has_fixed_port && !host->conn && world->sequence.is_statd_moved))
		return false;
	if (name == 'y')
		rogue_forge_number(world, host, 0, 1, host->state + HF_CLIENT_RAISED_BY);
	else
		rogue_forge_restart(world, host, 0, name == 'x', host->name,
				    host->state + HF_CLIENT_RAISED_BY);
	world_run_until(world, world->now + SHORT);
	return true;
}

static bool act(struct world *world, char name)
{
	switch (name) {
	case 'L':
		return act_lock(world);
	case 'S':
		return act_reserve(world);
	case 'U': /* it gives up everything */
		return act_give_up(world);
	case 'B':
		return act_boot(world, BY_NOTIFY, false, true);
	case 'b': /* its statd is started before sm-notify */
		return act_boot(world, BY_NOTIFY, true, true);
	case 'q': /* its notice comes later, or never */
		return act_boot(world, BY_STATE, false, true);
	case 'F':
		return act_boot(world, BY_FREE_ALL, false, true);
	case 'f':
		return act_boot(world, BY_FREE_ALL, false, false);
	case 'n':
		return act_repeat(world);
	case 'c':
		return act_close(world);
	case 'a': /* its statd alone is started again */
		return act_restart_statd(world);
	case 'w':
		world_run_until(world, world->now + LONG);
		return true;
	case 'K':
		return act_kill(world, true);
	case 'k': /* and the host goes on in grace */
		return act_kill(world, false);
	case 'x': /* the next number, in a notice, a LOCK, or FREE_ALL */
	case 'y':
	case 'z':
		return act_forge(world, name);
	}
	return false;
}

bool sequence_play(struct world *world)
{
	struct sequence sequence = decode(&world->options);

	/* Nothing but a new number of the statd shows that both names are of one host. */
	if (sequence.name == NAMED_OTHER && (sequence.statd != STATD_ANSWERS || strchr(sequence.acts, 'b')))
		return false;
	server_start(world);
	world_run_until(world, world->now + SHORT);
	for (const char *name = sequence.acts; *name && !world->has_failed; name++) {
		SAY(world, "act     %c", *name);
		if (!act(world, *name))
			return false;
		settle(world);
	}
	return true;
}
