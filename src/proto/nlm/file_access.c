/*
 * Which export and file a handle is, and may the caller lock it.
 *
 * The kernel is asked for the right, with the caller's identity, on a thread that may wait for a disk. The
 * operation is suspended meanwhile (ASKING). Where locks are taken in the kernel, too, the same thread opens
 * the file (export/local.h).
 *
 * A client that locks and unlocks the same file does not cause a question each time. A right is remembered
 * for a second, as long as the kernel tells of no change to the file (vfs/watch.h) and the list of exports is
 * the same. Both are looked at before the memory is used, after the call has been read from its socket: a
 * LOCK that was sent when the right was gone is refused. A right to a file that cannot be watched is not
 * remembered; a refusal is. The memory is a table in which each answer has one of four places.
 */
#include <stdlib.h>

#include "base/error.h"
#include "export/export.h"
#include "export/local.h"
#include "proto/nlm/internal.h"
#include "proto/nlm/op.h"
#include "vfs/disk_queue.h"
#include "vfs/watch.h"

#define N_SETS   1024 /* a power of two */
#define SET_SIZE 4    /* places where an answer may be */
#define RIGHT_NS (1 * HF_NS_PER_S)

/* Making and freeing */

int hf_nlm_files_init(struct hf_nlm *nlm, const struct hf_nlm_files *files)
{
	if (!files)
		return 0;
	nlm->files = *files;
	nlm->rights = calloc((size_t)N_SETS * SET_SIZE, sizeof(*nlm->rights));
	return nlm->rights ? hf_nlm_known_handles_init(&nlm->known_handles) : hf_trace(-ENOMEM);
}

void hf_nlm_files_deinit(struct hf_nlm *nlm)
{
	hf_nlm_known_handles_deinit(&nlm->known_handles);
	free(nlm->rights);
	nlm->rights = NULL;
}

/* Which export and file */

/* False: this server did not make the handle. An export without a number is not remembered: it may get one.
 */
static bool learn_key(struct hf_nlm *nlm, struct hf_bytes handle, uint64_t n_exports, uint32_t *exportp,
		      struct hf_bytes *keyp, struct hf_handle *room)
{
	uint64_t export_id, home;
	struct hf_bytes other = { 0 };

	if (!hf_exports_read_handle(nlm->files.exports, handle, &export_id))
		return false;
	*exportp = nlm->files.export_number_of(nlm->files.user, export_id, &home);
	if (home != export_id && hf_exports_rehandle(nlm->files.exports, handle, home, room))
		*keyp = other = hf_bytes_of(room->bytes, room->len);
	if (*exportp)
		hf_nlm_know_handle(&nlm->known_handles, handle, n_exports, *exportp, other);
	return true;
}

bool hf_nlm_find_key(struct hf_nlm *nlm, struct hf_bytes handle, uint32_t *exportp, struct hf_bytes *keyp,
		     struct hf_handle *room)
{
	const struct hf_nlm_known_handle *known;
	uint64_t n_exports;

	*exportp = 0;
	*keyp = handle;
	if (!nlm->files.exports)
		return true;
	n_exports = hf_exports_count_changes(nlm->files.exports);
	known = hf_nlm_find_known_handle(&nlm->known_handles, handle, n_exports);
	if (HF_UNLIKELY(!known))
		return learn_key(nlm, handle, n_exports, exportp, keyp, room);
	*exportp = known->export;
	if (known->key_len) {
		memcpy(room->bytes, known->key, known->key_len);
		room->len = known->key_len;
		*keyp = hf_bytes_of(room->bytes, room->len);
	}
	return true;
}

struct hf_bytes hf_nlm_find_handle(const struct hf_nlm *nlm, uint32_t export, struct hf_bytes key,
				   struct hf_handle *room)
{
	if (!nlm->files.exports ||
	    !hf_exports_rehandle(nlm->files.exports, key, nlm->files.export_id_of(nlm->files.user, export),
				 room))
		return key;
	return hf_bytes_of(room->bytes, room->len);
}

enum hf_nlm_stat hf_nlm_find_file(struct hf_nlm_op *op)
{
	const struct hf_nlm_args *args = &op->args;
	struct hf_bytes key;
	uint32_t export;
	bool is_ours = hf_nlm_find_key(op->nlm, args->handle, &export, &key, &op->key);

