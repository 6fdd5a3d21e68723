/*
 * The record of a file: which owner's lock is in the way of a range?
 *
 * Peers choose file handles, so a keyed hash of the handle finds the record. Lists
 * find it by its order of creation. The record exists exactly while a holding or a
 * reservation refers to it.
 */
#include "lock/internal.h"

#include <string.h>

uint64_t hf_lock_file_hash(const struct hf_locks *locks, struct hf_bytes handle)
{
	return hf_siphash(&locks->key, handle.data, handle.len);
}

struct hf_lock_file *hf_lock_file_find(const struct hf_locks *locks, uint64_t hash, struct hf_bytes handle)
{
	hf_hash_for_each(node, &locks->files, hash) {
		struct hf_lock_file *file = hf_container_of(node, struct hf_lock_file, node);

		if (hf_bytes_equal(hf_bytes_of(file->handle, file->handle_len), handle))
			return file;
	}
	return NULL;
}

struct hf_lock_file *hf_lock_file_of(const struct hf_locks *locks, struct hf_bytes handle)
{
	return hf_lock_file_find(locks, hf_lock_file_hash(locks, handle), handle);
}

void hf_lock_file_aim(const struct hf_lock_file *file, const struct hf_holding *me, struct hf_range range,
		      struct hf_aim *aimp)
{
	for (unsigned int i = 0; i < HF_ARRAY_SIZE(file->trees); i++)
		aimp->leaf[i] = hf_tree_aim(&file->trees[i], me, range);
}

struct hf_lock *hf_lock_file_conflict_at(const struct hf_lock_file *file, const struct hf_aim *aim,
					 const struct hf_holding *me, struct hf_range range,
					 enum hf_lock_mode mode)
{
	unsigned int i = hf_mode_index(HF_LOCK_EXCLUSIVE);
	struct hf_spot spot = hf_tree_hit(&file->trees[i], aim->leaf[i], me, range);

	if (!hf_spot_lock(&spot) && mode == HF_LOCK_EXCLUSIVE) {
		i = hf_mode_index(HF_LOCK_SHARED);
		spot = hf_tree_hit(&file->trees[i], aim->leaf[i], me, range);
	}
	return hf_spot_lock(&spot);
}

struct hf_lock *hf_lock_file_conflict(const struct hf_lock_file *file, const struct hf_holding *me,
				      struct hf_range range, enum hf_lock_mode mode)
{
	struct hf_aim aim;

	hf_lock_file_aim(file, me, range, &aim);
	return hf_lock_file_conflict_at(file, &aim, me, range, mode);
}

struct hf_lock_file *hf_lock_file_make(struct hf_locks *locks, uint64_t hash, struct hf_bytes handle)
{
	struct hf_lock_file *file = hf_pool_take(&locks->file_pool);

	assert(handle.len <= HF_LOCK_HANDLE_MAX);
	memset(file, 0, offsetof(struct hf_lock_file, handle));
	file->id = ++locks->last_file;
	file->handle_len = (uint8_t)handle.len;
	if (handle.len)
		memmove(file->handle, handle.data, handle.len); /* as in hf_oh_set() */
	hf_list_init(&file->queue);
	hf_list_init(&file->reservations);
	hf_link_init(&file->in_dirty);
	hf_link_init(&file->in_crowd);
	hf_hashtable_insert(&locks->files, &file->node, hash);
	hf_rb_append(&locks->by_id, &file->by_id);
	locks->n.files++;
	return file;
}

void hf_lock_file_free_if_unused(struct hf_locks *locks, struct hf_lock_file *file)
{
	if (file->n_holdings || file->n_reservation_records)
		return;
	assert(!file->n_locks && !file->n_ghosts && !file->n_waiters && !file->n_reservations &&
	       !file->crowd);
	if (locks->recent->file == file)
		locks->recent->file = NULL;
	hf_link_remove(&file->in_dirty);
	hf_outside_trim(locks, file, (struct hf_range){ 0, HF_RANGE_EOF });
	hf_rb_erase(&locks->by_id, &file->by_id, NULL);
	hf_hashtable_remove(&locks->files, &file->node);
	hf_pool_give(&locks->file_pool, file);
	locks->n.files--;
}

/* PUBLIC */

/* The first lock, of any owner, that ends at @pos or behind, or NULL. */
static struct hf_lock *first_from(const struct hf_lock_file *file, uint64_t pos, enum hf_lock_mode mode)
{
	struct hf_spot spot = hf_tree_first(&file->trees[hf_mode_index(mode)], NULL,
					    (struct hf_range){ pos, HF_RANGE_EOF });

	return hf_spot_lock(&spot);
}

bool hf_lock_next_locked(const struct hf_locks *locks, struct hf_bytes handle, uint64_t pos,
			 struct hf_range *rangep, enum hf_lock_mode *modep)
{
	const struct hf_lock_file *file = pos <= HF_RANGE_EOF ? hf_lock_file_of(locks, handle) : NULL;
	const struct hf_lock *exclusive = file ? first_from(file, pos, HF_LOCK_EXCLUSIVE) : NULL;
	const struct hf_lock *shared = file ? first_from(file, pos, HF_LOCK_SHARED) : NULL;

	if (exclusive && (exclusive->start <= pos || !shared || exclusive->start <= shared->start)) {
		*rangep = (struct hf_range){ HF_MAX(exclusive->start, pos), exclusive->end };
		*modep = HF_LOCK_EXCLUSIVE;
		return true;
	}
	if (!shared)
		return false;
	*rangep = (struct hf_range){ HF_MAX(shared->start, pos), shared->end };
	*modep = HF_LOCK_SHARED;
	if (exclusive && exclusive->start <= rangep->end)
		rangep->end = exclusive->start - 1;
	return true;
}

bool hf_lock_is_scarce(const struct hf_locks *locks, const struct hf_lock_target *who)
{
	return hf_room_is_scarce(locks, hf_lock_file_of(locks, who->handle), who->oh);
}

bool hf_lock_knows_file(const struct hf_locks *locks, struct hf_bytes handle)
{
	return hf_lock_file_of(locks, handle) != NULL;
}
