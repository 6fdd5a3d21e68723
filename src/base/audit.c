#include "base/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hex.h"
#include "base/json_text.h"
#include "base/list.h"
#include "base/log.h"
#include "base/macros.h"

#define BUFFER    (1 << 20)
#define MAX_VALUE 2500 /* bytes that a text may take in the line, and as many as hexadecimal digits */
#define TAIL      64   /* room that texts leave for the end of the line */
#define MARK      16   /* room for the quotes of a key, and for what is added to it */
#define WINDOW_S  60

static const struct {
	const char *name;
	uint64_t max_lines;
} bounds[HF_AUDIT_N_BOUNDS] = {
	[HF_AUDIT_REFUSED_MOUNTS] = { "refused mounts", 100 },
	[HF_AUDIT_UDP_MOUNTS] = { "mounts over UDP", 100 },
	[HF_AUDIT_REFUSED_CALLS] = { "refused calls", 1000 },
};

struct buffer {
	size_t len;
	uint64_t n_lines;
	uint64_t n_lost; /* after these lines: behind a line that did not fit, all are lost until the buffer
			    is written */
	char *text;      /* BUFFER bytes */
};

/* Each file has a thread of its own: a disk that hangs holds up no file that comes after it. */
struct hf_audit_file {
	struct hf_link link;    /* of audit->old, when another file has taken its place */
	struct hf_audit *audit; /* (c) NULL: its thread was not started */
	char *path;             /* (c) */
	int fd;                 /* of the thread */
	pthread_t thread;
	bool has_failed;     /* of the thread: the log has said so */
	bool is_torn;        /* of the thread: the file ends in the middle of a line */
	uint64_t n_unsaid;   /* of the thread: lost lines, which would follow here */
	uint64_t n_unlogged; /* of the thread: lost lines, of which the log says nothing yet */
	pthread_cond_t wake;
	/* Under the lock of audit, as all that follows */
	struct buffer filling;
	struct buffer writing; /* of the thread while it writes */
	bool wants_reopen;
	bool is_ending;
};

struct hf_audit {
	pthread_mutex_t lock;          /* of all that follows */
	struct hf_audit_file *current; /* NULL: lines are discarded */
	struct hf_list old;            /* files that write what they have, and end */
	struct hf_log_limit limits[HF_AUDIT_N_BOUNDS];
};

/* Lines */

static void put(struct hf_audit_line *line, const char *text, size_t len)
{
	if (line->len + len > HF_AUDIT_LINE - TAIL) {
		line->is_cut = true;
		return;
	}
	memcpy(line->text + line->len, text, len);
	line->len += len;
}

static void put_key(struct hf_audit_line *line, const char *key, const char *suffix)
{
	put(line, ",\"", 2);
	put(line, key, strlen(key));
	put(line, suffix, strlen(suffix));
	put(line, "\":", 2);
}

void hf_audit_begin(struct hf_audit_line *line, const char *op)
{
	struct timespec now;
	struct tm tm;
	char text[64];
	size_t len;

	line->len = 0;
	line->is_cut = false;
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	len = strftime(text, sizeof(text), "{\"time\":\"%Y-%m-%dT%H:%M:%S", &tm);
	len += (size_t)snprintf(text + len, sizeof(text) - len, ".%03ldZ\"", now.tv_nsec / 1000000);
	put(line, text, len);
	put_key(line, "op", "");
	put(line, "\"", 1);
	put(line, op, strlen(op));
	put(line, "\"", 1);
}

/* Is there room for a value of @len bytes, and for the mark that it is cut? */
static bool fits(const struct hf_audit_line *line, const char *key, size_t len)
{
	return line->len + 2 * (strlen(key) + MARK) + len <= HF_AUDIT_LINE - TAIL;
}

