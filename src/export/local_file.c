#include "export/local_file.h"

#include <errno.h>
#include <fcntl.h>

#include "base/error.h"
#include "base/macros.h"

#define MOST_QUESTIONS 256 /* to find the locks of local processes between those of clients */

static const struct hf_range whole = { 0, HF_RANGE_EOF };

/* The kernel */

static short type_of(enum hf_lock_mode mode)
{
	static const short types[] = {
		[HF_LOCK_NONE] = F_UNLCK,
		[HF_LOCK_SHARED] = F_RDLCK,
		[HF_LOCK_EXCLUSIVE] = F_WRLCK,
	};

	return types[mode];
}

static struct flock flock_of(struct hf_range range, enum hf_lock_mode mode)
{
	return (struct flock){
		.l_type = type_of(mode),
		.l_whence = SEEK_SET,
		.l_start = (off_t)range.start,
		.l_len = (off_t)hf_range_len(range), /* 0 means to the end, here and for fcntl() */
	};
}

/* F_OFD_SETLK never waits on a local file system. */
static int set(struct hf_local_file *file, struct hf_range range, enum hf_lock_mode mode)
{
	struct flock lock = flock_of(range, mode);

	if (fcntl(file->fd, F_OFD_SETLK, &lock) == 0)
		return HF_LOCK_OK;
	return errno == EAGAIN || errno == EACCES ? HF_LOCK_E_CONFLICT : -errno;
}

/* Making and freeing */

/* Drops locks that this open file description may have from before. */
void hf_local_file_init(struct hf_local_file *file, int fd)
{
	int flags = fcntl(fd, F_GETFL);

	*file = (struct hf_local_file){ .fd = fd, .whole_at = HF_LOCAL_MAX_RANGES };
	file->is_read_only = flags >= 0 && (flags & O_ACCMODE) == O_RDONLY;
	set(file, whole, HF_LOCK_NONE);
}

void hf_local_file_deinit(struct hf_local_file *file)
{
	hf_local_ranges_deinit(&file->ranges);
	file->is_covered = false;
}

/* Asking */

int hf_local_file_test(const struct hf_local_file *file, struct hf_range range, enum hf_lock_mode mode,
		       struct hf_lock_view *conflictp)
{
	struct flock lock = flock_of(range, mode);

	if (fcntl(file->fd, F_OFD_GETLK, &lock) < 0 || lock.l_type == F_UNLCK)
		return HF_LOCK_OK;
	*conflictp = (struct hf_lock_view){
		.mode = lock.l_type == F_WRLCK ? HF_LOCK_EXCLUSIVE : HF_LOCK_SHARED,
		/* -1: the lock is of an open file description; 0: of a process that the server cannot see. */
		.who.owner_id = (uint64_t)lock.l_pid,
	};
	if (hf_range_from_offset_len(&conflictp->range, (uint64_t)lock.l_start, (uint64_t)lock.l_len))
		conflictp->range = range;
	return HF_LOCK_E_CONFLICT;
}

/* Taking */

/* Takes the parts of @range that this server does not hold yet, until the kernel refuses one; *stopp: where
 * that part begins. */
static int take_gaps(struct hf_local_file *file, struct hf_range range, uint64_t *stopp)
{
	uint64_t end;
	int r = HF_LOCK_OK;

	for (uint64_t pos = range.start; pos <= range.end; pos = end + 1) {
		bool is_gap = hf_local_ranges_at(&file->ranges, pos, &end) == HF_LOCK_NONE;

		end = HF_MIN(end, range.end);
		if (is_gap)
			r = set(file, (struct hf_range){ pos, end }, HF_LOCK_SHARED);
		if (r) {
			*stopp = pos;
			return r;
		}
	}
	return HF_LOCK_OK;
}

static void give_gaps(struct hf_local_file *file, struct hf_range range, uint64_t stop)
{
	uint64_t end;

	for (uint64_t pos = range.start; pos < stop; pos = end + 1)
		if (hf_local_ranges_at(&file->ranges, pos, &end) == HF_LOCK_NONE)
			set(file, (struct hf_range){ pos, HF_MIN(end, stop - 1) }, HF_LOCK_NONE);
}

static void note_gaps(struct hf_local_file *file, struct hf_range range)
{
	uint64_t end;

	for (uint64_t pos = range.start; pos <= range.end; pos = end + 1) {
		bool is_gap = hf_local_ranges_at(&file->ranges, pos, &end) == HF_LOCK_NONE;

		end = HF_MIN(end, range.end);
		if (is_gap)
			hf_local_ranges_set(&file->ranges, (struct hf_range){ pos, end }, HF_LOCK_SHARED);
	}
}

/* A shared lock must not weaken an exclusive one that this server already holds in the kernel: a grant may
 * still wait for its confirmation. */
