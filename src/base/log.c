#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/json_text.h"
#include "base/macros.h"

#define MAX_SENTENCE 256 /* longest sentence in JSON: escaped, it must fit a line */

enum style {
	STYLE_TEXT,
	STYLE_COLOUR,  /* text on a terminal */
	STYLE_JOURNAL, /* text to journald, which adds the time and reads <priority> */
	STYLE_JSON,
};

/* SIGHUP may change the two settings while other threads write lines. */
static _Atomic int current_level = HF_LOG_INFO;
static _Atomic int current_style = STYLE_TEXT;

static const struct {
	const char *name;
	const char *colour;
	const char *priority; /* of sd-daemon(3) */
} levels[] = {
	[HF_LOG_ERROR] = { "error", "\033[1;31m", "<3>" },
	[HF_LOG_WARN] = { "warn", "\033[33m", "<4>" },
	[HF_LOG_INFO] = { "info", "\033[32m", "<6>" },
	[HF_LOG_DEBUG] = { "debug", "\033[2m", "<7>" },
};

/* A line under construction; text that does not fit is cut. */
struct line {
	char text[2048];
	size_t len;
};

/* systemd names the socket that it gave the process in JOURNAL_STREAM=DEVICE:INODE. If stderr was redirected
 * since, the variable is still there, but stderr is another file. */
static bool is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char own[64];
	struct stat st;

	if (!stream || fstat(STDERR_FILENO, &st) < 0)
		return false;
	snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	return strcmp(stream, own) == 0;
}

/* no-color.org: the variable is set and not empty */
static bool wants_colour(void)
{
	const char *no_color = getenv("NO_COLOR");

	return (!no_color || *no_color == '\0') && isatty(STDERR_FILENO);
}

static enum style choose_style(enum hf_log_format format)
{
	if (format == HF_LOG_JSON)
		return STYLE_JSON;
	if (format == HF_LOG_AUTO && is_journal())
		return STYLE_JOURNAL;
	return wants_colour() ? STYLE_COLOUR : STYLE_TEXT;
}

void hf_log_configure(enum hf_log_level level, enum hf_log_format format)
{
	int saved_errno = errno; /* isatty() sets it */

	atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
	atomic_store_explicit(&current_style, (int)choose_style(format), memory_order_relaxed);
	errno = saved_errno;
}

bool hf_log_is_on(enum hf_log_level level)
{
	return (int)level <= atomic_load_explicit(&current_level, memory_order_relaxed);
}

static void put(struct line *line, const char *text, size_t len)
{
	size_t room = sizeof(line->text) - 1 - line->len; /* reserves the newline */

	len = len < room ? len : room;
	memcpy(line->text + line->len, text, len);
	line->len += len;
}

static void put_str(struct line *line, const char *text)
{
	put(line, text, strlen(text));
}

static void put_json_string(struct line *line, const char *text, size_t len)
{
	char character[HF_JSON_CHARACTER];
	bool is_valid;
	size_t n;

	put_str(line, "\"");
	for (size_t i = 0; i < len;) {
		i += hf_json_put_character(character, &n, text + i, len - i, &is_valid);
		put(line, character, n);
	}
	put_str(line, "\"");
}

static void put_time(struct line *line)
{
	struct timeval now;
	struct tm tm;
	char text[64];
	size_t len;

	gettimeofday(&now, NULL);
	gmtime_r(&now.tv_sec, &tm);
	len = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text + len, sizeof(text) - len, ".%03dZ", (int)(now.tv_usec / 1000));
	put_str(line, text);
}

static bool starts_pair(const char *text)
{
	size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");

	return len > 0 && text[len] == '=';
}

/* The length of "key=value", up to the blank before the next pair. A value may contain blanks if it is the
 * program's own text, such as strerror's. Text of peers went through hf_log_quote() and contains neither
 * blank nor '='. */
static size_t pair_length(const char *pairs)
{
	size_t len = strcspn(pairs, " ");

	while (pairs[len] && !starts_pair(pairs + len + 1))
		len += 1 + strcspn(pairs + len + 1, " ");
	return len;
}

/* Room for the end of an object, after the last pair that fitted */
#define JSON_TAIL ",\"cut\":\"true\"}"

