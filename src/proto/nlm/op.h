/*
 * An operation: one call of the lock manager, from decoding to its reply.
 *
 *	decoded
 *	   │◄───────── resumed: the procedure runs from its top, with the answer ────────────┐
 *	   │                                                                                  │
 *	   ├─ an earlier operation of this owner on this file is suspended                    │
 *	   │     QUEUED ──────────► it is over ───────────────────────────────────────────────┤
 *	   ├─ the right to the file is not known, or the file is not open                     │
 *	   │     ASKING ──────────► the disk has answered ────────────────────────────────────┤
 *	   ├─ the state number of a LOCK, or a FREE_ALL, may be forged                        │
 *	   │     CHECKING ────────► the client's host has answered ───────────────────────────┤
 *	   ├─ the client may not exist, and such clients have as much as they may             │
 *	   │     MEETING ─────────► its host has answered ────────────────────────────────────┤
 *	   │                    └─► it has not, or the owner sends another call: dropped      │
 *	   ├─ a shared LOCK meets an exclusive grant that the client has not answered,        │
 *	   │  a reclaim any such grant, or an UNLOCK one for which the client is called again │
 *	   │     AWAITING_GRANT ──► it has; or 2 s are over, or the owner sends another call ─┘
 *	   ▼
 *	served
 *	   ├─ the usual way of LOCK, UNLOCK and CANCEL: over TCP, with lock_durability process
 *	   │     the operation ends here; its reply is in the queue of the connection, and does
 *	   │     not leave before the commit of this turn (below: batched) ───────────────────► over
 *	   ├─ what the reply promises is not durable yet
 *	   │     STORING ─────────► it is: do what was left to do ────────────────────────────┐
 *	   │                    └─► the store failed: undo what was done ─────────────────────┤
 *	   ▼                                                                                  │
 *	replied ◄─────────────────────────────────────────────────────────────────────────────┘
 *
 * Resuming runs the procedure again from its top: no step remembers where it stopped. What tells it the way
 * already gone are the flags is_impatient, is_number_checked, has_met_host and lacks_place, and the answers
 * that the domain has by then. A step whose flag is set is passed, so that no question is asked twice;
 * lacks_place is only why the host was asked. QUEUED and ASKING have no flag: what they waited for is over
 * then, or known. STORING does not run the procedure again, but what is left to do; nor does a FREE_ALL
 * that was checked.
 *
 * Batched. With lock_durability process only a write to the page cache is missing, a moment later. To suspend
 * an operation for that moment and to resume it would cost a sixth of its whole work (decision 9). So the
 * operation ends before its reply leaves, and a struct hf_nlm_undo (durable_reply.c) stands for it until the
 * commit: the client, the owner, the file and the range of the lock, and where the status is in the queue.
 *
 *	hf_nlm_undo ──► the commit is written: the reply leaves as it is
 *	            └─► it failed: a new lock is released, the status becomes a refusal, and the reply leaves
 *
 * The reply to an UNLOCK or CANCEL is the same even if the store fails, and has no hf_nlm_undo, unless the
 * next run may go on from here: then the client is to ask again. The rest is suspended in STORING:
 * datagrams, _MSG calls, waiters, reservations, reclaims, a LOCK whose client's registration is not synced
 * yet, and calls of a connection that has others under way.
 *
 * Other ends: the call makes no sense (garbage); its client crashed while the operation was suspended
 * (replied with DENIED_GRACE_PERIOD: its locks would belong to a process that is gone; a reclaim is dropped,
 * and its client sends it again); the store cannot write what a reclaim would be promised (dropped for the
 * same reason); the server stops (dropped: nothing is changed after the stop was marked as clean); no memory
 * to suspend (SYSTEM_ERR); no memory later on (DENIED_NOLOCKS). A connection that breaks ends nothing: the
 * call goes on, and its reply goes nowhere.
 *
 * An operation lives on the stack until hf_nlm_op_suspend() moves it to the heap. A procedure's run function
 * consumes it: each path through it ends with a reply or with a suspension, and neither leaves the operation
 * to its caller.
 *
 * Owner queue. An operation that will decide later what its owner holds in a file occupies the owner's queue
 * for that file: in ASKING, CHECKING (a LOCK), MEETING and AWAITING_GRANT, and in STORING if a lock is
 * downgraded when that is stored. Calls of the same owner about the same file queue behind it, in order. A
 * client need not wait for its replies, and one whose process is killed does not: without the queue its
 * UNLOCK would overtake the LOCK before it, and the lock would stay for ever. When the operation is over,
 * those behind it are resumed in order, until one of them occupies the queue: the rest stays QUEUED, behind
 * that one. In MEETING and AWAITING_GRANT nothing queues: the next call of the owner ends the wait.
 *
 * Lives. A client may be restarted while its LOCK is suspended, tell the server so, and lose what it held.
 * The LOCK is then refused with DENIED_GRACE_PERIOD, so that the client asks again: some hosts say an old
 * state number all their life, and are alive. A reclaim is dropped: its client sends it again, but would not
 * after a refusal. Each suspended operation has its own client, because two clients behind one address may
 * have the same svid. An operation that gives something up is served even then: the client does not send it
 * twice.
 */
