/* The stream of events, one line each. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

#define MAX_TIME 1e12 /* an answer may have numbers that fit no time_t */

struct stream {
	struct cli *cli;
	char kind[64];
};

static void print_value(const char *name, const json_t *value)
{
	char clean[1024], key[64];

	cli_clean(key, sizeof(key), name);
	if (json_is_string(value))
		printf(" %s=%s", key, cli_clean(clean, sizeof(clean), json_string_value(value)));
	else if (json_is_integer(value))
		printf(" %s=%lld", key, (long long)json_integer_value(value));
	else if (json_is_real(value))
		printf(" %s=%.3f", key, json_real_value(value));
}

static void print_event(struct stream *stream, json_t *data)
{
	double at = json_number_value(json_object_get(data, "time"));
	time_t seconds = at > 0 && at < MAX_TIME ? (time_t)at : 0;
	char when[32] = "--:--:--", clean[64];
	const char *key;
	json_t *value;
	struct tm tm;

	if (stream->cli->is_json) {
		json_object_set_new(data, "event", json_string(stream->kind));
		json_dumpf(data, stdout, JSON_COMPACT | cli_json_flags());
		putchar('\n');
		return;
	}
	if (seconds && localtime_r(&seconds, &tm))
		strftime(when, sizeof(when), "%H:%M:%S", &tm);
	printf("%s %s%-13s%s", when, cli_bold(stream->cli), cli_clean(clean, sizeof(clean), stream->kind),
	       cli_plain(stream->cli));
	json_object_foreach(data, key, value) if (strcmp(key, "time") != 0) print_value(key, value);
	putchar('\n');
}

static bool on_line(void *user, const char *line)
{
	struct stream *stream = user;
	json_t *data;

	if (strncmp(line, "event: ", 7) == 0)
		snprintf(stream->kind, sizeof(stream->kind), "%s", line + 7);
	if (strncmp(line, "data: ", 6) != 0)
		return true;
	data = json_loads(line + 6, 0, NULL);
	if (data)
		print_event(stream, data);
	json_decref(data);
	/* The command ends when the reader of the pipe ends. */
	return fflush(stdout) == 0;
}

int cli_events(struct cli *cli, const char *argument)
{
	struct stream stream = { .cli = cli };
	char clean[512];
	int status = 0;
	int r = cli_stream(cli, "/api/v1/events", on_line, &stream, &status);

	if (status == 401) {
		fputs("holdfast: this needs the server's token\n", stderr);
		cli_explain_missing_token(cli);
		return CLI_DENIED;
	}
	if (status != 200) {
		fprintf(stderr, "holdfast: no events from %s: %s\n", cli->endpoint,
			r == -EKEYREJECTED ? cli_clean(clean, sizeof(clean), cli->problem)
			: r < 0            ? strerror(-r)
					   : "there are too many readers");
		return r < 0 ? CLI_UNREACHABLE : CLI_FAILED;
	}
	if (r < 0)
		fputs("holdfast: the server ended the stream\n", stderr);
	return r < 0 ? CLI_UNREACHABLE : CLI_OK;
}