/* Returns whether it has all bytes. */
static bool put_hex(struct hf_audit_line *line, const char *key, const void *text, size_t len)
{
	size_t n = HF_MIN(len, (size_t)MAX_VALUE / 2);

	if (!fits(line, key, 2 * n))
		return false;
	put_key(line, key, "_hex");
	put(line, "\"", 1);
	line->len = (size_t)(hf_hex_put(line->text + line->len, text, n) - line->text);
	put(line, "\"", 1);
	return n == len;
}

/* Returns the bytes of @text that it used; *is_valid: they are a character. */
static size_t put_character(struct hf_audit_line *line, const char *text, size_t len, bool *is_valid)
{
	char character[HF_JSON_CHARACTER];
	size_t n, used = hf_json_put_character(character, &n, text, len, is_valid);

	put(line, character, n);
	return used;
}

void hf_audit_put_text(struct hf_audit_line *line, const char *key, const void *text, size_t len)
{
	bool is_utf8 = true, is_valid, is_whole;
	size_t end = line->len + MAX_VALUE, used = 0;

	if (!fits(line, key, 0)) {
		line->is_cut = true;
		return;
	}
	put_key(line, key, "");
	put(line, "\"", 1);
	while (used < len && line->len + HF_JSON_CHARACTER < end && fits(line, key, HF_JSON_CHARACTER)) {
		used += put_character(line, (const char *)text + used, len - used, &is_valid);
		is_utf8 = is_utf8 && is_valid;
	}
	is_whole = used == len;
	put(line, "\"", 1);
	if (!is_utf8)
		is_whole = put_hex(line, key, text, len) && is_whole;
	if (!is_whole) {
		put_key(line, key, "_cut");
		put(line, "true", 4);
	}
}

void hf_audit_put_number(struct hf_audit_line *line, const char *key, uint64_t number)
{
	char text[32];
	size_t len = (size_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)number);

	if (!fits(line, key, len)) {
		line->is_cut = true;
		return;
	}
	put_key(line, key, "");
	put(line, text, len);
}

/* The buffer */

static void add(struct buffer *buffer, const char *text, size_t len)
{
	if (buffer->n_lost || buffer->len + len > BUFFER) {
		buffer->n_lost++;
		return;
	}
	memcpy(buffer->text + buffer->len, text, len);
	buffer->len += len;
	buffer->n_lines++;
}

static void finish(struct hf_audit_line *line)
{
	static const char cut[] = ",\"cut\":true";

	if (line->is_cut) {
		memcpy(line->text + line->len, cut, sizeof(cut) - 1);
		line->len += sizeof(cut) - 1;
	}
	memcpy(line->text + line->len, "}\n", 2);
	line->len += 2;
}

/* Under the lock, like the signal: a file that is not the current one any more may be freed. */
static void add_to_current(struct hf_audit *audit, const struct hf_audit_line *line)
{
	struct hf_audit_file *file = audit->current;

	if (!file)
		return;
	if (file->filling.len == 0)
		pthread_cond_signal(&file->wake);
	add(&file->filling, line->text, line->len);
}

void hf_audit_end(struct hf_audit *audit, struct hf_audit_line *line)
{
	finish(line);
	pthread_mutex_lock(&audit->lock);
	add_to_current(audit, line);
	pthread_mutex_unlock(&audit->lock);
}

/* Bounds */

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void add_left_out(struct hf_audit *audit, enum hf_audit_bound bound, uint64_t n)
{
	const char *name = bounds[bound].name;
	struct hf_audit_line line;

	hf_audit_begin(&line, "left_out");
	hf_audit_put_text(&line, "of", name, strlen(name));
	hf_audit_put_number(&line, "lines", n);
	finish(&line);
	add_to_current(audit, &line);
}

