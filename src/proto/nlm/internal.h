/* The inside of the lock manager. */
#pragma once

#include "base/hashtable.h"
#include "base/list.h"
#include "base/log.h"
#include "base/siphash.h"
#include "client/client.h"
#include "export/export.h"
#include "lock/lock.h"
#include "loop/loop.h"
#include "proto/nlm/nlm.h"
#include "proto/nlm/way.h"
#include "proto/nlm/wire.h"
#include "recovery/recovery.h"
#include "rpc/call.h"
#include "rpc/hold.h"
#include "rpc/replay.h"

#define HF_NLM_PROTOCOL "nlm" /* of its clients */

/* held.c */
struct hf_nlm_held {
	struct hf_nlm *nlm;
	struct hf_promise promise; /* while is_waiting */
	bool is_waiting;
	struct hf_rpc_hold hold;
	struct hf_nlm_held_grant *grants;
	size_t n_grants;
	size_t capacity;
};

struct hf_nlm {
	struct hf_nlm_options options;
	char *server_name;
	struct hf_nsm *monitor; /* or NULL */
	struct hf_locks *locks;
	struct hf_clients *clients;
	struct hf_lock_client stranger; /* who only asks (TEST) and is not known */
	struct hf_client *recent;       /* the last one found: the next call is often his, too */
	struct hf_hashtable grants_by_id;
	struct hf_hashtable grants_by_cookie;
	struct hf_list grants;
	struct hf_list starting; /* those to be told at the end of this turn */
	struct hf_task start_grants;
	struct hf_siphash_key key;
	struct hf_nlm_locals locals;
	struct hf_nlm_files files;             /* exports is NULL: handles are opaque */
	struct hf_nlm_verdict *verdicts;       /* files.c */
	struct hf_nlm_inquiry *answered;       /* files.c: whose call is being served */
	const struct hf_nlm_suspicion *judged; /* number.c: whose call is being served */
	uint64_t heard_at; /* files.c: the turn, and the caller, that changes were read for last */
	const struct hf_addr *heard_for;
	uint64_t *acts;            /* renamed.c */
	struct hf_hashtable turns; /* turn.c */
	struct hf_list lowerings;  /* of those, the ones from hf_nlm_turn_new() */
	struct hf_list patient;    /* patience.c */
	struct hf_list heard;
	struct hf_task heard_task;
	struct hf_replay *repeats; /* the _RES of _MSGs, by what they looked like */
	struct hf_list messages;   /* _MSGs under way */
	struct hf_nlm_counts counts;
	struct hf_log_limit ports;   /* one line for many who are refused for their port */
	struct hf_log_limit unmet;   /* one line for many calls whose hosts do not answer */
	struct hf_log_limit full[2]; /* one line for many who are refused locks, and share reservations */
	struct hf_nlm_held held[2];  /* one fills while the other may wait for the medium */
	unsigned int filling;
};

/* request.c: a call, decoded, and whom it is about */
struct hf_nlm_op {
	struct hf_nlm *nlm;
	struct hf_rpc_call *call;
	uint32_t version;
	struct hf_nlm_args args;
	struct hf_client *client; /* a reference, or NULL */
	struct hf_lock_target target;
	struct hf_handle key; /* where the target's handle is not that of the arguments */
	struct hf_range range;
};

void hf_nlm_op_init(struct hf_nlm_op *op, struct hf_nlm *nlm, struct hf_rpc_call *call);
/* The beginning of a handler: false where the call made no sense, and has been dealt with. */
bool hf_nlm_op_begin(struct hf_nlm_op *op, struct hf_nlm *nlm, struct hf_rpc_call *call,
		     void (*get)(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in));
void hf_nlm_op_deinit(struct hf_nlm_op *op);
bool hf_nlm_is_msg(const struct hf_rpc_call *call);
bool hf_nlm_is_lock(const struct hf_rpc_call *call); /* of any kind */

/* Each answers a status: GRANTED to go on, else what to reply. */
/* Which file, for those who take nothing: whatever became of it. */
enum hf_nlm_stat hf_nlm_find_file(struct hf_nlm_op *op);
/* Which file, and may the caller lock it? */
#define HF_NLM_LATER                                                                           \
	((enum hf_nlm_stat)0x7fffffff) /* asked in the background: the handler is called again \
					*/
enum hf_nlm_stat hf_nlm_check_file(struct hf_nlm_op *op, bool for_writing, hf_rpc_handler_fn again);
/* Known or made, seen, its state number noted. LATER: the number is being checked, and @again is called then.
 * A call that says no number is not checked. */
