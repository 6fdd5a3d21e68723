#include "export/local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/error.h"
#include "base/hashtable.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/siphash.h"
#include "export/local_closer.h"
#include "export/local_file.h"
#include "export/local_pace.h"
#include "loop/loop.h"
#include "loop/timer.h"
#include "vfs/disk_queue.h"
#include "vfs/file.h"

/* Longer than the lock manager remembers that a client may lock the file. */
#define IDLE_NS        (3 * HF_NS_PER_S)
#define FIRST_GAP      (5 * HF_NS_PER_MS)
#define MOST_GAP       (100 * HF_NS_PER_MS)
#define REOPEN_NS      HF_NS_PER_S
#define LEAST_FILES    16
#define LOG_WINDOW_S   60
#define FALLBACK_FILES 256
#define MAX_LOOKED_AT  64 /* idle files, for one that needs room */

struct entry {
	struct hf_hash_node node;
	struct hf_local *local;
	struct hf_link all;
	struct hf_link idle; /* in local->idle or local->failed while no lock is taken */
	uint64_t idle_since;
	struct hf_timer retry; /* runs while a local process blocks a waiter, or one needs the file opened; or
				  for loaded locks */
	uint64_t gap_ns;
	struct hf_timer uncover; /* runs while the whole file is taken for a moment */
	struct hf_local_pace pace;
	struct hf_file *file; /* pinned, or NULL */
	int error;            /* why file is NULL; 0: it was not opened so far */
	uint64_t opened_at;   /* when that was tried last; 0: never */
	bool is_opening;      /* for a waiter, or for loaded locks */
	bool has_loaded;      /* locks that are to be taken in the kernel when the file is open */
	uint32_t export;      /* of the last lock that needed the file and did not find it open */
	struct hf_local_file locked;
	uint8_t key_len;
	uint8_t key[HF_LOCK_HANDLE_MAX];
};

struct hf_local {
	struct hf_local_options options;
	struct hf_locks *locks;
	struct hf_siphash_key key;
	struct hf_hashtable entries;
	struct entry *last; /* the one that was found last, or NULL */
	struct hf_list all;
	size_t n_open;
	uint64_t n_refused; /* locks, because no more files may be open */
	struct hf_local_closer closer;
	struct hf_list idle;   /* the longest idle entry first */
	struct hf_list failed; /* the same, of entries without a file: they have no room to give */
	struct hf_timer idle_timer;
	struct hf_log_limit log_limit;
};

static struct hf_bytes key_of(const struct entry *entry)
{
	return hf_bytes_of(entry->key, entry->key_len);
}

/* Entries */

/* A LOCK asks for the same file three times. */
static struct entry *find(struct hf_local *local, struct hf_bytes key)
{
	if (local->last && hf_bytes_equal(key_of(local->last), key))
		return local->last;
	hf_hash_for_each(node, &local->entries, hf_siphash(&local->key, key.data, key.len)) {
		struct entry *entry = hf_container_of(node, struct entry, node);

		if (hf_bytes_equal(key_of(entry), key))
			return local->last = entry;
	}
	return NULL;
}

/* @error: why the file is closed, for later requests. */
static void close_entry(struct entry *entry, int error)
{
	if (!entry->file)
		return;
	hf_timer_stop(&entry->uncover);
	hf_local_closer_unpin(&entry->local->closer, entry->file);
	hf_local_file_deinit(&entry->locked);
	entry->file = NULL;
	entry->error = error;
	entry->local->n_open--;
}

static void entry_free(struct entry *entry)
{
	if (entry->local->last == entry)
		entry->local->last = NULL;
	close_entry(entry, 0);
	hf_timer_stop(&entry->retry);
	hf_link_remove(&entry->idle);
	hf_link_remove(&entry->all);
	hf_hashtable_remove(&entry->local->entries, &entry->node);
	free(entry);
}

static void make_idle(struct entry *entry)
{
	struct hf_local *local = entry->local;

	hf_link_remove(&entry->idle);
	hf_list_push_back(entry->file ? &local->idle : &local->failed, &entry->idle);
	entry->idle_since = hf_loop_now(local->options.loop);
	if (!hf_timer_is_running(&local->idle_timer))
		hf_timer_start(&local->idle_timer, IDLE_NS);
}

