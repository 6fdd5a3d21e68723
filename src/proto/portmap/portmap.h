/*
 * How clients find the server's programs: chooses between serving as this host's
 * rpcbind and registering with one that runs.
 *
 *	auto      serve the port if it is free, otherwise register with its owner
 *	embedded  serve the port, or fail
 *	system    register; if no rpcbind runs, try again every 30 s
 *	off       neither
 *
 * auto decides by trying to bind the port. Any listener there prevents that,
 * even systemd on behalf of an rpcbind that it would start, and no other
 * program can take the port between test and use. If the server lacks the
 * privilege to bind it, it looks for an rpcbind, now and every 30 s.
 *
 * Everything runs on one loop.
 *
 *	portmap.c        chooses
 *	embedded.c       the server's own rpcbind on its sockets
 *	program.c        the tables of its procedures; rpcbind.c: what they share
 *	proc_pmap.c      version 2; proc_rpcb.c: versions 3 and 4
 *	mappings.c       the table of mappings
 *	registrar*.c     registers the server's programs with another rpcbind
 *	netid.c, wire.c  transports; the wire format
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/limit.h"
#include "proto/portmap/netid.h"
#include "rpc/program.h"

struct hf_loop;
struct hf_portmap;
struct hf_rpc_client;

enum hf_portmap_mode {
	HF_PORTMAP_AUTO,
	HF_PORTMAP_EMBEDDED,
	HF_PORTMAP_SYSTEM,
	HF_PORTMAP_OFF,
};

/* A program that the server serves: all its versions, at one port of some transports. */
struct hf_portmap_offer {
	const struct hf_rpc_program *program;
	uint16_t port;
	unsigned int netids; /* of HF_NETID_BIT(): HF_NETIDS_IPV4, HF_NETIDS_ALL … */
};

#define HF_PORTMAP_MAX_LISTEN 256

struct hf_portmap_config {
	enum hf_portmap_mode mode;
	uint16_t port; /* rpcbind's port: 111; 0: any free one, if the server serves it */
	/* The addresses to serve it on; their ports are ignored. Loopback is added. */
	const struct hf_addr *listen;
	size_t n_listen;
	const struct hf_portmap_offer *offers;
	size_t n_offers;
};

/* Making and freeing. @config may be freed afterwards, except the programs' tables. @client is borrowed and
 * used only to register. */
int hf_portmap_new(struct hf_portmap **portmapp, struct hf_loop *loop, struct hf_rpc_client *client,
		   const struct hf_portmap_config *config);
struct hf_portmap *hf_portmap_free(struct hf_portmap *portmap);

HF_DEFINE_CLEANUP(struct hf_portmap *, hf_portmap_free)

/*
 * Running. Opens the sockets. An error is already logged, with what to do:
 * -EADDRINUSE, -EACCES … Calls @ready, which may be NULL, once and never from
 * within this call: when clients can find the server, or when it is clear that
 * they cannot for now.
 */
int hf_portmap_start(struct hf_portmap *portmap, void (*ready)(void *user), void *user);
/* For SIGHUP: checks at once whether rpcbind still has the server's mappings. */
void hf_portmap_check(struct hf_portmap *portmap);
/* Stops serving, or removes the server's mappings, within 2 s; then calls @done, never from within this call.
 * A second call does nothing. */
void hf_portmap_stop(struct hf_portmap *portmap, void (*done)(void *user), void *user);

/* State */
enum hf_portmap_role {
	HF_PORTMAP_NONE,
	HF_PORTMAP_SERVES,    /* the server is this host's rpcbind */
	HF_PORTMAP_REGISTERS, /* the server is registered with another, or tries to be */
};

enum hf_portmap_role hf_portmap_role(const struct hf_portmap *portmap);
uint16_t hf_portmap_port(const struct hf_portmap *portmap); /* of rpcbind, the server's or another; 0: none */

struct hf_portmap_counts {
	size_t wanted;     /* the server's mappings */
	size_t registered; /* of these, those that rpcbind has, or that the server serves */
	size_t foreign;    /* mappings of other programs that the server serves */
};

/* The limits of the embedded port mapper. */
void hf_portmap_show_limits(const struct hf_portmap *portmap, struct hf_limit_use uses[HF_N_LIMITS]);
void hf_portmap_counts(const struct hf_portmap *portmap, struct hf_portmap_counts *countsp);
