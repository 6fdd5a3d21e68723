/*
 * What a lock is about: the export and the file behind a handle, and whether
 * the caller has a right to it.
 *
 * The right is asked of the kernel, with the caller's identity, on a thread that
 * may wait for a disk, though not for that of another file; the call is kept and
 * its handler called again with the answer. Where locks are taken in the kernel, too,
 * the file is opened on that same way (export/local.h).
 *
 * A client that locks and unlocks the same file is not asked about each time: a right
 * is remembered for a second, as long as the kernel tells of no change to the file
 * (vfs/watch.h) and the exports are what they were. Each is looked at before the memory
 * is used, after the call has been read from its socket. So a LOCK that was sent when
 * the right was gone is refused. A right to a file that cannot be watched is not
 * remembered; a refusal is. A direct-mapped table is enough for all of them.
 *
 * Meanwhile other calls are served, but not those of the same owner about the same
 * file (turn.c).
 */
#include <stdlib.h>

#include "base/error.h"
#include "export/export.h"
#include "export/local.h"
#include "proto/nlm/internal.h"
#include "vfs/fair.h"
#include "vfs/watch.h"

#define N_VERDICTS 4096 /* a power of two */
#define VERDICT_NS (1 * HF_NS_PER_S)

struct hf_nlm_verdict {
	uint64_t key; /* 0: none */
	uint64_t until;
	uint64_t n_exports; /* hf_exports_count_changes() before it was asked */
	uint64_t since;     /* hf_watch_count(), the same */
	int watch;          /* 0: the file is not watched */
	enum hf_nlm_stat stat;
};

/* What decides, as one block without gaps, to be hashed. */
struct question {
	struct hf_addr peer; /* its port counts as reserved or not */
	uint32_t flavor;
	uint32_t for_writing;
	struct hf_identity identity;
	uint32_t handle_len;
	uint8_t handle[HF_NLM_MAX_HANDLE];
};

/* A question that is being asked. */
struct hf_nlm_inquiry {
	struct hf_question asked;
	struct hf_nlm_turn turn;
	struct hf_nlm *nlm;
	struct hf_rpc_call *call;
	hf_rpc_handler_fn again;
	struct question question;
	struct hf_nlm_verdict verdict;
	bool asks;  /* for the right to the file */
	bool opens; /* it, for the kernel's locks */
	struct hf_local_opened opened;
};

/* Life */

int hf_nlm_files_init(struct hf_nlm *nlm, const struct hf_nlm_files *files)
{
	if (!files)
		return 0;
	nlm->files = *files;
	nlm->verdicts = calloc(N_VERDICTS, sizeof(*nlm->verdicts));
	return nlm->verdicts ? 0 : hf_trace(-ENOMEM);
}

void hf_nlm_files_deinit(struct hf_nlm *nlm)
{
	free(nlm->verdicts);
	nlm->verdicts = NULL;
}

bool hf_nlm_files_find(const struct hf_nlm *nlm, struct hf_bytes handle, uint32_t *sharep,
		       struct hf_bytes *keyp, struct hf_handle *room)
{
	uint64_t export_id, home;

	*sharep = 0;
	*keyp = handle;
	if (!nlm->files.exports)
		return true;
	if (!hf_exports_read_handle(nlm->files.exports, handle, &export_id))
		return false;
	*sharep = nlm->files.share_of(nlm->files.user, export_id, &home);
	if (home != export_id && hf_exports_rehandle(nlm->files.exports, handle, home, room))
		*keyp = hf_bytes_of(room->bytes, room->len);
	return true;
}

struct hf_bytes hf_nlm_files_handle(const struct hf_nlm *nlm, uint32_t share, struct hf_bytes key,
				    struct hf_handle *room)
{
	if (!nlm->files.exports ||
	    !hf_exports_rehandle(nlm->files.exports, key, nlm->files.export_of(nlm->files.user, share), room))
		return key;
	return hf_bytes_of(room->bytes, room->len);
}