/* In text, quotes around a value with blanks mark its end; JSON has its own quotes. Text of a peer went
 * through hf_log_quote() and contains none. */
static void put_json_value(struct line *line, const char *value, size_t len)
{
	bool is_quoted = len >= 2 && value[0] == '"' && value[len - 1] == '"';

	put_json_string(line, is_quoted ? value + 1 : value, is_quoted ? len - 2 : len);
}

/* "a=1 b=2" becomes ,"a":"1","b":"2". A pair that does not fit is left out whole, because a part of it would
 * not be valid JSON. */
static void put_json_pairs(struct line *line, const char *pairs)
{
	while (starts_pair(pairs)) {
		size_t len = pair_length(pairs);
		size_t key = strcspn(pairs, "=");
		size_t before = line->len;

		put_str(line, ",");
		put_json_string(line, pairs, key);
		put_str(line, ":");
		put_json_value(line, pairs + key + 1, len - key - 1);
		if (line->len > sizeof(line->text) - sizeof(JSON_TAIL)) {
			line->len = before;
			put_str(line, JSON_TAIL);
			return;
		}
		pairs += len;
		pairs += strspn(pairs, " ");
	}
	put_str(line, "}");
}

static void put_json_line(struct line *line, enum hf_log_level level, const char *sentence, const char *pairs)
{
	put_str(line, "{\"time\":\"");
	put_time(line);
	put_str(line, "\",\"level\":\"");
	put_str(line, levels[level].name);
	put_str(line, "\",\"message\":");
	put_json_string(line, sentence, strnlen(sentence, MAX_SENTENCE));
	put_json_pairs(line, pairs);
}

static void put_text_line(struct line *line, enum style style, enum hf_log_level level, const char *sentence,
			  const char *pairs)
{
	if (style == STYLE_JOURNAL) {
		put_str(line, levels[level].priority);
	} else {
		put_time(line);
		put_str(line, " ");
	}
	put_str(line, style == STYLE_COLOUR ? levels[level].colour : "");
	put_str(line, levels[level].name);
	put_str(line, style == STYLE_COLOUR ? "\033[0m" : "");
	put_str(line, ": ");
	put_str(line, sentence);
	if (*pairs) {
		put_str(line, " ");
		put_str(line, pairs);
	}
}

void hf_log_write(enum hf_log_level level, const char *sentence, const char *format, ...)
{
	enum style style = (enum style)atomic_load_explicit(&current_style, memory_order_relaxed);
	struct line line;
	char pairs[1536];
	int saved_errno = errno;
	va_list args;

	va_start(args, format);
	vsnprintf(pairs, sizeof(pairs), format, args);
	va_end(args);

	line.len = 0;
	if (style == STYLE_JSON)
		put_json_line(&line, level, sentence, pairs);
	else
		put_text_line(&line, style, level, sentence, pairs);
	line.text[line.len++] = '\n';
	if (write(STDERR_FILENO, line.text, line.len) < 0) {
		/* Nothing can be done when stderr cannot be written. */
	}
	errno = saved_errno;
}

bool hf_log_limit_allow(struct hf_log_limit *limit, uint64_t now_ns, uint64_t *n_suppressedp)
{
	if (now_ns >= limit->until_ns) {
		limit->until_ns = now_ns + limit->window_ns;
		limit->n_lines = 0;
	} else if (limit->n_lines >= HF_MAX(limit->max_lines, UINT64_C(1))) {
		limit->n_suppressed++;
		return false;
	}
	limit->n_lines++;
	*n_suppressedp = limit->n_suppressed;
	limit->n_suppressed = 0;
	return true;
}

const char *hf_log_quote(char *out, size_t size, const void *text, size_t len)
{
	const unsigned char *p = text;
	size_t used = 0;

	for (size_t i = 0; i < len; i++) {
		bool plain = isgraph(p[i]) && p[i] != '"' && p[i] != '=' && p[i] != '\\' && p[i] < 0x80;
		size_t need = plain ? 1 : 4;

		if (used + need + 4 > size) {
			snprintf(out + used, size - used, "...");
			return out;
		}
		if (plain)
			out[used] = (char)p[i];
		else
			snprintf(out + used, size - used, "\\x%02x", p[i]);
		used += need;
	}
	out[used] = '\0';
	return out;
}
