/* Aligned columns, and text that is safe on a terminal. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/cli.h"

struct cli_table {
	size_t n_columns;
	size_t n_rows; /* with the titles */
	size_t size;
	char **cells;
};

/* Columns that a text takes: characters, not bytes. */
static size_t width_of(const char *text)
{
	size_t width = 0;

	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

const char *cli_clean(char *out, size_t size, const char *text)
{
	size_t left = strlen(text), len = 0;

	while (left) {
		uint32_t code;
		size_t n = hf_utf8_decode(text, left, &code);
		bool is_good = n && code >= 0x20 && (code < 0x7f || code >= 0xa0) && code != 0x202e;

		if (len + (n ? n : 1) >= size)
			break;
		if (is_good) {
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

static void add_row(struct cli_table *table, const char *const *cells)
{
	char clean[4096];

	if ((table->n_rows + 1) * table->n_columns > table->size) {
		table->size = 2 * table->size + 64 * table->n_columns;
		table->cells = realloc(table->cells, table->size * sizeof(*table->cells));
		if (!table->cells)
			abort(); /* a short-lived program without memory */
	}
	for (size_t i = 0; i < table->n_columns; i++)
		table->cells[table->n_rows * table->n_columns + i] =
			strdup(cli_clean(clean, sizeof(clean), cells[i] ? cells[i] : "-"));
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

/* A column of numbers stands to the right. */
static bool is_numeric(const struct cli_table *table, size_t column)
{
	for (size_t row = 1; row < table->n_rows; row++)
		if (!is_number(table->cells[row * table->n_columns + column]))
			return false;
	return table->n_rows > 1;
}

static void print_row(const struct cli_table *table, FILE *out, size_t row, const size_t *widths,
		      size_t max_width)
{
	size_t used = 0;

	for (size_t i = 0; i < table->n_columns && used < max_width; i++) {
		const char *cell = table->cells[row * table->n_columns + i];
		size_t pad = widths[i] - width_of(cell), width = width_of(cell);
		bool is_right = is_numeric(table, i);

		if (used)
			used += (size_t)fprintf(out, "  ");
		if (is_right)
			used += (size_t)fprintf(out, "%*s", (int)pad, "");
		if (used + width > max_width) /* cut at the edge of the screen; bytes are good enough there */
			fprintf(out, "%.*s", (int)(max_width - (used < max_width ? used : max_width)), cell);
		else
			fputs(cell, out);
		used += width;
		if (!is_right && i + 1 < table->n_columns)
			used += (size_t)fprintf(out, "%*s", (int)pad, "");
	}
}

void cli_table_print(const struct cli_table *table, FILE *out, bool has_colour, size_t max_rows, size_t width)
{
	size_t *widths = calloc(table->n_columns, sizeof(*widths));

	if (!widths)
		return;
	for (size_t i = 0; i < table->n_rows * table->n_columns; i++) {
		size_t cell = width_of(table->cells[i]), *column = &widths[i % table->n_columns];

		*column = cell > *column ? cell : *column;
	}
	for (size_t row = 0; row < table->n_rows && row <= max_rows; row++) {
		if (row == 0 && has_colour)
			fputs("\033[1m", out);
		print_row(table, out, row, widths, width);
		fputs(row == 0 && has_colour ? "\033[0m\n" : "\n", out);
	}
	free(widths);
}

void cli_table_free(struct cli_table *table)
{
	for (size_t i = 0; i < table->n_rows * table->n_columns; i++)
		free(table->cells[i]);
	free(table->cells);
	free(table);
}

/* Texts of values */

const char *cli_duration(char *out, size_t size, double seconds)
{
	unsigned long s = seconds > 0 ? (unsigned long)seconds : 0;

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
