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
	uint64_t n_lost; /* after these lines: once one did not fit, none does until the buffer is written */
	char *text;      /* BUFFER bytes */
};

struct hf_audit {
	pthread_t thread;
	struct hf_audit_file file; /* of the thread */
	bool has_failed;           /* of the thread: the log has said so */
	bool is_torn;              /* of the thread: the file ends in the middle of a line */
	uint64_t n_unsaid;         /* of the thread: lost lines, which would follow here */
	uint64_t n_unlogged;       /* of the thread: lost lines, of which the log says nothing yet */
	pthread_mutex_t lock;      /* of all that follows */
	pthread_cond_t wake;
	struct buffer filling;
	struct buffer writing; /* of the thread while it writes */
	struct hf_log_limit limits[HF_AUDIT_N_BOUNDS];
	struct hf_audit_file next; /* if has_next: to turn to, after the lines in writing */
	bool has_next;
	bool wants_reopen;
	bool is_ending;
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

void hf_audit_end(struct hf_audit *audit, struct hf_audit_line *line)
{
	bool was_empty;

	finish(line);
	pthread_mutex_lock(&audit->lock);
	was_empty = audit->filling.len == 0;
	add(&audit->filling, line->text, line->len);
	pthread_mutex_unlock(&audit->lock);
	if (was_empty)
		pthread_cond_signal(&audit->wake);
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
	add(&audit->filling, line.text, line.len);
}

bool hf_audit_allow(struct hf_audit *audit, enum hf_audit_bound bound)
{
	struct hf_log_limit *limit = &audit->limits[bound];
	uint64_t n_left_out = 0;
	bool may, is_first;

	pthread_mutex_lock(&audit->lock);
	may = hf_log_limit_allow(limit, clock_ns(), &n_left_out);
	if (n_left_out)
		add_left_out(audit, bound, n_left_out);
	is_first = limit->n_suppressed == 1;
	pthread_mutex_unlock(&audit->lock);
	if (is_first) /* the thread is to say so when the window is over */
		pthread_cond_signal(&audit->wake);
	return may;
}

/* When the thread must say how many lines were left out; UINT64_MAX: there are none */
static uint64_t due(const struct hf_audit *audit)
{
	uint64_t due = UINT64_MAX;

	for (size_t i = 0; i < HF_AUDIT_N_BOUNDS; i++)
		if (audit->limits[i].n_suppressed)
			due = HF_MIN(due, audit->limits[i].until_ns);
	return due;
}

/* Of windows that are over; at the end, of all */
static void say_left_out(struct hf_audit *audit)
{
	uint64_t now = audit->is_ending ? UINT64_MAX : clock_ns();

	for (size_t i = 0; i < HF_AUDIT_N_BOUNDS; i++) {
		struct hf_log_limit *limit = &audit->limits[i];

		if (limit->n_suppressed && limit->until_ns <= now) {
			add_left_out(audit, (enum hf_audit_bound)i, limit->n_suppressed);
			limit->n_suppressed = 0;
		}
	}
}

/* The thread that writes */

static int open_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);

	return fd < 0 ? -errno : fd;
}

static void reopen(struct hf_audit *audit)
{
	int fd;

	if (!audit->file.path)
		return;
	fd = open_file(audit->file.path);
	if (fd < 0) {
		hf_log_error("cannot open the audit log again; the old file stays open", "file=%s error=%s",
			     audit->file.path, strerrorname_np(-fd));
		return;
	}
	close(audit->file.fd);
	audit->file.fd = fd;
	audit->has_failed = audit->is_torn = false;
}