#pragma once

#include "base/hashtable.h"
#include "base/list.h"
#include "client/client.h"
#include "export/export.h"
#include "lock/lock.h"
#include "loop/timer.h"
#include "proto/nlm/file_access.h"
#include "proto/nlm/wire.h"
#include "proto/nsm/nsm.h"
#include "recovery/recovery.h"
#include "rpc/call.h"
#include "rpc/replay.h"

struct hf_nlm;
struct hf_nlm_op;

enum hf_nlm_stage {
	HF_NLM_DECODED, /* not suspended so far */
	HF_NLM_QUEUED,
	HF_NLM_ASKING,
	HF_NLM_CHECKING,
	HF_NLM_MEETING,
	HF_NLM_AWAITING_GRANT,
	HF_NLM_STORING,
};

/* What a reply to a served operation depends on: what is done when it is durable, or undone when it cannot be
 * (durable_reply.c). */
enum hf_nlm_finish {
	HF_NLM_FINISH_NEW_LOCK, /* not durable: the lock is released again */
	HF_NLM_FINISH_REPEAT, /* not durable: the lock stays, since the owner had it, or a part of it, before;
				 a wait for the same is left */
	HF_NLM_FINISH_WAIT,   /* not durable: the wait is cancelled */
	HF_NLM_FINISH_DOWNGRADE,   /* durable: the lock becomes shared; not durable: as for REPEAT */
	HF_NLM_FINISH_DOWNGRADED,  /* the lock is shared now; the reply is the same */
	HF_NLM_FINISH_RESERVATION, /* not durable: the reservation is given back */
	HF_NLM_FINISH_RELEASE, /* the reply is the same; or, if the next run may go on from here and it is not
				durable, the client is to ask again */
	HF_NLM_FINISH_RESTART, /* not durable: there is no reply, and the client says it again */
};

enum hf_nlm_results {
	HF_NLM_RES,
	HF_NLM_SHARE_RES,
	HF_NLM_NO_RES,
};

/* What an operation is; one for each procedure. */
struct hf_nlm_kind {
	void (*decode)(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in);
	void (*run)(struct hf_nlm_op *op); /* consumes it */
	enum hf_nlm_results results;
	bool takes;        /* a lock or a reservation */
	bool gives_up;     /* the same, or a wait */
	bool is_msg;       /* the server sends the result as a call (msg.c) */
	bool is_unwatched; /* NM_LOCK: the client does not want to be watched */
};

/* In which of its client's lives an operation was begun. */
struct hf_nlm_life {
	struct hf_client *client; /* a reference; NULL: the operation takes nothing */
	uint64_t n_crashes;       /* when it was suspended */
	int32_t known_state;      /* the same */
	bool had_nothing;         /* the same */
	int32_t state;            /* as the call says; 0: it does not */
	bool says_another;        /* than the number of the life in which the client took what it had then */
};

struct hf_nlm_op {
	struct hf_nlm *nlm;
	struct hf_rpc_call *call;
	const struct hf_nlm_kind *kind;
	struct hf_replay_entry *repeat; /* a _MSG by UDP whose _RES is remembered for copies; or NULL */
	uint32_t version;
	enum hf_nlm_stage stage; /* the last one that suspended it */
	bool is_on_heap;
	bool is_impatient;      /* it does not wait for the answer to a grant any more */
	bool is_number_checked; /* the client's host was asked about its state number */
	bool has_met_host;      /* the host of its client has answered */
	bool lacks_place;       /* it waits for that because there is no place for an unconfirmed client */
	struct hf_nlm_args args;
	struct hf_client *client; /* a reference, or NULL */
	struct hf_lock_target target;
	struct hf_handle key; /* where the target's handle is not that of the arguments */
	struct hf_range range;
	enum hf_nlm_stat stat; /* STORING: the reply, if what it promises becomes durable */
	enum hf_nlm_finish finish;

