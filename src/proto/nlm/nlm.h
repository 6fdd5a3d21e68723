/*
 * The lock manager: program 100021, versions 1, 3 and 4, over the lock table.
 *
 *	program.c             the tables: procedure -> decoder, run function, kind of result; decodes;
 *	                      making and freeing
 *	lock.c                LOCK, NM_LOCK            each runs an operation: it finds out who calls and
 *	unlock.c              UNLOCK, CANCEL, TEST     about which file, asks the lock table one thing, and
 *	reservation.c         SHARE, UNSHARE           replies
 *	restart_notice.c      FREE_ALL, SM_NOTIFY
 *	durable_reply.c       replies when what the reply promises is durable; undoes what cannot be
 *	granted.c             calls a waiter back when it has its lock
 *	await_grant_reply.c   a LOCK or UNLOCK that waits for the answer to such a call
 *	caller.c              which client calls, and from which port
 *	state_number.c        what the state number of a LOCK tells of its client
 *	meet_host.c           a client that may not exist waits until its host answers
 *	renamed.c             a client that was renamed while it held locks
 *	file_access.c         which file a handle is, and may the caller lock it
 *	transport.c           may a call about an export that demands TLS come this way?
 *	known_handle.c        which export and file were these bytes found to be?
 *	op.c                  an operation: suspended, resumed, replied to; owner queues
 *	trace.c               what observers, the log and the counters are told; status of an answer
 *	client_lookup.c       a client by its name and address
 *	msg.c                 the _MSG procedures: the result is a call of the server
 *	reply_route.c         how a LOCK came, and its GRANTED goes
 *	wire.c                bytes <-> arguments and results, of all versions
 *
 * A file calls only files below it in this list. op.h draws the stages of an operation.
 *
 * Identity: a client is (source address, caller_name), an owner is a client and an svid. The transport, the
 * version and the cookie do not count. A client that was renamed while it held locks is still found when it
 * unlocks, unless something speaks against that (renamed.c). What a client took from a reserved port can be
 * changed from reserved ports only.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/limit.h"
#include "export/export.h"
#include "rpc/program.h"

struct hf_exports;
struct hf_local;
struct hf_loop;
struct hf_nlm;
struct hf_nsm;
struct hf_rpc_presence;
struct hf_recovery;
struct hf_rpc_client;
struct hf_usage;
struct hf_watch;

/* The files behind file handles. */
struct hf_nlm_files {
	struct hf_exports *exports;
	struct hf_disk_queue *disk_queue; /* runs what may wait for a disk */
	struct hf_watch *watch; /* tells of changes to files, so that rights are remembered; NULL: none is */
	struct hf_local *local; /* takes locks in the kernel, too; or NULL */
	/* export_number_of(): the lock table's number for an export, 0 if there is none. *homep is the export
	 * whose handles are the lock table's keys for all files of that file system. export_id_of() is the
	 * way back.
	 */
	uint32_t (*export_number_of)(void *user, uint64_t export_id, uint64_t *homep);
	uint64_t (*export_id_of)(void *user, uint32_t export);
	bool (*is_secure)(void *user, uint32_t export); /* that export wants reserved ports of some clients */
	/* What calls about that export must come over, and does any export demand TLS? NULL: none does. */
	enum hf_transport (*transport_of)(void *user, uint32_t export);
	bool (*demands_tls)(void *user);
	void *user;
};

struct hf_nlm_options {
	struct hf_loop *loop;
	struct hf_recovery *recovery;
	struct hf_rpc_client *client; /* for call-backs */
	struct hf_rpc_presence
		*presence; /* which clients have TLS connections; NULL: no export may demand TLS */
	const struct hf_nlm_files
		*files; /* NULL: handles are opaque, another server's; each is a file of export 0 */
	const char *server_name;
	/* Sends a datagram from the server's own port: BSD and macOS take a _RES from no other port. */
	void (*send)(void *user, const struct hf_addr *local, const struct hf_addr *to,
		     struct hf_bytes message);
	void *send_user;
	/* The store writes again soon, here or on another node: a client whose lock could not be stored asks
	 * again, and its program waits. Otherwise the program gets an error. */
	bool store_comes_back;
	uint64_t secret;           /* the same in every run; 0: there is none */
	uint64_t grant_try_ns;     /* for one call to a waiter; 0: 5 s */
	uint64_t grant_give_up_ns; /* for all calls to it; 0: 30 s */
};

extern const struct hf_rpc_program hf_nlm_program; /* its service is a struct hf_nlm */

int hf_nlm_new(struct hf_nlm **nlmp, const struct hf_nlm_options *options);
struct hf_nlm *hf_nlm_free(struct hf_nlm *nlm);
/* The monitor finds out whether a client was really restarted. NULL, as in the beginning: a notice from the
 * client's address is believed. The monitor is freed before the lock manager. */
void hf_nlm_set_monitor(struct hf_nlm *nlm, struct hf_nsm *monitor);

HF_DEFINE_CLEANUP(struct hf_nlm *, hf_nlm_free)

void hf_nlm_show_limits(struct hf_nlm *nlm, struct hf_limit_use uses[HF_N_LIMITS]); /* of this folder */
/* Calls about files are counted there, by client and export, from now on. NULL, as in the beginning: they are
 * not. */
void hf_nlm_set_usage(struct hf_nlm *nlm, struct hf_usage *usage);

/* Calls @fn with the export of each suspended operation. One may come more than once. */
void hf_nlm_show_used_exports(const struct hf_nlm *nlm, void (*fn)(void *context, uint32_t export),
			      void *context);
/* The list of exports has changed: a waiter whose client may not lock there any more leaves the queue. */
void hf_nlm_exports_changed(struct hf_nlm *nlm);

/* Counters */
struct hf_nlm_counts {
	uint64_t grants_told;      /* the client took the lock */
	uint64_t grants_refused;   /* the client did not want it */
	uint64_t grants_abandoned; /* the client could not be reached in time */
	uint64_t grants_kept;      /* the client may have taken it, so the lock stays */
	uint64_t grants_retried;   /* calls beyond the first */
	size_t grants_in_flight;
};

void hf_nlm_counts(const struct hf_nlm *nlm, struct hf_nlm_counts *countsp);
/* Forgets the last caller if it was refused everything: a list of clients must not show it. */
void hf_nlm_forget_refused(struct hf_nlm *nlm);
