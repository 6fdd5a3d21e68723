/* LMDB itself: opens its file or refuses it, and runs transactions that grow the map. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "store/lmdb/check.h"
#include "store/lmdb/internal.h"

#define FIRST_MAP_SIZE ((size_t)64 << 20)
#define LOCKS_NAME     "locks"
#define LOCK_FILE      "store.lock"
#define NEW_FILE       "store.mdb.new"

int hf_lmdb_lock_folder(struct hf_lmdb *lmdb)
{
	char pid[16] = "";
	ssize_t n;

	lmdb->dir_fd = open(lmdb->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (lmdb->dir_fd < 0) {
		int r = -errno;

		hf_log_error("the store's folder cannot be opened", "path=%s error=%s", lmdb->path,
			     strerror(-r));
		return r;
	}
	lmdb->lock_fd = openat(lmdb->dir_fd, LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lmdb->lock_fd < 0) {
		int r = -errno;

		hf_log_error("the store's lock file cannot be opened", "path=%s/" LOCK_FILE " error=%s",
			     lmdb->path, strerror(-r));
		return r;
	}
	if (flock(lmdb->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		n = pread(lmdb->lock_fd, pid, sizeof(pid) - 1, 0);
		pid[HF_MAX(n, 0)] = '\0';
		pid[strspn(pid, "0123456789")] = '\0';
		hf_log_error("the store is in use by another holdfastd", "path=%s pid=%s", lmdb->path, pid);
		return -EBUSY;
	}
	n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	/* The number serves only the error message above. */
	if (ftruncate(lmdb->lock_fd, 0) < 0 || pwrite(lmdb->lock_fd, pid, (size_t)n, 0) < 0)
		hf_log_debug("the store's lock file could not be written", "path=%s", lmdb->path);
	return 0;
}

/* Judging the file that exists */

struct judgement {
	unsigned long version; /* 0: none was found */
	bool is_empty;
	bool has_locks;
	const char *wrong;
};

static const char *judge_entry(void *user, struct hf_bytes key, struct hf_bytes value)
{
	struct judgement *judgement = user;
	const char *wrong;

	judgement->is_empty = false;
	if (!value.data && hf_bytes_equal(key, hf_bytes_of_str(LOCKS_NAME))) {
		judgement->has_locks = true;
		return NULL;
	}
	wrong = hf_lmdb_check_entry(key, value);
	if (key.len == 13 && memcmp(key.data, "server:format", 13) == 0)
		judgement->version = hf_lmdb_format_of(value);
	if (wrong && !judgement->wrong)
		judgement->wrong = wrong;
	/* Continue to the format entry: a newer format may mean anything else here. */
	return NULL;
}

static const char *judge(const void *file, size_t size)
{
	struct judgement judgement = { .is_empty = true };
	const char *wrong = hf_lmdb_check(file, size, judge_entry, &judgement);

	if (wrong)
		return wrong;
	if (judgement.version > HF_LMDB_FORMAT)
		return "it was written by a newer holdfastd";
	if (judgement.version == 0)
		return judgement.is_empty ? "it is empty" : "it is not a store of holdfastd";
	if (!judgement.has_locks && !judgement.wrong)
		return "its locks are missing";
	return judgement.wrong;
}

/* 1: a valid file exists; 0: no file exists; < 0: the file is refused. */
static int look_at_file(struct hf_lmdb *lmdb)
{
	hf_cleanup(hf_closep) int fd = openat(lmdb->dir_fd, HF_LMDB_FILE, O_RDONLY | O_CLOEXEC);
	const char *wrong = "it is empty";
	struct stat st;
	void *file;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size > 0) {
		file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
		if (file == MAP_FAILED)
			return -errno;
		wrong = judge(file, (size_t)st.st_size);
		munmap(file, (size_t)st.st_size);
	}
	if (!wrong)
		return 1;
	hf_log_error("the store's file is refused and left unchanged; move it away to start without it",
		     "path=%s/" HF_LMDB_FILE " reason=%s", lmdb->path, wrong);
	return -EBADMSG;
}

/* Opening */