static int take_shared(struct hf_local_file *file, struct hf_range range)
{
	uint64_t stop = 0;
	int r = take_gaps(file, range, &stop);

	if (r)
		give_gaps(file, range, stop);
	else
		note_gaps(file, range);
	return r;
}

/* No other client of this server has any of the range, or the lock table would not ask. So take it in one
 * step, all or nothing. */
static int take_exclusive(struct hf_local_file *file, struct hf_range range)
{
	int r = set(file, range, HF_LOCK_EXCLUSIVE);

	if (r == HF_LOCK_OK)
		hf_local_ranges_set(&file->ranges, range, HF_LOCK_EXCLUSIVE);
	return r;
}

static enum hf_lock_mode strongest(const struct hf_local_file *file, enum hf_lock_mode mode)
{
	for (size_t i = 0; i < file->ranges.n; i++)
		mode = HF_MAX(mode, file->ranges.items[i].mode);
	return mode;
}

/* The longest range from @pos on, up to *@endp, in which no local process has a lock against @mode. False:
 * such a lock is at @pos; *@endp: its last byte. Or there are too many questions. */
static bool find_room(const struct hf_local_file *file, uint64_t pos, uint64_t *endp, enum hf_lock_mode mode,
		      int *n_questions)
{
	struct hf_lock_view other;

	while (--*n_questions >= 0) {
		if (!hf_local_file_test(file, (struct hf_range){ pos, *endp }, mode, &other))
			return true;
		if (other.range.start <= pos) {
			*endp = other.range.end;
			return false;
		}
		*endp = other.range.start - 1;
	}
	return false;
}

/* Takes as much of @hull as local processes leave, in few ranges. What is taken already stays. */
static void take_around(struct hf_local_file *file, struct hf_range hull, enum hf_lock_mode mode)
{
	int n_questions = MOST_QUESTIONS;
	uint64_t end;

	for (uint64_t pos = hull.start; n_questions > 0; pos = end + 1) {
		end = hull.end;
		if (find_room(file, pos, &end, mode, &n_questions)) {
			struct hf_range room = { pos, end };

			if (hf_local_ranges_reserve(&file->ranges, 1) == 0 &&
			    set(file, room, mode) == HF_LOCK_OK)
				hf_local_ranges_set(&file->ranges, room, mode);
		}
		if (end >= hull.end)
			return;
	}
}

/* Makes few ranges of many. False: there are as many as before, because of as many locks of local processes.
 */
static bool take_whole(struct hf_local_file *file, struct hf_range range, enum hf_lock_mode mode)
{
	const struct hf_local_range *items = file->ranges.items;
	size_t n_before = file->ranges.n;
	struct hf_range hull = { HF_MIN(range.start, items[0].range.start),
				 HF_MAX(range.end, items[n_before - 1].range.end) };

	take_around(file, hull, strongest(file, mode));
	if (file->ranges.n > n_before / 2) {
		file->whole_at *= 2;
		return false;
	}
	file->is_whole = true;
	file->whole_at = HF_LOCAL_MAX_RANGES;
	return true;
}

static void widen(struct hf_range *hull, struct hf_range range)
{
	hull->start = HF_MIN(hull->start, range.start);
	hull->end = HF_MAX(hull->end, range.end);
}

bool hf_local_file_has(struct hf_local_file *file, struct hf_range range, enum hf_lock_mode mode)
{
	if (!file->is_covered)
		return hf_local_ranges_cover(&file->ranges, range, mode);
	widen(&file->hull, range);
	return true;
}

bool hf_local_file_cover(struct hf_local_file *file, struct hf_range range)
{
	const struct hf_local_ranges *ranges = &file->ranges;
	struct hf_range hull = range;

	if (file->is_read_only || hf_local_ranges_reserve(&file->ranges, 1) < 0)
		return false;
	if (set(file, whole, HF_LOCK_EXCLUSIVE))
		return false;
	if (ranges->n) {
		widen(&hull, ranges->items[0].range);
		widen(&hull, ranges->items[ranges->n - 1].range);
	}
	hf_local_ranges_set(&file->ranges, whole, HF_LOCK_EXCLUSIVE);
	file->hull = hull;
	file->is_covered = true;
	file->is_whole = false;
	return true;
}

int hf_local_file_take(struct hf_local_file *file, struct hf_range range, enum hf_lock_mode mode)
{
	struct hf_lock_view unwanted;
	int r;

	if (hf_local_file_has(file, range, mode))
		return HF_LOCK_OK;
	if (file->is_read_only && mode == HF_LOCK_EXCLUSIVE) {
		if (hf_local_file_test(file, range, mode, &unwanted))
			return HF_LOCK_E_CONFLICT;
		mode = HF_LOCK_SHARED;
	}
	if (file->ranges.n >= HF_LOCAL_MOST_RANGES)
		return HF_LOCK_E_LIMIT;
	if (file->ranges.n >= file->whole_at && take_whole(file, range, mode) &&
	    hf_local_ranges_cover(&file->ranges, range, mode))
		return HF_LOCK_OK;
	r = hf_local_ranges_reserve(&file->ranges, file->ranges.n + 1);
	if (r < 0)
		return hf_trace(r);
	return mode == HF_LOCK_EXCLUSIVE ? take_exclusive(file, range) : take_shared(file, range);
}

