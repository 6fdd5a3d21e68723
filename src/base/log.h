/*
 * The log: one sentence, then key=value pairs.
 *
 *	hf_log_warn("connection refused", "peer=%s limit=%d", peer, limit);
 *
 * The second argument is a printf format that yields "key=value key=value";
 * pass "" if there are none. Pass values from a peer or an operator through
 * hf_log_quote() first: it escapes everything that could forge a line.
 *
 * Output goes to stderr, as text or as one JSON object a line, whose values are
 * all strings. On a terminal the level is coloured, unless NO_COLOR is set. One
 * write(2) writes a line, so lines of several threads do not mix.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

enum hf_log_level {
	HF_LOG_ERROR,
	HF_LOG_WARN,
	HF_LOG_INFO,
	HF_LOG_DEBUG,
};

enum hf_log_format {
	HF_LOG_AUTO, /* text; to the systemd journal without time and with <priority> */
	HF_LOG_TEXT, /* text with time, to any destination */
	HF_LOG_JSON,
};

/* Examines where stderr goes; call it again after that has changed. */
void hf_log_configure(enum hf_log_level level, enum hf_log_format format);
bool hf_log_is_on(enum hf_log_level level);

HF_COLD void hf_log_write(enum hf_log_level level, const char *sentence, const char *format, ...)
	HF_PRINTF(3, 4);

/* Copies @text to @out as a value: printable ASCII without blanks, '=' and quotes, other bytes as \xNN; cut
 * with "..." if it does not fit. Returns @out. */
const char *hf_log_quote(char *out, size_t size, const void *text, size_t len);

#define hf_log_at(level, ...)                             \
	do {                                              \
		if (hf_log_is_on(level))                  \
			hf_log_write(level, __VA_ARGS__); \
	} while (0)

#define hf_log_error(...) hf_log_at(HF_LOG_ERROR, __VA_ARGS__)
#define hf_log_warn(...)  hf_log_at(HF_LOG_WARN, __VA_ARGS__)
#define hf_log_info(...)  hf_log_at(HF_LOG_INFO, __VA_ARGS__)
#define hf_log_debug(...) hf_log_at(HF_LOG_DEBUG, __VA_ARGS__)

/*
 * A limit for log lines that a peer can cause: at most max_lines in each
 * window. The next line gives the number of lines that were left out. Use one
 * limit for each source that must not silence another. The caller passes the
 * time, so that a simulation can have its own. Not thread-safe.
 */
struct hf_log_limit {
	uint64_t window_ns;    /* (c) */
	uint64_t max_lines;    /* (c) 0: one */
	uint64_t until_ns;     /* end of the window that the first line opened */
	uint64_t n_lines;      /* lines written in this window */
	uint64_t n_suppressed; /* since the last line */
};

#define HF_LOG_LIMIT(seconds)                                         \
	{                                                             \
		.window_ns = (uint64_t)(seconds)*UINT64_C(1000000000) \
	}

/* May a line be written now? If so, *n_suppressedp is the number of lines left out since the last. */
bool hf_log_limit_allow(struct hf_log_limit *limit, uint64_t now_ns, uint64_t *n_suppressedp);
