/* Time and the order of events; and their trace. */
#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim.h"

#define START_NS (1000 * SECOND)

/* Trace */

void world_note(struct world *world, uint64_t a, uint64_t b)
{
	uint64_t digest = world->digest ^ world->now;

	digest = (digest ^ a) * UINT64_C(0x9fb21c651e98df25);
	digest = (digest ^ (digest >> 29) ^ b) * UINT64_C(0x9fb21c651e98df25);
	world->digest = digest ^ (digest >> 32);
}

void world_note_bytes(struct world *world, const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t word;

	for (; len >= 8; p += 8, len -= 8) {
		memcpy(&word, p, 8);
		world_note(world, le64toh(word), 8); /* the same on all machines */
	}
	while (len--)
		world_note(world, *p++, 1);
}

void world_say(struct world *world, const char *format, ...)
{
	va_list args;

	printf("%10.6f  ", (double)(world->now - START_NS) / 1e9);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout); /* the server's own log goes to stderr: both in order */
}

void world_fail(struct world *world, const char *rule, const char *format, ...)
{
	va_list args;

	if (world->has_failed)
		return;
	world->has_failed = true;
	snprintf(world->rule, sizeof(world->rule), "%s", rule);
	va_start(args, format);
	vsnprintf(world->what, sizeof(world->what), format, args);
	va_end(args);
	SAY(world, "VIOLATION of %s: %s", world->rule, world->what);
}

/* Time */

void world_timer(struct world *world, struct hf_timer *timer, void (*fn)(struct hf_timer *timer))
{
	hf_timer_init(timer, &world->outside, fn);
}

static void set_now(struct world *world, uint64_t now)
{
	world->now = now;
	world->outside.now = now;
}

void world_step(struct world *world)
{
	struct hf_timer *first = hf_timer_heap_first(&world->outside.timers);
	uint64_t outside = first ? first->deadline : UINT64_MAX, inside = UINT64_MAX;
	struct server *next = NULL;

	for (uint32_t i = 0; i < MAX_NODES; i++) {
		uint64_t at = server_next(&world->nodes[i]);

		if (at < inside) {
			inside = at;
			next = &world->nodes[i];
		}
	}

	world->n_steps++;
	world->counts->steps++;
	if (outside <= inside) {
		if (outside > world->now)
			set_now(world, outside);
		hf_timer_heap_remove(&world->outside.timers, first);
		first->fn(first);
		return;
	}
	if (inside > world->now)
		set_now(world, inside);
	world->server = next;
	server_turn(world);
	world->server = world->acting;
}

void world_run_until(struct world *world, uint64_t until)
{
	while (!world->has_failed && world->now < until)
		world_step(world);
}