/* Returns when the first of those that are left is due; UINT64_MAX: the list is empty. */
static uint64_t end_idle(struct hf_local *local, struct hf_list *list, uint64_t now)
{
	struct hf_link *link;

	while ((link = hf_list_first(list))) {
		struct entry *entry = hf_list_entry(link, struct entry, idle);

		if (entry->idle_since + IDLE_NS > now)
			return entry->idle_since + IDLE_NS;
		if (hf_lock_knows_file(local->locks, key_of(entry)))
			make_idle(entry); /* a waiter needs it, or a lock that could not be taken in the
					     kernel */
		else
			entry_free(entry);
	}
	return UINT64_MAX;
}

static void on_idle(struct hf_timer *timer)
{
	struct hf_local *local = hf_container_of(timer, struct hf_local, idle_timer);
	uint64_t now = hf_loop_now(local->options.loop);
	uint64_t idle = end_idle(local, &local->idle, now), failed = end_idle(local, &local->failed, now);

	if (idle != UINT64_MAX || failed != UINT64_MAX)
		hf_timer_start_at(timer, HF_MIN(idle, failed));
}

static void on_retry(struct hf_timer *timer);
static void on_uncover(struct hf_timer *timer);

static struct entry *entry_new(struct hf_local *local, struct hf_bytes key)
{
	struct entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return NULL;
	entry->local = local;
	entry->gap_ns = FIRST_GAP;
	hf_link_init(&entry->idle);
	hf_list_push_back(&local->all, &entry->all);
	hf_timer_init(&entry->retry, local->options.loop, on_retry);
	hf_timer_init(&entry->uncover, local->options.loop, on_uncover);
	entry->key_len = (uint8_t)key.len;
	memcpy(entry->key, key.data, key.len);
	hf_hashtable_insert(&local->entries, &entry->node, hf_siphash(&local->key, key.data, key.len));
	return entry;
}

static void try_again_later(struct entry *entry)
{
	if (!hf_timer_is_running(&entry->retry))
		hf_timer_start(&entry->retry, entry->gap_ns);
}

/* Opening */

/* What prevented opening the file may be over. */
static bool should_open(const struct entry *entry)
{
	return !entry->file &&
	       (!entry->opened_at || hf_loop_now(entry->local->options.loop) - entry->opened_at >= REOPEN_NS);
}

bool hf_local_needs(struct hf_local *local, uint32_t export, struct hf_bytes key)
{
	struct entry *entry;

	if (local->options.policy(local->options.user, export) == HF_LOCAL_LOCKS_OFF)
		return false;
	entry = find(local, key);
	/* A call cannot wait until the file is opened for a waiter, so it opens the file, too. */
	return !entry || should_open(entry) || (!entry->file && entry->is_opening);
}

struct hf_local_opened hf_local_open(struct hf_file *file)
{
	struct hf_local_opened opened = { .fd = -1 };

	opened.error = hf_file_pin(file, &opened.fd);
	if (opened.error == 0)
		opened.file = file;
	return opened;
}

static bool is_full(const struct hf_local *local)
{
	return local->n_open >= local->options.max_files || local->closer.n >= local->options.max_files;
}

/* Closes files in which no client has or awaits a lock. Those that are needed go to the end of the list: the
 * next call looks at others, and no call looks at all of them. */
static void make_room(struct hf_local *local)
{
	const struct hf_link *last = hf_list_last(&local->idle);
	bool has_more = last;

	for (size_t i = 0; i < MAX_LOOKED_AT && has_more && local->n_open >= local->options.max_files; i++) {
		struct hf_link *link = hf_list_first(&local->idle);
		struct entry *entry = hf_list_entry(link, struct entry, idle);

		has_more = link != last;
		if (hf_lock_knows_file(local->locks, key_of(entry)))
			make_idle(entry);
		else
			entry_free(entry);
	}
}

