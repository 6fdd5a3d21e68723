/* Which client uses which export: what was counted since the start, and rates between two readings. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/macros.h"
#include "cli/cli.h"

#define MIB (1024.0 * 1024.0)

/* The counters, and their names as rates */
static const struct {
	const char *name, *rate;
} counters[] = {
	{ "calls", "calls_per_second" },
	{ "reads", "reads_per_second" },
	{ "writes", "writes_per_second" },
	{ "metadata", "metadata_per_second" },
	{ "locks", "locks_per_second" },
	{ "bytes_read", "bytes_read_per_second" },
	{ "bytes_written", "bytes_written_per_second" },
	{ "errors", "errors_per_second" },
};

/* The rows by address, then one for all others. A page may move rows that are sorted by a counter. */
static json_t *ask_rows(struct cli *cli, int *codep)
{
	json_t *rows = cli_ask_all(cli, "/api/v1/usage?sort=address", "usage", codep);
	json_t *page = rows ? cli_ask(cli, "GET", "/api/v1/usage?limit=1", codep) : NULL;
	json_t *other = json_object_get(page, "other");

	if (page) {
		json_object_set_new(other, "address", json_string("other"));
		json_object_set_new(other, "share", json_null());
		json_array_append(rows, other);
	} else {
		json_decref(rows);
		rows = NULL;
	}
	json_decref(page);
	return rows;
}

static double by(const json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key));
}

static int by_calls(const void *a, const void *b)
{
	double x = by(*(json_t *const *)a, "calls"), y = by(*(json_t *const *)b, "calls");

	return (x < y) - (x > y);
}

static int by_rate(const void *a, const void *b)
{
	double x = by(*(json_t *const *)a, "calls_per_second"),
	       y = by(*(json_t *const *)b, "calls_per_second");

	return (x < y) - (x > y);
}

/* The greatest first. Takes @rows, and returns a new reference. */
static json_t *sorted(json_t *rows, int (*order)(const void *a, const void *b))
{
	size_t n = json_array_size(rows);
	json_t **items = calloc(n + 1, sizeof(json_t *)), *all = json_array();

	if (!items)
		abort(); /* out of memory; a short-lived program may simply end */
	for (size_t i = 0; i < n; i++)
		items[i] = json_array_get(rows, i);
	qsort(items, n, sizeof(json_t *), order);
	for (size_t i = 0; i < n; i++)
		json_array_append(all, items[i]);
	free(items);
	json_decref(rows);
	return all;
}

/* What was counted */

static const char *count(char out[32], const json_t *row, const char *key)
{
	snprintf(out, 32, "%lld", (long long)json_integer_value(json_object_get(row, key)));
	return out;
}

int cli_usage(struct cli *cli, const char *argument)
{
	static const char *const titles[] = { "CLIENT",      "SHARE",    "CALLS",    "READS",
					      "WRITES",      "METADATA", "LOCKS",    "MIB READ",
					      "MIB WRITTEN", "ERRORS",   "LAST USED" };
	struct cli_table *table;
	const json_t *row;
	json_t *rows;
	size_t i;
	int code;

	rows = ask_rows(cli, &code);
	if (!rows)
		return code;
	rows = sorted(rows, by_calls);
	table = cli_table_new(titles, HF_ARRAY_SIZE(titles));
	json_array_foreach(rows, i, row)
	{
		char n[6][32], read[32], written[32];

		snprintf(read, sizeof(read), "%.1f", by(row, "bytes_read") / MIB);
		snprintf(written, sizeof(written), "%.1f", by(row, "bytes_written") / MIB);
		cli_table_add(table,
			      (const char *[]){ cli_text(row, "address"), cli_text(row, "share"),
						count(n[0], row, "calls"), count(n[1], row, "reads"),
						count(n[2], row, "writes"), count(n[3], row, "metadata"),
						count(n[4], row, "locks"), read, written,
						count(n[5], row, "errors"), cli_text(row, "last_used") });
	}
	cli_print_list(cli, rows, table, "No call was counted.");
	json_decref(rows);
	return code;
}

/* Rates */

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* A pair that was not there before, or has less than before, began anew. */
static double grown(const json_t *row, const json_t *before, const char *key)
{
	double n = by(row, key), old = by(before, key);

	return n < old ? n : n - old;
}

static json_t *rate_of(const json_t *row, const json_t *before, double seconds)
{
	json_t *rate = json_object();

	json_object_set(rate, "address", json_object_get(row, "address"));
	json_object_set(rate, "share", json_object_get(row, "share"));
	for (size_t i = 0; i < HF_ARRAY_SIZE(counters); i++)
		json_object_set_new(rate, counters[i].rate,
				    json_real(grown(row, before, counters[i].name) / seconds));
	return rate;
}

static void key_of(char *out, size_t size, const json_t *row)
{
	const char *address = cli_text(row, "address"), *share = cli_text(row, "share");

	snprintf(out, size, "%s %s", address ? address : "", share ? share : "");
}

json_t *cli_usage_rates(struct cli *cli, struct cli_usage_reading *reading, int *codep)
{
	json_t *rows = ask_rows(cli, codep), *rates = json_array(), *by_key = json_object();
	double at = now();
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		char key[8192];

		key_of(key, sizeof(key), row);
		if (reading->rows)
			json_array_append_new(rates, rate_of(row, json_object_get(reading->rows, key),
							     at - reading->at));
		json_object_set(by_key, key, json_array_get(rows, i));
	}
	cli_usage_forget(reading);
	reading->rows = by_key;
	reading->at = at;
	if (!rows) {
		json_decref(rates);
		return NULL;
	}
	json_decref(rows);
	return sorted(rates, by_rate);
}

void cli_usage_forget(struct cli_usage_reading *reading)
{
	json_decref(reading->rows);
	reading->rows = NULL;
}

void cli_usage_put_rates(const struct cli *cli, FILE *out, const json_t *rates, size_t room, size_t columns)
{
	static const char *const titles[] = { "CLIENT",        "SHARE",   "CALLS/S", "READ MIB/S",
					      "WRITTEN MIB/S", "LOCKS/S", "ERRORS/S" };
	struct cli_table *table = cli_table_new(titles, HF_ARRAY_SIZE(titles));
	const json_t *rate;
	size_t i;

	json_array_foreach(rates, i, rate)
	{
		const double values[] = { by(rate, "calls_per_second"),
					  by(rate, "bytes_read_per_second") / MIB,
					  by(rate, "bytes_written_per_second") / MIB,
					  by(rate, "locks_per_second"), by(rate, "errors_per_second") };
		char cells[HF_ARRAY_SIZE(values)][32];

		for (size_t j = 0; j < HF_ARRAY_SIZE(values); j++)
			snprintf(cells[j], sizeof(cells[j]), "%.1f", values[j]);
		cli_table_add(table, (const char *[]){ cli_text(rate, "address"), cli_text(rate, "share"),
						       cells[0], cells[1], cells[2], cells[3], cells[4] });
	}
	cli_table_print(table, out, cli->has_colour, room, columns);
	cli_table_free(table);
}
