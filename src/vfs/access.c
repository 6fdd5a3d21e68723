#include "vfs/access.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"

/* The coarsest tick of the kernel's clock for ctime; a change within the same tick would not show. */
#define TICK_NS INT64_C(20000000)
/* File systems without nanoseconds store whole seconds (ext4 with 128-byte inodes), or every other one. */
#define WHOLE_NS INT64_C(2000000000)

static bool same_identity(const struct hf_identity *a, const struct hf_identity *b)
{
	return a->uid == b->uid && a->gid == b->gid && a->list_id == b->list_id && a->n_gids == b->n_gids &&
	       memcmp(a->gids, b->gids, a->n_gids * sizeof(a->gids[0])) == 0;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool recall(struct hf_file *file, const struct hf_identity *caller, const struct stat *st,
		   int *allowedp)
{
	bool found = false;

	pthread_mutex_lock(&file->lock);
	for (size_t i = 0; i < HF_FILE_N_VERDICTS && !found; i++) {
		const struct hf_verdict *verdict = &file->verdicts[i];

		found = verdict->is_set && same_time(&verdict->ctime, &st->st_ctim) &&
			same_identity(&verdict->who, caller);
		*allowedp = verdict->allowed;
	}
	pthread_mutex_unlock(&file->lock);
	return found;
}

bool hf_stat_shows_changes(const struct stat *st)
{
	int64_t least = st->st_ctim.tv_nsec ? TICK_NS : WHOLE_NS + TICK_NS;
	struct timespec now;

	/* The clock that the file system takes ctime from; a simulated clock cannot replace it. */
	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	return (now.tv_sec - st->st_ctim.tv_sec) * INT64_C(1000000000) + (now.tv_nsec - st->st_ctim.tv_nsec) >
	       least;
}

static void remember(struct hf_file *file, const struct hf_identity *caller, const struct stat *st,
		     int allowed)
{
	struct hf_verdict *verdict;

	pthread_mutex_lock(&file->lock);
	verdict = &file->verdicts[file->next_verdict++ % HF_FILE_N_VERDICTS];
	verdict->who = *caller;
	verdict->who.list = NULL; /* borrowed; its number stays */
	verdict->is_set = true;
	verdict->ctime = st->st_ctim;
	verdict->allowed = (uint8_t)allowed;
	pthread_mutex_unlock(&file->lock);
}

void hf_file_forget_access(struct hf_file *file)
{
	pthread_mutex_lock(&file->lock);
	for (size_t i = 0; i < HF_FILE_N_VERDICTS; i++)
		file->verdicts[i].is_set = false;
	pthread_mutex_unlock(&file->lock);
}

static bool is_allowed(int fd, int mode)
{
	return syscall(SYS_faccessat2, fd, "", mode, AT_EMPTY_PATH | AT_EACCESS | AT_SYMLINK_NOFOLLOW) == 0;
}

static int ask(struct hf_file *file, const struct hf_identity *caller)
{
	static const int modes[] = { R_OK, W_OK, X_OK };
	int allowed = 0;
	HF_AS(as, caller);

	if (as.result < 0)
		return as.result;
	for (size_t i = 0; i < HF_ARRAY_SIZE(modes); i++)
		if (is_allowed(file->fd, modes[i]))
			allowed |= modes[i];
	return allowed;
}

int hf_file_access(struct hf_file *file, const struct hf_identity *caller, const struct stat *st)
{
	int allowed;

	if (recall(file, caller, st, &allowed))
		return allowed;
	allowed = ask(file, caller);
	if (allowed >= 0 && hf_stat_shows_changes(st))
		remember(file, caller, st, allowed);
	return allowed;
}

int hf_file_may(struct hf_file *file, const struct hf_identity *caller, const struct stat *st, int want)
{
	int allowed;

	if (hf_identity_acting_uid(caller) == st->st_uid)
		return 0;
	allowed = hf_file_access(file, caller, st);
	if (allowed < 0)
		return allowed;
	if (allowed & want)
		return 0;
	return want == R_OK && (allowed & X_OK) && S_ISREG(st->st_mode) ? 0 : -EACCES;
}