	op->target = (struct hf_lock_target){
		.export = export,
		.handle = key,
		.owner_id = (uint32_t)args->svid,
		.oh = args->oh,
	};
	if (hf_nlm_range_of(&op->range, op->version, args))
		return HF_NLM_FBIG;
	if (is_ours)
		return HF_NLM_GRANTED_STAT;
	hf_rpc_call_uncache(op->call); /* nothing was done: any host could fill the cache so */
	return HF_NLM_STALE_FH;
}

/* Asking */

static void make_question(struct hf_nlm_question *question, const struct hf_rpc_call *call,
			  struct hf_bytes handle, bool for_writing)
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

/* The same as one number. Only what the call has is hashed: most callers are in few groups. */
static uint64_t hash_question(const struct hf_nlm *nlm, const struct hf_rpc_call *call,
			      struct hf_bytes handle, bool for_writing)
{
	const struct hf_rpc_cred *cred = hf_rpc_call_cred(call);
	const struct hf_addr *peer = hf_rpc_call_peer(call);
	struct {
		struct hf_addr peer;
		uint32_t flavor, uid, gid;
		uint16_t for_writing, n_gids;
		uint8_t rest[sizeof(cred->gids) + HF_NLM_MAX_HANDLE]; /* groups, then the handle */
	} question;
	size_t len = cred->n_gids * sizeof(cred->gids[0]);

	question.peer = *peer;
	question.peer.port = hf_addr_has_reserved_port(peer) ? 1 : HF_ADDR_RESERVED_PORTS;
	question.flavor = cred->flavor;
	question.uid = cred->uid;
	question.gid = cred->gid;
	question.for_writing = for_writing;
	question.n_gids = (uint16_t)cred->n_gids;
	memcpy(question.rest, cred->gids, len);
	memcpy(question.rest + len, handle.data, handle.len);
	len += handle.len;
	return hf_siphash(&nlm->key, &question, offsetof(typeof(question), rest) + len) | 1;
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
	case HF_CHECK_UNKNOWN:
		return HF_NLM_DENIED_GRACE_PERIOD; /* the client asks again */
	default:
		return HF_NLM_FAILED; /* no right, not a file, or trouble; not DENIED, which would pass */
	}
}

/* On a thread that may wait. */
static void run_question(struct hf_question *asked)
{
	struct hf_nlm_asking *asking = hf_container_of(asked, struct hf_nlm_asking, asked);
	const struct hf_nlm_files *files = &hf_container_of(asking, struct hf_nlm_op, asking)->nlm->files;
	struct hf_nlm_question *question = &asking->question;
	struct hf_bytes handle = hf_bytes_of(question->handle, question->handle_len);
	hf_cleanup(hf_export_unrefp) struct hf_export *export = NULL;
	hf_cleanup(hf_file_unrefp) struct hf_file *file = NULL;
	int r;

	if (asking->right.key) {
		if (files->watch) /* before the check: what changes after it is seen */
			asking->right.watch = hf_exports_watch(files->exports, handle, files->watch);
		r = hf_export_check_handle(files->exports, handle, &question->peer,
					   question->flavor == HF_RPC_AUTH_SYS ? &question->identity : NULL,
					   question->for_writing, NULL, &file);
		asking->right.stat = stat_from_check(r);
	} else {
		r = hf_exports_resolve(files->exports, handle, false, &export, &file);
	}
	asking->opened = (struct hf_local_opened){ .error = r < 0 ? r : -ESTALE };
	if (asking->opens && file)
		asking->opened = hf_local_open(file);
}

/* Remembering */

static struct hf_nlm_right *set_of(const struct hf_nlm *nlm, uint64_t key)
{
	return &nlm->rights[key % N_SETS * SET_SIZE];
}

/* NULL: no answer to this question is remembered. */
static const struct hf_nlm_right *find_right(const struct hf_nlm *nlm, uint64_t key)
{
	const struct hf_nlm_right *set = set_of(nlm, key);

	for (size_t i = 0; i < SET_SIZE; i++)
		if (set[i].key == key)
			return &set[i];
	return NULL;
}

/* In the place of the last answer, or of the oldest one. */
static void remember(struct hf_nlm *nlm, const struct hf_nlm_right *right)
{
	struct hf_nlm_right *set = set_of(nlm, right->key), *place = set;

	for (size_t i = 0; i < SET_SIZE; i++) {
		if (set[i].key == right->key) {
			place = &set[i];
			break;
		}
		if (set[i].until < place->until)
			place = &set[i];
	}
	*place = *right;
}

