/*
 * The cache of open files: a hash table in shards. Each shard has a lock and a
 * list in the order of use, the least used first. The cache has one reference
 * to each of its files; with another reference a file outlives its eviction.
 *
 * A close may have to wait for a hung disk. That must stop neither a loop nor the
 * closing of files of other disks. So a file whose last reference is gone waits
 * with others of its volume for a thread that closes them (export/sweeper.h). A
 * file with written data that no COMMIT has synced waits there for a sync, still
 * in the cache: so a COMMIT that comes meanwhile hears of a loss. A worker that
 * needs room closes only files of the volume that it works with. The limit is
 * max_fds descriptors. Waiting ones do not count, up to a quarter of that, so that
 * a hung disk leaves room to the others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "vfs/files_internal.h"
#include "vfs/names.h"
#include "vfs/pages.h"

#define N_SHARDS     32
#define IDLE_SWEEPS  10
#define LOG_WINDOW_S 60

/* Not base/hashtable.h: max_fds fixes the number of buckets, so no look-up of a call has to ask whether the
 * table is growing, and no insertion moves chains while it has the lock. */
struct shard {
	pthread_mutex_t lock;
	struct hf_file **buckets; /* under lock, like everything below */
	size_t n_buckets;
	struct hf_list lru;
} __attribute__((aligned(64)));

struct hf_files {
	size_t max_fds; /* (c) */
	_Atomic size_t n_fds;
	_Atomic size_t n_unused; /* of them: of files that wait to be closed */
	_Atomic uint32_t sweep;
	_Atomic uint64_t n_losses;
	pthread_mutex_t log_lock;
	struct hf_log_limit log_limit; /* under log_lock */
	struct hf_pages *pages;        /* (c) */
	struct hf_names *names;        /* (c) */
	pthread_mutex_t close_lock;
	struct hf_list to_close; /* volumes; under close_lock, like their lists of files */
	void (*on_full)(void *user);
	void *on_full_user;
	struct shard shards[N_SHARDS];
};

void hf_files_count(struct hf_files *files, int n_fds)
{
	atomic_fetch_add_explicit(&files->n_fds, (size_t)n_fds, memory_order_relaxed);
}

struct hf_pages *hf_files_pages(struct hf_files *files)
{
	return files->pages;
}

struct hf_names *hf_files_names(struct hf_files *files)
{
	return files->names;
}

void hf_file_changed(struct hf_file *file)
{
	hf_pages_mark(file->files->pages, file->id.inode);
}

size_t hf_files_count_fds(const struct hf_files *files)
{
	return atomic_load_explicit(&files->n_fds, memory_order_relaxed);
}

uint64_t hf_files_count_losses(const struct hf_files *files)
{
	return atomic_load_explicit(&files->n_losses, memory_order_acquire);
}

