#include "vfs/finder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/hashtable.h"
#include "base/log.h"
#include "base/macros.h"
#include "vfs/volume.h"

#define MAX_DEPTH 1024
#define N_LATER   256

struct seen {
	struct hf_hash_node node; /* in finder->seen */
	uint64_t dir;             /* inode number of the directory that contains it */
	char name[];
};

/* An id whose caller was told to retry, and the number of walks at that time. */
struct later {
	struct hf_file_id id;
	uint64_t n_walks;
	bool is_used;
};

struct hf_finder {
	struct later later[N_LATER]; /* under lock; by inode number, the latest one */
	uint64_t root;               /* (c) */
	pthread_mutex_t lock;
	struct hf_hashtable seen; /* under lock, like everything below */
	bool is_walking;
	pthread_cond_t walk_over;
	uint64_t n_walks;
	struct timespec walk_began;
	time_t walk_ended; /* 0: never */
};

/* What was seen */

/* No two inode numbers have the same hash, since both steps can be undone: so the hash is the key, too. */
static uint64_t hash_of(uint64_t inode)
{
	uint64_t hash = inode * UINT64_C(0x9e3779b97f4a7c15);

	return hash ^ hash >> 32;
}

static struct seen *find(const struct hf_finder *finder, uint64_t inode)
{
	uint64_t hash = hash_of(inode);
	struct hf_hash_node *node = hf_hash_match(*hf_hashtable_chain(&finder->seen, hash), hash);

	return node ? hf_container_of(node, struct seen, node) : NULL;
}

void hf_finder_learn(struct hf_finder *finder, uint64_t dir_inode, const char *name, uint64_t inode)
{
	size_t size = strlen(name) + 1;
	struct seen *seen;

	if (inode == finder->root)
		return;
	pthread_mutex_lock(&finder->lock);
	seen = find(finder, inode);
	if (seen && seen->dir == dir_inode && strcmp(seen->name, name) == 0)
		goto out;
	if (seen) {
		hf_hashtable_remove(&finder->seen, &seen->node);
		free(seen);
	}
	if (finder->seen.n >= HF_FINDER_MAX_FILES)
		goto out;
	seen = malloc(sizeof(*seen) + size);
	if (!seen)
		goto out;
	seen->dir = dir_inode;
	memcpy(seen->name, name, size);
	hf_hashtable_insert(&finder->seen, &seen->node, hash_of(inode));
out:
	pthread_mutex_unlock(&finder->lock);
}

/* The path from the root, built from its end; NULL if a component is unknown. */
static const char *path_of(struct hf_finder *finder, uint64_t inode, char room[PATH_MAX])
{
	char *p = room + PATH_MAX - 1;

	*p = '\0';
	for (int depth = 0; inode != finder->root; depth++) {
		const struct seen *seen = find(finder, inode);
		size_t len;

		if (!seen || depth == MAX_DEPTH)
			return NULL;
		len = strlen(seen->name);
		if ((size_t)(p - room) < len + 1)
			return NULL;
		if (*p)
			*--p = '/';
		p -= len;
		memcpy(p, seen->name, len);
		inode = seen->dir;
	}
	return *p ? p : ".";
}

