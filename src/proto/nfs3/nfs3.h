/*
 * The file service: program 100003, version 3, over the exports.
 *
 * A call whose data the kernel has in memory is answered on the loop at once. A
 * call that may wait for a disk, and every change, goes to a file thread
 * (vfs/jobs.h) and is answered when it comes back. Both ways run the same
 * procedures (op.h).
 *
 * One hf_nfs3 serves all lanes. It is created before they run and freed after
 * all calls have ended.
 *
 *	program.c   the tables of procedures
 *	op.c        one call in progress, on the loop or on a file thread
 *	proc_*.c    the procedures: attributes, I/O, lookup, creating, names, listing, file system
 *	record.c    what is written about single calls: slow ones, and the audit log
 *	count.c     counts calls by client and export
 *	wire.c      the wire format
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "export/export.h"
#include "rpc/program.h"
#include "vfs/jobs.h"

#define HF_NFS3_MAX_REQUEST ((1 << 20) + 4096)
#define HF_NFS3_MAX_UDP     32768 /* bytes of data or of a listing in a datagram */

struct hf_nfs3_recorder;
struct hf_usage;

struct hf_nfs3 {
	struct hf_exports *exports; /* (c) */
	struct hf_jobs *jobs;       /* (c) */
	uint64_t first_verifier;    /* (c) write verifier; each lost write adds one */
	/* Home sets these. */
	_Atomic(struct hf_nfs3_recorder *) recorder; /* NULL: nothing is written about calls */
	_Atomic(struct hf_usage *) usage;            /* NULL: calls are not counted by client */
};

/* The service object of this program is a struct hf_nfs3. */
extern const struct hf_rpc_program hf_nfs3_program;

/* Borrows both. @loop provides the random first verifier. */
void hf_nfs3_init(struct hf_nfs3 *nfs, struct hf_exports *exports, struct hf_jobs *jobs,
		  struct hf_loop *loop);
