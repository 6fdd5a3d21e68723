/*
 * A slot is a directory that is watched; its epoch counts the watches. A page
 * belongs to a slot and an epoch. So one event, or another directory in the
 * slot, invalidates all its pages at once; they are freed when they are
 * searched for, or in the next sweep. A watch reports one event: afterwards a busy
 * directory costs nothing until it is listed again.
 */
#include "vfs/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hashtable.h"
#include "base/list.h"
#include "base/macros.h"
#include "vfs/file.h"

#define N_STAMPS   65536
#define MAX_SWEEPS 2
#define EVENTS     (IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVE | IN_DELETE_SELF | IN_MOVE_SELF)

struct slot {
	int watch; /* -1: none */
	uint64_t epoch;
	uint64_t used; /* for the order of use: the largest is the latest */
	const struct hf_volume *volume;
	struct hf_file_id dir;
};

struct cached_page {
	struct hf_page page;
	struct hf_hash_node node; /* in pages->by_key */
	struct hf_link link;      /* in pages->all */
	struct hf_page_key key;
	int slot;
	uint64_t epoch;
	uint32_t sweep;
	struct timespec ctime; /* of the directory */
	size_t size;
	uint8_t room[]; /* the parts, then the bytes */
};

struct hf_pages {
	int inotify; /* (c) -1: not available, and nothing is cached */
	pthread_mutex_t lock;
	struct slot slots[HF_PAGES_MAX_DIRS]; /* under lock, like everything below */
	struct hf_hashtable by_key;
	struct hf_list all;
	size_t n_bytes;
	uint32_t sweep;
	uint64_t clock; /* for slot->used */
	_Atomic uint32_t stamps[N_STAMPS];
};

/* Stamps */

static size_t stamp_at(uint64_t inode)
{
	return (inode * UINT64_C(0x9e3779b97f4a7c15)) >> 48;
}

_Static_assert(N_STAMPS == 1 << 16, "stamp_at() gives 16 bits");

uint32_t hf_pages_stamp(const struct hf_pages *pages, uint64_t inode)
{
	return atomic_load_explicit(&pages->stamps[stamp_at(inode)], memory_order_acquire);
}

void hf_pages_mark(struct hf_pages *pages, uint64_t inode)
{
	atomic_fetch_add_explicit(&pages->stamps[stamp_at(inode)], 1, memory_order_release);
}

/* Pages */

struct hf_page *hf_page_unref(struct hf_page *page)
{
	if (page && atomic_fetch_sub_explicit(&page->n_refs, 1, memory_order_acq_rel) == 1)
		free(hf_container_of(page, struct cached_page, page));
	return NULL;
}

static uint64_t hash_of(int slot, const struct hf_page_key *key)
{
	uint64_t h =
		key->cookie * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)slot << 32 ^ key->max ^ key->export;

	return h ^ h >> 29;
}

static bool is_key(const struct cached_page *cached, int slot, const struct hf_page_key *key)
{
	return cached->slot == slot && cached->key.export == key->export &&
	       cached->key.cookie == key->cookie && cached->key.names == key->names &&
	       cached->key.max == key->max;
}

static struct cached_page *find_key(const struct hf_pages *pages, int slot, const struct hf_page_key *key)
{
	hf_hash_for_each(node, &pages->by_key, hash_of(slot, key)) {
		struct cached_page *cached = hf_container_of(node, struct cached_page, node);

		if (is_key(cached, slot, key))
			return cached;
	}
	return NULL;
}

static bool is_alive(const struct hf_pages *pages, const struct cached_page *cached)
{
	const struct slot *slot = &pages->slots[cached->slot];

	return slot->watch >= 0 && slot->epoch == cached->epoch && pages->sweep - cached->sweep < MAX_SWEEPS;
}

static void drop(struct hf_pages *pages, struct cached_page *cached)
{
	hf_hashtable_remove(&pages->by_key, &cached->node);
	hf_link_remove(&cached->link);
	pages->n_bytes -= cached->size;
	hf_page_unref(&cached->page);
}

static void drop_dead(struct hf_pages *pages)
{
	hf_list_for_each_safe(link, &pages->all) {
		struct cached_page *cached = hf_list_entry(link, struct cached_page, link);

		if (!is_alive(pages, cached))
			drop(pages, cached);
	}
}