int hf_local_adopt(struct hf_local *local, struct hf_bytes key, struct hf_local_opened opened)
{
	struct entry *entry = find(local, key);

	if (entry && entry->file) {
		if (opened.file)
			hf_local_closer_unpin(&local->closer, opened.file);
		return 0;
	}
	if (opened.file)
		make_room(local);
	if (opened.file && is_full(local)) {
		hf_local_closer_unpin(&local->closer, opened.file);
		opened = (struct hf_local_opened){ .error = -EMFILE };
	}
	if (entry && opened.file)
		try_again_later(entry); /* waiters, or loaded locks, may have needed it */
	if (!entry)
		entry = entry_new(local, key);
	if (!entry) {
		if (opened.file)
			hf_local_closer_unpin(&local->closer, opened.file);
		return hf_trace(-ENOMEM);
	}
	entry->file = opened.file;
	entry->error = opened.error;
	entry->opened_at = hf_loop_now(local->options.loop);
	if (entry->file) {
		local->n_open++;
		hf_local_file_init(&entry->locked, opened.fd);
	}
	make_idle(entry);
	return 0;
}

void hf_local_show_limit(const struct hf_local *local, struct hf_limit_use *use)
{
	*use = (struct hf_limit_use){ .used = local->n_open,
				      .max = local->options.max_files,
				      .refused = local->n_refused };
}

static void log_untaken(struct hf_local *local, int error)
{
	uint64_t n;

	if (error && hf_log_limit_allow(&local->log_limit, hf_loop_now(local->options.loop), &n))
		hf_log_warn("a lock could not be taken in the kernel", "error=%s more=%llu",
			    strerrorname_np(-error), (unsigned long long)n);
}

/* Opening without a call. The call that queued a waiter left no open file, because the file could not be
 * opened, or because local_locks was off then. A lock that a reload loads has no call. */

struct opening {
	struct hf_question question;
	struct hf_local *local;
	struct hf_local_opened opened;
	uint32_t handle_len;
	uint8_t handle[HF_LOCK_HANDLE_MAX];
	uint32_t key_len;
	uint8_t key[HF_LOCK_HANDLE_MAX];
};

static struct hf_local_opened resolve_and_open(struct hf_exports *exports, struct hf_bytes handle)
{
	hf_cleanup(hf_export_unrefp) struct hf_export *export = NULL;
	hf_cleanup(hf_file_unrefp) struct hf_file *file = NULL;

	if (hf_exports_resolve(exports, handle, false, &export, &file) != HF_RESOLVED)
		return (struct hf_local_opened){ .error = -ESTALE };
	return hf_local_open(file);
}

/* On a thread that may wait. */
static void run_opening(struct hf_question *question)
{
	struct opening *opening = hf_container_of(question, struct opening, question);

	opening->opened = resolve_and_open(opening->local->options.exports,
					   hf_bytes_of(opening->handle, opening->handle_len));
}

/* The waiters are served by the timer, and not here: the server may have stopped. */
static void on_opened(struct hf_question *question)
{
	struct opening *opening = hf_container_of(question, struct opening, question);
	struct hf_bytes key = hf_bytes_of(opening->key, opening->key_len);
	struct entry *entry = find(opening->local, key);

	if (entry)
		entry->is_opening = false;
	hf_local_adopt(opening->local, key, opening->opened); /* without memory: the timer asks again */
	if (entry && entry->has_loaded)
		log_untaken(opening->local, entry->error);
	free(opening);
}

static struct opening *opening_new(struct entry *entry)
{
	const struct hf_local_options *options = &entry->local->options;
	struct opening *opening = calloc(1, sizeof(*opening));
	struct hf_bytes handle;

	if (!opening)
		return NULL;
	opening->local = entry->local;
	handle = options->handle(options->user, entry->export, key_of(entry), opening->handle);
	if (handle.data != opening->handle)
		memcpy(opening->handle, handle.data, handle.len);
	opening->handle_len = handle.len;
	memcpy(opening->key, entry->key, entry->key_len);
	opening->key_len = entry->key_len;
	return opening;
}