/* Asking */

static void make_question(struct question *question, const struct hf_rpc_call *call, struct hf_bytes handle,
			  bool for_writing)
{
	const struct hf_rpc_cred *cred = hf_rpc_call_cred(call);

	memset(question, 0, sizeof(*question));
	question->peer = *hf_rpc_call_peer(call);
	question->peer.port = hf_addr_has_reserved_port(&question->peer) ? 1 : HF_ADDR_RESERVED_PORTS;
	question->flavor = cred->flavor;
	question->for_writing = for_writing;
	question->identity.uid = cred->uid;
	question->identity.gid = cred->gid;
	question->identity.n_gids = cred->n_gids;
	memcpy(question->identity.gids, cred->gids, cred->n_gids * sizeof(cred->gids[0]));
	question->handle_len = handle.len;
	memcpy(question->handle, handle.data, handle.len);
}

static enum hf_nlm_stat stat_from_check(int answer)
{
	switch (answer) {
	case HF_CHECK_OK:
		return HF_NLM_GRANTED_STAT;
	case HF_CHECK_STALE:
		return HF_NLM_STALE_FH;
	case HF_CHECK_READ_ONLY:
		return HF_NLM_ROFS;
	default:
		return HF_NLM_FAILED; /* no right, nothing that can be locked, or trouble: not a conflict,
					 which would pass */
	}
}

/* On a thread that may wait. */
static void run_inquiry(struct hf_question *asked)
{
	struct hf_nlm_inquiry *inquiry = hf_container_of(asked, struct hf_nlm_inquiry, asked);
	struct question *question = &inquiry->question;

	struct hf_exports *exports = inquiry->nlm->files.exports;
	struct hf_bytes handle = hf_bytes_of(question->handle, question->handle_len);
	hf_cleanup(hf_export_unrefp) struct hf_export *export = NULL;
	hf_cleanup(hf_file_unrefp) struct hf_file *file = NULL;
	int r;

	if (inquiry->asks) {
		if (inquiry->nlm->files.watch) /* before the look that it is to keep true */
			inquiry->verdict.watch = hf_exports_watch(exports, handle, inquiry->nlm->files.watch);
		r = hf_export_check_handle(exports, handle, &question->peer,
					   question->flavor == HF_RPC_AUTH_SYS ? &question->identity : NULL,
					   question->for_writing, NULL, &file);
		inquiry->verdict.stat = stat_from_check(r);
	} else {
		r = hf_exports_resolve(exports, handle, false, &export, &file);
	}
	inquiry->opened = (struct hf_local_opened){ .error = r < 0 ? r : -ESTALE };
	if (inquiry->opens && file)
		inquiry->opened = hf_local_open(file);
}

static void inquiry_free(struct hf_nlm_inquiry *inquiry)
{
	hf_nlm_turn_pass(inquiry->nlm, &inquiry->turn);
	free(inquiry);
}

/* The call itself has its answer, whether that is remembered or not. */
static void serve(struct hf_nlm_inquiry *inquiry, hf_rpc_handler_fn handler)
{
	struct hf_nlm *nlm = inquiry->nlm;
	struct hf_nlm_inquiry *outer = nlm->answered;

	hf_nlm_turn_leave(nlm, &inquiry->turn);
	nlm->answered = inquiry;
	hf_nlm_turn_serve(nlm, &inquiry->turn, inquiry->call, handler);
	nlm->answered = outer;
	inquiry_free(inquiry);
}