/* The operation has its answer, whether that is remembered for others or not. */
static void on_answer(struct hf_question *asked)
{
	struct hf_nlm_asking *asking = hf_container_of(asked, struct hf_nlm_asking, asked);
	struct hf_nlm_op *op = hf_container_of(asking, struct hf_nlm_op, asking);
	struct hf_nlm *nlm = op->nlm;

	if (asking->right.key && asking->right.stat != HF_NLM_DENIED_GRACE_PERIOD) {
		asking->right.until = hf_loop_now(nlm->options.loop) + RIGHT_NS;
		remember(nlm, &asking->right);
	}
	/* A client that reclaims takes this status for a final no, and the lock would be lost. It sends a
	 * call again that is not answered. */
	if (asking->right.stat == HF_NLM_DENIED_GRACE_PERIOD && op->args.reclaim)
		op->next = hf_nlm_op_drop;
	if (asking->opens && hf_local_adopt(nlm->files.local, op->target.handle, asking->opened) < 0)
		asking->right.stat = HF_NLM_DENIED_NOLOCKS;
	hf_nlm_op_resume(op);
}

/* All exports of a file system have the same number. */
static uint64_t disk_of(const struct hf_nlm_op *op)
{
	const struct hf_nlm_files *files = &op->nlm->files;
	uint64_t home;

	files->export_number_of(files->user, files->export_id_of(files->user, op->target.export), &home);
	return home;
}

/* @right: what is known of the answer so far; a key of 0 asks only for the file to be opened. */
static HF_NOINLINE enum hf_nlm_stat ask(struct hf_nlm_op *op, const struct hf_nlm_question *question,
					struct hf_nlm_right right, bool opens)
{
	struct hf_addr payer = hf_rpc_call_payer(op->call);

	if (!hf_nlm_op_can_suspend(op))
		return HF_NLM_DENIED_NOLOCKS;
	op = hf_nlm_op_suspend(op, HF_NLM_ASKING, op->kind->run);
	if (!op)
		return HF_NLM_LATER;
	op->asking = (struct hf_nlm_asking){
		.question = *question,
		.right = right,
		.opens = opens,
	};
	if (hf_disk_queue_ask(op->nlm->files.disk_queue, disk_of(op), &op->asking.asked, &payer, run_question,
			      on_answer) < 0) {
		op->asking.right.stat = HF_NLM_DENIED_NOLOCKS;
		hf_nlm_op_resume(op);
	}
	return HF_NLM_LATER;
}

static bool needs_opening(const struct hf_nlm_op *op)
{
	return op->nlm->files.local &&
	       hf_local_needs(op->nlm->files.local, op->target.export, op->target.handle);
}

/* Once for all calls that a turn of the loop read from one connection, and once for each datagram. */
static void hear_changes(struct hf_nlm *nlm, const struct hf_rpc_call *call)
{
	const struct hf_addr *peer = hf_rpc_call_peer(call); /* all calls of a connection share it */
	uint64_t now = hf_loop_now(nlm->options.loop);

	if (HF_LIKELY(nlm->heard_at == now && nlm->heard_for == peer &&
		      hf_rpc_call_transport(call) == HF_RPC_TCP))
		return;
	nlm->heard_at = now;
	nlm->heard_for = peer;
	hf_watch_read(nlm->files.watch);
}

static bool is_of_present_exports(const struct hf_nlm *nlm, const struct hf_nlm_right *right)
{
	return right->n_exports == hf_exports_count_changes(nlm->files.exports);
}

static bool is_true(struct hf_nlm *nlm, const struct hf_nlm_right *right, const struct hf_rpc_call *call)
{
	if (right->until <= hf_loop_now(nlm->options.loop) || !is_of_present_exports(nlm, right))
		return false;
	if (!right->watch)
		return right->stat != HF_NLM_GRANTED_STAT;
	hear_changes(nlm, call);
	return hf_watch_is_unchanged(nlm->files.watch, right->watch, right->since);
}

static enum hf_nlm_stat check_right(struct hf_nlm_op *op, bool for_writing)
{
	struct hf_nlm *nlm = op->nlm;
	struct hf_nlm_question question;
	struct hf_nlm_right right = { 0 };
	const struct hf_nlm_right *known;
	bool opens;