/* Real time, not the loop's: files belong to the real world. */
static bool may_log(struct hf_files *files, uint64_t *n_suppressedp)
{
	struct timespec now;
	bool may;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	pthread_mutex_lock(&files->log_lock);
	may = hf_log_limit_allow(&files->log_limit,
				 (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec,
				 n_suppressedp);
	pthread_mutex_unlock(&files->log_lock);
	return may;
}

void hf_files_note_loss(struct hf_files *files, int error)
{
	uint64_t n;

	atomic_fetch_add_explicit(&files->n_losses, 1, memory_order_acq_rel);
	if (may_log(files, &n))
		hf_log_error("the disk may have lost written data; clients send uncommitted writes again",
			     "error=%s more=%llu", strerrorname_np(-error), (unsigned long long)n);
}

/* Ids arrive only under the server's own seal (export/handle.c), so a peer cannot choose them to collide. */
static uint64_t hash_of(const struct hf_volume *volume, uint64_t inode)
{
	uint64_t h = (uint64_t)(uintptr_t)volume ^ inode * UINT64_C(0x9e3779b97f4a7c15);

	return (h ^ h >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
}

static struct shard *shard_of(struct hf_files *files, uint64_t hash)
{
	return &files->shards[hash >> 59];
}

static struct hf_file **place_of(struct shard *shard, uint64_t hash, const struct hf_volume *volume,
				 const struct hf_file_id *id)
{
	struct hf_file **place = &shard->buckets[hash & (shard->n_buckets - 1)];

	while (*place &&
	       !((*place)->hash == hash && (*place)->volume == volume && hf_file_id_equal(&(*place)->id, id)))
		place = &(*place)->next;
	return place;
}

static void touch(struct shard *shard, struct hf_file *file)
{
	atomic_store_explicit(&file->used, atomic_load_explicit(&file->files->sweep, memory_order_relaxed),
			      memory_order_relaxed);
	hf_link_remove(&file->lru);
	hf_list_push_back(&shard->lru, &file->lru);
}

/* The caller drops the cache's reference. */
static void take_out(struct shard *shard, struct hf_file *file)
{
	*place_of(shard, file->hash, file->volume, &file->id) = file->next;
	hf_link_remove(&file->lru);
	file->is_forgotten = true;
}

static struct hf_file *find(struct hf_files *files, const struct hf_volume *volume,
			    const struct hf_file_id *id)
{
	uint64_t hash = hash_of(volume, id->inode);
	struct shard *shard = shard_of(files, hash);
	struct hf_file *file;

	pthread_mutex_lock(&shard->lock);
	file = *place_of(shard, hash, volume, id);
	if (file) {
		touch(shard, file);
		hf_file_ref(file);
	}
	pthread_mutex_unlock(&shard->lock);
	return file;
}

struct hf_file *hf_files_find_inode(struct hf_files *files, const struct hf_volume *volume, uint64_t inode)
{
	uint64_t hash = hash_of(volume, inode);
	struct shard *shard = shard_of(files, hash);
	struct hf_file *file;

	pthread_mutex_lock(&shard->lock);
	file = shard->buckets[hash & (shard->n_buckets - 1)];
	while (file && !(file->hash == hash && file->volume == volume && file->id.inode == inode))
		file = file->next;
	if (file) {
		touch(shard, file);
		hf_file_ref(file);
	}
	pthread_mutex_unlock(&shard->lock);
	return file;
}

/* Closing */

/* Those that wait for a sync have a reference. */
static size_t count_unused(const struct hf_file *file)
{
	return file->n_refs ? 0 : (size_t)hf_file_count_fds(file);
}

void hf_files_close_later(struct hf_file *file)
{
	struct hf_files *files = file->files;
	struct hf_volume *volume = file->volume;

	pthread_mutex_lock(&files->close_lock);
	atomic_fetch_add_explicit(&files->n_unused, count_unused(file), memory_order_relaxed);
	hf_list_push_back(file->n_refs || file->is_unsynced ? &volume->unsynced : &volume->unused,
			  &file->closing);
	if (!volume->has_closer && !hf_link_is_linked(&volume->to_close))
		hf_list_push_back(&files->to_close, &volume->to_close);
	pthread_mutex_unlock(&files->close_lock);
	if (files->on_full && hf_files_count_fds(files) >= files->max_fds)
		files->on_full(files->on_full_user);
}

void hf_files_set_on_full(struct hf_files *files, void (*fn)(void *user), void *user)
{
	files->on_full = fn;
	files->on_full_user = user;
}

static bool has_waiting(struct hf_volume *volume)
{
	return !hf_list_is_empty(&volume->unused) || !hf_list_is_empty(&volume->unsynced);
}

/* Under close_lock */
static struct hf_file *take_waiting(struct hf_files *files, struct hf_volume *volume, bool may_sync)
{
	struct hf_link *link = hf_list_pop_front(&volume->unused);
	struct hf_file *file;

	if (!link && may_sync)
		link = hf_list_pop_front(&volume->unsynced);
	file = link ? hf_list_entry(link, struct hf_file, closing) : NULL;
	if (file)
		atomic_fetch_sub_explicit(&files->n_unused, count_unused(file), memory_order_relaxed);
	if (!has_waiting(volume)) /* the volume may go with its last file */
		hf_link_remove(&volume->to_close);
	return file;
}

/* A COMMIT may have synced it meanwhile. */
static void sync_and_unref(struct hf_file *file)
{
	if (file->is_unsynced)
		hf_file_sync(file);
	hf_file_unref(file);
}

static bool close_one(struct hf_files *files, struct hf_volume *volume, bool may_sync)
{
	struct hf_file *file;

	pthread_mutex_lock(&files->close_lock);
	file = take_waiting(files, volume, may_sync);
	pthread_mutex_unlock(&files->close_lock);
	if (file && file->n_refs)
		sync_and_unref(file);
	else if (file)
		hf_file_free(file);
	return file;
}

struct hf_volume *hf_files_next_to_close(struct hf_files *files)
{
	struct hf_volume *volume = NULL;
	struct hf_link *link;

	pthread_mutex_lock(&files->close_lock);
	link = hf_list_pop_front(&files->to_close);
	if (link) {
		volume = hf_volume_ref(hf_list_entry(link, struct hf_volume, to_close));
		volume->has_closer = true;
	}
	pthread_mutex_unlock(&files->close_lock);
	return volume;
}

void hf_files_put_off(struct hf_files *files, struct hf_volume *volume)
{
	pthread_mutex_lock(&files->close_lock);
	volume->has_closer = false;
	if (has_waiting(volume))
		hf_list_push_back(&files->to_close, &volume->to_close);
	pthread_mutex_unlock(&files->close_lock);
}

void hf_files_close(struct hf_files *files, struct hf_volume *volume)
{
	while (close_one(files, volume, true))
		;
	hf_files_put_off(files, volume); /* those that came meanwhile */
}

void hf_files_close_all(struct hf_files *files)
{
	struct hf_volume *volume;

	while ((volume = hf_files_next_to_close(files))) {
		hf_files_close(files, volume);
		hf_volume_unref(volume);
	}
}

bool hf_files_are_full(const struct hf_files *files)
{
	size_t n_unused = atomic_load_explicit(&files->n_unused, memory_order_relaxed);

	return hf_files_count_fds(files) >= files->max_fds + HF_MIN(n_unused, files->max_fds / 4);
}

/* Eviction */

/* A file in use is not evicted and counts as used, so that the search does not soon meet it again. */
static bool is_in_use(const struct hf_file *file)
{
	return file->n_pins > 0 || file->n_refs > 1;
}

static struct hf_file *pick_victim(struct shard *shard)
{
	const struct hf_file *first = NULL;

	hf_list_for_each_safe(link, &shard->lru) {
		struct hf_file *file = hf_list_entry(link, struct hf_file, lru);

		if (!is_in_use(file))
			return file;
		if (file == first)
			return NULL;
		first = first ? first : file;
		touch(shard, file);
	}
	return NULL;
}

/* May the caller look for room again? One that must be synced first stays, and is a victim again after that.
 * One of another volume is closed soon: the caller does not wait for that, but it need not look for more. */
static bool evict_one(struct shard *shard, const struct hf_volume *volume)
{
	struct hf_file *victim;
	bool stays, is_own;

	pthread_mutex_lock(&shard->lock);
	victim = pick_victim(shard);
	is_own = victim && victim->volume == volume;
	stays = victim && victim->is_unsynced;
	if (stays)
		hf_file_ref(victim);
	else if (victim)
		take_out(shard, victim);
	pthread_mutex_unlock(&shard->lock);
	if (!victim)
		return false;
	if (stays)
		hf_files_close_later(victim);
	else if (is_own)
		hf_file_close(victim);
	else
		hf_file_unref(victim);
	return is_own;
}

/* Near the limit the present shard closes one of its files; over time all shards do. */
void hf_files_make_room_for(const struct hf_file *file, bool may_sync)
{
	struct hf_files *files = file->files;
	struct shard *shard = shard_of(files, file->hash);

	while (hf_files_are_full(files) &&
	       (close_one(files, file->volume, may_sync) || evict_one(shard, file->volume)))
		;
}

static void unref_all(struct hf_list *gone)
{
	struct hf_link *link;

	while ((link = hf_list_pop_front(gone)))
		hf_file_unref(hf_list_entry(link, struct hf_file, lru));
}

static void take_idle(struct shard *shard, uint32_t sweep, struct hf_list *gone)
{
	hf_list_for_each_safe(link, &shard->lru) {
		struct hf_file *file = hf_list_entry(link, struct hf_file, lru);

		if (sweep - file->used < IDLE_SWEEPS)
			return;
		if (is_in_use(file)) {
			touch(shard, file);
			continue;
		}
		if (file->is_unsynced) {
			hf_files_close_later(hf_file_ref(file));
			continue;
		}
		take_out(shard, file);
		hf_list_push_back(gone, &file->lru);
	}
}

void hf_files_sweep(struct hf_files *files)
{
	uint32_t sweep = atomic_fetch_add_explicit(&files->sweep, 1, memory_order_relaxed) + 1;

	hf_pages_sweep(files->pages);
	for (size_t i = 0; i < N_SHARDS; i++) {
		struct shard *shard = &files->shards[i];
		struct hf_list gone = HF_LIST_INIT(gone);

		pthread_mutex_lock(&shard->lock);
		take_idle(shard, sweep, &gone);
		pthread_mutex_unlock(&shard->lock);
		unref_all(&gone);
	}
}

void hf_file_forget(struct hf_file *file)
{
	struct shard *shard = shard_of(file->files, file->hash);
	bool is_cached;

	pthread_mutex_lock(&shard->lock);
	is_cached = !file->is_forgotten;
	if (is_cached)
		take_out(shard, file);
	pthread_mutex_unlock(&shard->lock);
	if (is_cached)
		hf_file_unref(file);
}

void hf_files_forget_volume(struct hf_files *files, const struct hf_volume *volume)
{
	hf_pages_clear(files->pages);
	for (size_t i = 0; i < N_SHARDS; i++) {
		struct shard *shard = &files->shards[i];
		struct hf_list gone = HF_LIST_INIT(gone);

		pthread_mutex_lock(&shard->lock);
		hf_list_for_each_safe(each, &shard->lru) {
			struct hf_file *file = hf_list_entry(each, struct hf_file, lru);

			if (file->volume != volume)
				continue;
			take_out(shard, file);
			hf_list_push_back(&gone, &file->lru);
		}
		pthread_mutex_unlock(&shard->lock);
		unref_all(&gone);
	}
}

/* Finding */

/* Inserts @file, or returns the one that another thread inserted first. */
static struct hf_file *insert(struct shard *shard, struct hf_file *file)
{
	struct hf_file **place, *other;

	pthread_mutex_lock(&shard->lock);
	place = place_of(shard, file->hash, file->volume, &file->id);
	other = *place;
	if (other) {
		hf_file_ref(other);
	} else {
		file->next = NULL;
		*place = file;
		hf_file_ref(file);
	}
	touch(shard, other ? other : file);
	pthread_mutex_unlock(&shard->lock);
	if (!other)
		return file;
	hf_file_close(file); /* does not wait: the other one has the file open */
	return other;
}

/* @is_made: @fd is open for writing and also serves as write_fd. The caller makes room. */
static int add(struct hf_files *files, struct hf_volume *volume, const struct hf_file_id *id, int fd,
	       bool is_made, const struct stat *st, struct hf_file **filep)
{
	struct hf_file *file;
	uint64_t hash = hash_of(volume, id->inode);
	struct shard *shard = shard_of(files, hash);
	int r;

	r = hf_file_new(&file, files, volume, id, fd, st);
	if (r < 0) {
		close(fd);
		return r;
	}
	file->hash = hash;
	if (is_made)
		file->write_fd = fd;
	*filep = insert(shard, file);
	return 0;
}

struct hf_file *hf_files_find(struct hf_files *files, const struct hf_volume *volume,
			      const struct hf_file_id *id)
{
	return find(files, volume, id);
}

int hf_files_get(struct hf_files *files, struct hf_volume *volume, const struct hf_file_id *id, bool cached,
		 struct hf_file **filep)
{
	struct stat st;
	int fd = -1, r;

	*filep = find(files, volume, id);
	if (*filep)
		return 0;
	if (cached)
		return -EAGAIN;
	r = hf_volume_open_id(volume, id, &fd, &st);
	if (r < 0)
		return r;
	r = add(files, volume, id, fd, false, &st, filep);
	if (r == 0)
		hf_files_make_room_for(*filep, true);
	return r;
}

static int take(struct hf_files *files, struct hf_volume *volume, int fd, bool is_made,
		struct hf_file **filep, struct stat *stp)
{
	struct hf_file_id id;
	int r = hf_volume_identify(volume, fd, &id, stp);

	if (r == 0) {
		*filep = find(files, volume, &id);
		if (!*filep)
			return add(files, volume, &id, fd, is_made, stp, filep);
	}
	close(fd);
	return r;
}

int hf_files_take(struct hf_files *files, struct hf_volume *volume, int fd, bool cached,
		  struct hf_file **filep, struct stat *stp)
{
	int r = take(files, volume, fd, false, filep, stp);

	if (r == 0 && !cached)
		hf_files_make_room_for(*filep, true);
	return r;
}

int hf_files_take_made(struct hf_files *files, struct hf_volume *volume, int fd, struct hf_file **filep)
{
	struct stat st;
	int r = take(files, volume, fd, true, filep, &st);

	if (r == 0)
		hf_files_make_room_for(*filep, true);
	return r;
}

/* Making and freeing */

int hf_files_new(struct hf_files **filesp, size_t max_fds)
{
	struct hf_files *files = aligned_alloc(64, sizeof(*files));

	if (!files)
		return hf_trace(-ENOMEM);
	memset(files, 0, sizeof(*files));
	files->max_fds = max_fds;
	files->log_limit = (struct hf_log_limit)HF_LOG_LIMIT(LOG_WINDOW_S);
	pthread_mutex_init(&files->log_lock, NULL);
	pthread_mutex_init(&files->close_lock, NULL);
	hf_list_init(&files->to_close);
	if (hf_pages_new(&files->pages) < 0 || hf_names_new(&files->names) < 0) {
		hf_pages_free(files->pages);
		pthread_mutex_destroy(&files->log_lock);
		pthread_mutex_destroy(&files->close_lock);
		free(files);
		return hf_trace(-ENOMEM);
	}
	for (size_t i = 0; i < N_SHARDS; i++) {
		struct shard *shard = &files->shards[i];

		pthread_mutex_init(&shard->lock, NULL);
		hf_list_init(&shard->lru);
		shard->n_buckets = 64;
		while (shard->n_buckets * N_SHARDS < max_fds)
			shard->n_buckets *= 2;
		shard->buckets = calloc(shard->n_buckets, sizeof(struct hf_file *));
		if (!shard->buckets) {
			hf_files_free(files);
			return hf_trace(-ENOMEM);
		}
	}
	*filesp = files;
	return 0;
}

struct hf_files *hf_files_free(struct hf_files *files)
{
	if (!files)
		return NULL;
	for (size_t i = 0; i < N_SHARDS; i++) {
		struct shard *shard = &files->shards[i];
		struct hf_link *link;

		while (shard->buckets && (link = hf_list_first(&shard->lru))) {
			struct hf_file *file = hf_list_entry(link, struct hf_file, lru);

			take_out(shard, file);
			file->is_unsynced = false; /* a restart changes the verifier, so no sync is needed */
			hf_file_unref(file);
		}
	}
	hf_files_close_all(files);
	for (size_t i = 0; i < N_SHARDS; i++) {
		free(files->shards[i].buckets);
		pthread_mutex_destroy(&files->shards[i].lock);
	}
	hf_pages_free(files->pages);
	hf_names_free(files->names);
	pthread_mutex_destroy(&files->log_lock);
	pthread_mutex_destroy(&files->close_lock);
	free(files);
	return NULL;
}
