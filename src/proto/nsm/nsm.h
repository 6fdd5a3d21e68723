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
 * the client's and so is its name, or no other client is at that address, and when
 * that host, asked about itself, does not deny it (doubt.c). A notice of
 * a host that is not known is counted, written to the log once a source, and answered
 * all the same. Others are answered when what follows is durable, and else not at
 * all, so that the peer says it again; nor is one that is denied.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/list.h"
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
	uint64_t timeout_ns; /* for asking a host about itself, in all; 0: 5 s */
};

extern const struct hf_rpc_program hf_nsm_program; /* its service is a struct hf_nsm */

/* Life. It becomes the recovery's teller, and is freed before it. */
int hf_nsm_new(struct hf_nsm **nsmp, const struct hf_nsm_options *options);
struct hf_nsm *hf_nsm_free(struct hf_nsm *nsm);

HF_DEFINE_CLEANUP(struct hf_nsm *, hf_nsm_free)

/*
 * Doubt: for what frees something of a client, and may be forged. Where a call is not trusted as it is, its
 * host is asked; the asker, which is in the caller's hands, hears later whether the call is to be believed.
 * The call has to stay until then. -EBUSY: too much is being asked; the call should stay unanswered, so that
 * it is repeated.
 */
struct hf_client;
struct hf_rpc_call;
enum hf_nsm_verdict {
	HF_NSM_BELIEVED,
	HF_NSM_DENIED,    /* the host was not restarted since the client took what it holds */
	HF_NSM_UNSURE,    /* it says so, and it may have been: to stay unanswered */
	HF_NSM_UNDECIDED, /* inside */
};
struct hf_nsm_asker {
	bool wants_word; /* believe it only if the host says that number, and said another one before */
	bool is_copy; /* of a notice that came when the client held nothing: believe it by what the host says,
		       * not by its silence */
	struct hf_link link;
	void (*fn)(struct hf_nsm_asker *asker, struct hf_client *client, enum hf_nsm_verdict verdict);
};
/* It came over TCP, from a reserved port if the client locks from one; or the superuser of this host made it.
 */
bool hf_nsm_is_trusted(struct hf_nsm *nsm, struct hf_rpc_call *call, const struct hf_client *client);
int hf_nsm_doubt(struct hf_nsm *nsm, struct hf_rpc_call *call, struct hf_client *client, int32_t state,
		 struct hf_nsm_asker *asker);
/* When the client began to hold something, its host's statd said this number. */
bool hf_nsm_sight_says(const struct hf_client *client, int32_t state);
/* Counts a call that was not believed, and says so, once a source. */
void hf_nsm_note_denied(struct hf_nsm *nsm, struct hf_rpc_call *call, struct hf_bytes name, int32_t state,
			bool is_sure);
/* A client takes something by @call, which says the state number @said: the first that it holds (@is_first),
 * or of those that it reclaims. */
void hf_nsm_client_begins(struct hf_nsm *nsm, struct hf_client *client, struct hf_rpc_call *call,
			  int32_t said, bool is_first);

/*
 * Meeting: a guest waits until the address that a kept call came from has answered anything. It is in the
 * caller's hands, and hears later whether there is a host; when the monitor is freed it hears that there is
 * none. -EBUSY: too many calls of that address wait.
 */
struct hf_nsm_guest {
	struct hf_link link;
	struct hf_nsm_meeting *meeting; /* NULL: it does not wait */
	void (*fn)(struct hf_nsm_guest *guest, bool has_answered);
};
/* It came by UDP from another host: its sender may be forged. */
bool hf_nsm_is_visitor(const struct hf_rpc_call *call);
int hf_nsm_meet(struct hf_nsm *nsm, const struct hf_rpc_call *call, struct hf_nsm_guest *guest);
void hf_nsm_guest_leave(struct hf_nsm_guest *guest); /* it does not wait any more, and hears nothing */

/* Sight */
struct hf_nsm_counts {
	uint64_t requests[7][2]; /* by procedure; [1]: refused, or it made no sense */
	uint64_t notices_believed;
	uint64_t notices_repeated; /* nothing new */
	uint64_t notices_ignored;  /* from nobody that we know, or who is not who he says */
	uint64_t notices_denied;   /* by the host that they name; or it could not be asked */
	uint64_t callbacks_told;   /* of local lock managers */
	uint64_t callbacks_failed;
	size_t callbacks_in_flight;
};

void hf_nsm_counts(const struct hf_nsm *nsm, struct hf_nsm_counts *countsp);
