/*
 * How clients find our programs: the choice between being this host's rpcbind
 * and registering with the one that runs.
 *
 *	auto      serve the port if it is free, else register with whoever has it
 *	embedded  serve the port, or fail
 *	system    register; where none runs, try again every 30 s
 *	off       neither
 *
 * auto finds out by trying to have the port: whoever listens there, if it is only
 * systemd for an rpcbind that it would start, keeps us from it, and nobody can
 * come between the question and the answer. Where we may not have the port for
 * lack of privilege, an rpcbind is asked for, now and every 30 s.
 *
 * Everything happens on one loop.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/cleanup.h"
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

/* A program that we serve: all its versions, at one port of some transports. */
struct hf_portmap_offer {
	const struct hf_rpc_program *program;
	uint16_t port;
	unsigned int netids; /* of HF_NETID_BIT(): HF_NETIDS_IPV4, HF_NETIDS_ALL … */
};

#define HF_PORTMAP_MAX_LISTEN 256

struct hf_portmap_config {
	enum hf_portmap_mode mode;
	uint16_t port;                /* of rpcbind: 111; 0: any free one, if we serve it */
	const struct hf_addr *listen; /* where to serve it; ports do not count. Loopback is added */
	size_t n_listen;
	const struct hf_portmap_offer *offers;
	size_t n_offers;
};

/* Life. What @config points to need not stay, the programs' tables excepted; @client is borrowed, and used
 * only for registering. */
int hf_portmap_new(struct hf_portmap **portmapp, struct hf_loop *loop, struct hf_rpc_client *client,
		   const struct hf_portmap_config *config);
struct hf_portmap *hf_portmap_free(struct hf_portmap *portmap);

HF_DEFINE_CLEANUP(struct hf_portmap *, hf_portmap_free)

/*
 * Running. Sockets are opened here. An error is in the log already, with what to
 * do: -EADDRINUSE, -EACCES … @ready, which may be NULL, is called once, never from
 * inside: when clients find us, or cannot for now.
 */
int hf_portmap_start(struct hf_portmap *portmap, void (*ready)(void *user), void *user);
/* For SIGHUP: looks at once whether rpcbind still has what is ours. */
void hf_portmap_check(struct hf_portmap *portmap);
/* Hangs up, or removes our registrations, for 2 s at most; then, never from inside, @done. Again is no-op. */
void hf_portmap_stop(struct hf_portmap *portmap, void (*done)(void *user), void *user);

/* Sight */
enum hf_portmap_role {
	HF_PORTMAP_NONE,
	HF_PORTMAP_SERVES,    /* is this host's rpcbind */
	HF_PORTMAP_REGISTERS, /* with another, or wants to */
};

enum hf_portmap_role hf_portmap_role(const struct hf_portmap *portmap);
uint16_t hf_portmap_port(const struct hf_portmap *portmap); /* of rpcbind, ours or not; 0: none */

struct hf_portmap_counts {
	size_t wanted;     /* mappings of ours */
	size_t registered; /* of these, those that rpcbind has, or that we serve */
	size_t foreign;    /* mappings of others that we serve */
	uint64_t refused;  /* SET and UNSET that the caller may not make */
};

void hf_portmap_counts(const struct hf_portmap *portmap, struct hf_portmap_counts *countsp);
