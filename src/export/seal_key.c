/* The key file: 16 random bytes, readable by the server's user alone. Without it, the handles of the clients
 * become invalid, and so do the locks in the store, which name their files by handles. So the key is complete
 * and on stable storage before it is used, and the store records its print. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "export/seal.h"
#include "loop/loop.h"

#define KEY_FILE "handle.key"
#define NEW_FILE "handle.key.new"

/* A user who can read the key can make handles for every file of every export. */
static void warn_of_readers(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && st.st_mode & 077)
		hf_log_warn("other users can read the key of the file handles; fix it with chmod 600",
			    "file=" KEY_FILE " mode=%04o", st.st_mode & 07777u);
}

static int read_key(int dir, struct hf_seal_key *key)
{
	hf_cleanup(hf_closep) int fd = openat(dir, KEY_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	uint8_t bytes[sizeof(key->bytes) + 1];
	ssize_t n;

	if (fd < 0)
		return -errno;
	warn_of_readers(fd);
	n = read(fd, bytes, sizeof(bytes));
	if (n < 0)
		return -errno;
	if (n != sizeof(key->bytes))
		return -EBADMSG;
	memcpy(key->bytes, bytes, sizeof(key->bytes));
	return 0;
}

static int write_new(int dir, const struct hf_seal_key *key)
{
	hf_cleanup(hf_closep) int fd =
		openat(dir, NEW_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	if (write(fd, key->bytes, sizeof(key->bytes)) != sizeof(key->bytes))
		return errno ? -errno : -EIO;
	return fsync(fd) < 0 ? -errno : 0;
}

static int make_key(int dir, struct hf_seal_key *key, struct hf_loop *loop)
{
	int r;

	hf_loop_random(loop, key->bytes, sizeof(key->bytes));
	errno = 0;
	r = write_new(dir, key);
	if (r < 0)
		return r;
	if (renameat(dir, NEW_FILE, dir, KEY_FILE) < 0 || fsync(dir) < 0)
		return -errno;
	return 0;
}

/* No handle begins with this text, so its seal does not help a forger. */
uint64_t hf_seal_key_print(const struct hf_seal_key *key)
{
	static const char text[] = "the key of the file handles";
	uint64_t print = hf_seal(key, text, sizeof(text) - 1);

	return print ? print : 1;
}

static int explain(const char *path, int r)
{
	char quoted[256];

	hf_log_quote(quoted, sizeof(quoted), path, strlen(path));
	if (r == -EBADMSG)
		hf_log_error("the key of the file handles is damaged; restore it. If there is no copy, "
			     "remove it and start once with --clear-store: this deletes all locks, and all "
			     "clients must mount again",
			     "file=%s/" KEY_FILE, quoted);
	else if (r < 0)
		hf_log_error("cannot read or create the key of the file handles",
			     "file=%s/" KEY_FILE " error=%s", quoted, strerrorname_np(-r));
	return r < 0 ? hf_trace(r) : 0;
}

int hf_seal_key_find(struct hf_seal_key *keyp, const char *path)
{
	hf_cleanup(hf_closep) int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = dir < 0 ? -errno : read_key(dir, keyp);

	return r == -ENOENT ? r : explain(path, r);
}

int hf_seal_key_load(struct hf_seal_key *keyp, const char *path, struct hf_loop *loop)
{
	hf_cleanup(hf_closep) int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = dir < 0 ? -errno : read_key(dir, keyp);

	if (dir >= 0 && r == -ENOENT)
		r = make_key(dir, keyp, loop);
	return explain(path, r);
}
