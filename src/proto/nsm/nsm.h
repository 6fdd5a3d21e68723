/*
 * The status monitor: program 100024, version 1. It stands in for this host's rpc.statd.
 *
 * Calls
 *	nsm.c              the table of procedures; creation; STAT and SIMU_CRASH
 *	mon.c              which programs want to be told of a restart? (MON, UNMON, UNMON_ALL)
 *	notify.c           which clients is a notice about, and is it believed? (NOTIFY)
 *	restarts.c         what follows from a crash, or from the end of a registration?
 *	copies.c           did this notice, or its number, come before?
 * Is it true?
 *	visit.c            did this host really send this SM_MON or SM_UNMON over UDP?
 *	watch.c            which lock managers of this host watch a peer by its name?
 *	doubt.c            was the client's host really restarted?
 *	proof.c            does the host that tells of its restart have the client's key?
 *	baseline.c         what did that host say when the client took its first lock?
 * Asking a host
 *	ask.c              what does a host say of itself now?
 *	meet.c             is there a host at the address that a datagram came from?
 *	rpcbind_connect.c  does a host accept a connection to its rpcbind, or refuse it?
 *	sign_of_life.c     does a host give any sign of life?
 * Telling
 *	send_notice.c      how is one client told of the server's restart?
 *	callback.c         how is a lock manager of this host told of a peer's restart?
 *	lookup.c           what is a peer's address?
 * Ground
 *	trust.c            who made a call? is it believed unchecked? was its refusal logged lately?
 *	names.c            do two names mean one host? is this name the server's own?
 *	reply.c            when does a reply leave?
 *	wire.c             messages <-> structs
 *
 * A file calls only files below it in this list.
 *
 * Which file asks a host what:
 *
 *	ask.c     because    a notice is doubted (doubt.c); a first lock, or a watch (baseline.c)
 *	          sends      SM_STAT (UDP, then TCP); a question for the port of the lock manager; a
 *	                     connection to rpcbind after 100 ms
 *	          answers    a number; "no such program"; a refused connection
 *	          at most    512 addresses for doubts, 32 for first locks
 *	visit.c   because    SM_MON or SM_UNMON over UDP
 *	          sends      a question for the port of the call-back program; then a connection to the
 *	                     port in the call
 *	          answers    a port; an accepted connection
 *	          at most    256, and 4 of one address
 *	meet.c    because    LOCK or SHARE over UDP of a client that nothing confirms, when places are few
 *	          sends      a NULL call to rpcbind over UDP; a connection to it after 50 ms
 *	          answers    any reply; an accepted or refused connection
 *	          at most    1,024 calls, and 16 of one address
 *	sign_of_life.c
 *	          because    a silent client is in the way of a waiter
 *	          sends      NULL calls to rpcbind (UDP and TCP), statd and lock manager
 *	          answers    any reply; an accepted or refused connection
 *	          at most    256, the cases of recovery/silent.c
 *	rpcbind_connect.c
 *	          because    ask.c or meet.c: a host without rpcbind answers nothing over UDP
 *	          sends      a connection to rpcbind
 *	          answers    accepted or refused
 *	          at most    64 under way
 *
 * The objects:
 *
 *	notice       one SM_NOTIFY while it is served (notify.c)
 *	suspect      one client that a notice is about, while its host is asked (notify.c)
 *	doubt        one client and one number that wait for a verdict (doubt.c)
 *	asker        one call that waits for that verdict: a suspect, a FREE_ALL, a LOCK
 *	exchange     one address, asked once for all its doubts (doubt.c)
 *	inquiry      the questions of one exchange, or of one baseline (ask.c)
 *	baseline     what a host said when its client took its first lock (baseline.c)
 *	unproven     a notice that waits for a TLS connection of its host (proof.c)
 *	visitor      an SM_MON, SM_UNMON or SM_UNMON_ALL that waits for its host (visit.c)
 *	meeting      an address, asked whether a host is there; its guests are the calls that wait
 *	             (meet.c)
 *	attempt      one connection to the rpcbind of a host (rpcbind_connect.c)
 *	telling, call-back, look-up, sign of life: one call or some calls under way each
 *
 * There are three kinds of registration. The fields of the client tell which one it is:
 *
 *	nlm          the lock manager registers a client to which it grants a lock. When the
 *	             server restarts, the client's statd gets an SM_NOTIFY.
 *	nsm, local   a lock manager of this host asks by SM_MON, over loopback, to watch a
 *	             peer. When the server restarts, the peer gets an SM_NOTIFY. When the
 *	             peer sends a notice, the lock manager gets its call-back. The client's
 *	             address is the peer's, its local address is loopback.
 *	nsm, remote  a client asks by SM_MON, over the network, to be told of the server's
 *	             restarts, by a call-back. A program of this host that asks to watch this
 *	             server is of this kind, too.
 *
 * A call-back goes to the address that the SM_MON came from, whatever name it gives.
 *
 * The server believes a notice if it comes from the client's address, and either has the
 * client's name or no other client is at that address, and if the host does not deny it when
 * asked (doubt.c). A notice that matches no client is counted, logged once for each source,
 * and answered. The reply to a believed notice leaves when its effects are durable. If they
 * cannot become durable, or the check decides nothing, there is no reply: the peer repeats
 * the notice.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/limit.h"
#include "base/list.h"
#include "rpc/program.h"

#define HF_NSM_PROGRAM 100024

struct hf_loop;
struct hf_nsm;
struct hf_rpc_presence;
struct hf_recovery;
struct hf_rpc_client;

/* Which hosts may call SM_MON, SM_UNMON and SM_UNMON_ALL? */
enum hf_nsm_allow {
	HF_NSM_ALLOW_LOCAL,   /* this host */
	HF_NSM_ALLOW_EXPORTS, /* and every host that may use an export */
	HF_NSM_ALLOW_ANY,
};