	/* A reload while the disk was asked may have removed the client: the operation asks again. */
	if (op->stage == HF_NLM_ASKING && is_of_present_exports(nlm, &op->asking.right))
		return op->asking.right.stat;
	right.key = hash_question(nlm, op->call, op->args.handle, for_writing);
	opens = needs_opening(op);
	known = find_right(nlm, right.key);
	if (known && is_true(nlm, known, op->call) && (!opens || known->stat != HF_NLM_GRANTED_STAT))
		return known->stat;
	make_question(&question, op->call, op->args.handle, for_writing);
	right.n_exports = hf_exports_count_changes(nlm->files.exports);
	right.since = nlm->files.watch ? hf_watch_count(nlm->files.watch) : 0;
	return ask(op, &question, right, opens);
}

enum hf_nlm_stat hf_nlm_check_file(struct hf_nlm_op *op, bool for_writing)
{
	enum hf_nlm_stat stat = hf_nlm_find_file(op);

	if (stat != HF_NLM_GRANTED_STAT)
		return stat;
	if (hf_nlm_bars_way(op, false) || hf_nlm_op_queue(op))
		return HF_NLM_LATER;
	return op->nlm->files.exports ? check_right(op, for_writing) : HF_NLM_GRANTED_STAT;
}

enum hf_nlm_stat hf_nlm_admit(const struct hf_nlm_op *op)
{
	const struct hf_nlm_files *files = &op->nlm->files;

	if (!files->exports)
		return HF_NLM_GRANTED_STAT;
	switch (hf_exports_admit(files->exports, files->export_id_of(files->user, op->target.export),
				 hf_rpc_call_peer(op->call))) {
	case HF_ADMITTED:
		return HF_NLM_GRANTED_STAT;
	case HF_REFUSED_EXPORT:
		return HF_NLM_STALE_FH;
	case HF_REFUSED_UNKNOWN:
		return HF_NLM_DENIED_GRACE_PERIOD; /* the client asks again */
	default:
		hf_rpc_call_uncache(op->call); /* no client of this export; nothing was done */
		return HF_NLM_FAILED;
	}
}

bool hf_nlm_bars_port(const struct hf_nlm_op *op)
{
	const struct hf_nlm_files *files = &op->nlm->files;

	return !hf_addr_has_reserved_port(hf_rpc_call_peer(op->call)) && files->exports &&
	       files->is_secure(files->user, op->target.export) && hf_nlm_admit(op) != HF_NLM_GRANTED_STAT;
}

enum hf_nlm_stat hf_nlm_open_file(struct hf_nlm_op *op)
{
	struct hf_nlm_question question;

	if (hf_nlm_op_queue(op))
		return HF_NLM_LATER;
	if (op->stage == HF_NLM_ASKING)
		return op->asking.right.stat;
	if (!needs_opening(op))
		return HF_NLM_GRANTED_STAT;
	make_question(&question, op->call, op->args.handle, false);
	return ask(op, &question, (struct hf_nlm_right){ 0 }, true);
}

/* The list of exports has changed */

static bool may_wait(void *context, const struct hf_lock_view *waiter)
{
	const struct hf_nlm *nlm = context;
	const struct hf_client *client = hf_container_of(waiter->who.client, struct hf_client, locking);
	const struct hf_nlm_files *files = &nlm->files;
	struct hf_addr peer = client->address;
	int answer;

	peer.port = client->is_privileged ? 1 : HF_ADDR_RESERVED_PORTS;
	answer =
		hf_exports_admit(files->exports, files->export_id_of(files->user, waiter->who.export), &peer);
	/* A grant of the run before, which is about to be made again, stays: its client may know of it. */
	return answer == HF_ADMITTED || answer == HF_REFUSED_UNKNOWN ||
	       hf_nlm_route_unpack(waiter->user).was_told;
}

/* A client that has nothing left in the lock table is noted as idle, or forgotten, with the end of a
 * reference. */
static void note_idle_clients(struct hf_nlm *nlm)
{
	struct hf_client *client;
	uint64_t serial = 0;

	while ((client = hf_clients_next(nlm->clients, serial))) {
		serial = client->serial;
		hf_client_unref(client);
	}
}

void hf_nlm_exports_changed(struct hf_nlm *nlm)
{
	size_t n;

	hf_nlm_look_at_demands(nlm);
	if (!nlm->files.exports)
		return;
	n = hf_lock_sift_waiters(nlm->locks, may_wait, nlm);
	if (!n)
		return;
	note_idle_clients(nlm);
	hf_log_info("the exports changed: waiters whose clients may not lock any more left the queue",
		    "waiters=%zu", n);
}
