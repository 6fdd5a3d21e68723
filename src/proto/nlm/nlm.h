/*
 * The lock manager: program 100021, versions 1, 3 and 4, over the lock table.
 *
 * A handler decodes (wire.c), finds out who calls and about which file
 * (caller.c), asks the lock table one thing, and replies when what it promises
 * is durable (durable_reply.c). A waiter that gets its lock is called back (granted.c).
 *
 * Who: a client is (source address, caller_name), an owner that and svid. The
 * transport, the version and the cookie never count. A host that was renamed
 * while it held locks is still found when it unlocks, where nothing speaks
 * against that (renamed.c). What a client took from a reserved port is changed
 * from reserved ports only.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "rpc/program.h"

struct hf_exports;
struct hf_jobs;
struct hf_local;
struct hf_loop;
struct hf_nlm;
struct hf_nsm;
struct hf_recovery;
struct hf_rpc_client;
struct hf_watch;

/* What file handles stand for. */
struct hf_nlm_files {
	struct hf_exports *exports;
	struct hf_fair *fair;   /* for what may wait for a disk */
	struct hf_watch *watch; /* of files whose rights are remembered; NULL: no right is */
	struct hf_local *local; /* where locks are taken in the kernel, too; or NULL */
	/* The lock table's number for an export, 0 if there is none, and the export whose handles are the
	 * lock table's keys for all files of that file system; and the export of a number. */
	uint32_t (*share_of)(void *user, uint64_t export_id, uint64_t *homep);
	uint64_t (*export_of)(void *user, uint32_t share);
	bool (*is_secure)(void *user, uint32_t share); /* the export of a number wants reserved ports */
	void *user;
};

struct hf_nlm_options {
	struct hf_loop *loop;
	struct hf_recovery *recovery;
	struct hf_rpc_client *client; /* for call-backs */
	const struct hf_nlm_files
		*files; /* NULL: handles are opaque, another server's; each is a file of share 0 */
	const char *server_name;
	/* Sends a datagram from the port that we listen on: BSD and macOS take a _RES from nowhere else. */
	void (*send)(void *user, const struct hf_addr *local, const struct hf_addr *to,
		     struct hf_bytes message);
	void *send_user;
	uint64_t grant_try_ns;     /* for one try to tell a waiter; 0: 5 s */
	uint64_t grant_give_up_ns; /* for all of them; 0: 30 s */
};

extern const struct hf_rpc_program hf_nlm_program; /* its service is a struct hf_nlm */

int hf_nlm_new(struct hf_nlm **nlmp, const struct hf_nlm_options *options);
struct hf_nlm *hf_nlm_free(struct hf_nlm *nlm);
/* Who finds out whether a client was really restarted. NULL, as in the beginning: what its address says is
 * believed. It is freed before the lock manager. */
void hf_nlm_set_monitor(struct hf_nlm *nlm, struct hf_nsm *monitor);

HF_DEFINE_CLEANUP(struct hf_nlm *, hf_nlm_free)

/* The list of exports is another one: a waiter whose client could not lock any more leaves the queue. */
void hf_nlm_exports_changed(struct hf_nlm *nlm);

/* Sight */
struct hf_nlm_counts {
	uint64_t grants_told;      /* and taken */
	uint64_t grants_refused;   /* by the client */
	uint64_t grants_abandoned; /* the client could not be reached in time */
	uint64_t grants_kept;      /* it may have taken it, or not */
	uint64_t grants_retried;   /* tries beyond the first */
	size_t grants_in_flight;
};

void hf_nlm_counts(const struct hf_nlm *nlm, struct hf_nlm_counts *countsp);
/* A client that was refused, and is remembered only because the next call is often his: it is known no more.
 * For those who show clients. */
void hf_nlm_forget_refused(struct hf_nlm *nlm);