static int open_env(struct hf_lmdb *lmdb, const char *name)
{
	char path[4096];
	MDB_txn *txn;
	int rc;

	if (snprintf(path, sizeof(path), "%s/%s", lmdb->path, name) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	rc = mdb_env_create(&lmdb->env);
	if (rc) {
		lmdb->env = NULL;
		return hf_lmdb_error(rc);
	}
	/* LMDB raises this to the size of the file. */
	rc = mdb_env_set_mapsize(lmdb->env, FIRST_MAP_SIZE);
	if (rc == 0)
		rc = mdb_env_set_maxdbs(lmdb->env, 1);
	if (rc == 0)
		rc = mdb_env_open(lmdb->env, path, MDB_NOSUBDIR | MDB_NOTLS, 0600);
	if (rc == 0)
		rc = mdb_txn_begin(lmdb->env, NULL, 0, &txn);
	if (rc == 0) {
		rc = mdb_dbi_open(txn, NULL, 0, &lmdb->dbi);
		if (rc == 0)
			rc = mdb_dbi_open(txn, LOCKS_NAME, MDB_CREATE, &lmdb->locks_dbi);
		if (rc == 0)
			rc = mdb_txn_commit(txn);
		else
			mdb_txn_abort(txn);
	}
	if (rc)
		hf_lmdb_close_file(lmdb);
	return hf_lmdb_error(rc);
}

void hf_lmdb_close_file(struct hf_lmdb *lmdb)
{
	if (lmdb->env)
		mdb_env_close(lmdb->env);
	lmdb->env = NULL;
}

static int write_head(struct hf_lmdb *lmdb, MDB_txn *txn, void *user)
{
	int rc = hf_lmdb_put_format(lmdb, txn, 1);

	if (rc == 0)
		rc = hf_lmdb_put_u64(lmdb, txn, "server:instance", lmdb->instance);
	return rc;
}

/* Creates the file under a temporary name first, so that it never exists without its format entry. */
static int make_file(struct hf_lmdb *lmdb)
{
	int r;

	if (unlinkat(lmdb->dir_fd, NEW_FILE, 0) < 0 && errno != ENOENT)
		return -errno;
	hf_loop_random(lmdb->store.loop, &lmdb->instance, sizeof(lmdb->instance));
	r = open_env(lmdb, NEW_FILE);
	if (r < 0)
		return r;
	r = hf_lmdb_transact(lmdb, write_head, NULL);
	hf_lmdb_close_file(lmdb);
	if (r < 0)
		return r;
	(void)unlinkat(lmdb->dir_fd, NEW_FILE "-lock", 0);
	if (renameat(lmdb->dir_fd, NEW_FILE, lmdb->dir_fd, HF_LMDB_FILE) < 0 || fsync(lmdb->dir_fd) < 0)
		return -errno;
	return 0;
}

int hf_lmdb_reopen_file(struct hf_lmdb *lmdb)
{
	hf_lmdb_close_file(lmdb);
	return hf_trace(open_env(lmdb, HF_LMDB_FILE));
}

int hf_lmdb_open_file(struct hf_lmdb *lmdb)
{
	MDB_txn *txn;
	int r = look_at_file(lmdb);

	if (r == -EBADMSG)
		return r;
	if (r == 0)
		r = make_file(lmdb);
	if (r >= 0)
		r = open_env(lmdb, HF_LMDB_FILE);
	if (r == 0)
		r = hf_lmdb_error(mdb_txn_begin(lmdb->env, NULL, MDB_RDONLY, &txn));
	if (r == 0) {
		r = hf_lmdb_get_u64(lmdb, txn, "server:instance", &lmdb->instance);
		mdb_txn_abort(txn);
		r = r == 0 ? -EBADMSG : r;
	}
	if (r < 0) {
		hf_log_error("the store's file cannot be opened", "path=%s/" HF_LMDB_FILE " error=%s",
			     lmdb->path, strerror(-r));
		return r;
	}
	return 0;
}

/* Transactions */

static int grow(struct hf_lmdb *lmdb)
{
	MDB_envinfo info;
	int rc = mdb_env_info(lmdb->env, &info);

	if (rc)
		return rc;
	if (info.me_mapsize > SIZE_MAX / 2)
		return MDB_MAP_FULL;
	return mdb_env_set_mapsize(lmdb->env, info.me_mapsize * 2);
}

int hf_lmdb_transact(struct hf_lmdb *lmdb, hf_lmdb_txn_fn fn, void *user)
{
	MDB_txn *txn;
	int rc;

	if (!lmdb->env)
		return hf_trace(-EIO);
	do {
		rc = mdb_txn_begin(lmdb->env, NULL, 0, &txn);
		if (rc)
			break;
		rc = fn(lmdb, txn, user);
		if (rc)
			mdb_txn_abort(txn);
		else
			rc = mdb_txn_commit(txn);
	} while (rc == MDB_MAP_FULL && (rc = grow(lmdb)) == 0);
	return hf_trace(hf_lmdb_error(rc));
}
