/*
 * Registers the server's programs with the rpcbind of this host.
 *
 * A round reads rpcbind's mappings (one DUMP) and corrects the server's. Rounds
 * follow every HF_REGISTRAR_PERIOD_NS, because a restarted rpcbind has forgotten
 * everything, and on request. The table here is what the server wants; rpcbind's
 * is the truth and is read each time.
 *
 * A missing mapping is SET. A mapping of the server that another program has is
 * taken from it only if that program does not answer any more; otherwise two
 * servers would take it from each other for ever. A program that answers still
 * has it; the log names that program and says what to do.
 *
 * All calls go over one TCP connection to a loopback address, from a reserved
 * port if possible: rpcbind then lets the registrar remove what it has set. The
 * registrar uses version 4, or version 2 if rpcbind has nothing newer. Version 2
 * knows only IPv4, and its UNSET removes TCP and UDP both.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "loop/loop.h"
#include "proto/portmap/netid.h"

#define HF_REGISTRAR_PERIOD_NS (30 * HF_NS_PER_S)
#define HF_REGISTRAR_STOP_NS   (2 * HF_NS_PER_S)

struct hf_registrar;
struct hf_rpc_client;

/* The result of a round. */
struct hf_registrar_report {
	bool is_found;      /* rpcbind answered every call */
	uint32_t version;   /* the version that rpcbind speaks: 4 or 2 */
	size_t n_wanted;    /* the server's mappings */
	size_t n_present;   /* of these, those that rpcbind has now */
	size_t n_renewed;   /* of these, those that this round set */
	size_t n_refused;   /* mappings that another program has */
	size_t n_unfitting; /* IPv6 mappings, if rpcbind speaks only version 2; for tests */
};

/* Called after each round. It must not free the registrar. */
typedef void (*hf_registrar_checked_fn)(void *user, const struct hf_registrar_report *report);

/* Making and freeing. The client is borrowed. */
int hf_registrar_new(struct hf_registrar **registrarp, struct hf_loop *loop, struct hf_rpc_client *client,
		     uint16_t rpcbind_port, hf_registrar_checked_fn checked, void *user);
struct hf_registrar *hf_registrar_free(struct hf_registrar *registrar);

HF_DEFINE_CLEANUP(struct hf_registrar *, hf_registrar_free)

/* Call before the start. */
int hf_registrar_add(struct hf_registrar *registrar, uint32_t program, uint32_t version, enum hf_netid netid,
		     uint16_t port);

/* Running. The first round begins with the loop's next turn. */
int hf_registrar_start(struct hf_registrar *registrar);
void hf_registrar_check(struct hf_registrar *registrar); /* starts a round now, or after the current one */
/* Removes the server's mappings from rpcbind, within HF_REGISTRAR_STOP_NS; then calls @done, never from
 * within this call. A second call does nothing. */
void hf_registrar_stop(struct hf_registrar *registrar, void (*done)(void *user), void *user);
