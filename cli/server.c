/*
 * Finds the server and its token. The server comes from the first of: --server,
 * HOLDFAST_SERVER, the file api.address in the state directory, 127.0.0.1:8049.
 * The token comes from --token-file, HOLDFAST_TOKEN, or api.token in the state
 * directory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define DEFAULT_PORT     ":8049"
#define DEFAULT_ENDPOINT "127.0.0.1" DEFAULT_PORT
#define BLANKS           " \t\r\n"

/* Reads the first line, up to one of @ends. */
static bool read_line(const char *path, const char *ends, char *out, size_t size)
{
	FILE *file = fopen(path, "re");
	bool is_read = file && fgets(out, (int)size, file);

	if (is_read)
		out[strcspn(out, ends)] = '\0';
	if (file)
		fclose(file);
	return is_read && *out;
}

static void find_token(struct cli *cli)
{
	const char *given = getenv("HOLDFAST_TOKEN");
	char path[4096];

	if (cli->token_file) {
		if (!read_line(cli->token_file, BLANKS, cli->token, sizeof(cli->token)))
			fprintf(stderr, "holdfast: %s: cannot read a token from this file\n",
				cli->token_file);
		return;
	}
	if (given && *given) {
		snprintf(cli->token, sizeof(cli->token), "%s", given);
		return;
	}
	snprintf(path, sizeof(path), "%s/api.token", cli->state_dir);
	if (!read_line(path, BLANKS, cli->token, sizeof(cli->token)))
		*cli->token = '\0';
}

/* Accepts "host", "host:port", "[v6]", "[v6]:port" and a bare "v6" */
static bool has_port(const char *given, size_t len)
{
	const char *end = given + len, *colon;

	if (*given == '[')
		return end[-1] != ']';
	colon = memchr(given, ':', len);
	return colon && !memchr(colon + 1, ':', (size_t)(end - colon - 1));
}

/* Accepts "http://host:port/" as "host:port"; the port may be left out. */
static int take_endpoint(struct cli *cli, const char *given)
{
	const char *host = strncmp(given, "http://", 7) == 0 ? given + 7 : given;
	size_t len = strcspn(host, "/");
	bool is_bare_v6 = *host != '[' && memchr(host, ':', len) && !has_port(host, len);
	int n;

	if (strncmp(given, "unix:", 5) == 0)
		n = snprintf(cli->endpoint, sizeof(cli->endpoint), "%s", given);
	else
		n = snprintf(cli->endpoint, sizeof(cli->endpoint), "%s%.*s%s%s", is_bare_v6 ? "[" : "",
			     (int)len, host, is_bare_v6 ? "]" : "", has_port(host, len) ? "" : DEFAULT_PORT);
	if (strncmp(given, "https:", 6) != 0 && len && (size_t)n < sizeof(cli->endpoint))
		return CLI_OK;
	fprintf(stderr, "holdfast: %s is not the address of a server; give host:port, or unix:/path\n",
		given);
	return CLI_USAGE;
}

int cli_find_server(struct cli *cli)
{
	const char *given = cli->server ? cli->server : getenv("HOLDFAST_SERVER");
	char path[4096];

	find_token(cli);
	if (given && *given)
		return take_endpoint(cli, given);
	snprintf(path, sizeof(path), "%s/api.address", cli->state_dir);
	if (!read_line(path, "\n", cli->endpoint, sizeof(cli->endpoint)))
		snprintf(cli->endpoint, sizeof(cli->endpoint), "%s", DEFAULT_ENDPOINT);
	return CLI_OK;
}