bool hf_audit_allow(struct hf_audit *audit, enum hf_audit_bound bound)
{
	struct hf_log_limit *limit = &audit->limits[bound];
	uint64_t n_left_out = 0;
	bool may;

	pthread_mutex_lock(&audit->lock);
	may = hf_log_limit_allow(limit, clock_ns(), &n_left_out);
	if (n_left_out)
		add_left_out(audit, bound, n_left_out);
	if (limit->n_suppressed == 1 && audit->current) /* it is to say so when the window is over */
		pthread_cond_signal(&audit->current->wake);
	pthread_mutex_unlock(&audit->lock);
	return may;
}

/* When the current file must say how many lines were left out; UINT64_MAX: there are none */
static uint64_t due(const struct hf_audit_file *file)
{
	const struct hf_audit *audit = file->audit;
	uint64_t due = UINT64_MAX;

	for (size_t i = 0; i < HF_AUDIT_N_BOUNDS && audit->current == file; i++)
		if (audit->limits[i].n_suppressed)
			due = HF_MIN(due, audit->limits[i].until_ns);
	return due;
}

/* Of windows that are over at @now */
static void say_left_out(struct hf_audit *audit, uint64_t now)
{
	for (size_t i = 0; i < HF_AUDIT_N_BOUNDS; i++) {
		struct hf_log_limit *limit = &audit->limits[i];

		if (limit->n_suppressed && limit->until_ns <= now) {
			add_left_out(audit, (enum hf_audit_bound)i, limit->n_suppressed);
			limit->n_suppressed = 0;
		}
	}
}

/* The thread that writes */

/* A pipe without a reader is refused, and not waited for. A thread that acts for clients has another id for
 * files than the server's user, who is to own the new file; without the right to give it away, it stays. */
static int open_file(const char *path)
{
	const int flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	int fd = open(path, flags | O_CREAT | O_EXCL, 0640);

	if (fd >= 0 && fchown(fd, geteuid(), (gid_t)-1) < 0)
		hf_log_debug("the audit log keeps its owner", "file=%s error=%s", path,
			     strerrorname_np(errno));
	if (fd < 0 && errno == EEXIST) /* also a symbolic link to a file that does not exist */
		fd = open(path, flags | O_CREAT, 0640);
	if (fd < 0)
		return -errno;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	return fd;
}

static void reopen(struct hf_audit_file *file)
{
	int fd = open_file(file->path);

	if (fd < 0) {
		hf_log_error("cannot open the audit log again; the old file stays open", "file=%s error=%s",
			     file->path, strerrorname_np(-fd));
		return;
	}
	close(file->fd);
	file->fd = fd;
	file->has_failed = file->is_torn = false;
}

/* Returns how many bytes were written. */
static size_t write_bytes(int fd, const char *text, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = write(fd, text + done, len - done);

		if (n < 0 && errno != EINTR)
			break;
		if (n > 0)
			done += (size_t)n;
	}
	return done;
}

/* Takes the @n bytes of a line that was not written whole from the end of the file. A pipe, or a file that
 * can only be appended to, still has them, and the next line begins with a line end. */
