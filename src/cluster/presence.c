#include "cluster/presence.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "cluster/announce.h"
#include "cluster/connections.h"
#include "cluster/host.h"
#include "cluster/link.h"
#include "cluster/nudge.h"
#include "loop/loop.h"

#define ERROR_SIZE 256
#define SLACK      (200 * HF_NS_PER_MS)
#define NEVER      UINT64_MAX
#define NUDGE_GAP  (5 * HF_NS_PER_MS)

/* When a round is sent, after the addresses came. A round may get lost. */
static const uint64_t announce_at[] = { 0, 100 * HF_NS_PER_MS, 500 * HF_NS_PER_MS, HF_NS_PER_S,
					2 * HF_NS_PER_S };
static const uint64_t nudge_at[] = { 0, 600 * HF_NS_PER_MS, 2 * HF_NS_PER_S };

struct hf_presence {
	struct hf_service_address *addresses; /* (c) */
	size_t n_addresses;                   /* (c) */
	struct hf_host host;
	struct hf_link_watch *links;
	bool is_held;
	bool has_failed; /* the last attempt; logged once */
	uint64_t held_since;
	size_t n_announced; /* rounds */
	struct hf_nudge *nudges;
	size_t n_nudges;
	size_t n_nudged; /* in this round */
	size_t n_nudge_rounds;
};

int hf_presence_new(struct hf_presence **presencep, const struct hf_service_address *addresses, size_t n,
		    char *error, size_t error_size)
{
	struct hf_presence *presence = calloc(1, sizeof(*presence));
	int r;

	if (!presence)
		return hf_trace(-ENOMEM);
	presence->host = (struct hf_host)HF_HOST_CLOSED;
	presence->addresses = calloc(n, sizeof(*addresses));
	r = presence->addresses ? 0 : -ENOMEM;
	if (r == 0) {
		memcpy(presence->addresses, addresses, n * sizeof(*addresses));
		presence->n_addresses = n;
		r = hf_host_open(&presence->host, addresses, n, error, error_size);
	}
	if (r == 0)
		r = hf_link_watch_open(&presence->links, addresses, n);
	if (r < 0) {
		hf_presence_free(presence);
		return hf_trace(r);
	}
	*presencep = presence;
	return 0;
}

struct hf_presence *hf_presence_free(struct hf_presence *presence)
{
	if (!presence)
		return NULL;
	if (presence->links)
		hf_link_watch_close(presence->links);
	hf_host_close(&presence->host);
	free(presence->addresses);
	free(presence->nudges);
	free(presence);
	return NULL;
}

/* Addresses */

void hf_presence_hold(struct hf_presence *presence, uint64_t lease_left_ns, uint64_t now)
{
	char error[ERROR_SIZE] = "";
	/* Lifetimes are whole seconds. One that is rounded up would outlast the lease by so much that another
	 * node may have the address, too. A renewal comes long before the end of one that is rounded down. */
	uint64_t seconds = HF_MAX((lease_left_ns + SLACK) / HF_NS_PER_S, UINT64_C(1));
	bool is_first = !presence->is_held, was_incomplete = presence->has_failed;
	int r = hf_addresses_hold(&presence->host, presence->addresses, presence->n_addresses,
				  (uint32_t)(seconds * 1000), error, sizeof(error));

	if (r < 0 && !was_incomplete)
		hf_log_error("cannot hold the addresses of the service", "reason=%s", error);
	presence->has_failed = r < 0;
	presence->is_held = true; /* at least those that came */
	if (!is_first && (r < 0 || !was_incomplete))
		return;
	presence->held_since = now;
	presence->n_announced = presence->n_nudge_rounds = presence->n_nudged = 0;
	if (r == 0)
		hf_log_info("the addresses of the service are here", "n=%zu connections_before=%zu",
			    presence->n_addresses, presence->n_nudges);
	hf_presence_run(presence, now);
}

void hf_presence_give_up(struct hf_presence *presence)
{
	char error[ERROR_SIZE] = "";

	if (!presence->is_held)
		return;
	presence->is_held = false;
	if (hf_addresses_give_up(&presence->host, presence->addresses, presence->n_addresses, error,
				 sizeof(error)) < 0)
		hf_log_warn("cannot remove the addresses of the service: they leave with their lifetime",
			    "reason=%s", error);
}

bool hf_presence_is_held(const struct hf_presence *presence)
{
	return presence->is_held;
}

bool hf_presence_has_links(struct hf_presence *presence, char *why, size_t size)
{
	struct hf_link_down down;

	if (hf_link_is_up(presence->links, &down))
		return true;
	snprintf(why, size, "the interface %s %s", down.interface,
		 down.exists ? "has no link" : "does not exist; cluster.addresses names it");
	return false;
}

/* Announcements and nudges */

static uint64_t announce(struct hf_presence *presence, uint64_t now)
{
	while (presence->n_announced < HF_ARRAY_SIZE(announce_at)) {
		uint64_t at = presence->held_since + announce_at[presence->n_announced];

		if (at > now)
			return at;
		(void)hf_announce(&presence->host, presence->addresses, presence->n_addresses);
		presence->n_announced++;
	}
	return NEVER;
}

static uint64_t nudge(struct hf_presence *presence, uint64_t now)
{
	while (presence->n_nudges && presence->n_nudge_rounds < HF_ARRAY_SIZE(nudge_at)) {
		uint64_t at = presence->held_since + nudge_at[presence->n_nudge_rounds];

		if (at > now)
			return at;
		presence->n_nudged += hf_nudge_some(&presence->host, presence->nudges + presence->n_nudged,
						    presence->n_nudges - presence->n_nudged);
		if (presence->n_nudged < presence->n_nudges)
			return now + NUDGE_GAP;
		presence->n_nudged = 0;
		presence->n_nudge_rounds++;
	}
	return NEVER;
}

uint64_t hf_presence_run(struct hf_presence *presence, uint64_t now)
{
	uint64_t announce_next, nudge_next;

	if (!presence->is_held)
		return NEVER;
	announce_next = announce(presence, now);
	nudge_next = nudge(presence, now);
	return HF_MIN(announce_next, nudge_next);
}

void hf_presence_set_old_connections(struct hf_presence *presence, const uint8_t *bytes, size_t len)
{
	free(presence->nudges);
	presence->nudges = hf_connections_decode(bytes, len, &presence->n_nudges);
}