static void open_without_call(struct entry *entry)
{
	const struct hf_local_options *options = &entry->local->options;
	struct opening *opening;

	entry->opened_at = hf_loop_now(options->loop);
	make_room(entry->local);
	if (is_full(entry->local))
		return;
	opening = opening_new(entry);
	if (opening && hf_disk_queue_ask(options->disk_queue, options->disk(options->user, entry->export),
					 &opening->question, NULL, run_opening, on_opened) == 0)
		entry->is_opening = true;
	else
		free(opening);
}

/* The lock table's hooks (struct hf_lock_outside) */

/* The kernel could not take the lock for a reason that is no conflict. @error: 0 if nothing has failed, and
 * the file is not open yet. */
static int untaken(struct hf_local *local, uint32_t export, int error)
{
	log_untaken(local, error);
	if (local->options.policy(local->options.user, export) != HF_LOCAL_LOCKS_ON)
		return HF_LOCK_OK;
	local->n_refused += error == -EMFILE;
	return HF_LOCK_E_LIMIT;
}

static bool needed(void *user, uint64_t pos, struct hf_range *rangep, enum hf_lock_mode *modep)
{
	const struct entry *entry = user;

	return hf_lock_next_locked(entry->local->locks, key_of(entry), pos, rangep, modep);
}

/* The kernel did not release what no client needs. If no client needs anything, closing the file releases
 * it. */
static void release_failed(struct entry *entry, int error, bool has_locks)
{
	if (!has_locks)
		close_entry(entry, error);
	log_untaken(entry->local, error);
}

/* Covers */

/* A cover without a timer would stay. */
static void cover(struct entry *entry, struct hf_range range, uint64_t now)
{
	if (hf_timer_start(&entry->uncover, hf_local_pace_cover_ns(entry->locked.ranges.n)) < 0)
		return;
	entry->pace.n_saved = 0;
	if (hf_local_file_cover(&entry->locked, range))
		return;
	hf_timer_stop(&entry->uncover);
	hf_local_pace_rest(&entry->pace, now, HF_LOCAL_SHY_NS);
}

static void on_uncover(struct hf_timer *timer)
{
	struct entry *entry = hf_container_of(timer, struct entry, uncover);
	int r = hf_local_file_uncover(&entry->locked, needed, entry);
	struct hf_range range;
	enum hf_lock_mode mode;

	hf_local_pace_rest(&entry->pace, hf_loop_clock(entry->local->options.loop),
			   hf_local_pace_rest_ns(&entry->pace, entry->locked.ranges.n));
	if (r)
		release_failed(entry, r > 0 ? -ENOLCK : r, needed(entry, 0, &range, &mode));
	if (entry->locked.is_covered)
		hf_timer_start(timer, HF_LOCAL_COVER_NS);
	if (entry->locked.ranges.n == 0)
		make_idle(entry);
}

/* Counts a question to the kernel, and covers a busy file instead. Only exclusive locks count: the cover
 * bars local readers, and a client that may only read the file must not be able to do that. A turn of
 * the loop may be longer than a rest, so the clock is read anew; the question would take ten times as long.
 */
static void note_question(struct entry *entry, struct hf_range range, enum hf_lock_mode mode)
{
	struct hf_loop *loop = entry->local->options.loop;
	uint64_t now;

	if (hf_local_file_has(&entry->locked, range, mode)) {
		entry->pace.n_saved++;
		return;
	}
	if (mode != HF_LOCK_EXCLUSIVE)
		return;
	now = hf_loop_clock(loop);
	if (hf_local_pace_ask(&entry->pace, hf_loop_now(loop), now))
		cover(entry, range, now);
}

static int take_in(struct entry *entry, struct hf_range range, enum hf_lock_mode mode)
{
	int r = hf_local_file_take(&entry->locked, range, mode);

	if (r == HF_LOCK_OK) {
		entry->gap_ns = FIRST_GAP;
		hf_link_remove(&entry->idle);
	} else {
		try_again_later(entry);
	}
	return r;
}

/* The entry of a file that is needed without a call. */
static struct entry *entry_without_call(struct hf_local *local, struct hf_bytes key)
{
	struct entry *entry = entry_new(local, key);

