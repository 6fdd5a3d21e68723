/*
 * A host that calls over TCP from an ordinary port, its notices, too. Every user of the host could make its
 * calls, so no number in them is proven; its statd may give none either. Now and then the host sends the
 * notice of its last restart again, as an administrator does who starts sm-notify by hand. The server must
 * release nothing then.
 */
#include "sim.h"

#define CHANCE    150 /* in a thousand hosts */
#define SECRETIVE 500 /* of these */
#define SOONEST   (1 * SECOND)
#define LATEST    (60 * SECOND)

/* The server has stored the number. Else it cannot know that the notice is a copy, if the first one came when
 * it did not know the host, and it was killed since: reservations have no number, and LOCKs have the number
 * before, if the statd was started too early. */
static bool may_repeat(const struct host *host)
{
	return host->is_up && host->told_life == host->life && !host->n_evidence && !*host->old_name &&
	       !host->is_renaming && host_is_number_stored(host);
}

static void on_repeat(struct hf_timer *timer)
{
	struct host *host = hf_container_of(timer, struct host, repeat_timer);

	if (may_repeat(host)) {
		SAY(host->world, "%s  repeats its notice", host->name);
		host->world->counts->repeated++;
		talk_call(host, NULL, CALL_NOTIFY, NULL, false);
	}
	hf_timer_start(timer, rng_between(&host->ordinary_rng, SOONEST, LATEST));
}

void ordinary_init(struct host *host)
{
	struct world *world = host->world;
	struct rng *rng = &host->ordinary_rng;

	rng_init(rng, world->options.seed, 700 + host->index);
	if (!rng_chance(rng, CHANCE) || omits(world, OMIT_ORDINARY) || world->options.has_tls ||
	    host->flavour != LINUX_TCP || host->is_unmonitored)
		return;
	host->is_ordinary = true;
	host->is_secretive = rng_chance(rng, SECRETIVE);
	world_timer(world, &host->repeat_timer, on_repeat);
	hf_timer_start(&host->repeat_timer, rng_between(rng, SOONEST, LATEST));
}