/* Watches; under the lock */

static void end_watch(struct slot *slot)
{
	slot->watch = -1;
	slot->epoch++;
}

static void end_all(struct hf_pages *pages)
{
	for (size_t i = 0; i < HF_PAGES_MAX_DIRS; i++) {
		if (pages->slots[i].watch >= 0)
			inotify_rm_watch(pages->inotify, pages->slots[i].watch);
		end_watch(&pages->slots[i]);
	}
}

static void on_event(struct hf_pages *pages, const struct inotify_event *event)
{
	if (event->mask & IN_Q_OVERFLOW) {
		end_all(pages);
		return;
	}
	for (size_t i = 0; i < HF_PAGES_MAX_DIRS; i++)
		if (pages->slots[i].watch == event->wd)
			end_watch(&pages->slots[i]);
}

/* Reads all events. The kernel reports a change before the call that makes it returns. */
static void listen(struct hf_pages *pages)
{
	_Alignas(struct inotify_event) char buffer[4096];
	ssize_t n;

	while ((n = read(pages->inotify, buffer, sizeof(buffer))) > 0) {
		const struct inotify_event *event;

		for (char *p = buffer; p < buffer + n; p += sizeof(*event) + event->len) {
			event = (const struct inotify_event *)(void *)p;
			on_event(pages, event);
		}
	}
}

static int find_slot(const struct hf_pages *pages, const struct hf_file *dir)
{
	for (int i = 0; i < HF_PAGES_MAX_DIRS; i++) {
		const struct slot *slot = &pages->slots[i];

		if (slot->watch >= 0 && slot->volume == dir->volume && hf_file_id_equal(&slot->dir, &dir->id))
			return i;
	}
	return -1;
}

/* A free slot, or the least recently used one. */
static struct slot *free_slot(struct hf_pages *pages)
{
	struct slot *best = &pages->slots[0];

	for (size_t i = 1; i < HF_PAGES_MAX_DIRS && best->watch >= 0; i++) {
		struct slot *slot = &pages->slots[i];

		if (slot->watch < 0 || slot->used < best->used)
			best = slot;
	}
	if (best->watch >= 0) {
		inotify_rm_watch(pages->inotify, best->watch);
		end_watch(best);
	}
	return best;
}

static int add_watch(struct hf_pages *pages, const struct hf_file *dir)
{
	struct slot *slot = free_slot(pages);
	char path[40];
	int watch;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", dir->fd);
	watch = inotify_add_watch(pages->inotify, path, EVENTS | IN_ONESHOT | IN_ONLYDIR);
	if (watch < 0)
		return -1;
	/* One directory may be in two exports here; the kernel gives it one watch. */
	for (int i = 0; i < HF_PAGES_MAX_DIRS; i++)
		if (pages->slots[i].watch == watch)
			end_watch(&pages->slots[i]);
	slot->watch = watch;
	slot->volume = dir->volume;
	slot->dir = dir->id;
	return (int)(slot - pages->slots);
}

struct hf_page_watch hf_pages_watch(struct hf_pages *pages, const struct hf_file *dir)
{
	struct hf_page_watch watch = { .slot = -1 };

	if (pages->inotify < 0)
		return watch;
	pthread_mutex_lock(&pages->lock);
	listen(pages);
	watch.slot = find_slot(pages, dir);
	if (watch.slot < 0)
		watch.slot = add_watch(pages, dir);
	if (watch.slot >= 0) {
		watch.epoch = pages->slots[watch.slot].epoch;
		pages->slots[watch.slot].used = ++pages->clock;
	}
	pthread_mutex_unlock(&pages->lock);
	return watch;
}

/* Finding and caching */

static bool has_changed(const struct hf_pages *pages, const struct hf_page *page)
{
	for (size_t i = 0; i < page->n_parts; i++)
		if (hf_pages_stamp(pages, page->parts[i].inode) != page->parts[i].stamp)
			return true;
	return false;
}

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static struct hf_page *find_locked(struct hf_pages *pages, const struct hf_file *dir,
				   const struct hf_page_key *key, const struct stat *st)
{
	struct cached_page *cached;
	int slot;

	listen(pages);
	slot = find_slot(pages, dir);
	if (slot < 0)
		return NULL;
	cached = find_key(pages, slot, key);
	if (!cached)
		return NULL;
	if (!is_alive(pages, cached) || !is_same_time(&cached->ctime, &st->st_ctim) ||
	    has_changed(pages, &cached->page)) {
		drop(pages, cached);
		return NULL;
	}
	pages->slots[slot].used = ++pages->clock;
	atomic_fetch_add_explicit(&cached->page.n_refs, 1, memory_order_relaxed);
	return &cached->page;
}

