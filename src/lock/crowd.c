/*
 * Which file has the most locks, waiters or reservations?
 *
 * Files of about the same size are in one list: those with 8 to 15 locks, waiters and reservations together,
 * with 16 to 31, and so on. So a file moves only when its size passes a power of two, and a change of a small
 * file moves nothing. The answer visits the largest files first, and stops when no further file can have
 * more, or after MAX_VISITS files. It is exact unless so many files are larger than the one that it looks
 * for. A file near a limit is among the first, unless thousands of files are about as large.
 */
#include "lock/internal.h"

#define MAX_VISITS 4096

static uint64_t size_of(const struct hf_lock_file *file)
{
	return (uint64_t)file->n_locks + file->n_waiters + file->n_reservations;
}

/* 0: too small for a list. */
static uint8_t crowd_of(const struct hf_lock_file *file)
{
	uint64_t size = size_of(file);

	return size < HF_CROWD ? 0 : (uint8_t)(64 - __builtin_clzll(size / HF_CROWD));
}

void hf_crowd_move(struct hf_locks *locks, struct hf_lock_file *file)
{
	uint8_t crowd = crowd_of(file);

	if (crowd == file->crowd)
		return;
	hf_link_remove(&file->in_crowd);
	if (crowd)
		hf_list_push_back(&locks->crowds[crowd - 1], &file->in_crowd);
	file->crowd = crowd;
}

bool hf_crowd_is_right(const struct hf_lock_file *file)
{
	return file->crowd == crowd_of(file) && hf_link_is_linked(&file->in_crowd) == (file->crowd > 0);
}

struct search {
	const struct hf_locks *locks;
	uint64_t n_locks, n_waiters, n_reservations; /* the most so far */
	size_t n_visits;
};

static void visit(struct search *search, const struct hf_lock_file *file)
{
	search->n_locks = HF_MAX(search->n_locks, (uint64_t)file->n_locks + file->n_waiters);
	search->n_waiters = HF_MAX(search->n_waiters, file->n_waiters);
	search->n_reservations = HF_MAX(search->n_reservations, file->n_reservations);
	search->n_visits++;
}

/* Has no file with at most @size more? One that has all there are is the last. */
static bool is_over(const struct search *search, uint64_t size)
{
	const struct hf_lock_counters *n = &search->locks->n;

	return search->n_visits >= MAX_VISITS || (search->n_locks >= HF_MIN(size, n->locks + n->waiters) &&
						  search->n_waiters >= HF_MIN(size, n->waiters) &&
						  search->n_reservations >= HF_MIN(size, n->reservations));
}

static void search_crowds(struct search *search)
{
	for (size_t i = HF_N_CROWDS; i > 0 && !is_over(search, ((uint64_t)HF_CROWD << i) - 1); i--)
		hf_list_for_each(link, &search->locks->crowds[i - 1]) {
			if (search->n_visits >= MAX_VISITS)
				return;
			visit(search, hf_list_entry(link, struct hf_lock_file, in_crowd));
		}
}

void hf_lock_show_file_limits(const struct hf_locks *locks, struct hf_limit_use uses[HF_N_LIMITS])
{
	struct search search = { .locks = locks };

	search_crowds(&search);
	for (struct hf_rb_node *node = hf_rb_first(&locks->by_id); node && !is_over(&search, HF_CROWD - 1);
	     node = hf_rb_next(node))
		visit(&search, hf_rb_entry(node, struct hf_lock_file, by_id));
	uses[HF_LIMIT_LOCKS_PER_FILE].used = search.n_locks;
	uses[HF_LIMIT_WAITERS_PER_FILE].used = search.n_waiters;
	uses[HF_LIMIT_RESERVATIONS_PER_FILE].used = search.n_reservations;
}
