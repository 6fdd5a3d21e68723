/*
 * The status monitor: program 100024, version 1. It stands in for this host's
 * rpc.statd.
 *
 * Three kinds of registration, told apart by how the client stands in src/client:
 *
 *	nlm          the lock manager registers whom it grants something. On our
 *	             restart its statd gets SM_NOTIFY.
 *	nsm, local   a lock manager of this host asks us by SM_MON, over loopback, to
 *	             watch a peer. On our restart the peer gets SM_NOTIFY; when the
 *	             peer says that it was restarted, the lock manager gets its
 *	             call-back. Its address is the peer's, its local one loopback.
 *	nsm, remote  a client asks by SM_MON, over the network, to be told when we are
 *	             restarted, by a call-back of its own. Where a program of this host
 *	             names us as whom to watch, that is of this kind, too.
 *
 * Call-backs go to where the SM_MON came from, whatever name it gives.
 *
 * A peer that says it was restarted (SM_NOTIFY) is believed when its address is
 * the client's and so is its name, or nobody else is at that address. Everything
 * else is counted, written to the log once a source, and answered all the same.
 * It is answered when what follows is durable, and else not at all, so that the
 * peer says it again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "rpc/program.h"

#define HF_NSM_PROGRAM 100024

struct hf_loop;
struct hf_nsm;
struct hf_recovery;
struct hf_rpc_client;

/* Who may call SM_MON, SM_UNMON and SM_UNMON_ALL. */
enum hf_nsm_allow {
	HF_NSM_ALLOW_LOCAL,   /* programs of this host */
	HF_NSM_ALLOW_EXPORTS, /* and whoever may use an export */
	HF_NSM_ALLOW_ANY,
};

struct hf_nsm_options {
	struct hf_loop *loop;
	struct hf_recovery *recovery;
	struct hf_rpc_client *client; /* for SM_NOTIFY and call-backs */
	const char *server_name;      /* ours; copied */
	enum hf_nsm_allow allow_mon;
	/* May this address use an export? NULL: none may. */
	bool (*is_export_client)(void *user, const struct hf_addr *peer);
	void *user;
};

extern const struct hf_rpc_program hf_nsm_program; /* its service is a struct hf_nsm */

/* Life. It becomes the recovery's teller, and is freed before it. */
int hf_nsm_new(struct hf_nsm **nsmp, const struct hf_nsm_options *options);
struct hf_nsm *hf_nsm_free(struct hf_nsm *nsm);

HF_DEFINE_CLEANUP(struct hf_nsm *, hf_nsm_free)

/* Sight */
struct hf_nsm_counts {
	uint64_t requests[7][2]; /* by procedure; [1]: refused, or it made no sense */
	uint64_t notices_believed;
	uint64_t notices_repeated; /* nothing new */
	uint64_t notices_ignored;  /* from nobody that we know, or who is not who he says */
	uint64_t callbacks_told;   /* of local lock managers */
	uint64_t callbacks_failed;
	size_t callbacks_in_flight;
};

void hf_nsm_counts(const struct hf_nsm *nsm, struct hf_nsm_counts *countsp);
