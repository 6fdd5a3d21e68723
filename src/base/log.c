#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The two settings may change at SIGHUP while other threads write lines. */
static _Atomic int current_level = HF_LOG_INFO;
static _Atomic bool as_json;

static const char *const level_names[] = { "error", "warn", "info", "debug" };

/* A line under construction; what does not fit is cut. */
struct line {
	char text[2048];
	size_t len;
};

void hf_log_configure(enum hf_log_level level, enum hf_log_format format)
{
	atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
	atomic_store_explicit(&as_json, format == HF_LOG_JSON, memory_order_relaxed);
}

bool hf_log_is_on(enum hf_log_level level)
{
	return (int)level <= atomic_load_explicit(&current_level, memory_order_relaxed);
}

static void put(struct line *line, const char *text, size_t len)
{
	size_t room = sizeof(line->text) - 1 - line->len; /* the newline always fits */

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
	char escape[8];

	put_str(line, "\"");
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '"' || c == '\\') {
			escape[0] = '\\';
			escape[1] = (char)c;
			put(line, escape, 2);
		} else if (c < 0x20 || c == 0x7f) {
			snprintf(escape, sizeof(escape), "\\u%04x", c);
			put_str(line, escape);
		} else {
			put(line, &text[i], 1);
		}
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

/* "a=1 b=2" becomes ,"a":"1","b":"2": values hold no blanks, hf_log_quote() saw to that. */
static void put_json_pairs(struct line *line, const char *pairs)
{
	while (*pairs) {
		size_t len = strcspn(pairs, " ");
		const char *equals = memchr(pairs, '=', len);

		if (equals) {
			put_str(line, ",");
			put_json_string(line, pairs, (size_t)(equals - pairs));
			put_str(line, ":");
			put_json_string(line, equals + 1, len - (size_t)(equals + 1 - pairs));
		}
		pairs += len;
		pairs += strspn(pairs, " ");
	}
}

void hf_log_write(enum hf_log_level level, const char *sentence, const char *format, ...)
{
	struct line line = { .len = 0 };
	char pairs[1536];
	int saved_errno = errno;
	va_list args;

	va_start(args, format);
	vsnprintf(pairs, sizeof(pairs), format, args);
	va_end(args);

	if (atomic_load_explicit(&as_json, memory_order_relaxed)) {
		put_str(&line, "{\"time\":\"");
		put_time(&line);
		put_str(&line, "\",\"level\":\"");
		put_str(&line, level_names[level]);
		put_str(&line, "\",\"message\":");
		put_json_string(&line, sentence, strlen(sentence));
		put_json_pairs(&line, pairs);
		put_str(&line, "}");
	} else {
		put_time(&line);
		put_str(&line, " ");
		put_str(&line, level_names[level]);
		put_str(&line, ": ");
		put_str(&line, sentence);
		if (*pairs) {
			put_str(&line, " ");
			put_str(&line, pairs);
		}
	}
	line.text[line.len++] = '\n';
	if (write(STDERR_FILENO, line.text, line.len) < 0) {
		/* Nobody reads us; there is nowhere left to say so. */
	}
	errno = saved_errno;
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
