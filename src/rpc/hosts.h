/*
 * The addresses that have connections, over all lanes: how many each one has, and which has
 * the most. A connection enters when it comes and leaves when it goes; calls do not count. When
 * the last open one of an address was closed, and when the server heard the address last, is
 * remembered, too, if that is asked for.
 *
 * A host has a part for each lane. Only the lane's thread uses a part, except for its three
 * counts and heard_at.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/addr.h"
#include "base/limit.h"
#include "base/list.h"
#include "base/siphash.h"

struct hf_host;
struct hf_hosts;

struct hf_host_part {
	struct hf_host *host;        /* (c) */
	struct hf_list fresh;        /* connections that have not completed a call yet, the oldest first */
	struct hf_list proven;       /* the others, the least recently useful first */
	struct hf_list tired;        /* connections that have used up their budget */
	struct hf_list wanting;      /* connections that wait for memory */
	struct hf_link tired_link;   /* in lane->tired */
	struct hf_link want_link;    /* in lane->wanting */
	struct hf_link charged_link; /* in lane->charged_parts, while it uses memory */
	size_t charged;              /* bytes, of all connections of this address on this lane */
	struct hf_list securing; /* connections between their question for TLS and the end of the handshake */
	size_t n_securing;
	uint64_t turn;             /* the turn of the loop in which @spent was spent */
	uint64_t spent;            /* units of work, for input from this address */
	_Atomic uint64_t heard_at; /* monotonic ns: a connection came, or calls on one */
	_Atomic size_t n_fresh;
	_Atomic size_t n_open;
	size_t n_chosen; /* under the lock of the hosts: connections that the lane must close, and has not
			  * closed yet */
};

/* @max_contacts: see struct hf_rpc_limits. */
int hf_hosts_new(struct hf_hosts **hostsp, const struct hf_siphash_key *key, size_t max_per_host,
		 size_t max_contacts);
struct hf_hosts *hf_hosts_free(struct hf_hosts *hosts);

/* One more connection of @addr. NULL: the address has as many as it may have, or there is no memory. @n_parts
 * is the same in every call. */
struct hf_host *hf_hosts_enter(struct hf_hosts *hosts, const struct hf_addr *addr, size_t n_parts);
/* A connection is closed: it cannot make room for another any more. @now is monotonic ns. */
void hf_hosts_close(struct hf_hosts *hosts, struct hf_host *host, uint64_t now);
/* A closed connection has ended its last call. @host may be freed here. */
void hf_hosts_leave(struct hf_hosts *hosts, struct hf_host *host);

/* The connections of the address that has the most; 0: there is none. */
size_t hf_hosts_most(struct hf_hosts *hosts, struct hf_addr *addrp);
/* The next three with @max_contacts, at home. A datagram came from this address. */
void hf_hosts_note(struct hf_hosts *hosts, const struct hf_addr *addr, uint64_t now);
/* When the address had an open connection or sent a datagram last: @now, or earlier. */
uint64_t hf_hosts_last_contact(struct hf_hosts *hosts, const struct hf_addr *addr, uint64_t now);
/* When a call, a connection or a datagram came from the address last; an open connection alone says nothing.
 * 0: never. */
uint64_t hf_hosts_last_heard(struct hf_hosts *hosts, const struct hf_addr *addr);

void hf_hosts_show_contacts(struct hf_hosts *hosts, struct hf_limit_use *use);

struct hf_host_part *hf_host_part(struct hf_host *host, size_t lane);

/* On the lane's thread. */
static inline void hf_host_part_hear(struct hf_host_part *part, uint64_t now)
{
	atomic_store_explicit(&part->heard_at, now, memory_order_relaxed);
}

/* The address that gives up a connection when there are too many. */
struct hf_host_choice {
	struct hf_host *host; /* until hf_hosts_end_choice() */
	size_t lane;   /* where it has the most connections that have not completed a call, or the most */
	bool has_more; /* than the newcomer would have, so that the exchange makes the parts more equal */
};

/* @newcomer has entered already, or is NULL. False: no address has an open connection. */
bool hf_hosts_choose(struct hf_hosts *hosts, const struct hf_host *newcomer, struct hf_host_choice *choicep);
/* The lane has closed a connection, or found none. @host may be freed here. */
void hf_hosts_end_choice(struct hf_hosts *hosts, struct hf_host *host, size_t lane);
