/*
 * Finds the server and its token. The server comes from the first of: --server,
 * HOLDFAST_SERVER, the file api.address in the state directory, 127.0.0.1:8049.
 * The token comes from --token-file, HOLDFAST_TOKEN, or api.token in the state
 * directory. The CAs of an HTTPS server come from --ca, HOLDFAST_CA, or the
 * system; but api.address names the certificates of its own server.
 *
 * Any local user may listen on a port while the server is down. So the token of a
 * state directory goes to a server that the user named, or to the one that has
 * this directory, and to no other.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "base/cleanup.h"
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

	cli->is_token_of_dir = false;
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
	cli->is_token_of_dir = read_line(path, BLANKS, cli->token, sizeof(cli->token));
	if (!cli->is_token_of_dir)
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

/* What follows "http://" or "https://"; empty for other schemes. */
static const char *skip_scheme(struct cli *cli, const char *given)
{
	const char *end = strstr(given, "://");
	size_t len = end ? (size_t)(end - given) : 0;

	cli->is_https = len == 5 && memcmp(given, "https", 5) == 0;
	if (cli->is_https || (len == 4 && memcmp(given, "http", 4) == 0))
		return end + 3;
	return end && strncmp(given, "unix:", 5) != 0 ? "" : given;
}

/* Accepts "http://host:port/" as "host:port"; the port may be left out. */
static int take_endpoint(struct cli *cli, const char *given)
{
	const char *host = skip_scheme(cli, given);
	size_t len = strcspn(host, "/");
	bool is_bare_v6 = *host != '[' && memchr(host, ':', len) && !has_port(host, len);
	int n;

	if (strncmp(given, "unix:", 5) == 0)
		n = snprintf(cli->endpoint, sizeof(cli->endpoint), "%s", given);
	else
		n = snprintf(cli->endpoint, sizeof(cli->endpoint), "%s%.*s%s%s", is_bare_v6 ? "[" : "",
			     (int)len, host, is_bare_v6 ? "]" : "", has_port(host, len) ? "" : DEFAULT_PORT);
	if (len && (size_t)n < sizeof(cli->endpoint))
		return CLI_OK;
	fprintf(stderr,
		"holdfast: %s is not the address of a server; give host:port, https://host:port, or "
		"unix:/path\n",
		given);
	return CLI_USAGE;
}

static void find_ca(struct cli *cli)
{
	const char *given = getenv("HOLDFAST_CA");

	if (!cli->ca && given && *given)
		cli->ca = given;
}

/* The first line is the address. The others are the certificates that the server may show. */
static void read_address(struct cli *cli)
{
	char path[4096], line[128];
	FILE *file;
	bool is_read;

	snprintf(path, sizeof(path), "%s/api.address", cli->state_dir);
	file = fopen(path, "re");
	is_read = file && fgets(cli->announced, sizeof(cli->announced), file);
	cli->announced[is_read ? strcspn(cli->announced, "\n") : 0] = '\0';
	cli->n_pins = 0;
	while (is_read && cli->n_pins < sizeof(cli->pins) / sizeof(cli->pins[0]) &&
	       fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (strlen(line) == sizeof(cli->pins[0]) - 1)
			memcpy(cli->pins[cli->n_pins++], line, sizeof(cli->pins[0]));
	}
	if (file)
		fclose(file);
}

/* Whether a server has the state directory. Nothing else tells after a crash, when api.address is left over.
 */
static bool is_dir_in_use(const struct cli *cli)
{
	hf_cleanup(hf_closep) int fd = -1;
	char path[4096];

	snprintf(path, sizeof(path), "%s/lock", cli->state_dir);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

/* A server that stops removes api.address before its port is free. */
static bool is_still_announced(const struct cli *cli)
{
	char path[4096], address[sizeof(cli->announced)];

	snprintf(path, sizeof(path), "%s/api.address", cli->state_dir);
	return *cli->announced && is_dir_in_use(cli) && read_line(path, "\n", address, sizeof(address)) &&
	       strcmp(address, cli->announced) == 0;
}

bool cli_may_send_token(const struct cli *cli)
{
	if (!*cli->token)
		return false;
	if (!cli->is_token_of_dir || cli->is_named)
		return true;
	if (cli->is_https && cli->n_pins && !cli->is_insecure)
		return true; /* the certificate was checked */
	return is_still_announced(cli);
}

void cli_explain_missing_token(const struct cli *cli)
{
	if (!*cli->token)
		fprintf(cli->errors,
			"          No token was found in %s; give --token-file or HOLDFAST_TOKEN.\n",
			cli->token_file ? cli->token_file : cli->state_dir);
	else if (!cli_may_send_token(cli))
		fprintf(cli->errors,
			"          The token in %s is not sent: no server runs with this directory.\n"
			"          Give the --state-dir of the server at %s, or its address with --server.\n",
			cli->state_dir, cli->endpoint);
}

int cli_find_server(struct cli *cli)
{
	const char *given = cli->server ? cli->server : getenv("HOLDFAST_SERVER");

	find_token(cli);
	find_ca(cli);
	cli->is_named = given && *given;
	if (cli->is_named)
		return take_endpoint(cli, given);
	read_address(cli);
	return take_endpoint(cli, *cli->announced ? cli->announced : DEFAULT_ENDPOINT);
}
