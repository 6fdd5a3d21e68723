/*
 * A seeded mix of operations, done twice: through libnfs on an export, and on a
 * local directory. This program compares what a read gives at once; the program
 * that started it compares the trees.
 *
 *	files_mix URL LOCAL_DIR EXPORTED_DIR SEED N_OPERATIONS
 *
 * The server may be killed and started again meanwhile: libnfs sends again what
 * was not answered, and an operation that was done before the server died fails
 * then (EEXIST, ENOENT). That is right for NFS; so where one fails, the exported
 * directory is looked at, and what counts is whether it was done.
 */
#include <errno.h>
#include <fcntl.h>
#include <nfsc/libnfs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../until.h"

#define N_NAMES   24
#define MAX_SIZE  (3 << 20)
#define MAX_WRITE (1 << 20)

#define MOUNT_PATIENCE 10 /* seconds */
#define MAX_GIVEN_UP   64

struct mix {
	struct nfs_context *nfs;
	const char *url;
	const char *local;
	const char *exported;
	uint64_t random;
	unsigned long n;
	uint8_t *data;
	uint8_t *other;
	struct nfs_context *given_up[MAX_GIVEN_UP];
	unsigned int n_given_up;
};

static uint64_t next(struct mix *mix)
{
	mix->random ^= mix->random << 13;
	mix->random ^= mix->random >> 7;
	mix->random ^= mix->random << 17;
	return mix->random;
}

static unsigned int below(struct mix *mix, unsigned int n)
{
	return (unsigned int)(next(mix) >> 16) % n;
}

static void fail(struct mix *mix, const char *what, const char *name, int r, int expected)
{
	fprintf(stderr, "files_mix: operation %lu: %s %s: %d, expected %d: %s\n", mix->n, what, name, r,
		expected, nfs_get_error(mix->nfs));
	exit(1);
}

struct name {
	char text[32];
	char remote[40];
	char local[512];
	char exported[512];
};

static struct name pick(struct mix *mix)
{
	struct name name;

	/* Some in a directory, which is there or not. */
	if (below(mix, 3) == 0)
		snprintf(name.text, sizeof(name.text), "d%u/n%u", below(mix, 3), below(mix, N_NAMES));
	else
		snprintf(name.text, sizeof(name.text), "n%u", below(mix, N_NAMES));
	snprintf(name.remote, sizeof(name.remote), "/%s", name.text);
	snprintf(name.local, sizeof(name.local), "%s/%s", mix->local, name.text);
	snprintf(name.exported, sizeof(name.exported), "%s/%s", mix->exported, name.text);
	return name;
}

static struct name pick_dir(struct mix *mix)
{
	struct name name;

	snprintf(name.text, sizeof(name.text), "d%u", below(mix, 3));
	snprintf(name.remote, sizeof(name.remote), "/%s", name.text);
	snprintf(name.local, sizeof(name.local), "%s/%s", mix->local, name.text);
	snprintf(name.exported, sizeof(name.exported), "%s/%s", mix->exported, name.text);
	return name;
}

static bool is_a(const char *path, mode_t type)
{
	struct stat st;

	return lstat(path, &st) == 0 && (st.st_mode & S_IFMT) == type;
}

static bool is_same_kind(const struct name *name)
{
	struct stat a, b;
	int ra = lstat(name->local, &a), rb = lstat(name->exported, &b);

	if (ra < 0 || rb < 0)
		return ra == rb;
	return (a.st_mode & S_IFMT) == (b.st_mode & S_IFMT) && a.st_nlink == b.st_nlink;
}

/* Mounting */

/* The server may be killed between the moment when libnfs has connected again and the moment when it looks at
 * that connection. Then libnfs gives up, whatever nfs_set_autoreconnect() says, and every later call fails,
 * too. The mix mounts anew, and the call is made again. */
static bool has_given_up(struct mix *mix)
{
	const char *error = nfs_get_error(mix->nfs);

	return strstr(error, "nfs_service failed") || strstr(error, "Failed to send");
}

static void discard(struct mix *mix)
{
	if (!has_given_up(mix)) {
		nfs_destroy_context(mix->nfs);
		return;
	}
	/* To destroy it is not safe: it would complete calls that were given up. */
	if (mix->n_given_up == MAX_GIVEN_UP)
		fail(mix, "libnfs gave up too often", "", -1, 0);
	mix->given_up[mix->n_given_up++] = mix->nfs;
}

static bool mount_once(struct mix *mix, char why_not[256])
{
	struct nfs_url *url;
	bool is_mounted;

	mix->nfs = nfs_init_context();
	url = nfs_parse_url_dir(mix->nfs, mix->url);
	is_mounted = url && nfs_mount(mix->nfs, url->server, url->path) == 0;
	nfs_destroy_url(url);
	if (!is_mounted) {
		snprintf(why_not, 256, "%s", nfs_get_error(mix->nfs));
		discard(mix);
	}
	return is_mounted;
}