static void end_inquiry(struct hf_question *asked)
{
	struct hf_nlm_inquiry *inquiry = hf_container_of(asked, struct hf_nlm_inquiry, asked);
	struct hf_nlm *nlm = inquiry->nlm;

	int r = 0;

	if (inquiry->asks) {
		inquiry->verdict.until = hf_loop_now(nlm->options.loop) + VERDICT_NS;
		nlm->verdicts[inquiry->verdict.key % N_VERDICTS] = inquiry->verdict;
	}
	if (inquiry->opens)
		r = hf_local_adopt(nlm->files.local, hf_nlm_turn_handle(&inquiry->turn), inquiry->opened);
	serve(inquiry, r < 0 ? hf_nlm_refuse_kept : inquiry->again);
}

/* One number for all exports of a file system. */
static uint64_t disk_of(const struct hf_nlm_op *op)
{
	const struct hf_nlm_files *files = &op->nlm->files;
	uint64_t home;

	files->share_of(files->user, files->export_of(files->user, op->target.share), &home);
	return home;
}

static enum hf_nlm_stat inquire(struct hf_nlm_op *op, const struct hf_nlm_inquiry *what)
{
	struct hf_nlm_inquiry *inquiry = malloc(sizeof(*inquiry));
	struct hf_addr payer = hf_rpc_call_payer(op->call);
	struct hf_nlm *nlm = op->nlm;

	if (!inquiry)
		return HF_NLM_DENIED_NOLOCKS;
	*inquiry = *what;
	inquiry->nlm = nlm;
	inquiry->call = op->call;
	hf_nlm_turn_take(&inquiry->turn, op);
	if (hf_nlm_call_keep(nlm, op->call) < 0) {
		hf_nlm_turn_leave(nlm, &inquiry->turn);
		inquiry_free(inquiry);
		return HF_NLM_LATER; /* the call has been answered: SYSTEM_ERR */
	}
	if (hf_fair_ask(nlm->files.fair, disk_of(op), &inquiry->asked, &payer, run_inquiry, end_inquiry) < 0)
		serve(inquiry, hf_nlm_refuse_kept);
	return HF_NLM_LATER;
}

static bool needs_opening(const struct hf_nlm_op *op)
{
	return op->nlm->files.local &&
	       hf_local_needs(op->nlm->files.local, op->target.share, op->target.handle);
}

/* Once for all calls that were read from a connection in a turn, and for each datagram. */
static void hear_changes(struct hf_nlm *nlm, const struct hf_rpc_call *call)
{
	const struct hf_addr *peer =
		hf_rpc_call_peer(call); /* of a connection it is the same for all calls */
	uint64_t now = hf_loop_now(nlm->options.loop);

	if (HF_LIKELY(nlm->heard_at == now && nlm->heard_for == peer &&
		      hf_rpc_call_transport(call) == HF_RPC_TCP))
		return;
	nlm->heard_at = now;
	nlm->heard_for = peer;
	hf_watch_read(nlm->files.watch);
}

static bool is_true(struct hf_nlm *nlm, const struct hf_nlm_verdict *verdict, uint64_t key,
		    const struct hf_rpc_call *call)
{
	if (verdict->key != key || verdict->until <= hf_loop_now(nlm->options.loop) ||
	    verdict->n_exports != hf_exports_count_changes(nlm->files.exports))
		return false;
	if (!verdict->watch)
		return verdict->stat != HF_NLM_GRANTED_STAT;
	hear_changes(nlm, call);
	return hf_watch_is_unchanged(nlm->files.watch, verdict->watch, verdict->since);
}

static enum hf_nlm_stat judge(struct hf_nlm_op *op, bool for_writing, hf_rpc_handler_fn again)
{
	struct hf_nlm *nlm = op->nlm;
	struct hf_nlm_inquiry what = { .again = again, .asks = true };
	const struct hf_nlm_verdict *verdict;
	uint64_t key;

