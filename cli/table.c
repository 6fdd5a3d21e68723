/* Aligned columns, JSON, and text that is safe on a terminal. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/cli.h"

#define MAX_SECONDS 1e15 /* an answer may have numbers that fit no integer */

struct cli_table {
	size_t n_columns;
	size_t n_rows; /* including the titles */
	size_t size;
	char **cells;
};

/* Counts columns: characters, not bytes. */
static size_t width_of(const char *text)
{
	size_t width = 0;

	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

const char *cli_clean(char *out, size_t size, const char *text)
{
	size_t left, len = 0;

	text = text ? text : "-";
	left = strlen(text);
	while (left) {
		uint32_t code;
		size_t n = hf_utf8_decode(text, left, &code);

		if (len + (n ? n : 1) >= size)
			break;
		if (n && hf_utf8_is_plain(code)) {
			memcpy(out + len, text, n);
			len += n;
		} else {
			out[len++] = '?';
		}
		text += n ? n : 1;
		left -= n ? n : 1;
	}
	out[len] = '\0';
	return out;
}

/* Clients choose the names of files, and a terminal would interpret some characters above ASCII, too. */
size_t cli_json_flags(void)
{
	return JSON_REAL_PRECISION(15) | (isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0);
}

void cli_print_json(const json_t *json)
{
	json_dumpf(json, stdout, JSON_INDENT(2) | cli_json_flags());
	putchar('\n');
}

static void add_row(struct cli_table *table, const char *const *cells)
{
	char clean[4096];

	if ((table->n_rows + 1) * table->n_columns > table->size) {
		table->size = 2 * table->size + 64 * table->n_columns;
		table->cells = realloc(table->cells, table->size * sizeof(*table->cells));
		if (!table->cells)
			abort(); /* out of memory; a short-lived program may simply end */
	}
	for (size_t i = 0; i < table->n_columns; i++)
		table->cells[table->n_rows * table->n_columns + i] =
			strdup(cli_clean(clean, sizeof(clean), cells[i]));
	table->n_rows++;
}

struct cli_table *cli_table_new(const char *const *titles, size_t n)
{
	struct cli_table *table = calloc(1, sizeof(*table));

	if (!table)
		abort();
	table->n_columns = n;
	add_row(table, titles);
	return table;
}

void cli_table_add(struct cli_table *table, const char *const *cells)
{
	add_row(table, cells);
}

static bool is_number(const char *text)
{
	return *text && text[strspn(text, "0123456789.")] == '\0';
}

/* Numbers are aligned to the right. */
static bool is_numeric(const struct cli_table *table, size_t column)
{
	for (size_t row = 1; row < table->n_rows; row++)
		if (!is_number(table->cells[row * table->n_columns + column]))
			return false;
	return table->n_rows > 1;
}

/* Writes at most *leftp columns of @text, in whole characters. */
static void put(FILE *out, const char *text, size_t *leftp)
{
	size_t len = 0;

	while (text[len] && *leftp) {
		do
			len++;
		while (((unsigned char)text[len] & 0xc0) == 0x80);
		--*leftp;
	}
	fwrite(text, 1, len, out);
}

static void put_blanks(FILE *out, size_t n, size_t *leftp)
{
	n = n < *leftp ? n : *leftp;
	fprintf(out, "%*s", (int)n, "");
	*leftp -= n;
}

struct column {
	size_t width;
	bool is_right;
};

static void print_row(const struct cli_table *table, FILE *out, size_t row, const struct column *columns,
		      size_t left)
{
	for (size_t i = 0; i < table->n_columns; i++) {
		const char *cell = table->cells[row * table->n_columns + i];
		size_t pad = columns[i].width - width_of(cell);

		put_blanks(out, (i ? 2 : 0) + (columns[i].is_right ? pad : 0), &left);
		put(out, cell, &left);
		if (!columns[i].is_right && i + 1 < table->n_columns)
			put_blanks(out, pad, &left);
	}
}

void cli_table_print(const struct cli_table *table, FILE *out, bool has_colour, size_t max_rows, size_t width)
{
	struct column *columns = calloc(table->n_columns, sizeof(*columns));

	if (!columns)
		return;
	for (size_t i = 0; i < table->n_rows * table->n_columns; i++) {
		size_t cell = width_of(table->cells[i]), *column = &columns[i % table->n_columns].width;

		*column = cell > *column ? cell : *column;
	}
	for (size_t i = 0; i < table->n_columns; i++)
		columns[i].is_right = is_numeric(table, i);
	for (size_t row = 0; row < table->n_rows && row <= max_rows; row++) {
		if (row == 0 && has_colour)
			fputs("\033[1m", out);
		print_row(table, out, row, columns, width);
		fputs(row == 0 && has_colour ? "\033[0m\n" : "\n", out);
	}
	free(columns);
}

void cli_table_free(struct cli_table *table)
{
	for (size_t i = 0; i < table->n_rows * table->n_columns; i++)
		free(table->cells[i]);
	free(table->cells);
	free(table);
}

void cli_print_list(const struct cli *cli, const json_t *items, struct cli_table *table, const char *none)
{
	if (cli->is_json)
		cli_print_json(items);
	else if (json_array_size(items) == 0)
		puts(none);
	else
		cli_table_print(table, stdout, cli->has_colour, CLI_NO_LIMIT, CLI_NO_LIMIT);
	cli_table_free(table);
}

/* Texts of values */

const char *cli_text(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

bool cli_text_is(const json_t *object, const char *key, const char *wanted)
{
	const char *text = cli_text(object, key);

	return text && strcmp(text, wanted) == 0;
}

const char *cli_duration(char *out, size_t size, double seconds)
{
	unsigned long s = seconds > 0 ? (unsigned long)(seconds < MAX_SECONDS ? seconds : MAX_SECONDS) : 0;

	if (s < 60)
		snprintf(out, size, "%.1fs", seconds);
	else if (s < 3600)
		snprintf(out, size, "%lum%02lus", s / 60, s % 60);
	else if (s < 86400)
		snprintf(out, size, "%luh%02lum", s / 3600, s % 3600 / 60);
	else
		snprintf(out, size, "%lud%02luh", s / 86400, s % 86400 / 3600);
	return out;
}

const char *cli_range(char *out, size_t size, const json_t *lock)
{
	json_int_t offset = json_integer_value(json_object_get(lock, "offset"));
	json_int_t length = json_integer_value(json_object_get(lock, "length"));

	if (offset == 0 && length == 0)
		snprintf(out, size, "all");
	else if (length == 0)
		snprintf(out, size, "%lld-end", (long long)offset);
	else
		snprintf(out, size, "%lld+%lld", (long long)offset, (long long)length);
	return out;
}

static bool is_named_before(const json_t *names, size_t at)
{
	for (size_t i = 0; i < at; i++)
		if (json_equal(json_array_get(names, i), json_array_get(names, at)))
			return true;
	return false;
}

const char *cli_blockers(char *out, size_t size, const json_t *waiter)
{
	const json_t *names = json_object_get(waiter, "blocked_by_clients"), *name;
	size_t i, len = 0;

	*out = '\0';
	json_array_foreach(names, i, name)
	{
		if (len < size && json_is_string(name) && !is_named_before(names, i))
			len += (size_t)snprintf(out + len, size - len, "%s%s", len ? ", " : "",
						json_string_value(name));
	}
	return *out ? out : NULL;
}

static const char *colour(const struct cli *cli, const char *text)
{
	return cli->has_colour ? text : "";
}

const char *cli_red(const struct cli *cli)
{
	return colour(cli, "\033[31m");
}

const char *cli_green(const struct cli *cli)
{
	return colour(cli, "\033[32m");
}

const char *cli_yellow(const struct cli *cli)
{
	return colour(cli, "\033[33m");
}

const char *cli_bold(const struct cli *cli)
{
	return colour(cli, "\033[1m");
}

const char *cli_plain(const struct cli *cli)
{
	return colour(cli, "\033[0m");
}
