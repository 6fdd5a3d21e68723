/*
 * The embedded rpcbind: program 100000, port mapper version 2 and rpcbind
 * versions 3 and 4, over one table of mappings.
 *
 * Towards clients it behaves like Debian's rpcbind (compared with version
 * 1.2.6). GETADDR answers for the transport of the call, whichever network
 * identifier it names. GETADDR and GETPORT return another version of the
 * program if the requested one is missing. UNSET of a missing mapping returns
 * TRUE. Version 2 sees only IPv4, and its UNSET removes TCP and UDP both.
 *
 * It is stricter where that is safer. SET and UNSET work only for callers on
 * this host, from a loopback address to a loopback address. Other programs
 * cannot set or unset a program that the server serves, in any version. A caller
 * from an unprivileged port cannot set a reserved port, cannot unset a privileged
 * caller's mapping, and can use only a part of the table. Addresses must be
 * valid. CALLIT, BCAST and INDIRECT, which make a server call others on behalf of
 * a stranger, do not exist. Over UDP a list ends before HF_RPCBIND_MAX_UDP bytes.
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

/* Counts of calls, for GETSTAT. */
struct hf_rpcbind_counts {
	uint32_t calls[HF_N_RPCB4PROCS];
	uint32_t n_set;   /* SET calls that succeeded */
	uint32_t n_unset; /* UNSET calls that succeeded */
};

struct hf_rpcbind {
	struct hf_mappings mappings;
	struct hf_rpcbind_counts counts[3]; /* for versions 2, 3 and 4 */
	uint64_t n_refused;                 /* SET and UNSET calls that were refused */
	/* Refusals that were logged recently; a new line needs a free entry. */
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

/* Offers a program of the server, in all its versions, at @port of the transports @netids. */
int hf_rpcbind_offer(struct hf_rpcbind *rpcbind, const struct hf_rpc_program *program, unsigned int netids,
		     uint16_t port);
