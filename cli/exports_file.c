/* The syntax of /etc/exports: lines that a backslash continues, comments, quotes, octal escapes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/exports.h"

#define MAX_WORD 4096

struct reader {
	struct import *import;
	const char *at;
	const char *end;
	char word[MAX_WORD];
};

/* The next character; a backslash at the end of a line and that end are a blank. */
static int look(const struct reader *reader, size_t *lenp)
{
	*lenp = 1;
	if (reader->at == reader->end)
		return EOF;
	if (reader->at[0] != '\\' || reader->at + 1 == reader->end || reader->at[1] != '\n')
		return (unsigned char)reader->at[0];
	*lenp = 2;
	return ' ';
}

static int next(struct reader *reader)
{
	size_t len;
	int c = look(reader, &len);

	if (c == EOF)
		return EOF;
	reader->import->line += reader->at[len - 1] == '\n';
	reader->at += len;
	return c;
}

static int peek(const struct reader *reader)
{
	size_t len;

	return look(reader, &len);
}

static bool is_blank(int c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static void skip_blanks(struct reader *reader)
{
	while (is_blank(peek(reader)))
		next(reader);
}

/* To the end of the line, which stays. A backslash does not continue a comment. */
static void skip_comment(struct reader *reader)
{
	while (reader->at < reader->end && *reader->at != '\n')
		reader->at++;
}

/* The same, for the rest of a line that a backslash may continue */
static void skip_line(struct reader *reader)
{
	bool was_blank = true;

	while (peek(reader) != EOF && peek(reader) != '\n' && !(was_blank && peek(reader) == '#'))
		was_blank = is_blank(next(reader));
	skip_comment(reader);
}

static bool is_octal(const struct reader *reader, size_t i)
{
	return reader->at + i < reader->end && reader->at[i] >= '0' && reader->at[i] <= '7';
}

/* The character after a backslash that was read, if three octal digits follow it */
static int unescape(struct reader *reader)
{
	int code;

	if (!is_octal(reader, 0) || !is_octal(reader, 1) || !is_octal(reader, 2))
		return '\\';
	code = (reader->at[0] - '0') << 6 | (reader->at[1] - '0') << 3 | (reader->at[2] - '0');
	reader->at += 3;
	return code & 0xff;
}

static bool ends_word(int c, bool is_quoted, const char *stops)
{
	if (c == EOF || c == '\n')
		return true;
	if (is_quoted || c == '\0') /* strchr() would find the end of @stops */
		return false;
	return is_blank(c) || strchr(stops, c);
}

/* Reads a word into reader->word, up to a blank, an end of line or one of @stops. NULL: it cannot be read. */
static char *read_word(struct reader *reader, const char *stops)
{
	bool is_quoted = false;
	size_t n = 0;
	int c;

	while (!ends_word(peek(reader), is_quoted, stops)) {
		c = next(reader);
		if (c == '"') {
			is_quoted = !is_quoted;
			continue;
		}
		if (c == '\\')
			c = unescape(reader);
		if (n + 1 == sizeof(reader->word) || c == '\0') {
			import_say(reader->import, reader->import->line,
				   c ? "a word is too long" : "a word has a byte 0 in it");
			return NULL;
		}
		reader->word[n++] = (char)c;
	}
	reader->word[n] = '\0';
	if (!is_quoted)
		return reader->word;
	import_say(reader->import, reader->import->line, "a quote is not closed");
	return NULL;
}

/* The options in brackets, if there are any. False: they cannot be read. */
static bool read_brackets(struct reader *reader, struct import_options *options)
{
	if (peek(reader) != '(')
		return true;
	next(reader);
	if (!read_word(reader, ")"))
		return false;
	if (peek(reader) != ')') {
		import_say(reader->import, reader->import->line, "( is not closed, or has a blank in it");
		return false;
	}
	next(reader);
	if (!ends_word(peek(reader), false, "")) {
		import_say(reader->import, reader->import->line, "there is no blank after )");
		return false;
	}
	import_read_options(reader->import, options, reader->word);
	return true;
}

/* One client: "host(options)". > 0: it cannot be read. */
static int read_client(struct reader *reader, struct import_export *export,
		       const struct import_options *defaults, bool is_first)
{
	struct import_options options = *defaults;
	hf_cleanup(hf_freep) char *client = NULL;
	const char *word = read_word(reader, "(");

	client = word ? strdup(word) : NULL;
	if (word && !client)
		return -ENOMEM;
	if (!word || !read_brackets(reader, &options))
		return 1;
	if (*client == '\0' && !is_first)
		import_say(reader->import, reader->import->line,
			   "a blank before ( makes these options those of all clients, as for the kernel's "
			   "server; "
			   "they are taken over so");
	word = client;
	client = NULL;
	return import_add(reader->import, export, (char *)(uintptr_t)word, &options);
}

/* The options that apply to all clients that follow. > 0: they cannot be read. */
static int read_defaults(struct reader *reader, struct import_options *defaults)
{
	next(reader);
	if (!read_word(reader, ""))
		return 1;
	import_read_options(reader->import, defaults, reader->word);
	skip_blanks(reader);
	if (peek(reader) != '-')
		return 0;
	import_say(reader->import, reader->import->line, "a client must follow the options after -");
	return 1;
}

/* The clients of one line; all of them are for @export. > 0: not all of them can be read. */
static int read_clients(struct reader *reader, struct import_export *export)
{
	struct import_options defaults = import_defaults;
	size_t n = 0;
	int r = 0;

	for (skip_blanks(reader); r == 0; skip_blanks(reader)) {
		int c = peek(reader);

		if (c == EOF || c == '\n' || c == '#')
			break;
		if (c == '-')
			r = read_defaults(reader, &defaults);
		else
			r = read_client(reader, export, &defaults, n++ == 0);
	}
	if (r == 0 && n == 0) {
		char *all = strdup("*");

		r = all ? import_add(reader->import, export, all, &defaults) : -ENOMEM;
	}
	return r;
}

/* A line that cannot be read is left out from there on; what was read of it stays, but disabled. */
static int read_line(struct reader *reader)
{
	hf_cleanup(hf_freep) char *path = NULL;
	struct import_export *export = NULL;
	const char *word;
	int r = 0;

	skip_blanks(reader);
	if (peek(reader) != '#' && peek(reader) != '\n' && peek(reader) != EOF) {
		word = read_word(reader, "");
		reader->import->lacks_path |= !word;
		path = word ? strdup(word) : NULL;
		if (word && !path)
			return -ENOMEM;
		r = path ? import_open(reader->import, path, &export) : 0;
		if (export)
			r = read_clients(reader, export);
		if (r > 0)
			export->is_disabled = true;
	}
	skip_line(reader);
	return r < 0 ? r : 0;
}

int import_read(struct import *import, const char *text, size_t len)
{
	struct reader *reader = malloc(sizeof(*reader));
	int r = reader ? 0 : -ENOMEM;

	if (reader)
		*reader = (struct reader){ .import = import, .at = text, .end = text + len };
	import->line = 1;
	while (r == 0 && reader->at < reader->end) {
		r = read_line(reader);
		next(reader);
	}
	free(reader);
	return r;
}
