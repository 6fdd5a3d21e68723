#include "vfs/watch.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/error.h"
#include "vfs/file.h"

#define MAX_WATCHES 2048 /* a power of two */
#define N_PLACES    4096 /* a power of two */
#define MAX_READS   64   /* buffers in one hf_watch_read() */
#define CHANGES     (IN_ATTRIB | IN_DELETE_SELF)

struct hf_watch {
	int fd;
	pthread_mutex_t lock;
	int numbers[MAX_WATCHES]; /* the newest watches, in a ring; under lock */
	uint32_t n_added;         /* under lock */
	uint64_t count;           /* events read so far */
	uint64_t lost;            /* value of count when events were lost */
	/* The value of count at the last event of this place. Two watches in one place share their events,
	 * which is harmless. */
	uint64_t changed[N_PLACES];
};

int hf_watch_new(struct hf_watch **watchp)
{
	hf_cleanup(hf_watch_freep) struct hf_watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return hf_trace(-ENOMEM);
	pthread_mutex_init(&watch->lock, NULL);
	watch->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (watch->fd < 0)
		return -errno; /* the caller logs what that means */
	*watchp = watch;
	watch = NULL;
	return 0;
}

struct hf_watch *hf_watch_free(struct hf_watch *watch)
{
	if (!watch)
		return NULL;
	if (watch->fd >= 0)
		close(watch->fd);
	pthread_mutex_destroy(&watch->lock);
	free(watch);
	return NULL;
}

/* The kernel counts numbers up, and starts again after INT_MAX. */
static bool is_newer(int number, int than)
{
	return (((unsigned int)number - (unsigned int)than) & INT_MAX) - 1 < INT_MAX / 2;
}

/* Returns the watch that must be removed, or 0. */
static int note(struct hf_watch *watch, int number)
{
	int newest = watch->n_added ? watch->numbers[(watch->n_added - 1) % MAX_WATCHES] : 0;
	int oldest;

	if (!is_newer(number, newest))
		return 0; /* the file is already watched */
	oldest = watch->numbers[watch->n_added % MAX_WATCHES];
	watch->numbers[watch->n_added++ % MAX_WATCHES] = number;
	return oldest;
}

/* The lock is held over the kernel's call, so that numbers are noted in their order. On a local file system
 * the call waits for no disk: the inode is in memory. */
int hf_watch_add(struct hf_watch *watch, struct hf_file *file)
{
	int number, oldest = 0;
	char path[32];

	if (!file->volume->is_local)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	pthread_mutex_lock(&watch->lock);
	number = inotify_add_watch(watch->fd, path, CHANGES | IN_ONESHOT);
	if (number > 0)
		oldest = note(watch, number);
	pthread_mutex_unlock(&watch->lock);
	if (oldest)
		inotify_rm_watch(watch->fd, oldest); /* reported, too; -EINVAL if it had already ended */
	return number > 0 ? number : 0;
}

static void hear(struct hf_watch *watch, const struct inotify_event *event)
{
	watch->count++;
	if (event->wd < 0 || event->mask & IN_Q_OVERFLOW)
		watch->lost = watch->count;
	else
		watch->changed[event->wd % N_PLACES] = watch->count;
}

void hf_watch_read(struct hf_watch *watch)
{
	_Alignas(struct inotify_event) char buffer[4096];
	ssize_t n = 0;

	for (int i = 0; i < MAX_READS; i++) {
		n = read(watch->fd, buffer, sizeof(buffer));
		if (n <= 0)
			break;
		for (const char *p = buffer; p < buffer + n;) {
			const struct inotify_event *event = (const void *)p;

			hear(watch, event);
			p += sizeof(*event) + event->len;
		}
	}
	/* More events than that, or an error: treat all watches as changed. */
	if (n >= 0 || errno != EAGAIN)
		watch->lost = ++watch->count;
}

uint64_t hf_watch_count(const struct hf_watch *watch)
{
	return watch->count;
}

bool hf_watch_is_unchanged(const struct hf_watch *watch, int number, uint64_t since)
{
	return number > 0 && watch->lost <= since && watch->changed[number % N_PLACES] <= since;
}