/* Giving back */

static int lower(struct hf_local_file *file, struct hf_range range, enum hf_lock_mode mode)
{
	uint64_t end;
	int r;

	for (uint64_t pos = range.start; pos <= range.end; pos = end + 1) {
		bool is_more = hf_local_ranges_at(&file->ranges, pos, &end) > mode;
		struct hf_range part = { pos, end = HF_MIN(end, range.end) };

		if (!is_more)
			continue;
		r = hf_local_ranges_reserve(&file->ranges, 1);
		if (r == 0)
			r = set(file, part, mode);
		if (r)
			return r; /* the lock stays in the kernel: more than needed, never less */
		hf_local_ranges_set(&file->ranges, part, mode);
	}
	return 0;
}

static int lower_to_need(struct hf_local_file *file, struct hf_range range, hf_local_needed_fn needed,
			 void *user)
{
	struct hf_range piece;
	enum hf_lock_mode mode;
	uint64_t pos = range.start;
	int r = 0;

	while (r == 0 && pos <= range.end) {
		if (!needed(user, pos, &piece, &mode) || piece.start > range.end)
			return lower(file, (struct hf_range){ pos, range.end }, HF_LOCK_NONE);
		if (piece.start > pos)
			r = lower(file, (struct hf_range){ pos, piece.start - 1 }, HF_LOCK_NONE);
		piece.end = HF_MIN(piece.end, range.end);
		if (r == 0)
			r = lower(file, piece, mode);
		pos = piece.end + 1;
	}
	return r;
}

/* The pieces that locks need, in order; more than @max are counted as @max + 1. */
static size_t list_needed(hf_local_needed_fn needed, void *user, struct hf_local_range *pieces, size_t max)
{
	uint64_t pos = 0;
	size_t n = 0;

	while (n <= max && needed(user, pos, &pieces[n].range, &pieces[n].mode)) {
		uint64_t end = pieces[n++].range.end;

		if (end == HF_RANGE_EOF)
			break;
		pos = end + 1;
	}
	return n;
}

/* From the last byte to the first: the kernel then finds what changes at the front of its list. */
static int lower_to_pieces(struct hf_local_file *file, const struct hf_local_range *pieces, size_t n)
{
	uint64_t end = HF_RANGE_EOF;
	int r = 0;

	for (size_t i = n; i > 0 && r == 0; i--) {
		const struct hf_local_range *piece = &pieces[i - 1];

		if (piece->range.end < end)
			r = lower(file, (struct hf_range){ piece->range.end + 1, end }, HF_LOCK_NONE);
		if (r == 0)
			r = lower(file, piece->range, piece->mode);
		if (piece->range.start == 0)
			return r;
		end = piece->range.start - 1;
	}
	return r ? r : lower(file, (struct hf_range){ 0, end }, HF_LOCK_NONE);
}

static int give_all(struct hf_local_file *file)
{
	int r = file->ranges.n ? set(file, whole, HF_LOCK_NONE) : 0;

	if (r == 0)
		file->ranges.n = 0;
	file->is_whole = false;
	file->whole_at = HF_LOCAL_MAX_RANGES;
	return r;
}

int hf_local_file_trim(struct hf_local_file *file, struct hf_range range, size_t n_needed,
		       hf_local_needed_fn needed, void *user)
{
	if (file->is_covered)
		return 0;
	if (n_needed == 0)
		return give_all(file);
	if (!file->is_whole)
		return lower_to_need(file, range, needed, user);
	if (n_needed > HF_LOCAL_MAX_RANGES / 2)
		return 0;
	file->is_whole = false;
	return lower_to_need(file, whole, needed, user);
}

int hf_local_file_uncover(struct hf_local_file *file, hf_local_needed_fn needed, void *user)
{
	struct hf_local_range pieces[HF_LOCAL_MAX_RANGES + 1];
	const struct hf_local_range all = { file->hull, HF_LOCK_EXCLUSIVE };
	size_t n = list_needed(needed, user, pieces, HF_LOCAL_MAX_RANGES);
	int r;

	if (n == 0) {
		r = give_all(file);
	} else if (n <= HF_LOCAL_MAX_RANGES) {
		r = lower_to_pieces(file, pieces, n);
	} else {
		r = lower_to_pieces(file, &all, 1);
		file->is_whole = r == 0;
	}
	if (r == 0)
		file->is_covered = false;
	return r;
}