static void mend(struct hf_audit_file *file, size_t n)
{
	struct stat st = { 0 };

	if (fstat(file->fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size < (off_t)n)
		return; /* another program has truncated it */
	file->is_torn = ftruncate(file->fd, st.st_size - (off_t)n) < 0;
}

/* Returns how many whole lines of @text, which has @n_lines, were written. */
static uint64_t write_lines(struct hf_audit_file *file, const char *text, size_t len, uint64_t n_lines)
{
	size_t done = 0, begun = 0;
	uint64_t n = 0;

	if (len == 0)
		return 0;
	if (!file->is_torn || write_bytes(file->fd, "\n", 1) == 1) {
		file->is_torn = false;
		done = write_bytes(file->fd, text, len);
	}
	if (done == len)
		return n_lines;
	if (!file->has_failed)
		hf_log_error("cannot write the audit log: lines are lost", "file=%s error=%s", file->path,
			     strerrorname_np(errno));
	file->has_failed = true;
	for (size_t i = 0; i < done; i++)
		if (text[i] == '\n') {
			begun = i + 1;
			n++;
		}
	if (done > begun)
		mend(file, done - begun);
	return n;
}

/* How many were lost before what comes next. */
static void say_lost(struct hf_audit_file *file)
{
	char text[128];
	int len = snprintf(text, sizeof(text), "{\"op\":\"lost\",\"lines\":%llu}\n",
			   (unsigned long long)file->n_unsaid);

	if (file->n_unsaid == 0 || write_lines(file, text, (size_t)len, 1) == 0)
		return;
	file->n_unlogged += file->n_unsaid;
	file->n_unsaid = 0;
}

/* Once for all that were lost while the disk was full: a short line about them may have had room before. */
static void log_lost(struct hf_audit_file *file)
{
	if (file->n_unlogged == 0 || file->has_failed)
		return;
	hf_log_warn("lines of the audit log are lost: its disk is full or slow", "file=%s lines=%llu",
		    file->path, (unsigned long long)file->n_unlogged);
	file->n_unlogged = 0;
}

static void write_buffer(struct hf_audit_file *file)
{
	struct buffer *buffer = &file->writing;
	uint64_t n_written = 0;

	say_lost(file);
	if (!file->n_unsaid)
		n_written = write_lines(file, buffer->text, buffer->len, buffer->n_lines);
	if (n_written && n_written == buffer->n_lines)
		file->has_failed = false;
	file->n_unsaid += buffer->n_lines - n_written + buffer->n_lost;
	if (!file->has_failed)
		say_lost(file);
	log_lost(file);
	*buffer = (struct buffer){ .text = buffer->text };
}

static void wait_for_work(struct hf_audit_file *file)
{
	while (!file->filling.len && !file->wants_reopen && !file->is_ending && clock_ns() < due(file)) {
		uint64_t until = due(file);
		struct timespec end = { .tv_sec = (time_t)(until / UINT64_C(1000000000)),
					.tv_nsec = (long)(until % UINT64_C(1000000000)) };

		if (until == UINT64_MAX)
			pthread_cond_wait(&file->wake, &file->audit->lock);
		else
			pthread_cond_timedwait(&file->wake, &file->audit->lock, &end);
	}
}

/* What the file could not say at its end, the server's log does. */
static void log_rest(struct hf_audit_file *file)
{
	file->n_unlogged += file->n_unsaid;
	file->has_failed = false;
	log_lost(file);
}

static void *run(void *user)
{
	struct hf_audit_file *file = user;
	struct hf_audit *audit = file->audit;
	bool is_ending, wants_reopen;

	do {
		struct buffer full;

		pthread_mutex_lock(&audit->lock);
		wait_for_work(file);
		if (audit->current == file)
			say_left_out(audit, clock_ns());
		full = file->filling;
		file->filling = file->writing;
		file->writing = full;
		wants_reopen = file->wants_reopen;
		file->wants_reopen = false;
		is_ending = file->is_ending;
		pthread_mutex_unlock(&audit->lock);
		write_buffer(file);
		if (wants_reopen && !is_ending)
			reopen(file);
	} while (!is_ending);
	log_rest(file);
	return NULL;
}

void hf_audit_reopen(struct hf_audit *audit)
{
	pthread_mutex_lock(&audit->lock);
	if (audit->current) {
		audit->current->wants_reopen = true;
		pthread_cond_signal(&audit->current->wake);
	}
	pthread_mutex_unlock(&audit->lock);
}

/* Files */

static void init_waiting(struct hf_audit_file *file)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&file->wake, &attr);
	pthread_condattr_destroy(&attr);
}

static void file_free(struct hf_audit_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
	pthread_cond_destroy(&file->wake);
	free(file->filling.text);
	free(file->writing.text);
	free(file->path);
	free(file);
}

