/* Sends a question to the server and returns the answer, or prints one line that says why there is none. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define MAX_PAGES 10000 /* of a list, with up to 1,000 rows each */

void cli_escape(char *out, size_t size, const char *text)
{
	static const char plain[] = "-._~:ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
	size_t len = 0;

	for (; *text && len + 4 < size; text++)
		len += (size_t)snprintf(out + len, size - len, strchr(plain, *text) ? "%c" : "%%%02X",
					(unsigned char)*text);
	out[len] = '\0';
}

static int say_unreachable(const struct cli *cli, int r)
{
	char clean[512];

	if (r == -EKEYREJECTED) {
		fprintf(cli->errors,
			"holdfast: the server at %s is not asked: %s\n"
			"          Give the CA of its certificate with --ca, and a name in that certificate "
			"with --server.\n",
			cli->endpoint, cli_clean(clean, sizeof(clean), cli->problem));
		return CLI_UNREACHABLE;
	}
	fprintf(cli->errors,
		"holdfast: no server answers at %s: %s\n"
		"          Is holdfastd running? Give its address with --server, or its --state-dir.\n",
		cli->endpoint, strerror(-r));
	return CLI_UNREACHABLE;
}

static int say_error(struct cli *cli, int status, const json_t *answer)
{
	const char *message = json_string_value(json_object_get(json_object_get(answer, "error"), "message"));
	char clean[512];

	fprintf(cli->errors, "holdfast: %s\n",
		cli_clean(clean, sizeof(clean), message ? message : "it failed"));
	if (status == 401)
		cli_explain_missing_token(cli);
	if (status == 401 || status == 403)
		return CLI_DENIED;
	return status == 404 ? CLI_NOT_FOUND : CLI_FAILED;
}

json_t *cli_ask(struct cli *cli, const char *method, const char *target, int *codep)
{
	struct cli_response response;
	json_t *answer;
	int r = cli_request(cli, method, target, &response);

	if (r < 0) {
		*codep = say_unreachable(cli, r);
		free(response.body);
		return NULL;
	}
	answer = json_loadb(response.body, response.len, 0, NULL);
	free(response.body);
	if (answer && response.status >= 200 && response.status < 300) {
		*codep = CLI_OK;
		return answer;
	}
	*codep = say_error(cli, response.status, answer);
	json_decref(answer);
	return NULL;
}

json_t *cli_ask_all(struct cli *cli, const char *target, const char *name, int *codep)
{
	json_t *all = json_array();
	char cursor[256] = "", last[256], page_target[8192];

	for (int i = 0; i < MAX_PAGES; i++) {
		json_t *page;
		const char *next;

		snprintf(page_target, sizeof(page_target), "%s%climit=1000%s%s", target,
			 strchr(target, '?') ? '&' : '?', *cursor ? "&cursor=" : "", cursor);
		page = cli_ask(cli, "GET", page_target, codep);
		if (!page) {
			json_decref(all);
			return NULL;
		}
		json_array_extend(all, json_object_get(page, name));
		next = json_string_value(json_object_get(page, "next"));
		memcpy(last, cursor, sizeof(last));
		if (next)
			cli_escape(cursor, sizeof(cursor), next);
		json_decref(page);
		if (!next)
			return all;
		if (strcmp(cursor, last) == 0)
			break;
	}
	fprintf(cli->errors, "holdfast: %s answers with a list that has no end\n", cli->endpoint);
	*codep = CLI_FAILED;
	json_decref(all);
	return NULL;
}