/* The server may be killed at any moment, this one included; libnfs reconnects only what was mounted once. */
static bool mount_patiently(struct mix *mix)
{
	struct until until = until_begin(MOUNT_PATIENCE);
	char why_not[256];

	while (!mount_once(mix, why_not))
		if (!until_again(&until)) {
			fprintf(stderr, "files_mix: %d s in vain until %s is mounted; last seen: %s\n",
				MOUNT_PATIENCE, mix->url, why_not);
			return false;
		}
	nfs_set_autoreconnect(mix->nfs, -1);
	return true;
}

static bool was_given_up(struct mix *mix, int r)
{
	if (r >= 0 || !has_given_up(mix))
		return false;
	discard(mix);
	if (!mount_patiently(mix))
		exit(1);
	return true;
}

#define PATIENTLY(mix, r, call) \
	do                      \
		(r) = (call);   \
	while (was_given_up(mix, r))

/* Both succeeded or both failed, or the export is as the local directory all the same. */
static void judge(struct mix *mix, const char *what, const struct name *name, int local, int remote)
{
	int error = local < 0 ? -errno : 0;

	if ((local < 0) == (remote < 0))
		return;
	if (is_same_kind(name))
		return;
	fail(mix, what, name->text, remote, error);
}

/* Operations */

static void do_create(struct mix *mix)
{
	struct name name = pick(mix);
	int mode = 0600 | (int)below(mix, 0200);
	int fd = open(name.local, O_CREAT | O_EXCL | O_WRONLY, mode);
	struct nfsfh *fh = NULL;
	int r;

	PATIENTLY(mix, r, nfs_open2(mix->nfs, name.remote, O_CREAT | O_EXCL | O_WRONLY, mode, &fh));
	judge(mix, "create", &name, fd, r);
	if (fd >= 0)
		close(fd);
	if (r == 0)
		nfs_close(mix->nfs, fh);
	if (is_a(name.local, S_IFREG)) {
		chmod(name.local, (mode_t)mode);
		PATIENTLY(mix, r, nfs_chmod(mix->nfs, name.remote, mode));
	}
}

struct writing {
	const struct name *name;
	int flags;
	uint64_t offset;
	size_t len;
	bool must_commit;
};

static int write_remotely(struct mix *mix, const struct writing *writing, const char **stepp)
{
	struct nfsfh *fh;
	size_t done = 0;
	int r;

	*stepp = "open for writing";
	r = nfs_open(mix->nfs, writing->name->remote, writing->flags, &fh);
	if (r < 0)
		return r;
	*stepp = "write";
	while (r >= 0 && done < writing->len) {
		r = nfs_pwrite(mix->nfs, fh, writing->offset + done, writing->len - done, mix->data + done);
		if (r == 0)
			r = -EIO;
		else if (r > 0)
			done += (size_t)r;
	}
	if (r >= 0 && writing->must_commit) {
		*stepp = "commit";
		r = nfs_fsync(mix->nfs, fh);
	}
	/* If it was given up, closing it would only say so again. */
	if (r >= 0)
		nfs_close(mix->nfs, fh);
	return r < 0 ? r : 0;
}

static void do_write(struct mix *mix)
{
	struct name name = pick(mix);
	size_t len = below(mix, 4) ? below(mix, 20000) : below(mix, MAX_WRITE);
	uint64_t offset = below(mix, MAX_SIZE);
	int flags = O_WRONLY | (below(mix, 4) ? 0 : O_SYNC);
	struct writing writing = { &name, flags, offset, len, false };
	const char *step;
	int fd, r;

	if (!is_a(name.local, S_IFREG))
		return;
	for (size_t i = 0; i < len; i++)
		mix->data[i] = (uint8_t)(next(mix) >> 24);
	fd = open(name.local, O_WRONLY);
	if (fd < 0 || pwrite(fd, mix->data, len, (off_t)offset) != (ssize_t)len)
		fail(mix, "local write", name.text, -errno, 0);
	close(fd);
	writing.must_commit = below(mix, 2);
	PATIENTLY(mix, r, write_remotely(mix, &writing, &step));
	if (r < 0)
		fail(mix, step, name.text, r, 0);
}

static int read_remotely(struct mix *mix, const struct name *name, uint64_t offset, size_t len, size_t *donep)
{
	struct nfsfh *fh;
	int r = nfs_open(mix->nfs, name->remote, O_RDONLY, &fh);

	*donep = 0;
	if (r < 0)
		return r;
	while (*donep < len &&
	       (r = nfs_pread(mix->nfs, fh, offset + *donep, len - *donep, mix->other + *donep)) > 0)
		*donep += (size_t)r;
	if (r >= 0)
		nfs_close(mix->nfs, fh);
	return r;
}