struct hf_page *hf_pages_find(struct hf_pages *pages, const struct hf_file *dir,
			      const struct hf_page_key *key, const struct stat *st)
{
	struct hf_page *page;

	if (pages->inotify < 0)
		return NULL;
	pthread_mutex_lock(&pages->lock);
	page = find_locked(pages, dir, key, st);
	pthread_mutex_unlock(&pages->lock);
	return page;
}

static struct cached_page *copy_of(const struct hf_page *page)
{
	size_t parts_size = page->n_parts * sizeof(*page->parts);
	size_t size = sizeof(struct cached_page) + parts_size + page->len;
	struct cached_page *cached = malloc(size);

	if (!cached)
		return NULL;
	*cached = (struct cached_page){ .page = *page, .size = size };
	cached->page.n_refs = 1;
	if (parts_size)
		memcpy(cached->room, page->parts, parts_size);
	if (page->len)
		memcpy(cached->room + parts_size, page->bytes, page->len);
	cached->page.parts = (const struct hf_page_part *)(void *)cached->room;
	cached->page.bytes = cached->room + parts_size;
	return cached;
}

void hf_pages_put(struct hf_pages *pages, const struct hf_file *dir, const struct hf_page_key *key,
		  struct hf_page_watch watch, const struct stat *st, const struct hf_page *page)
{
	struct cached_page *cached = copy_of(page), *before;

	if (!cached)
		return;
	cached->key = *key;
	cached->slot = watch.slot;
	cached->epoch = watch.epoch;
	cached->ctime = st->st_ctim;
	pthread_mutex_lock(&pages->lock);
	cached->sweep = pages->sweep;
	listen(pages);
	before = find_key(pages, watch.slot, key);
	if (before) /* another thread made it at the same time, or it has changed since */
		drop(pages, before);
	if (is_alive(pages, cached) && pages->n_bytes + cached->size <= HF_PAGES_MAX_BYTES) {
		hf_hashtable_insert(&pages->by_key, &cached->node, hash_of(cached->slot, key));
		hf_list_push_back(&pages->all, &cached->link);
		pages->n_bytes += cached->size;
		cached = NULL;
	}
	pthread_mutex_unlock(&pages->lock);
	free(cached);
}

/* Making and freeing */

void hf_pages_sweep(struct hf_pages *pages)
{
	pthread_mutex_lock(&pages->lock);
	pages->sweep++;
	drop_dead(pages);
	if (!pages->n_bytes && pages->inotify >= 0)
		end_all(pages);
	pthread_mutex_unlock(&pages->lock);
}

void hf_pages_clear(struct hf_pages *pages)
{
	pthread_mutex_lock(&pages->lock);
	end_all(pages);
	drop_dead(pages);
	pthread_mutex_unlock(&pages->lock);
}

int hf_pages_new(struct hf_pages **pagesp)
{
	struct hf_pages *pages = calloc(1, sizeof(*pages));

	if (!pages)
		return hf_trace(-ENOMEM);
	if (hf_hashtable_init(&pages->by_key) < 0) {
		free(pages);
		return hf_trace(-ENOMEM);
	}
	hf_list_init(&pages->all);
	for (size_t i = 0; i < HF_PAGES_MAX_DIRS; i++)
		pages->slots[i].watch = -1;
	pthread_mutex_init(&pages->lock, NULL);
	pages->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	*pagesp = pages;
	return 0;
}

struct hf_pages *hf_pages_free(struct hf_pages *pages)
{
	if (!pages)
		return NULL;
	hf_pages_clear(pages);
	hf_closep(&pages->inotify);
	hf_hashtable_deinit(&pages->by_key);
	pthread_mutex_destroy(&pages->lock);
	free(pages);
	return NULL;
}
