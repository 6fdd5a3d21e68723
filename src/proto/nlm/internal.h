/* The inside of the lock manager: its state, and what its files offer each other. nlm.h has the picture. */
#pragma once

#include "base/hashtable.h"
#include "base/list.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/siphash.h"
#include "client/client.h"
#include "export/export.h"
#include "lock/lock.h"
#include "loop/loop.h"
#include "proto/nlm/known_handle.h"
#include "proto/nlm/nlm.h"
#include "proto/nlm/reply_route.h"
#include "proto/nlm/wire.h"
#include "recovery/recovery.h"
#include "rpc/call.h"
#include "rpc/delay.h"
#include "rpc/replay.h"

#define HF_NLM_PROTOCOL "nlm" /* of its clients */

/* Replies that wait for one write of the store (durable_reply.c). */
struct hf_nlm_batch {
	struct hf_nlm *nlm;
	struct hf_promise promise; /* while is_waiting */
	bool is_waiting;
	struct hf_rpc_delay delay;
	struct hf_nlm_undo *undos;
	size_t n_undos;
	size_t capacity;
};

struct hf_nlm {
	struct hf_nlm_options options;
	char *server_name;
	struct hf_nsm *monitor; /* or NULL */
	struct hf_locks *locks;
	struct hf_clients *clients;
	struct hf_lock_client stranger; /* asks (TEST) for a caller that is not a client */
	struct hf_client *recent;       /* the last one found: the next call is often from the same */
	struct hf_hashtable grants_by_id;
	struct hf_hashtable grants_by_cookie;
	struct hf_list grants;
	struct hf_list starting; /* grants whose clients are told at the end of this turn */
	struct hf_task start_grants;
	struct hf_siphash_key key;
	struct hf_nlm_locals locals;
	struct hf_nlm_files files; /* exports is NULL: handles are opaque */
	struct hf_nlm_known_handles known_handles;
	struct hf_nlm_right *rights; /* remembered rights to files */
	bool has_demands;            /* an export demands TLS, see transport.c */
	uint64_t heard_at;           /* the turn, and the caller, that changes were read for last */
	const struct hf_addr *heard_for;
	uint64_t *acts;             /* renamed.c */
	struct hf_delays delays;    /* replies and grants that wait for the store */
	struct hf_pool ops;         /* suspended operations */
	struct hf_list suspended;   /* all of them */
	struct hf_hashtable owners; /* those that occupy their owner's queue */
	struct hf_list answered;    /* those that awaited the answer to a grant, and it has come */
	struct hf_task resume_answered;
	struct hf_replay *repeats; /* the _RES of _MSGs, by what they looked like */
	struct hf_nlm_counts counts;
	struct hf_usage *usage;         /* or NULL */
	struct hf_log_limit ports;      /* one line for many calls that are refused for their port */
	struct hf_log_limit unmet;      /* one line for many calls whose hosts do not answer */
	struct hf_log_limit full[2];    /* one line for many refused locks, and one for reservations */
	struct hf_nlm_batch batches[2]; /* one fills while the other may wait for the medium */
	unsigned int filling;
};

struct hf_nlm_op;

/* program.c: handles each call that is an operation */
void hf_nlm_serve(void *service, struct hf_rpc_call *call);

/* client_lookup.c: the client of this name at this address, a reference. */
struct hf_client *hf_nlm_find_client(struct hf_nlm *nlm, const struct hf_addr *peer,
				     struct hf_bytes name); /* NULL: it is not known */
/* If it was not known it is; if @is_served, it is remembered as the last one. NULL: a name that no client may
 * have, or no memory. */
struct hf_client *hf_nlm_meet_client(struct hf_nlm *nlm, const struct hf_addr *peer, struct hf_bytes name,
				     bool is_served);

/* caller.c: who calls. Some answer a status: GRANTED to go on, else what to reply. */
struct hf_client *hf_nlm_find_caller(const struct hf_nlm_op *op); /* a reference, or NULL */
/* Known or made, seen, its state number noted. LATER: the number is being checked. A call that says no number
 * is not checked. */
enum hf_nlm_stat hf_nlm_get_client(struct hf_nlm_op *op);
/* The same for a reclaim: a client that was renamed since has what it held. */
enum hf_nlm_stat hf_nlm_get_reclaimer(struct hf_nlm_op *op);
/* The client of that name, or NULL; it has called. */
void hf_nlm_find_named(struct hf_nlm_op *op);
/* The client for which a LOCK was served, whether it still has what it got or not; NULL when it is gone. No
 * client is taken for another here. */