	make_question(&what.question, op->call, op->args.handle, for_writing);
	key = hf_siphash(&nlm->key, &what.question, sizeof(what.question)) | 1;
	if (nlm->answered && nlm->answered->call == op->call && nlm->answered->verdict.key == key)
		return nlm->answered->verdict.stat;
	what.opens = needs_opening(op);
	verdict = &nlm->verdicts[key % N_VERDICTS];
	if (is_true(nlm, verdict, key, op->call) && (!what.opens || verdict->stat != HF_NLM_GRANTED_STAT))
		return verdict->stat;
	what.verdict.key = key;
	what.verdict.n_exports = hf_exports_count_changes(nlm->files.exports);
	what.verdict.since = nlm->files.watch ? hf_watch_count(nlm->files.watch) : 0;
	return inquire(op, &what);
}

enum hf_nlm_stat hf_nlm_files_check(struct hf_nlm_op *op, bool for_writing, hf_rpc_handler_fn again)
{
	if (hf_nlm_turn_follow(op, again))
		return HF_NLM_LATER;
	return op->nlm->files.exports ? judge(op, for_writing, again) : HF_NLM_GRANTED_STAT;
}

enum hf_nlm_stat hf_nlm_files_admit(const struct hf_nlm_op *op)
{
	const struct hf_nlm_files *files = &op->nlm->files;

	if (!files->exports)
		return HF_NLM_GRANTED_STAT;
	switch (hf_exports_admit(files->exports, files->export_of(files->user, op->target.share),
				 hf_rpc_call_peer(op->call))) {
	case HF_ADMITTED:
		return HF_NLM_GRANTED_STAT;
	case HF_REFUSED_EXPORT:
		return HF_NLM_STALE_FH;
	default:
		return HF_NLM_FAILED;
	}
}

bool hf_nlm_files_bar_port(const struct hf_nlm_op *op)
{
	const struct hf_nlm_files *files = &op->nlm->files;

	return !hf_addr_has_reserved_port(hf_rpc_call_peer(op->call)) && files->exports &&
	       files->is_secure(files->user, op->target.share);
}

enum hf_nlm_stat hf_nlm_files_open(struct hf_nlm_op *op, hf_rpc_handler_fn again)
{
	struct hf_nlm_inquiry what = { .again = again, .opens = true };

	if (hf_nlm_turn_follow(op, again))
		return HF_NLM_LATER;
	if (!needs_opening(op))
		return HF_NLM_GRANTED_STAT;
	make_question(&what.question, op->call, op->args.handle, false);
	return inquire(op, &what);
}

/* Another list of exports */

static bool may_wait(const struct hf_nlm *nlm, const struct hf_lock_view *waiter)
{
	const struct hf_client *client = hf_container_of(waiter->who.client, struct hf_client, holds);
	const struct hf_nlm_files *files = &nlm->files;
	struct hf_addr peer = client->address;

	peer.port = client->is_privileged ? 1 : HF_ADDR_RESERVED_PORTS;
	return hf_exports_admit(files->exports, files->export_of(files->user, waiter->who.share), &peer) ==
	       HF_ADMITTED;
}

static void leave_queue(struct hf_nlm *nlm, struct hf_lock_view waiter)
{
	struct hf_client *client = hf_client_ref(hf_container_of(waiter.who.client, struct hf_client, holds));
	uint8_t handle[HF_LOCK_HANDLE_MAX];

	memcpy(handle, waiter.who.handle.data, waiter.who.handle.len); /* the table's own may go */
	waiter.who.handle.data = handle;
	hf_lock_leave_queue(nlm->locks, &waiter.who, waiter.range, waiter.mode);
	hf_client_unref(client);
}

void hf_nlm_exports_changed(struct hf_nlm *nlm)
{
	const struct hf_lock_scope all = { 0 };
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view waiter;
	size_t n = 0;

	if (!nlm->files.exports)
		return;
	while (hf_lock_next_waiter(nlm->locks, &all, &cursor, &waiter)) {
		if (may_wait(nlm, &waiter))
			continue;
		leave_queue(nlm, waiter);
		n++;
	}
	if (n)
		hf_log_info(
			"requests that waited have left the queue: their clients may not lock there any more",
			"waiters=%zu", n);
}