enum hf_nlm_stat hf_nlm_get_client(struct hf_nlm_op *op, hf_rpc_handler_fn again);
/* The same for a reclaim: whoever was renamed since holds what he held. */
enum hf_nlm_stat hf_nlm_get_reclaimer(struct hf_nlm_op *op, hf_rpc_handler_fn again);
/* For what gives something up: the client that has something of this owner in this file, by its name or under
 * another; NULL: none has. FAILED: the port that the call came from may not change what that client holds. */
enum hf_nlm_stat hf_nlm_find_holder(struct hf_nlm_op *op);
/* The client of that name, or NULL; it has called. */
void hf_nlm_find_named(struct hf_nlm_op *op);
/* A privileged client is changed from reserved ports only. True as long as the client is not known. */
bool hf_nlm_may_change(const struct hf_nlm_op *op);
void hf_nlm_use_client(struct hf_nlm_op *op, struct hf_client *client); /* takes the reference */
/* The client for whom a LOCK was served, whether he still has what he got or not; NULL when he is gone.
 * Nobody is taken for another here. */
void hf_nlm_find_served(struct hf_nlm_op *op);
/* The client got something: from a reserved port it is privileged from now on. */
enum hf_nlm_stat hf_nlm_note_port(struct hf_nlm_op *op);
/* The same, and the client is registered. GRANTED and BLOCKED may only be said to a client who will be told
 * of our restart. */
enum hf_nlm_stat hf_nlm_register(struct hf_nlm_op *op);
/* The client took something, and held nothing before (@is_first): its monitor may want to look at its host.
 */
void hf_nlm_note_begin(struct hf_nlm_op *op, bool is_first);
/* Whom the arguments name, if he is known: a reference, or NULL. */
struct hf_client *hf_nlm_find_caller(const struct hf_nlm_op *op);
/* The same, and if he was not known he is. NULL: no name, or no memory. */
struct hf_client *hf_nlm_meet_caller(const struct hf_nlm_op *op);
enum hf_nlm_stat hf_nlm_stat_from_lock(int answer);

/* number.c: what the state number of a LOCK tells of its client. GRANTED to go on, LATER as above. */
enum hf_nlm_stat hf_nlm_note_number(struct hf_nlm_op *op, hf_rpc_handler_fn again);

/* renamed.c */
int hf_nlm_renames_init(struct hf_nlm *nlm);
void hf_nlm_renames_deinit(struct hf_nlm *nlm);
/* After hf_nlm_find_named(): where that client has nothing of this owner in this file, and another has that
 * was renamed since, the request is about that one. True: it is. */
bool hf_nlm_find_renamed(struct hf_nlm_op *op);
/* This owner, by this name, asked for something in this file for itself. */
void hf_nlm_note_act(const struct hf_nlm_op *op);

/* reply.c */
/* At once. */
void hf_nlm_reply(struct hf_nlm *nlm, struct hf_rpc_call *call, struct hf_bytes cookie,
		  enum hf_nlm_stat stat);
/* The same to a call that was kept: what it was is read again. */
void hf_nlm_reply_late(struct hf_nlm *nlm, struct hf_rpc_call *call, enum hf_nlm_stat stat);
void hf_nlm_reply_test(struct hf_nlm_op *op, enum hf_nlm_stat stat, const struct hf_nlm_holder *holder);
/* When all that was written so far is durable; what is to be done then, before the reply, or undone if it
 * cannot be. */
typedef void (*hf_nlm_end_fn)(struct hf_nlm *nlm, struct hf_rpc_call *call, bool kept);
void hf_nlm_reply_kept(struct hf_nlm_op *op, enum hf_nlm_stat stat, hf_nlm_end_fn end);
/* The same for GRANTED, where he is to have less from then on. Before that it is nobody else's turn of his.
 */
void hf_nlm_reply_lowered(struct hf_nlm_op *op, hf_nlm_end_fn lower);
/* The same for a lock that was granted; where it cannot be promised, @end does what hf_nlm_hold_granted()
 * says. */
void hf_nlm_reply_granted(struct hf_nlm_op *op, bool is_new, hf_nlm_end_fn end);
/* The same after something was given up: else a lock that nobody reclaims would come back after a crash. */
void hf_nlm_reply_released(struct hf_nlm_op *op, enum hf_nlm_stat stat);
/* The same after a client told us that it has started anew: its new state number is stored, too. */
void hf_nlm_reply_restart(struct hf_nlm *nlm, struct hf_rpc_call *call);

