/*
 * How does a restart restore a million locks quickly?
 *
 * A store returns the locks of a file one after another, mostly in order. So a load
 * remembers the file, the holdings that it has met in it, and how far its locks
 * reach. A lock that begins behind that conflicts with no other, and the load does
 * not search for one. Nor does it insert the lock into the file's set at once: it
 * collects such locks aside and builds the set in one go when the file is complete,
 * or when a search needs it. Memory is reserved for many locks at a time.
 *
 * None of this is assumed: locks are restored in any order, and a lock that
 * conflicts with another is refused.
 */
#include "lock/internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

enum {
	N_MEMOS = 128,
	RESERVE_MAX = 1024,
};

/* A holding that the load has met in its file. */
struct memo {
	const struct hf_lock_file *file;
	const struct hf_lock_client *client;
	uint64_t owner_id;
	uint8_t owner_kind;
	struct hf_holding *holding;
};

struct hf_lock_load {
	struct hf_locks *locks;
	struct hf_lock_file *file; /* of the last lock */
	uint64_t reach;            /* no lock of the file ends behind this */
	size_t n_restored;
	size_t n_reserved; /* memory is reserved for so many locks */
	/* Locks in order that are not in the file's sets yet. Their memory there is still reserved. */
	struct hf_lock *aside[2][RESERVE_MAX];
	size_t n_aside[2];
	struct memo memos[N_MEMOS];
};

/* ASIDE */

static void flush_mode(struct hf_lock_load *load, unsigned int mode)
{
	struct hf_tree *tree = &load->file->trees[mode];

	if (!tree->n)
		hf_tree_build(&load->locks->trees, tree, load->aside[mode], load->n_aside[mode]);
	else
		for (size_t i = 0; i < load->n_aside[mode]; i++)
			hf_tree_insert(&load->locks->trees, tree, NULL, load->aside[mode][i]);
	load->n_aside[mode] = 0;
}

static void flush_aside(struct hf_lock_load *load)
{
	for (unsigned int i = 0; i < HF_ARRAY_SIZE(load->aside); i++)
		if (load->n_aside[i])
			flush_mode(load, i);
}

/* MEMO */

static bool is_same_file(const struct hf_lock_load *load, struct hf_bytes handle)
{
	return load->file && hf_bytes_equal(hf_bytes_of(load->file->handle, load->file->handle_len), handle);
}

static struct memo *memo_of(struct hf_lock_load *load, const struct hf_lock_target *who)
{
	uint64_t hash = (who->client->id * 31 + who->owner_id) * UINT64_C(0x9e3779b97f4a7c15);

	return &load->memos[hash >> 32 & (N_MEMOS - 1)];
}

/* NULL: the load has not met this holding, or its memo was overwritten. */
static struct hf_holding *find_memo(struct hf_lock_load *load, const struct hf_lock_target *who)
{
	const struct memo *memo = memo_of(load, who);

	if (memo->file != load->file || memo->client != who->client || memo->owner_id != who->owner_id ||
	    memo->owner_kind != who->owner_kind || !is_same_file(load, who->handle))
		return NULL;
	return memo->holding;
}

static void note_memo(struct hf_lock_load *load, const struct hf_lock_target *who,
		      const struct hf_found *found)
{
	load->file = found->file;
	*memo_of(load, who) = (struct memo){
		.file = found->file,
		.client = who->client,
		.owner_id = who->owner_id,
		.owner_kind = who->owner_kind,
		.holding = found->holding,
	};
}

static void enter_file(struct hf_lock_load *load, struct hf_lock_file *file)
{
	if (file == load->file)
		return;
	flush_aside(load);
	load->file = file;
	/* The file had locks or waiters before the load: how far they reach is not known. */
	load->reach = file && (file->trees[0].n || file->trees[1].n || file->n_waiters) ? HF_RANGE_EOF : 0;
}

/* LOCK */

