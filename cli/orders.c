/* Commands that change state: grace end, notify, reload; and the address of the dashboard. */
#include <string.h>

#include "cli/cli.h"

int cli_grace(struct cli *cli, const char *argument)
{
	const char *reason;
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
	reason = cli_text(grace, "reason");
	cli_clean(clean, sizeof(clean), reason ? reason : "");
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

int cli_reload(struct cli *cli, const char *argument)
{
	json_t *reload;
	int code;

	cli->is_patient = true; /* a directory may not answer */
	reload = cli_ask(cli, "POST", "/api/v1/reload", &code);
	if (reload && cli->is_json)
		cli_print_json(reload);
	else if (reload)
		cli_print_reload(cli, reload);
	json_decref(reload);
	return code;
}

/* The token is in the fragment, which a browser never sends. */
int cli_dashboard(struct cli *cli, const char *argument)
{
	bool has_token = cli_may_send_token(cli);

	if (strncmp(cli->endpoint, "unix:", 5) == 0) {
		fputs("holdfast: the API is on a Unix socket, which no browser can open\n", stderr);
		return CLI_FAILED;
	}
	printf("%s://%s/%s%s\n", cli->is_https ? "https" : "http", cli->endpoint, has_token ? "#token=" : "",
	       has_token ? cli->token : "");
	if (*cli->token && !has_token)
		cli_explain_missing_token(cli);
	return CLI_OK;
}