int hf_audit_file_open(struct hf_audit_file **filep, const char *path)
{
	struct hf_audit_file *file = calloc(1, sizeof(*file));
	int r;

	if (!file)
		return hf_trace(-ENOMEM);
	hf_link_init(&file->link);
	init_waiting(file);
	file->fd = -1;
	file->path = strdup(path);
	file->filling.text = malloc(BUFFER);
	file->writing.text = malloc(BUFFER);
	r = file->path && file->filling.text && file->writing.text ? 0 : -ENOMEM;
	if (r == 0)
		r = file->fd = open_file(path);
	if (r < 0) {
		file_free(file);
		return r;
	}
	*filep = file;
	return 0;
}

int hf_audit_file_start(struct hf_audit_file *file, struct hf_audit *audit)
{
	int r;

	file->audit = audit;
	r = -pthread_create(&file->thread, NULL, run, file);
	if (r < 0)
		file->audit = NULL;
	return hf_trace(r);
}

static void end(struct hf_audit_file *file)
{
	file->is_ending = true;
	pthread_cond_signal(&file->wake);
}

struct hf_audit_file *hf_audit_file_close(struct hf_audit_file *file)
{
	if (!file)
		return NULL;
	if (file->audit) {
		pthread_mutex_lock(&file->audit->lock);
		end(file);
		pthread_mutex_unlock(&file->audit->lock);
		pthread_join(file->thread, NULL);
	}
	file_free(file);
	return NULL;
}

/* Only the thread that turns and closes knows the list. */
static void reap(struct hf_audit *audit, bool waits)
{
	struct hf_link *link, *next;

	for (link = audit->old.head.next; link != &audit->old.head; link = next) {
		struct hf_audit_file *file = hf_list_entry(link, struct hf_audit_file, link);

		next = link->next;
		if (waits)
			pthread_join(file->thread, NULL);
		else if (pthread_tryjoin_np(file->thread, NULL) != 0)
			continue;
		hf_link_remove(link);
		file_free(file);
	}
}

void hf_audit_turn_to(struct hf_audit *audit, struct hf_audit_file *file)
{
	pthread_mutex_lock(&audit->lock);
	say_left_out(audit, UINT64_MAX); /* what was left out so far is missing in the old file */
	if (audit->current) {
		hf_list_push_back(&audit->old, &audit->current->link);
		end(audit->current);
	}
	audit->current = file;
	pthread_mutex_unlock(&audit->lock);
	reap(audit, false);
}

const char *hf_audit_path(const struct hf_audit *audit)
{
	return audit->current ? audit->current->path : NULL;
}

/* Making and freeing */

struct hf_audit *hf_audit_close(struct hf_audit *audit)
{
	if (!audit)
		return NULL;
	hf_audit_turn_to(audit, NULL);
	reap(audit, true);
	pthread_mutex_destroy(&audit->lock);
	free(audit);
	return NULL;
}

int hf_audit_new(struct hf_audit **auditp)
{
	struct hf_audit *audit = calloc(1, sizeof(*audit));

	if (!audit)
		return hf_trace(-ENOMEM);
	pthread_mutex_init(&audit->lock, NULL);
	hf_list_init(&audit->old);
	for (size_t i = 0; i < HF_AUDIT_N_BOUNDS; i++) {
		audit->limits[i] = (struct hf_log_limit)HF_LOG_LIMIT(WINDOW_S);
		audit->limits[i].max_lines = bounds[i].max_lines;
	}
	*auditp = audit;
	return 0;
}

int hf_audit_open(struct hf_audit **auditp, const char *path)
{
	hf_cleanup(hf_audit_closep) struct hf_audit *audit = NULL;
	hf_cleanup(hf_audit_file_closep) struct hf_audit_file *file = NULL;
	int r = hf_audit_file_open(&file, path);

	if (r == 0)
		r = hf_audit_new(&audit);
	if (r == 0)
		r = hf_audit_file_start(file, audit);
	if (r < 0)
		return r;
	hf_audit_turn_to(audit, file);
	*auditp = audit;
	audit = NULL;
	file = NULL;
	return 0;
}