	if (entry)
		make_idle(entry);
	return entry;
}

static int take_without_file(struct hf_local *local, const struct hf_lock_target *who, struct entry *entry)
{
	if (!entry)
		entry = entry_without_call(local, who->handle);
	if (!entry)
		return untaken(local, who->export, -ENOMEM);
	entry->export = who->export;
	try_again_later(entry);
	return untaken(local, who->export, entry->error);
}

static int take(void *context, const struct hf_lock_target *who, struct hf_range range,
		enum hf_lock_mode mode)
{
	struct hf_local *local = context;
	struct entry *entry;
	int r;

	if (local->options.policy(local->options.user, who->export) == HF_LOCAL_LOCKS_OFF)
		return HF_LOCK_OK;
	entry = find(local, who->handle);
	if (!entry || !entry->file)
		return take_without_file(local, who, entry);
	note_question(entry, range, mode);
	r = take_in(entry, range, mode);
	if (r == HF_LOCK_E_CONFLICT)
		hf_local_pace_rest(&entry->pace, hf_loop_now(local->options.loop), HF_LOCAL_SHY_NS);
	if (r < 0 || r == HF_LOCK_E_LIMIT)
		return untaken(local, who->export, r < 0 ? r : -ENOLCK);
	return r;
}

static int test(void *context, const struct hf_lock_target *who, struct hf_range range,
		enum hf_lock_mode mode, struct hf_lock_view *conflictp)
{
	struct hf_local *local = context;
	struct entry *entry;
	int r;

	if (local->options.policy(local->options.user, who->export) == HF_LOCAL_LOCKS_OFF)
		return HF_LOCK_OK;
	entry = find(local, who->handle);
	r = entry && entry->file ? hf_local_file_test(&entry->locked, range, mode, conflictp) : HF_LOCK_OK;
	if (r == HF_LOCK_E_CONFLICT) {
		conflictp->who.export = who->export;
		conflictp->who.handle = who->handle;
	}
	return r;
}

static void trim(void *context, struct hf_bytes handle, struct hf_range range, size_t n_locks)
{
	struct hf_local *local = context;
	struct entry *entry = find(local, handle);
	int r;

	if (!entry || !entry->file || entry->locked.ranges.n == 0)
		return;
	if (entry->locked.is_covered) {
		entry->pace.n_saved++;
		return;
	}
	r = hf_local_file_trim(&entry->locked, range, n_locks, needed, entry);
	if (r)
		release_failed(entry, r > 0 ? -ENOLCK : r, n_locks > 0);
	if (n_locks == 0)
		make_idle(entry);
}

const struct hf_lock_outside hf_local_outside = {
	.take = take,
	.test = test,
	.trim = trim,
};

/* A restart */

static struct entry *open_again(struct hf_local *local, const struct hf_lock_target *who)
{
	struct hf_local_opened opened = { .error = -EMFILE };
	struct entry *entry = find(local, who->handle);
	uint8_t room[HF_LOCK_HANDLE_MAX];
	struct hf_bytes handle;

	if (entry)
		return entry;
	handle = local->options.handle(local->options.user, who->export, who->handle, room);
	if (!is_full(local))
		opened = resolve_and_open(local->options.exports, handle);
	hf_local_adopt(local, who->handle, opened);
	return find(local, who->handle);
}

void hf_local_restore(struct hf_local *local)
{
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view lock;
	size_t n_taken = 0, n_lost = 0, n_failed = 0;

	while (hf_lock_next_lock(local->locks, NULL, &cursor, &lock)) {
		struct entry *entry;
		int r;

		if (local->options.policy(local->options.user, lock.who.export) == HF_LOCAL_LOCKS_OFF)
			continue;
		entry = open_again(local, &lock.who);
		r = entry && entry->file ? take_in(entry, lock.range, lock.mode) : -ESTALE;
		if (r == HF_LOCK_OK)
			n_taken++;
		else if (r == HF_LOCK_E_CONFLICT)
			n_lost++;
		else
			n_failed++;
	}
	if (n_lost)
		hf_log_warn("a local process took a client's lock while the server was down: the client "
			    "cannot reclaim it",
			    "locks=%zu", n_lost);
	if (n_taken || n_failed)
		hf_log_info("stored locks are taken in the kernel again", "locks=%zu not_taken=%zu", n_taken,
			    n_failed);
}