void hf_nlm_find_served(struct hf_nlm_op *op);
/* A privileged client is changed from reserved ports only. True as long as the client is not known. */
bool hf_nlm_may_change(const struct hf_nlm_op *op);
/* The client got something: from a reserved port it is privileged from now on. */
enum hf_nlm_stat hf_nlm_note_port(struct hf_nlm_op *op);
/* The same, and the client is registered. GRANTED and BLOCKED may only be said to a client that will be told
 * of the server's restart. */
enum hf_nlm_stat hf_nlm_register(struct hf_nlm_op *op);
/* The client took something, and held nothing before (@is_first): its monitor may want to look at its host.
 */
void hf_nlm_note_begin(struct hf_nlm_op *op, bool is_first);
/* The state number of the client's life to which belongs what it takes now. */
uint32_t hf_nlm_state_of(const struct hf_nlm_op *op);

/* state_number.c: what the state number of a LOCK tells of its client. GRANTED to go on, LATER where the
 * operation is suspended, else what to reply. */
enum hf_nlm_stat hf_nlm_note_number(struct hf_nlm_op *op);

/* renamed.c */
int hf_nlm_renames_init(struct hf_nlm *nlm);
void hf_nlm_renames_deinit(struct hf_nlm *nlm);
/* Call after hf_nlm_find_named(). If that client has nothing of this owner in the file, and a renamed client
 * has, op->client becomes that client. True: it did. */
bool hf_nlm_find_renamed(struct hf_nlm_op *op);
/* This owner, by this name, asked for something in this file for itself. */
void hf_nlm_note_act(const struct hf_nlm_op *op);

/* file_access.c: which file, and may the caller lock it. Some answer a status: GRANTED to go on, LATER where
 * the operation is suspended, else what to reply. */
#define HF_NLM_LATER ((enum hf_nlm_stat)0x7fffffff)
int hf_nlm_files_init(struct hf_nlm *nlm, const struct hf_nlm_files *files);
void hf_nlm_files_deinit(struct hf_nlm *nlm);
/* Which export a handle is of, and what the lock table knows the file by: the same for all handles of one
 * file. False: it is not a handle of this server. @room: where the key is not the handle itself. */
bool hf_nlm_find_key(struct hf_nlm *nlm, struct hf_bytes handle, uint32_t *exportp, struct hf_bytes *keyp,
		     struct hf_handle *room);
/* The way back: the handle that clients of this export have for the file. */
struct hf_bytes hf_nlm_find_handle(const struct hf_nlm *nlm, uint32_t export, struct hf_bytes key,
				   struct hf_handle *room);
/* For operations that take nothing: the file need not exist any more. */
enum hf_nlm_stat hf_nlm_find_file(struct hf_nlm_op *op);
/* For operations that take something. */
enum hf_nlm_stat hf_nlm_check_file(struct hf_nlm_op *op, bool for_writing);
/* May the caller's host ask about the file, as the list of exports is now? GRANTED, STALE_FH or FAILED. */
enum hf_nlm_stat hf_nlm_admit(const struct hf_nlm_op *op);
/* Opens the file, where the kernel is to be asked about it. */
enum hf_nlm_stat hf_nlm_open_file(struct hf_nlm_op *op);
/* Does the export want a reserved port, and the call comes from another one? */
bool hf_nlm_bars_port(const struct hf_nlm_op *op);

/* transport.c: may a call come in the clear, or with this certificate? Each is asked only if an export
 * demands TLS.
 */
void hf_nlm_transport_init(struct hf_nlm *nlm);
void hf_nlm_transport_deinit(struct hf_nlm *nlm);
void hf_nlm_look_at_demands(struct hf_nlm *nlm); /* at the start, and when the exports have changed */
/* True: it is refused, and the operation is over. @gives_up: the call releases something. */
HF_NOINLINE bool hf_nlm_refuses_transport(struct hf_nlm_op *op, bool gives_up);
#define hf_nlm_bars_way(op, gives_up) \
	(HF_UNLIKELY((op)->nlm->has_demands) && hf_nlm_refuses_transport((op), (gives_up)))
