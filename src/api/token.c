/* The bearer tokens: each is one line of a file that only the server's user can read, created when it is
 * missing. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/guard.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/hex.h"
#include "base/log.h"
#include "loop/loop.h"

#define MIN_TOKEN 16

static int fail(const char *path, const char *what, int r)
{
	char quoted[512];

	hf_log_error(what, "file=%s error=%s", hf_log_quote(quoted, sizeof(quoted), path, strlen(path)),
		     strerror(-r));
	return r;
}

static void make_token(char *out, struct hf_loop *loop)
{
	uint8_t bytes[HF_API_TOKEN_HEX / 2];

	hf_loop_random(loop, bytes, sizeof(bytes));
	*hf_hex_put(out, bytes, sizeof(bytes)) = '\0';
}

/* Writes under a temporary name first: a start that is killed in between leaves no partial token. */
static int write_token(const char *path, const char *token)
{
	hf_cleanup(hf_closep) int fd = -1;
	char temporary[4096], line[HF_API_TOKEN_HEX + 2];
	int n = snprintf(temporary, sizeof(temporary), "%s.new", path);
	int r = 0;

	if ((size_t)n >= sizeof(temporary))
		return -ENAMETOOLONG;
	n = snprintf(line, sizeof(line), "%s\n", token);
	unlink(temporary);
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, line, (size_t)n) != n || fsync(fd) < 0 || rename(temporary, path) < 0)
		r = errno ? -errno : -EIO;
	if (r < 0)
		unlink(temporary);
	return r;
}

static int take_token(char *out, int fd)
{
	char text[HF_API_TOKEN_MAX + 2]; /* one more than allowed, to detect longer ones */
	ssize_t n = read(fd, text, sizeof(text) - 1);

	if (n < 0)
		return -errno;
	text[n] = '\0';
	text[strcspn(text, " \t\r\n")] = '\0';
	if (strlen(text) < MIN_TOKEN || strlen(text) > HF_API_TOKEN_MAX)
		return -EINVAL;
	memcpy(out, text, strlen(text) + 1);
	return 0;
}

int hf_api_token_look(char out[static HF_API_TOKEN_MAX + 1], const char *path)
{
	hf_cleanup(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) ? take_token(out, fd) : -ENODATA;
}

static int read_token(char *out, const char *path)
{
	hf_cleanup(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && st.st_mode & 077) {
		char quoted[512];

		hf_log_warn("other users can read the token of the API; fix it with chmod 600", "file=%s",
			    hf_log_quote(quoted, sizeof(quoted), path, strlen(path)));
	}
	return take_token(out, fd);
}

static int load_token(char *out, const char *path, struct hf_loop *loop)
{
	int r = read_token(out, path);

	if (r == -EINVAL)
		return fail(path,
			    "the token of the API has fewer than 16 or more than 512 characters; remove the "
			    "file to get a new one",
			    r);
	if (r != -ENOENT)
		return r < 0 ? fail(path, "cannot read the token of the API", r) : 0;
	make_token(out, loop);
	r = write_token(path, out);
	if (r < 0)
		return fail(path, "cannot write the token of the API", r);
	hf_log_info("created a token for the API", "file=%s", path);
	return 0;
}

/* A pipe is empty since the start, and opening it may wait for ever. */
static bool is_read_once(const char *path)
{
	struct stat st;

	return *path && stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

int hf_api_tokens_load(struct hf_api_tokens *tokens, const struct hf_api_token_files *files, bool is_again,
		       struct hf_loop *loop)
{
	hf_cleanup(hf_freep) char *in_state_dir = NULL;
	const char *path = files->change;
	char quoted[512];
	int r;

	if (*path == '\0') {
		if (asprintf(&in_state_dir, "%s/api.token", files->state_dir) < 0)
			return hf_trace(-ENOMEM);
		path = in_state_dir;
	}
	*tokens = (struct hf_api_tokens){ .are_kept = is_again &&
						      (is_read_once(path) || is_read_once(files->view)) };
	if (tokens->are_kept)
		return 0;
	r = load_token(tokens->change, path, loop);
	if (r == 0 && *files->view)
		r = load_token(tokens->view, files->view, loop);
	if (r < 0 || strcmp(tokens->change, tokens->view) != 0)
		return r;
	hf_log_error("the token that may only look is the same as the one that may change something; remove "
		     "its file to get a new one",
		     "file=%s", hf_log_quote(quoted, sizeof(quoted), files->view, strlen(files->view)));
	return -EINVAL;
}