static bool is_in_the_way(struct hf_locks *locks, const struct hf_found *found, struct hf_range range,
			  enum hf_lock_mode mode)
{
	struct hf_spot own;

	/* Waiters too: a restored lock must not make a waiter wait for another owner. */
	if (hf_lock_file_conflict(found->file, found->holding, range, mode) ||
	    hf_waiters_conflict(locks, found->file, found->holding, range, mode, UINT64_MAX))
		return true;
	if (!found->holding)
		return false;
	own = hf_holding_from(found->holding, range.start);
	return hf_spot_lock(&own) && hf_spot_range(&own).start <= range.end;
}

static int reserve(struct hf_lock_load *load)
{
	size_t n = HF_MIN(load->n_restored + 1, (size_t)RESERVE_MAX);
	int r;

	if (load->n_reserved)
		return 0;
	flush_aside(load);
	r = hf_holding_reserve(load->locks, n);
	if (r == 0)
		load->n_reserved = n;
	return r;
}

/* A lock behind all others of its file goes to the end of a set, which can be done later. */
static struct hf_lock *put(struct hf_lock_load *load, struct hf_holding *holding, struct hf_range range,
			   const struct hf_lock_attrs *attrs, bool is_behind)
{
	unsigned int mode = hf_mode_index((enum hf_lock_mode)attrs->mode);
	struct hf_lock *lock;

	if (!is_behind)
		return hf_holding_put(load->locks, holding, range, attrs, &(struct hf_hint){ 0 });
	lock = hf_holding_put_aside(load->locks, holding, range, attrs, NULL);
	load->aside[mode][load->n_aside[mode]++] = lock;
	return lock;
}

int hf_lock_load_add(struct hf_lock_load *load, const struct hf_lock_view *lock)
{
	const struct hf_lock_attrs attrs = {
		.mode = (uint8_t)lock->mode,
		.state = lock->client_state,
		.epoch = lock->epoch,
		.flags = HF_LOCK_UNRECLAIMED,
	};
	struct hf_holding *known = find_memo(load, &lock->who);
	struct hf_found found = { .file = load->file, .holding = known };
	bool is_behind;
	int r;

	assert(!load->locks->in_event && hf_range_is_valid(lock->range));
	if (lock->flags & HF_LOCK_VOLATILE)
		return HF_LOCK_OK;
	if (!known) {
		hf_target_find(load->locks, &lock->who, &found);
		enter_file(load, found.file);
	}
	is_behind = !found.file || lock->range.start > load->reach;
	if (!is_behind) {
		flush_aside(load);
		if (is_in_the_way(load->locks, &found, lock->range, lock->mode))
			return HF_LOCK_E_CONFLICT;
	}
	r = reserve(load);
	if (r == 0)
		r = known ? hf_oh_reserve(load->locks, lock->who.oh)
			  : hf_target_reserve(load->locks, &lock->who, &found);
	if (r < 0)
		return hf_trace(r);
	if (known) {
		hf_oh_set(load->locks, lock->who.client, &known->owner->oh, lock->who.oh);
	} else {
		hf_target_make(load->locks, &lock->who, &found);
		note_memo(load, &lock->who, &found);
	}
	put(load, found.holding, lock->range, &attrs, is_behind)->tag = lock->tag;
	load->reach = HF_MAX(load->reach, lock->range.end);
	load->n_reserved--;
	load->n_restored++;
	return HF_LOCK_OK;
}

/* MAKING AND FREEING */

int hf_lock_load_new(struct hf_lock_load **loadp, struct hf_locks *locks)
{
	struct hf_lock_load *load = calloc(1, sizeof(*load));

	if (!load)
		return hf_trace(-ENOMEM);
	load->locks = locks;
	*loadp = load;
	return 0;
}

struct hf_lock_load *hf_lock_load_free(struct hf_lock_load *load)
{
	if (!load)
		return NULL;
	flush_aside(load);
	free(load);
	return NULL;
}