/* The same, when another client was found than that of the name in the call. */
HF_NOINLINE bool hf_nlm_refuses_renamed(struct hf_nlm_op *op);
#define hf_nlm_bars_renamed(op) (HF_UNLIKELY((op)->nlm->has_demands) && hf_nlm_refuses_renamed(op))
/* May this GRANTED_RES speak for the client? */
HF_NOINLINE bool hf_nlm_refuses_answer(struct hf_nlm *nlm, struct hf_rpc_call *call, uint32_t export,
				       struct hf_client *client);
/* The client got something: its name belongs to its certificate from now on. */
HF_NOINLINE enum hf_nlm_stat hf_nlm_bind_identity(struct hf_nlm_op *op);
/* A call that gives something up is served, from its port, too: the client of its name lives. */
HF_NOINLINE void hf_nlm_note_life(const struct hf_nlm_op *op);

/* meet_host.c: for a client that nothing has confirmed. GRANTED to go on, LATER where the operation is
 * suspended until its host answers, or is over. */
HF_COLD enum hf_nlm_stat hf_nlm_meet_host(struct hf_nlm_op *op);

/* await_grant_reply.c */
void hf_nlm_await_init(struct hf_nlm *nlm);
void hf_nlm_await_deinit(struct hf_nlm *nlm);
/* True: a shared LOCK or a reclaim is suspended until the client answers the grant in its way. */
bool hf_nlm_await_grant_reply(struct hf_nlm_op *op);
/* True: the operation is suspended until a grant to its owner is over. */
bool hf_nlm_await_answer(struct hf_nlm_op *op);
/* A grant to this owner is over. */
void hf_nlm_note_grant_reply(struct hf_nlm *nlm, const struct hf_lock_target *owner);

/* msg.c */
int hf_nlm_msgs_init(struct hf_nlm *nlm);
void hf_nlm_msgs_deinit(struct hf_nlm *nlm);
/* True: the call has been answered. *repeatp is set if its _RES is to be remembered. */
HF_NOINLINE bool hf_nlm_msg_is_repeat(struct hf_nlm *nlm, struct hf_rpc_call *call,
				      struct hf_replay_entry **repeatp);
void hf_nlm_msg_answer(struct hf_nlm *nlm, struct hf_rpc_call *call, struct hf_replay_entry *repeat,
		       struct hf_bytes results);

/* trace.c */
enum hf_nlm_stat hf_nlm_stat_from_lock(int answer);
void hf_nlm_tell(const struct hf_nlm_op *op, enum hf_recovery_event_kind kind);
/* To the operator: a privileged client was to be changed from another port. */
HF_COLD void hf_nlm_say_port(const struct hf_nlm_op *op);
/* To the operator: the client is told that there are no locks, and not why. */
HF_COLD void hf_nlm_say_full(const struct hf_nlm_op *op, bool of_reservations);

/* Counts an operation that is answered, for its client and export. */
#define hf_nlm_count(op, stat)                        \
	do {                                          \
		if (HF_UNLIKELY((op)->nlm->usage))    \
			hf_nlm_count_usage(op, stat); \
	} while (0)
/* True: as a success. */
HF_NOINLINE bool hf_nlm_count_usage(const struct hf_nlm_op *op, enum hf_nlm_stat stat);
/* A reply that was counted as a success became an error before it left. */
HF_COLD void hf_nlm_count_error(struct hf_nlm *nlm, const struct hf_addr *peer, uint32_t export);

/* granted.c */
void hf_nlm_grants_init(struct hf_nlm *nlm);
void hf_nlm_grants_deinit(struct hf_nlm *nlm);
/* After an operation of the owner: of a lock that it has changed it is not told again. */
void hf_nlm_call_off_changed(struct hf_nlm *nlm, const struct hf_lock_target *owner);
/* Was the client told of a grant to this owner in this range before, and is it being called once more? */
bool hf_nlm_is_called_again(const struct hf_nlm_op *op);
void hf_nlm_proc_granted_res(void *service, struct hf_rpc_call *call);

/* What each procedure does; each consumes the operation. */
void hf_nlm_run_lock(struct hf_nlm_op *op);
void hf_nlm_run_test(struct hf_nlm_op *op);
void hf_nlm_run_unlock(struct hf_nlm_op *op);
void hf_nlm_run_cancel(struct hf_nlm_op *op);
void hf_nlm_run_share(struct hf_nlm_op *op);
void hf_nlm_run_unshare(struct hf_nlm_op *op);
void hf_nlm_run_free_all(struct hf_nlm_op *op);
void hf_nlm_run_sm_notify(struct hf_nlm_op *op);