static void do_read(struct mix *mix)
{
	struct name name = pick(mix);
	size_t len = below(mix, MAX_WRITE);
	uint64_t offset = below(mix, MAX_SIZE);
	ssize_t expected;
	size_t done;
	int fd, r;

	if (!is_a(name.local, S_IFREG))
		return;
	fd = open(name.local, O_RDONLY);
	expected = pread(fd, mix->data, len, (off_t)offset);
	close(fd);
	PATIENTLY(mix, r, read_remotely(mix, &name, offset, len, &done));
	if (r < 0 || (ssize_t)done != expected || memcmp(mix->data, mix->other, done) != 0)
		fail(mix, "read", name.text, r < 0 ? r : (int)done, (int)expected);
}

static void do_truncate(struct mix *mix)
{
	struct name name = pick(mix);
	uint64_t size = below(mix, MAX_SIZE);
	int local, remote;

	if (!is_a(name.local, S_IFREG))
		return;
	local = truncate(name.local, (off_t)size);
	PATIENTLY(mix, remote, nfs_truncate(mix->nfs, name.remote, size));
	judge(mix, "truncate", &name, local, remote);
}

static void do_unlink(struct mix *mix)
{
	struct name name = pick(mix);
	int local = unlink(name.local), remote;

	PATIENTLY(mix, remote, nfs_unlink(mix->nfs, name.remote));
	judge(mix, "unlink", &name, local, remote);
}

static void do_rename(struct mix *mix)
{
	struct name from = pick(mix), to = pick(mix);
	int local = rename(from.local, to.local), remote;

	PATIENTLY(mix, remote, nfs_rename(mix->nfs, from.remote, to.remote));
	judge(mix, "rename from", &from, local, remote);
	judge(mix, "rename to", &to, local, remote);
}

static void do_link(struct mix *mix)
{
	struct name from = pick(mix), to = pick(mix);
	int local, remote;

	if (is_a(from.local, S_IFLNK)) /* libnfs would go where it points to */
		return;
	local = linkat(AT_FDCWD, from.local, AT_FDCWD, to.local, 0);
	PATIENTLY(mix, remote, nfs_link(mix->nfs, from.remote, to.remote));
	judge(mix, "link", &to, local, remote);
}

static void do_symlink(struct mix *mix)
{
	struct name name = pick(mix);
	char target[64];
	int local, remote;

	snprintf(target, sizeof(target), "to-%u", below(mix, 1000));
	local = symlink(target, name.local);
	PATIENTLY(mix, remote, nfs_symlink(mix->nfs, target, name.remote));
	judge(mix, "symlink", &name, local, remote);
}

static void do_mkdir(struct mix *mix)
{
	struct name name = pick_dir(mix);
	int local = mkdir(name.local, 0755), remote;

	PATIENTLY(mix, remote, nfs_mkdir2(mix->nfs, name.remote, 0755));
	judge(mix, "mkdir", &name, local, remote);
}

static void do_rmdir(struct mix *mix)
{
	struct name name = pick_dir(mix);
	int local = rmdir(name.local), remote;

	PATIENTLY(mix, remote, nfs_rmdir(mix->nfs, name.remote));
	judge(mix, "rmdir", &name, local, remote);
}

static void do_stat(struct mix *mix)
{
	struct name name = pick(mix);
	struct nfs_stat_64 remote;
	struct stat local;
	int a = lstat(name.local, &local), b;

	PATIENTLY(mix, b, nfs_lstat64(mix->nfs, name.remote, &remote));
	judge(mix, "stat", &name, a, b);
	if (a == 0 && b == 0 && S_ISREG(local.st_mode) &&
	    ((uint64_t)local.st_size != remote.nfs_size || local.st_nlink != remote.nfs_nlink))
		fail(mix, "stat", name.text, (int)remote.nfs_size, (int)local.st_size);
}

static void do_one(struct mix *mix)
{
	static void (*const some[])(struct mix *) = {
		do_create, do_create, do_create, do_write,   do_write, do_write, do_write,
		do_write,  do_read,   do_read,   do_read,    do_read,  do_stat,  do_truncate,
		do_unlink, do_rename, do_link,   do_symlink, do_mkdir, do_rmdir,
	};

	some[below(mix, sizeof(some) / sizeof(some[0]))](mix);
}

int main(int argc, char **argv)
{
	static struct mix
		mix; /* reachable when leaks are looked for, and with it the contexts that libnfs gave up */
	unsigned long n;

	if (argc != 6) {
		fprintf(stderr, "usage: files_mix URL LOCAL_DIR EXPORTED_DIR SEED N_OPERATIONS\n");
		return 2;
	}
	umask(0);
	mix.url = argv[1];
	mix.local = argv[2];
	mix.exported = argv[3];
	mix.random = strtoull(argv[4], NULL, 10) * 0x9e3779b97f4a7c15u | 1;
	n = strtoul(argv[5], NULL, 10);
	mix.data = malloc(MAX_WRITE);
	mix.other = malloc(MAX_WRITE);
	if (!mount_patiently(&mix))
		return 1;
	for (mix.n = 0; mix.n < n; mix.n++)
		do_one(&mix);
	nfs_destroy_context(mix.nfs);
	free(mix.data);
	free(mix.other);
	return 0;
}