struct hf_nsm_options {
	struct hf_loop *loop;
	struct hf_recovery *recovery;
	struct hf_rpc_client *client; /* for SM_NOTIFY and call-backs */
	const char *server_name;      /* the server's name; copied */
	enum hf_nsm_allow allow_mon;
	bool secure; /* refuse SM_NOTIFY and FREE_ALL from a port that every user of a host has */
	/* May this address use an export? NULL: no address may. */
	bool (*is_export_client)(void *user, const struct hf_addr *peer);
	/* When was a connection from this address open last, or when did a datagram come: @now, or earlier
	 * (monotonic ns). NULL: it is not known, and so no silent client loses its locks. */
	uint64_t (*last_contact)(void *user, const struct hf_addr *peer, uint64_t now);
	/* The same of a call, a new connection or a datagram; 0: never. Not NULL with the other one. */
	uint64_t (*last_heard)(void *user, const struct hf_addr *peer);
	void *contact_user;
	void *user;
	struct hf_rpc_presence *presence; /* which clients have TLS connections; NULL: none is asked for */
	bool (*demands_tls)(void *user);  /* any export does; NULL: none */
	uint64_t timeout_ns;              /* for all questions to a host about itself; 0: 5 s */
};

extern const struct hf_rpc_program hf_nsm_program; /* its service is a struct hf_nsm */

/* The monitor becomes recovery's teller. Free it before recovery. */
int hf_nsm_new(struct hf_nsm **nsmp, const struct hf_nsm_options *options);
struct hf_nsm *hf_nsm_free(struct hf_nsm *nsm);

HF_DEFINE_CLEANUP(struct hf_nsm *, hf_nsm_free)

/* Takes those options that may change while the server runs: allow_mon, secure and timeout_ns. A question
 * that is under way goes on with the time that it has. */
void hf_nsm_change(struct hf_nsm *nsm, const struct hf_nsm_options *options);
void hf_nsm_show_limits(const struct hf_nsm *nsm, struct hf_limit_use uses[HF_N_LIMITS]); /* of this folder */

/*
 * Doubt: checks a call that releases a client's locks and may be forged. The client's host is asked, and
 * the asker is told the verdict later. The caller owns the asker, and suspends the call until then.
 * -EBUSY: too many checks are under way, or the monitor is being freed. Leave the call unanswered, so that
 * its sender repeats it.
 */