/* lock.c: in the place of the handler of a kept call, for want of memory. Who polled does not wait any more.
 */
void hf_nlm_refuse_kept(void *service, struct hf_rpc_call *call);

/* held.c: for what is HF_KEPT_NEARLY. False where the reply cannot be held, and nothing was done. */
void hf_nlm_held_init(struct hf_nlm *nlm);
void hf_nlm_held_deinit(struct hf_nlm *nlm);
/* GRANTED, when what was written so far is durable; otherwise DENIED_NOLOCKS: the lock is released if
 * @is_new, else a wait for the same is left. */
bool hf_nlm_hold_granted(struct hf_nlm_op *op, bool is_new);
/* @stat, when what was written so far is durable or can never be. */
bool hf_nlm_hold_released(struct hf_nlm_op *op, enum hf_nlm_stat stat);

/* files.c */
int hf_nlm_files_init(struct hf_nlm *nlm, const struct hf_nlm_files *files);
void hf_nlm_files_deinit(struct hf_nlm *nlm);
/* Which share a handle is of, and what the lock table knows the file by: the same for all handles of one
 * file. False: it is not one of ours. @room: where the key is not the handle itself. */
bool hf_nlm_files_find(const struct hf_nlm *nlm, struct hf_bytes handle, uint32_t *sharep,
		       struct hf_bytes *keyp, struct hf_handle *room);
/* The way back: the handle that clients of this share have for the file. */
struct hf_bytes hf_nlm_files_handle(const struct hf_nlm *nlm, uint32_t share, struct hf_bytes key,
				    struct hf_handle *room);
enum hf_nlm_stat hf_nlm_files_check(struct hf_nlm_op *op, bool for_writing, hf_rpc_handler_fn again);
/* May the caller's host ask about the file, as the list of exports is now? GRANTED, STALE_FH or FAILED. */
enum hf_nlm_stat hf_nlm_files_admit(const struct hf_nlm_op *op);
/* Does the export want a reserved port, and the call comes from another one? */
bool hf_nlm_files_bar_port(const struct hf_nlm_op *op);
/* Opens the file, where the kernel is to be asked about it; GRANTED or LATER. */
enum hf_nlm_stat hf_nlm_files_open(struct hf_nlm_op *op, hf_rpc_handler_fn again);

/* turn.c: while a call waits for what decides what its owner holds, his others about that file follow it */
struct hf_nlm_turn_key { /* without gaps, to be hashed */
	struct hf_addr host;
	int32_t svid;
	uint32_t handle_len;
	uint8_t handle[HF_NLM_MAX_HANDLE];
};

/* In which of its client's lives a call was made. */
struct hf_nlm_life {
	struct hf_client *client; /* a reference; NULL: nobody who has, or asks for, anything */
	uint64_t n_deaths;        /* when it came */
	int32_t known_state;      /* the same */
	int32_t state;            /* as it says; 0: it does not */
};

struct hf_nlm_turn {
	struct hf_hash_node node; /* in nlm->turns */
	struct hf_link lowering;  /* in nlm->lowerings */
	struct hf_list followers;
	struct hf_nlm_life life;
	struct hf_nlm_turn_key key;
	/* Nobody follows it: when another call comes it is ended by this, and is gone. NULL: others follow.
	 */
	void (*hurry)(struct hf_nlm_turn *turn);
};

int hf_nlm_turns_init(struct hf_nlm *nlm);
void hf_nlm_turns_deinit(struct hf_nlm *nlm);
void hf_nlm_turn_take(struct hf_nlm_turn *turn, const struct hf_nlm_op *op);
/* Two steps: between them the call itself is served. */
void hf_nlm_turn_leave(struct hf_nlm *nlm, struct hf_nlm_turn *turn);
void hf_nlm_turn_pass(struct hf_nlm *nlm, struct hf_nlm_turn *turn);
/* Whose turn it is in the file of @owner, who is one of that host's; NULL: anybody's. */
struct hf_nlm_turn *hf_nlm_turn_find(const struct hf_nlm *nlm, const struct hf_lock_target *owner);
/* By its handler; or it is refused, since its client has died while it waited, and a lock would be nobody's.
 */
void hf_nlm_turn_serve(struct hf_nlm *nlm, const struct hf_nlm_turn *turn, struct hf_rpc_call *call,
		       hf_rpc_handler_fn again);
