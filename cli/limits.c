/* The limits of the server, and which of them are nearly used up. */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "cli/cli.h"

#define TIGHT 80 /* percent */

static double percent_of(const json_t *limit)
{
	const json_t *used = json_object_get(limit, "used");
	double max = json_number_value(json_object_get(limit, "max"));

	return json_is_number(used) && max > 0 ? 100 * json_number_value(used) / max : 0;
}

/* A cache may be full for ever. */
static bool is_tight(const json_t *limit)
{
	return !json_is_true(json_object_get(limit, "is_cache")) &&
	       (percent_of(limit) >= TIGHT || json_integer_value(json_object_get(limit, "refused")));
}

static const char *number(char out[32], const json_t *limit, const char *key)
{
	const json_t *value = json_object_get(limit, key);

	if (!json_is_integer(value))
		return NULL;
	snprintf(out, 32, "%lld", (long long)json_integer_value(value));
	return out;
}

int cli_limits(struct cli *cli, const char *argument)
{
	static const char *const titles[] = { "LIMIT", "USED", "MAX", "USE", "REFUSED", "BY", "WHAT" };
	struct cli_table *table;
	const json_t *limits, *limit;
	json_t *answer;
	size_t i;
	int code;

	answer = cli_ask(cli, "GET", "/api/v1/limits", &code);
	if (!answer)
		return code;
	limits = json_object_get(answer, "limits");
	table = cli_table_new(titles, HF_ARRAY_SIZE(titles));
	json_array_foreach(limits, i, limit)
	{
		char used[32], max[32], use[32], refused[32];

		snprintf(use, sizeof(use), "%.0f%%", percent_of(limit));
		cli_table_add(table,
			      (const char *[]){ cli_text(limit, "name"), number(used, limit, "used"),
						number(max, limit, "max"),
						json_is_null(json_object_get(limit, "used")) ? NULL : use,
						number(refused, limit, "refused"), cli_text(limit, "by"),
						cli_text(limit, "what") });
	}
	cli_print_list(cli, limits, table, "There are no limits.");
	json_decref(answer);
	return code;
}

/* A server before this version does not know the call, and this is no reason to fail. */
static json_t *ask_quietly(struct cli *cli)
{
	struct cli_response response = { 0 };
	json_t *answer = NULL;

	if (cli_request(cli, "GET", "/api/v1/limits", &response) == 0 && response.status == 200)
		answer = json_loadb(response.body, response.len, 0, NULL);
	free(response.body);
	return answer;
}

void cli_add_limits(struct cli *cli, json_t *status)
{
	json_t *answer = ask_quietly(cli);

	if (answer)
		json_object_set(status, "limits", json_object_get(answer, "limits"));
	json_decref(answer);
}

void cli_print_tight_limits(struct cli *cli)
{
	json_t *answer = ask_quietly(cli);
	const char *join = "limits     ";
	const json_t *limit;
	size_t i;

	json_array_foreach(json_object_get(answer, "limits"), i, limit)
	{
		char clean[64];
		long long refused = json_integer_value(json_object_get(limit, "refused"));

		if (!is_tight(limit))
			continue;
		printf("%s%s%s%s %.0f%% used", join, cli_yellow(cli),
		       cli_clean(clean, sizeof(clean), cli_text(limit, "name")), cli_plain(cli),
		       percent_of(limit));
		if (refused)
			printf(", %lld refused", refused);
		join = "; ";
	}
	if (*join == ';')
		puts("; see `holdfast limits`");
	json_decref(answer);
}