struct hf_client;
struct hf_rpc_call;
enum hf_nsm_verdict {
	HF_NSM_BELIEVED,
	/* Answered, and nothing is released: the host was not restarted since the client took its locks, or
	 * the notice is a copy, or has another name. */
	HF_NSM_DENIED,
	HF_NSM_UNSURE, /* the host may have been restarted or not: leave the call unanswered */
};
struct hf_nsm_asker {
	bool wants_confirmation; /* believe it only if the statd gives this number, and gave another one
				    before */
	bool is_copy;     /* the notice may be a copy: believe it by the host's answer, not by its silence */
	bool is_sure;     /* the client's own system sent it: a copy that is not believed is answered */
	bool is_unproven; /* the host has not shown the client's key: believe it only if its statd gives this
			     number */
	bool is_lock;     /* a LOCK, which is no evidence if it brings the first number of the client */
	bool is_said;     /* for @fn: the statd gives this number */
	struct hf_link link;
	void (*fn)(struct hf_nsm_asker *asker, struct hf_client *client, enum hf_nsm_verdict verdict);
};
/* The call came over TCP, and from a reserved port if the client's locks do; or the superuser of this host
 * made it. */
bool hf_nsm_is_trusted(struct hf_nsm *nsm, struct hf_rpc_call *call, const struct hf_client *client);
bool hf_nsm_is_superuser(struct hf_nsm *nsm, struct hf_rpc_call *call); /* of this host */
/* The client's lock manager made the call: it came over a connection from a reserved port, which no user of
 * the client's host and no forger has. */
bool hf_nsm_is_from_lock_manager(const struct hf_rpc_call *call);
/* The call tells of a restart. True: nsm.secure refuses it because of its port. It is answered and logged. */
bool hf_nsm_refuses_port(struct hf_nsm *nsm, struct hf_rpc_call *call);
/* The call came over UDP from another host: its sender may be forged. */
bool hf_nsm_is_foreign_datagram(const struct hf_rpc_call *call);
int hf_nsm_doubt(struct hf_nsm *nsm, struct hf_rpc_call *call, struct hf_client *client, int32_t state,
		 struct hf_nsm_asker *asker);
/*
 * Proof: a client that uses exports that demand TLS tells of a restart. Its host has the key if it has
 * connected since the client's last call. True for all other clients, and for the superuser of this host.
 */
bool hf_nsm_has_proof(struct hf_nsm *nsm, struct hf_rpc_call *call, struct hf_client *client);
/* Counts a call without proof, and logs it, once for each client. */
void hf_nsm_note_unproven(struct hf_nsm *nsm, struct hf_rpc_call *call, struct hf_client *client);

/* Names: equal, apart from case, or one is the first part of the other: "a" and "A.example.org". */
bool hf_nsm_names_match(struct hf_bytes a, struct hf_bytes b);

/* The host's statd gave this number when the client took its first lock. */
bool hf_nsm_baseline_says(const struct hf_client *client, int32_t state);
/* Counts a notice that was not believed, and logs it, once for each source. */
void hf_nsm_note_denied(struct hf_nsm *nsm, struct hf_rpc_call *call, struct hf_bytes name, int32_t state,
			bool is_sure);
/* A FREE_ALL told of a restart, and no client had that name and address. If no client is at that address, a
 * notice with the same number is a copy from now on. */
void hf_nsm_note_free_all(struct hf_nsm *nsm, const struct hf_addr *peer, struct hf_bytes name,
			  int32_t state);
/* The client takes a lock by @call, which has the state number @said. @is_first: it is the client's first
 * lock, else one that it reclaims. */
HF_NOINLINE void hf_nsm_client_begins(struct hf_nsm *nsm, struct hf_client *client, struct hf_rpc_call *call,
				      int32_t said, bool is_first);

/*
 * Meeting: a guest waits until the address of a suspended call has answered anything. The caller owns the
 * guest, which is told later whether a host is there. Freeing the monitor tells it that there is none.
 * -EBUSY: too many calls of this address wait, or the monitor is being freed.
 */
struct hf_nsm_guest {
	struct hf_link link;
	struct hf_nsm_meeting *meeting; /* NULL: it waits for nothing */
	void (*fn)(struct hf_nsm_guest *guest, bool has_answered);
};
int hf_nsm_meet(struct hf_nsm *nsm, const struct hf_rpc_call *call, struct hf_nsm_guest *guest);
void hf_nsm_guest_leave(struct hf_nsm_guest *guest); /* the guest waits no longer, and is told nothing */