/* The same on the heap, for a call that has been served; NULL: no memory. */
struct hf_nlm_turn *hf_nlm_turn_new(const struct hf_nlm_op *op);
void hf_nlm_turn_end(struct hf_nlm *nlm, struct hf_nlm_turn *turn); /* also of NULL */
HF_COLD bool hf_nlm_turn_follow_busy(struct hf_nlm_op *op, hf_rpc_handler_fn again);

static inline struct hf_bytes hf_nlm_turn_handle(const struct hf_nlm_turn *turn)
{
	return hf_bytes_of(turn->key.handle, turn->key.handle_len);
}

/* True: it is not this call's turn. It is kept, and @again called when it is. */
static inline bool hf_nlm_turn_follow(struct hf_nlm_op *op, hf_rpc_handler_fn again)
{
	return HF_UNLIKELY(op->nlm->turns.n) && hf_nlm_turn_follow_busy(op, again);
}

/* patience.c */
void hf_nlm_patience_init(struct hf_nlm *nlm);
void hf_nlm_patience_deinit(struct hf_nlm *nlm);
/* True: a shared LOCK waits, or has been dealt with. @again is called when the grant in its way is answered,
 * @now, which must not wait again, when it is not. */
bool hf_nlm_await_answer(struct hf_nlm_op *op, hf_rpc_handler_fn again, hf_rpc_handler_fn now);
/* A grant to this owner is over. */
void hf_nlm_note_answer(struct hf_nlm *nlm, const struct hf_lock_target *owner);

/* guest.c */
HF_COLD bool hf_nlm_await_host_slowly(struct hf_nlm_op *op, hf_rpc_handler_fn again);

/* True: the call waits for its host to answer, or has been dealt with. @again is called when the host has. */
static inline bool hf_nlm_await_host(struct hf_nlm_op *op, hf_rpc_handler_fn again)
{
	return HF_UNLIKELY(!op->client->is_confirmed) && hf_nlm_await_host_slowly(op, again);
}

/* msg.c */
int hf_nlm_msgs_init(struct hf_nlm *nlm);
void hf_nlm_msgs_deinit(struct hf_nlm *nlm);
bool hf_nlm_msg_is_repeat(struct hf_nlm *nlm, struct hf_rpc_call *call); /* true: dealt with */
void hf_nlm_msg_answer(struct hf_nlm *nlm, struct hf_rpc_call *call, struct hf_bytes results);
int hf_nlm_call_keep(struct hf_nlm *nlm, struct hf_rpc_call *call);  /* hf_rpc_call_keep() of any call */
void hf_nlm_call_drop(struct hf_nlm *nlm, struct hf_rpc_call *call); /* likewise */
HF_COLD void hf_nlm_msg_garbage(struct hf_nlm *nlm,
				struct hf_rpc_call *call); /* of any call that makes no sense */

/* sight.c */
const char *hf_nlm_stat_name(enum hf_nlm_stat stat); /* a constant */
void hf_nlm_tell(const struct hf_nlm_op *op, enum hf_recovery_event_kind kind);
/* To the operator: a privileged client was to be changed from another port. */
HF_COLD void hf_nlm_say_port(const struct hf_nlm_op *op);
/* To the operator: the client is told that there are no locks, and not why. */
HF_COLD void hf_nlm_say_full(const struct hf_nlm_op *op, bool of_shares);

/* granted.c */
int hf_nlm_grants_init(struct hf_nlm *nlm);
void hf_nlm_grants_deinit(struct hf_nlm *nlm);
/* After a request of the owner's own: what he has changed he is not told of again. */
void hf_nlm_call_off_changed(struct hf_nlm *nlm, const struct hf_lock_target *owner);

/* Handlers, by file */
void hf_nlm_proc_test(void *service, struct hf_rpc_call *call);
void hf_nlm_proc_lock(void *service, struct hf_rpc_call *call);
void hf_nlm_proc_cancel(void *service, struct hf_rpc_call *call);
void hf_nlm_proc_unlock(void *service, struct hf_rpc_call *call);
void hf_nlm_proc_granted_res(void *service, struct hf_rpc_call *call);
void hf_nlm_proc_share(void *service, struct hf_rpc_call *call);
void hf_nlm_proc_unshare(void *service, struct hf_rpc_call *call);
void hf_nlm_proc_free_all(void *service, struct hf_rpc_call *call);
void hf_nlm_proc_sm_notify(void *service, struct hf_rpc_call *call);