/* Lines that the old file lost are not the new one's. */
static void turn(struct hf_audit *audit, struct hf_audit_file *next)
{
	hf_audit_file_close(&audit->file);
	audit->file = *next;
	audit->has_failed = audit->is_torn = false;
	audit->n_unsaid = 0;
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
static void mend(struct hf_audit *audit, size_t n)
{
	struct stat st = { 0 };

	if (fstat(audit->file.fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size < (off_t)n)
		return; /* another program has truncated it */
	audit->is_torn = ftruncate(audit->file.fd, st.st_size - (off_t)n) < 0;
}

/* Returns how many whole lines of @text, which has @n_lines, were written. */
static uint64_t write_lines(struct hf_audit *audit, const char *text, size_t len, uint64_t n_lines)
{
	size_t done = 0, begun = 0;
	uint64_t n = 0;

	if (len == 0)
		return 0;
	if (audit->file.fd < 0)
		return n_lines;
	if (!audit->is_torn || write_bytes(audit->file.fd, "\n", 1) == 1) {
		audit->is_torn = false;
		done = write_bytes(audit->file.fd, text, len);
	}
	if (done == len)
		return n_lines;
	if (!audit->has_failed)
		hf_log_error("cannot write the audit log: lines are lost", "file=%s error=%s",
			     audit->file.path, strerrorname_np(errno));
	audit->has_failed = true;
	for (size_t i = 0; i < done; i++)
		if (text[i] == '\n') {
			begun = i + 1;
			n++;
		}
	if (done > begun)
		mend(audit, done - begun);
	return n;
}

/* How many were lost before what comes next. */
static void say_lost(struct hf_audit *audit)
{
	char text[128];
	int len = snprintf(text, sizeof(text), "{\"op\":\"lost\",\"lines\":%llu}\n",
			   (unsigned long long)audit->n_unsaid);

	if (audit->n_unsaid == 0 || write_lines(audit, text, (size_t)len, 1) == 0)
		return;
	audit->n_unlogged += audit->n_unsaid;
	audit->n_unsaid = 0;
}

/* Once for all that were lost while the disk was full: a short line about them may have had room before. */
static void log_lost(struct hf_audit *audit)
{
	if (audit->n_unlogged == 0 || audit->has_failed)
		return;
	hf_log_warn("lines of the audit log are lost: its disk is full or slow", "file=%s lines=%llu",
		    audit->file.path ? audit->file.path : "", (unsigned long long)audit->n_unlogged);
	audit->n_unlogged = 0;
}

static void write_buffer(struct hf_audit *audit)
{
	struct buffer *buffer = &audit->writing;
	uint64_t n_written = 0;

	say_lost(audit);
	if (!audit->n_unsaid)
		n_written = write_lines(audit, buffer->text, buffer->len, buffer->n_lines);
	if (n_written && n_written == buffer->n_lines)
		audit->has_failed = false;
	audit->n_unsaid += buffer->n_lines - n_written + buffer->n_lost;
	if (!audit->has_failed)
		say_lost(audit);
	log_lost(audit);
	*buffer = (struct buffer){ .text = buffer->text };
}

static void wait_for_work(struct hf_audit *audit)
{
	while (!audit->filling.len && !audit->wants_reopen && !audit->has_next && !audit->is_ending &&
	       clock_ns() < due(audit)) {
		uint64_t until = due(audit);
		struct timespec end = { .tv_sec = (time_t)(until / UINT64_C(1000000000)),
					.tv_nsec = (long)(until % UINT64_C(1000000000)) };

		if (until == UINT64_MAX)
			pthread_cond_wait(&audit->wake, &audit->lock);
		else
			pthread_cond_timedwait(&audit->wake, &audit->lock, &end);
	}
}

static void *run(void *user)
{
	struct hf_audit *audit = user;
	bool is_ending, wants_reopen, has_next;

	do {
		struct hf_audit_file next;
		struct buffer full;

		pthread_mutex_lock(&audit->lock);
		wait_for_work(audit);
		say_left_out(audit);
		full = audit->filling;
		audit->filling = audit->writing;
		audit->writing = full;
		wants_reopen = audit->wants_reopen;
		audit->wants_reopen = false;
		next = audit->next;
		has_next = audit->has_next;
		audit->has_next = false;
		is_ending = audit->is_ending;
		pthread_mutex_unlock(&audit->lock);
		write_buffer(audit);
		if (has_next)
			turn(audit, &next);
		else if (wants_reopen)
			reopen(audit);
	} while (!is_ending);
	return NULL;
}

void hf_audit_reopen(struct hf_audit *audit)
{
	pthread_mutex_lock(&audit->lock);
	audit->wants_reopen = true;
	pthread_mutex_unlock(&audit->lock);
	pthread_cond_signal(&audit->wake);
}

/* Another file */

int hf_audit_file_open(struct hf_audit_file *file, const char *path)
{
	int fd = open_file(path);

	*file = (struct hf_audit_file){ .fd = -1 };
	if (fd < 0)
		return fd;
	file->fd = fd;
	file->path = strdup(path);
	if (file->path)
		return 0;
	hf_audit_file_close(file);
	return hf_trace(-ENOMEM);
}

void hf_audit_file_close(struct hf_audit_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
	free(file->path);
	*file = (struct hf_audit_file){ .fd = -1 };
}

void hf_audit_turn_to(struct hf_audit *audit, struct hf_audit_file *file)
{
	struct hf_audit_file passed = { .fd = -1 };

	pthread_mutex_lock(&audit->lock);
	if (audit->has_next)
		passed = audit->next;
	audit->next = *file;
	audit->has_next = true;
	pthread_mutex_unlock(&audit->lock);
	pthread_cond_signal(&audit->wake);
	hf_audit_file_close(&passed);
	*file = (struct hf_audit_file){ .fd = -1 };
}

/* Life */

static void audit_free(struct hf_audit *audit)
{
	hf_audit_file_close(&audit->file);
	pthread_mutex_destroy(&audit->lock);
	pthread_cond_destroy(&audit->wake);
	free(audit->filling.text);
	free(audit->writing.text);
	free(audit);
}

struct hf_audit *hf_audit_close(struct hf_audit *audit)
{
	if (!audit)
		return NULL;
	pthread_mutex_lock(&audit->lock);
	audit->is_ending = true;
	pthread_mutex_unlock(&audit->lock);
	pthread_cond_signal(&audit->wake);
	pthread_join(audit->thread, NULL);
	audit_free(audit);
	return NULL;
}

static void init_waiting(struct hf_audit *audit)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&audit->lock, NULL);
	pthread_cond_init(&audit->wake, &attr);
	pthread_condattr_destroy(&attr);
}

int hf_audit_open(struct hf_audit **auditp, const char *path)
{
	struct hf_audit *audit = calloc(1, sizeof(*audit));
	int r;

	if (!audit)
		return hf_trace(-ENOMEM);
	init_waiting(audit);
	for (size_t i = 0; i < HF_AUDIT_N_BOUNDS; i++) {
		audit->limits[i] = (struct hf_log_limit)HF_LOG_LIMIT(WINDOW_S);
		audit->limits[i].max_lines = bounds[i].max_lines;
	}
	audit->file.fd = -1;
	audit->filling.text = malloc(BUFFER);
	audit->writing.text = malloc(BUFFER);
	r = audit->filling.text && audit->writing.text ? 0 : -ENOMEM;
	if (r == 0)
		r = hf_audit_file_open(&audit->file, path);
	if (r == 0)
		r = -pthread_create(&audit->thread, NULL, run, audit);
	if (r < 0) {
		audit_free(audit);
		return r;
	}
	*auditp = audit;
	return 0;
}
