/*
 * The embedded rpcbind: program 100000, port mapper version 2 and rpcbind
 * versions 3 and 4, over one table of mappings.
 *
 * It answers as Debian's rpcbind does, wherever a client can tell (measured,
 * version 1.2.6): GETADDR goes by the transport that the question came over,
 * whatever network identifier it names; GETADDR and GETPORT give another version
 * of the program where the one asked for is not there; UNSET of what is not there
 * is TRUE; version 2 sees IPv4 alone, and its UNSET removes TCP and UDP both.
 *
 * It differs where that is safer. SET and UNSET are for callers on this host,
 * from a loopback address to a loopback address. A program that we serve cannot
 * be set or unset by others, in no version. A caller from an unprivileged port
 * cannot set a reserved port, nor unset what a privileged one has set, and has a
 * part of the table only. Addresses must make sense. CALLIT,
 * BCAST and INDIRECT, which make a server call others in a stranger's name, are
 * not there. Over UDP a list ends before HF_RPCBIND_MAX_UDP bytes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "proto/portmap/mappings.h"
#include "proto/portmap/wire.h"
#include "rpc/program.h"

#define HF_RPCBIND_MAX_UDP     8192  /* bytes of results */
#define HF_RPCBIND_MAX_REQUEST 65536 /* bytes of a call */

#define HF_RPCBIND_N_REFUSED 16

/* What was asked; GETSTAT tells it. */
struct hf_rpcbind_counts {
	uint32_t calls[HF_N_RPCB4PROCS];
	uint32_t n_set;   /* of the SETs, those that were granted */
	uint32_t n_unset; /* likewise */
};

struct hf_rpcbind {
	struct hf_mappings mappings;
	struct hf_rpcbind_counts counts[3]; /* versions 2, 3, 4 */
	uint64_t n_refused;                 /* SET and UNSET that the caller may not make */
	/* Refusals that are in the log lately; a line needs a free place. */
	struct {
		struct hf_addr host;
		const char *why;
		uint64_t until;
	} refused[HF_RPCBIND_N_REFUSED];
};

/* The service object of this program is a struct hf_rpcbind. */
extern const struct hf_rpc_program hf_rpcbind_program;

void hf_rpcbind_init(struct hf_rpcbind *rpcbind);
void hf_rpcbind_deinit(struct hf_rpcbind *rpcbind);

/* A program of ours, in all its versions: to be found at @port of each of the transports @netids. */
int hf_rpcbind_offer(struct hf_rpcbind *rpcbind, const struct hf_rpc_program *program, unsigned int netids,
		     uint16_t port);
