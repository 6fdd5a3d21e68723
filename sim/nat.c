/*
 * Two hosts behind one address. The router finds the receiver of a reply by the port; a call of the server
 * reaches the host in front. The host behind it is told nothing: neither of a restart of the server, nor of a
 * grant. Their programs have the same numbers.
 *
 * A server can tell them apart by their names and ports. Their programs unlock what they were refused, and
 * files that they never locked, as some systems do.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "sim.h"

#define CHANCE       100 /* in a thousand */
#define OTHER_STATES 1000
#define HAVE_STATES  500 /* a state number of its own, in a thousand */
#define UNLOCKS_ALL  500

bool nat_join(struct host *host)
{
	struct host *front = host->index ? &host->world->hosts[host->index - 1] : NULL;

	if (!rng_chance(&host->rng, CHANCE) || host->world->options.has_tls || !front || front->gateway ||
	    front->has_threads || front->is_ordinary || host->is_ordinary ||
	    strcmp(front->name, host->name) == 0)
		return false;
	host->gateway = front;
	host->is_shared = front->is_shared = true;
	host->hides_state = front->hides_state = false;
	host->is_unmonitored = front->is_unmonitored = false; /* the server must know their names */
	if (host->flavour == BSD) /* the results of _MSG calls would never arrive */
		host->flavour = LINUX_UDP;
	/* The server can ask only the host in front whether it was restarted. If the other one had the same
	 * number, or gave its own only in datagrams, which can be forged, the server would take the answer
	 * for its own. So such a host in front answers no such question. */
	if (rng_chance(&host->rng, HAVE_STATES)) {
		host->state += OTHER_STATES;
		host->flavour = LINUX_TCP;
		host->has_tcp = true;
	} else {
		front->is_secretive = true;
	}
	host->statd_state = host->state;
	for (int i = 0; i < 2; i++) { /* FREE_ALL has only a name; version 1 has none */
		struct host *one = i ? host : front;

		if (one->version == 1)
			one->version = 3;
	}
	host->slot = front->slot;
	host->addr = front->addr;
	host->addr.port = (uint16_t)(front->addr.port + 1 + host->index);
	return true;
}

bool nat_unlocks_all(struct host *host)
{
	return host->is_shared && rng_chance(&host->rng, UNLOCKS_ALL);
}

static bool is_called(const struct host *host, const char *name)
{
	return strcmp(host->name, name) == 0 || (*host->old_name && strcmp(host->old_name, name) == 0);
}

struct host *nat_owner(struct world *world, const struct hf_addr *addr, const char *name)
{
	struct host *front = net_host(world, &(struct hf_addr){ .family = AF_INET,
								.ip = { 10, 0, addr->ip[2], addr->ip[3] } });

	if (!front || !front->is_shared || is_called(front, name))
		return front;
	for (uint32_t i = 0; i < world->n_hosts; i++)
		if (world->hosts[i].gateway == front && is_called(&world->hosts[i], name))
			return &world->hosts[i];
	return NULL;
}

bool nat_has_oh(const struct host *host, uint32_t svid, struct hf_bytes oh)
{
	char mine[40], old[40];

	snprintf(mine, sizeof(mine), "%u@%s", svid, host->name);
	snprintf(old, sizeof(old), "%u@%s", svid, host->old_name);
	return hf_bytes_equal(hf_bytes_of_str(mine), oh) || hf_bytes_equal(hf_bytes_of_str(old), oh);
}
