/* Commands that change state: grace end, notify, release; and the address of the dashboard. */
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

int cli_grace(struct cli *cli, const char *argument)
{
	const json_t *reason;
	json_t *grace;
	char left[32], clean[256];
	int code;

	if (argument && strcmp(argument, "end") != 0) {
		fprintf(stderr, "holdfast: grace %s: unknown argument; the only one is `end`\n", argument);
		return CLI_USAGE;
	}
	grace = cli_ask(cli, argument ? "POST" : "GET", argument ? "/api/v1/grace/end" : "/api/v1/grace",
			&code);
	if (!grace)
		return code;
	reason = json_object_get(grace, "reason");
	cli_clean(clean, sizeof(clean), json_string_value(reason) ? json_string_value(reason) : "");
	if (cli->is_json)
		cli_print_json(grace);
	else if (json_is_true(json_object_get(grace, "active")))
		printf("active, ends in %s, %lld locks unreclaimed: %s\n",
		       cli_duration(left, sizeof(left),
				    json_number_value(json_object_get(grace, "ends_in_seconds"))),
		       (long long)json_integer_value(json_object_get(grace, "unreclaimed")), clean);
	else
		printf("not active%s%s\n", *clean ? ": " : "", clean);
	json_decref(grace);
	return code;
}

int cli_notify(struct cli *cli, const char *argument)
{
	char target[8192] = "/api/v1/notify", escaped[4096];
	json_t *answer;
	int code;

	if (argument) {
		cli_escape(escaped, sizeof(escaped), argument);
		snprintf(target, sizeof(target), "/api/v1/notify?client=%s", escaped);
	}
	answer = cli_ask(cli, "POST", target, &code);
	if (answer && cli->is_json)
		cli_print_json(answer);
	else if (answer)
		puts(argument ? "SM_NOTIFY is being sent to it."
			      : "SM_NOTIFY is being sent to all registered clients.");
	json_decref(answer);
	return code;
}

/* Accepts only "y" or "yes". */
static bool is_confirmed(void)
{
	char line[16];

	fflush(stdout);
	return fgets(line, sizeof(line), stdin) && (strcmp(line, "yes\n") == 0 || strcmp(line, "y\n") == 0);
}

static int ask_first(struct cli *cli, const char *target, const char *id)
{
	char clean[2048];
	json_t *client;
	int code;

	if (!isatty(STDIN_FILENO)) {
		fputs("holdfast: release asks for confirmation, and stdin is not a terminal; use --yes\n",
		      stderr);
		return CLI_USAGE;
	}
	client = cli_ask(cli, "GET", target, &code);
	if (!client)
		return code;
	printf("%s%s%s will be declared crashed: %lld locks will be released and %lld waiters dropped.\n"
	       "A client that is still alive does not learn of it, and may write to files that other clients "
	       "lock then.\n"
	       "Continue? [yes/no] ",
	       cli_bold(cli), cli_clean(clean, sizeof(clean), id), cli_plain(cli),
	       (long long)json_integer_value(json_object_get(client, "lock_count")),
	       (long long)json_integer_value(json_object_get(client, "waiters")));
	json_decref(client);
	if (is_confirmed())
		return CLI_OK;
	puts("Nothing was changed.");
	return CLI_FAILED;
}

int cli_release(struct cli *cli, const char *argument)
{
	char target[8192], escaped[4096];
	json_t *answer;
	int code;

	if (!argument) {
		fputs("holdfast: release needs the ID of a client; see `holdfast clients`\n", stderr);
		return CLI_USAGE;
	}
	cli_escape(escaped, sizeof(escaped), argument);
	snprintf(target, sizeof(target), "/api/v1/clients/%s", escaped);
	if (!cli->is_yes) {
		code = ask_first(cli, target, argument);
		if (code != CLI_OK)
			return code;
	}
	answer = cli_ask(cli, "DELETE", target, &code);
	if (answer && cli->is_json)
		cli_print_json(answer);
	else if (answer)
		printf("%lld locks released.\n",
		       (long long)json_integer_value(json_object_get(answer, "locks_released")));
	json_decref(answer);
	return code;
}

/* The token is in the fragment, which a browser never sends. */
int cli_dashboard(struct cli *cli, const char *argument)
{
	if (strncmp(cli->endpoint, "unix:", 5) == 0) {
		fputs("holdfast: the API is on a Unix socket, which no browser can open\n", stderr);
		return CLI_FAILED;
	}
	printf("http://%s/%s%s\n", cli->endpoint, *cli->token ? "#token=" : "", cli->token);
	return CLI_OK;
}