/* A reload that exports a directory again */

void hf_local_take_up(struct hf_local *local, uint32_t export, struct hf_bytes key)
{
	struct entry *entry;

	if (local->options.policy(local->options.user, export) == HF_LOCAL_LOCKS_OFF)
		return;
	entry = find(local, key);
	if (!entry)
		entry = entry_without_call(local, key);
	if (!entry) {
		log_untaken(local, -ENOMEM);
		return;
	}
	entry->export = export;
	entry->has_loaded = true;
	try_again_later(entry);
}

static void log_lost(struct hf_local *local)
{
	uint64_t n;

	if (hf_log_limit_allow(&local->log_limit, hf_loop_now(local->options.loop), &n))
		hf_log_warn("a local process took a client's lock while the directory was not exported: the "
			    "client cannot reclaim it",
			    "more=%llu", (unsigned long long)n);
}

/* All that the table has: what the kernel has already is not asked for again. */
static void take_loaded(struct entry *entry)
{
	struct hf_local *local = entry->local;
	struct hf_range range;
	enum hf_lock_mode mode;

	entry->has_loaded = false;
	if (local->options.policy(local->options.user, entry->export) == HF_LOCAL_LOCKS_OFF)
		return; /* since another reload */
	for (uint64_t pos = 0; needed(entry, pos, &range, &mode); pos = range.end + 1) {
		int r = take_in(entry, range, mode);

		if (r == HF_LOCK_E_CONFLICT)
			log_lost(local);
		else if (r)
			log_untaken(local, r < 0 ? r : -ENOLCK);
	}
}

/* Trying again */

static void on_retry(struct hf_timer *timer)
{
	struct entry *entry = hf_container_of(timer, struct entry, retry);
	struct hf_local *local = entry->local;

	entry->gap_ns = HF_MIN(2 * entry->gap_ns, MOST_GAP);
	if (should_open(entry) && !entry->is_opening && hf_lock_knows_file(local->locks, key_of(entry)))
		open_without_call(entry);
	if (entry->has_loaded && entry->file)
		take_loaded(entry);
	hf_lock_serve_file(local->locks, key_of(entry));
}

/* Making and freeing */

static size_t default_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return FALLBACK_FILES;
	return HF_MAX((size_t)LEAST_FILES, (size_t)limit.rlim_cur / 4);
}

int hf_local_new(struct hf_local **localp, const struct hf_local_options *options)
{
	struct hf_local *local = calloc(1, sizeof(*local));
	int r;

	if (!local)
		return hf_trace(-ENOMEM);
	local->options = *options;
	if (!local->options.max_files)
		local->options.max_files = default_files();
	local->log_limit = (struct hf_log_limit)HF_LOG_LIMIT(LOG_WINDOW_S);
	hf_loop_random(options->loop, &local->key, sizeof(local->key));
	hf_list_init(&local->all);
	hf_list_init(&local->idle);
	hf_list_init(&local->failed);
	hf_timer_init(&local->idle_timer, options->loop, on_idle);
	hf_local_closer_init(&local->closer, options->loop);
	r = hf_hashtable_init(&local->entries);
	if (r < 0) {
		free(local);
		return hf_trace(r);
	}
	*localp = local;
	return 0;
}

void hf_local_set_locks(struct hf_local *local, struct hf_locks *locks)
{
	local->locks = locks;
}

struct hf_local *hf_local_free(struct hf_local *local)
{
	struct hf_link *link;

	if (!local)
		return NULL;
	while ((link = hf_list_first(&local->all)))
		entry_free(hf_list_entry(link, struct entry, all));
	hf_local_closer_deinit(&local->closer);
	hf_timer_stop(&local->idle_timer);
	hf_hashtable_deinit(&local->entries);
	free(local);
	return NULL;
}