static int open_beneath(const struct hf_volume *volume, const char *path, uint64_t flags)
{
	struct open_how how = {
		.flags = flags | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	int fd = (int)syscall(SYS_openat2, volume->root, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

/* Opens the file where it was last seen; *n_walksp: the number of walks until then. */
static int open_seen(struct hf_finder *finder, const struct hf_volume *volume, const struct hf_file_id *id,
		     uint64_t *n_walksp)
{
	hf_cleanup(hf_closep) int fd = -1;
	struct hf_file_id found;
	struct stat st;
	char room[PATH_MAX];
	const char *path;
	int r;

	pthread_mutex_lock(&finder->lock);
	path = path_of(finder, id->inode, room);
	*n_walksp = finder->n_walks;
	pthread_mutex_unlock(&finder->lock);
	if (!path)
		return -ESTALE;
	fd = open_beneath(volume, path, O_PATH);
	r = fd < 0 ? fd : hf_volume_identify(volume, fd, &found, &st);
	if (hf_volume_is_want(r))
		return r;
	if (r < 0 || !hf_file_id_equal(&found, id))
		return -ESTALE;
	r = fd;
	fd = -1;
	return r;
}

/* The walk: a queue of directories, as paths from the root */

struct queued {
	struct queued *next;
	uint64_t inode;
	char path[];
};

static struct queued *queued_new(const char *dir, const char *name, uint64_t inode)
{
	bool is_top = strcmp(dir, ".") == 0;
	size_t size = strlen(dir) + strlen(name) + 2;
	struct queued *queued = malloc(sizeof(*queued) + size);

	if (!queued)
		return NULL;
	queued->next = NULL;
	queued->inode = inode;
	snprintf(queued->path, size, "%s%s%s", is_top ? "" : dir, is_top ? "" : "/", name);
	return queued;
}

static bool is_dir(int dir, const struct dirent *entry)
{
	struct stat st;

	if (entry->d_type != DT_UNKNOWN)
		return entry->d_type == DT_DIR;
	return fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0 &&
	       S_ISDIR(st.st_mode);
}

/* Skips a directory that cannot be read. < 0: memory or descriptors ran out, so there may be files that were
 * not seen. */
static int walk_dir(struct hf_finder *finder, const struct hf_volume *volume, const struct queued *at,
		    struct queued ***tailp)
{
	int fd = open_beneath(volume, at->path, O_RDONLY | O_DIRECTORY);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	int r = fd < 0 ? fd : 0;

	if (!dir) {
		r = r < 0 ? r : -errno;
		hf_closep(&fd);
		return hf_volume_is_want(r) ? r : 0;
	}
	while ((entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		hf_finder_learn(finder, at->inode, entry->d_name, entry->d_ino);
		if (!is_dir(fd, entry))
			continue;
		**tailp = queued_new(at->path, entry->d_name, entry->d_ino);
		if (**tailp)
			*tailp = &(**tailp)->next;
		else
			r = -ENOMEM;
	}
	closedir(dir);
	return r;
}

static int walk(struct hf_finder *finder, const struct hf_volume *volume)
{
	struct queued *first = queued_new(".", ".", finder->root), **tail;
	int r = 0;

	if (!first)
		return -ENOMEM;
	tail = &first->next;
	while (first) {
		struct queued *at = first;

		if (r == 0)
			r = walk_dir(finder, volume, at, &tail);
		first = at->next;
		free(at);
	}
	return r;
}

/* Real time: files belong to the real world, and no protocol decision depends on these pauses. */
static struct timespec time_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now;
}

static time_t seconds_now(void)
{
	return time_now().tv_sec + 1; /* never 0 */
}

/* Waits briefly for a walk in progress, then decides whether another is needed. 1: yes, and the caller makes
 * it. 0: no. -EAGAIN: not now. */
static int begin_walk(struct hf_finder *finder, uint64_t n_walks_before)
{
	struct timespec until;
	int r = 0;

	pthread_mutex_lock(&finder->lock);
	until = finder->walk_began;
	until.tv_sec += HF_FINDER_WAIT_S;
	while (finder->is_walking && r == 0)
		r = pthread_cond_timedwait(&finder->walk_over, &finder->lock, &until);
	if (finder->is_walking) {
		r = -EAGAIN;
	} else if (finder->n_walks != n_walks_before) {
		r = 0;
	} else if (finder->walk_ended && seconds_now() - finder->walk_ended < HF_FINDER_PAUSE_S) {
		r = -EAGAIN;
	} else {
		finder->is_walking = true;
		finder->walk_began = time_now();
		r = 1;
	}
	pthread_mutex_unlock(&finder->lock);
	return r;
}

/* An incomplete walk does not count: files that it did not see may exist. */
static void end_walk(struct hf_finder *finder, bool is_complete)
{
	pthread_mutex_lock(&finder->lock);
	finder->n_walks += is_complete;
	finder->is_walking = false;
	finder->walk_ended = seconds_now();
	pthread_cond_broadcast(&finder->walk_over);
	hf_log_info("walked an export to find a file by its inode number", "files=%zu", finder->seen.n);
	pthread_mutex_unlock(&finder->lock);
}

static int walk_and_open(struct hf_finder *finder, const struct hf_volume *volume,
			 const struct hf_file_id *id, uint64_t n_walks_before)
{
	int r = begin_walk(finder, n_walks_before), fd;
	uint64_t n_walks;

	if (r > 0) {
		r = walk(finder, volume);
		end_walk(finder, r == 0);
	}
	fd = open_seen(finder, volume, id, &n_walks);
	return fd == -ESTALE && r < 0 ? r : fd;
}

/* The first walk after a "retry later" answers that caller, even if it was made for another file. Otherwise a
 * hundred removed files would need a hundred walks. */

static struct later *later_of(struct hf_finder *finder, const struct hf_file_id *id)
{
	return &finder->later[id->inode % N_LATER];
}

static void note_later(struct hf_finder *finder, const struct hf_file_id *id, uint64_t n_walks)
{
	struct later *later = later_of(finder, id);

	pthread_mutex_lock(&finder->lock);
	/* A walk in progress may already have passed the place to which a file was moved. */
	if (!later->is_used || !hf_file_id_equal(&later->id, id))
		*later = (struct later){ *id, n_walks + finder->is_walking, true };
	pthread_mutex_unlock(&finder->lock);
}

/* A caller that got an answer and asks again starts over: a file that was missed then may be there now. */
static void forget_later(struct hf_finder *finder, const struct hf_file_id *id)
{
	struct later *later = later_of(finder, id);

	pthread_mutex_lock(&finder->lock);
	if (later->is_used && hf_file_id_equal(&later->id, id))
		later->is_used = false;
	pthread_mutex_unlock(&finder->lock);
}

/* Did a walk since then not find it? */
static bool was_missed(struct hf_finder *finder, const struct hf_file_id *id, uint64_t n_walks)
{
	struct later *later = later_of(finder, id);
	bool was;

	pthread_mutex_lock(&finder->lock);
	was = later->is_used && later->n_walks < n_walks && hf_file_id_equal(&later->id, id);
	pthread_mutex_unlock(&finder->lock);
	return was;
}

int hf_finder_open(struct hf_finder *finder, const struct hf_volume *volume, const struct hf_file_id *id)
{
	uint64_t n_walks;
	int fd = open_seen(finder, volume, id, &n_walks);

	if (fd == -ESTALE && !was_missed(finder, id, n_walks))
		fd = walk_and_open(finder, volume, id, n_walks);
	if (fd == -EAGAIN)
		note_later(finder, id, n_walks);
	else
		forget_later(finder, id);
	return fd;
}

/* Making and freeing */

int hf_finder_new(struct hf_finder **finderp, uint64_t root_inode)
{
	struct hf_finder *finder = calloc(1, sizeof(*finder));
	pthread_condattr_t attr;

	if (!finder)
		return hf_trace(-ENOMEM);
	finder->root = root_inode;
	pthread_mutex_init(&finder->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&finder->walk_over, &attr);
	pthread_condattr_destroy(&attr);
	if (hf_hashtable_init(&finder->seen) < 0) {
		hf_finder_free(finder);
		return hf_trace(-ENOMEM);
	}
	*finderp = finder;
	return 0;
}

static void forget(struct hf_hash_node *node)
{
	free(hf_container_of(node, struct seen, node));
}

struct hf_finder *hf_finder_free(struct hf_finder *finder)
{
	if (!finder)
		return NULL;
	hf_hashtable_empty(&finder->seen, forget);
	hf_hashtable_deinit(&finder->seen);
	pthread_cond_destroy(&finder->walk_over);
	pthread_mutex_destroy(&finder->lock);
	free(finder);
	return NULL;
}