	/* From here on only on the heap. */
	struct hf_link link;                /* in nlm->suspended */
	void (*next)(struct hf_nlm_op *op); /* goes on with it when it is resumed */
	struct hf_nlm_life life;
	struct hf_link queue_link; /* QUEUED: in the queue of an earlier operation */
	struct hf_hash_node owner; /* while it occupies its owner's queue: in nlm->owners */
	struct hf_list queue;      /* the operations behind it */
	bool is_queue_head;
	union {
		struct hf_nlm_asking asking;
		struct {
			struct hf_nsm_asker asker;
			struct hf_client *client; /* valid while the verdict is told */
			enum hf_nsm_verdict verdict;
			bool is_new_restart; /* what the client takes meanwhile is of its new life */
		} checking;
		struct hf_nsm_guest meeting;
		struct {
			struct hf_timer timer;
			struct hf_link
				answered; /* in nlm->answered, when the client has answered the grant */
		} awaiting;
		struct {
			struct hf_promise promise;
			bool is_durable;
		} storing;
	};
};

/* Suspend: makes the call stay, moves the operation to the heap, remembers the client's life, and occupies
 * the owner's queue where the stage does. @next goes on when it is resumed. The answer is where the operation
 * is now; NULL: no memory, the call is answered, and the operation is over. */
struct hf_nlm_op *hf_nlm_op_suspend(struct hf_nlm_op *op, enum hf_nlm_stage stage,
				    void (*next)(struct hf_nlm_op *op));
/* Is there memory for that? Asked before something is taken that could not be undone otherwise. */
bool hf_nlm_op_can_suspend(struct hf_nlm_op *op);
/* True: suspended behind an earlier operation of the same owner on the same file. */
#define hf_nlm_op_queue(op) (HF_UNLIKELY((op)->nlm->owners.n) && hf_nlm_op_queue_busy(op))
HF_COLD bool hf_nlm_op_queue_busy(struct hf_nlm_op *op);
/* The operation that occupies the queue of this owner in this file; NULL: none does. */
struct hf_nlm_op *hf_nlm_op_find(const struct hf_nlm *nlm, const struct hf_lock_target *owner);

/* Resume: goes on with it, and with those behind it; @op is gone afterwards, or suspended anew. */
void hf_nlm_op_resume(struct hf_nlm_op *op);

/* End: each consumes the operation. */
void hf_nlm_reply(struct hf_nlm_op *op, enum hf_nlm_stat stat);
void hf_nlm_reply_test(struct hf_nlm_op *op, enum hf_nlm_stat stat, const struct hf_nlm_holder *holder);
HF_COLD void hf_nlm_op_reply_garbage(struct hf_nlm_op *op); /* the arguments cannot be decoded */
/* @stat, counted as @result. It is not remembered: the same call may be served later. */
HF_COLD void hf_nlm_op_refuse(struct hf_nlm_op *op, enum hf_nlm_stat stat, const char *result);
void hf_nlm_op_drop(struct hf_nlm_op *op); /* without a reply: the client sends it again */
/* The client asks again: after DENIED_GRACE_PERIOD or, since a client that reclaims takes any refusal for
 * final, without a reply. */
HF_COLD void hf_nlm_op_put_off(struct hf_nlm_op *op);
void hf_nlm_op_spend(
	struct hf_nlm_op *op);            /* charges to its caller what the lock table has searched for it */
void hf_nlm_op_end(struct hf_nlm_op *op); /* after its call was ended otherwise */

/* Making and freeing */
void hf_nlm_ops_init(struct hf_nlm *nlm);
void hf_nlm_ops_deinit(struct hf_nlm *nlm);

/* Questions */

static inline void hf_nlm_use_client(struct hf_nlm_op *op, struct hf_client *client) /* takes the reference */
{
	op->client = client;
	op->target.client = &client->locking;
}

static inline enum hf_lock_mode hf_nlm_mode(const struct hf_nlm_op *op)
{
	return op->args.exclusive ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED;
}

static inline struct hf_lock_reservation_view hf_nlm_reservation_view(const struct hf_nlm_op *op)
{
	return (struct hf_lock_reservation_view){
		.export = op->target.export,
		.handle = op->target.handle,
		.client = op->target.client,
		.oh = op->target.oh,
		.access = (uint8_t)op->args.access,
		.deny = (uint8_t)op->args.deny,
	};
}
