/* Words and options. */
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "cli/cli.h"

#define DEFAULT_STATE_DIR "/var/lib/holdfast"

/* A command refuses filters that it does not use: otherwise it would print everything, and the user could
 * take that for the filtered list. */
enum filters {
	NO_FILTERS,
	OF_CLIENTS, /* --status, --protocol */
	OF_LOCKS,   /* --client, --share */
	OF_RELEASE, /* --file, --range, --address, --silent-for */
	OF_STORE,   /* --name */
};

struct command {
	const char *name;
	const char *argument; /* the name of its argument; NULL: it takes none */
	int (*run)(struct cli *cli, const char *argument);
	const char *help;
	enum filters filters; /* the filters that it takes */
	int max_words;        /* 0: its argument at most */
	bool is_offline;      /* it needs no server */
};

static const struct command commands[] = {
	{ "status", NULL, cli_status, "the server at a glance" },
	{ "clients", "[ID]", cli_clients, "the clients; with ID, one client and its locks", OF_CLIENTS },
	{ "locks", NULL, cli_locks, "the locks and their clients", OF_LOCKS },
	{ "waiters", NULL, cli_waiters, "the waiters, how long they wait, and which clients block them",
	  OF_LOCKS },
	{ "reservations", NULL, cli_reservations, "the share reservations (DOS deny modes) and their clients",
	  OF_LOCKS },
	{ "shares", NULL, cli_shares, "the exports" },
	{ "usage", NULL, cli_usage, "which client uses which export, how much (metrics.per_client)" },
	{ "limits", NULL, cli_limits, "the limits, how much of each is used, and what they refused" },
	{ "grace", "[end]", cli_grace, "the grace period after a restart; end: end it now" },
	{ "notify", "[ID]", cli_notify, "send SM_NOTIFY again, to all clients or to one" },
	{ "reload", NULL, cli_reload, "load the configuration again, and say what waits for the next start" },
	{ "release", "[ID]", cli_release,
	  "declare a client crashed: its locks are released; with --file, only its locks in that file",
	  OF_RELEASE },
	{ "cluster", "[ORDER]", cli_cluster,
	  "the nodes of the cluster; move [NODE]: hand the service over; take: serve on this node",
	  .max_words = 2 },
	{ "store", "ORDER", cli_store,
	  "with the server stopped: check, dump [STORE]; copy FROM TO; downgrade STORE NUMBER; a "
	  "STORE is a directory or a connection string",
	  OF_STORE, .max_words = 3, .is_offline = true },
	{ "exports", "import", cli_exports,
	  "import [FILE]: write /etc/exports as the exports of a configuration, and what that cannot take "
	  "over",
	  .max_words = 2, .is_offline = true },
	{ "events", NULL, cli_events, "the server's events, live" },
	{ "top", "[clients]", cli_top, "a live view, full screen; clients: rates by client and export" },
	{ "doctor", "[HOST]", cli_doctor, "check this host for problems; with HOST, check that client" },
	{ "dashboard", NULL, cli_dashboard, "the address of the dashboard, with the token" },
};

static void print_usage(FILE *out)
{
	fputs("usage: holdfast [OPTION...] COMMAND [ARGUMENT]\n\ncommands:\n", out);
	for (size_t i = 0; i < HF_ARRAY_SIZE(commands); i++)
		fprintf(out, "  %-12s %-9s  %s\n", commands[i].name,
			commands[i].argument ? commands[i].argument : "", commands[i].help);
	fputs("\n"
	      "options:\n"
	      "  --json              JSON, for scripts\n"
	      "  --server ADDRESS    [https://]host:port or unix:/path of the API (default: from the state "
	      "directory)\n"
	      "  --ca FILE           the CA of the API's certificate (default: those of the system)\n"
	      "  --insecure          do not check the API's certificate\n"
	      "  --state-dir DIR     the server's state directory (default: " DEFAULT_STATE_DIR ")\n"
	      "  --token-file FILE   the token (default: api.token in the state directory)\n"
	      "  --client ID, --share NAME           only these locks, waiters and reservations\n"
	      "  --status STATUS, --protocol NAME    only these clients\n"
	      "  --file FILE, --range RANGE          release only these locks of the client, as `locks` "
	      "shows "
	      "them\n"
	      "  --address ADDRESS, --silent-for SECONDS    release all clients of this address, or silent "
	      "for so long\n"
	      "  --name NAME         the server's name in a database (default: the host's name)\n"
	      "  --yes               do not ask before a release\n"
	      "  --once              top: print once, without a terminal\n"
	      "  --no-wait           do not wait for the result of cluster move and cluster take\n"
	      "  --help, --version\n\n"
	      "See holdfast(1) for exit codes and the environment.\n",
	      out);
}

enum {
	OPT_JSON = 256,
	OPT_SERVER,
	OPT_STATE_DIR,
	OPT_TOKEN_FILE,
	OPT_CA,
	OPT_INSECURE,
	OPT_CLIENT,
	OPT_SHARE,
	OPT_STATUS,
	OPT_PROTOCOL,
	OPT_FILE,
	OPT_RANGE,
	OPT_ADDRESS,
	OPT_SILENT_FOR,
	OPT_NAME,
	OPT_YES,
	OPT_NO_WAIT,
	OPT_ONCE,
	OPT_VERSION,
};

static const struct option options[] = {
	{ "json", no_argument, NULL, OPT_JSON },
	{ "server", required_argument, NULL, OPT_SERVER },
	{ "state-dir", required_argument, NULL, OPT_STATE_DIR },
	{ "token-file", required_argument, NULL, OPT_TOKEN_FILE },
	{ "ca", required_argument, NULL, OPT_CA },
	{ "insecure", no_argument, NULL, OPT_INSECURE },
	{ "client", required_argument, NULL, OPT_CLIENT },
	{ "share", required_argument, NULL, OPT_SHARE },
	{ "status", required_argument, NULL, OPT_STATUS },
	{ "protocol", required_argument, NULL, OPT_PROTOCOL },
	{ "file", required_argument, NULL, OPT_FILE },
	{ "range", required_argument, NULL, OPT_RANGE },
	{ "address", required_argument, NULL, OPT_ADDRESS },
	{ "silent-for", required_argument, NULL, OPT_SILENT_FOR },
	{ "name", required_argument, NULL, OPT_NAME },
	{ "yes", no_argument, NULL, OPT_YES },
	{ "no-wait", no_argument, NULL, OPT_NO_WAIT },
	{ "once", no_argument, NULL, OPT_ONCE },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

/* -1: continue; otherwise the exit code. */
static int take_option(struct cli *cli, int option)
{
	switch (option) {
	case OPT_JSON:
		cli->is_json = true;
		return -1;
	case OPT_SERVER:
		cli->server = optarg;
		return -1;
	case OPT_STATE_DIR:
		cli->state_dir = optarg;
		return -1;
	case OPT_TOKEN_FILE:
		cli->token_file = optarg;
		return -1;
	case OPT_CA:
		cli->ca = optarg;
		return -1;
	case OPT_INSECURE:
		cli->is_insecure = true;
		return -1;
	case OPT_CLIENT:
		cli->client = optarg;
		return -1;
	case OPT_SHARE:
		cli->share = optarg;
		return -1;
	case OPT_STATUS:
		cli->status = optarg;
		return -1;
	case OPT_PROTOCOL:
		cli->protocol = optarg;
		return -1;
	case OPT_FILE:
		cli->file = optarg;
		return -1;
	case OPT_RANGE:
		cli->range = optarg;
		return -1;
	case OPT_ADDRESS:
		cli->address = optarg;
		return -1;
	case OPT_SILENT_FOR:
		cli->silent_for = optarg;
		return -1;
	case OPT_NAME:
		cli->name = optarg;
		return -1;
	case OPT_YES:
		cli->is_yes = true;
		return -1;
	case OPT_NO_WAIT:
		cli->no_wait = true;
		return -1;
	case OPT_ONCE:
		cli->is_once = true;
		return -1;
	case OPT_VERSION:
		puts("holdfast " HF_VERSION);
		return CLI_OK;
	case 'h':
		print_usage(stdout);
		return CLI_OK;
	default:
		fputs("Try `holdfast --help`.\n", stderr);
		return CLI_USAGE;
	}
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < HF_ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

/* The first filter that the command does not use; NULL: none. */
static const char *find_idle_filter(const struct cli *cli, const struct command *command)
{
	const struct {
		const char *name;
		const char *value;
		enum filters kind;
	} given[] = {
		{ "client", cli->client, OF_LOCKS },     { "share", cli->share, OF_LOCKS },
		{ "status", cli->status, OF_CLIENTS },   { "protocol", cli->protocol, OF_CLIENTS },
		{ "file", cli->file, OF_RELEASE },       { "range", cli->range, OF_RELEASE },
		{ "address", cli->address, OF_RELEASE }, { "silent-for", cli->silent_for, OF_RELEASE },
		{ "name", cli->name, OF_STORE },
	};

	for (size_t i = 0; i < HF_ARRAY_SIZE(given); i++)
		if (given[i].value && given[i].kind != command->filters)
			return given[i].name;
	return NULL;
}

static int max_words(const struct command *command)
{
	return command->max_words ? command->max_words : command->argument != NULL;
}

static int run(struct cli *cli, char **words, int n)
{
	const struct command *command = n ? find_command(words[0]) : NULL;
	const char *idle;
	int code;

	if (n == 0) {
		print_usage(stderr);
		return CLI_USAGE;
	}
	if (!command) {
		fprintf(stderr, "holdfast: unknown command %s; try `holdfast --help`\n", words[0]);
		return CLI_USAGE;
	}
	if (n - 1 > max_words(command)) {
		fprintf(stderr, "holdfast: %s takes %s\n", command->name,
			max_words(command) == 3   ? "three arguments at most"
			: max_words(command) == 2 ? "two arguments at most"
			: command->argument       ? "one argument"
						  : "no arguments");
		return CLI_USAGE;
	}
	idle = find_idle_filter(cli, command);
	if (idle) {
		fprintf(stderr, "holdfast: %s does not use --%s; try `holdfast --help`\n", command->name,
			idle);
		return CLI_USAGE;
	}
	cli->object = n > 2 ? words[2] : NULL;
	cli->target = n > 3 ? words[3] : NULL;
	code = command->is_offline ? CLI_OK : cli_find_server(cli);
	return code == CLI_OK ? command->run(cli, n > 1 ? words[1] : NULL) : code;
}

/* no-color.org: the variable is set and not empty */
static bool wants_colour(const struct cli *cli)
{
	const char *no_color = getenv("NO_COLOR");

	return !cli->is_json && (!no_color || *no_color == '\0') && isatty(STDOUT_FILENO);
}

/* A reader may close a pipe early; on other outputs a failed write is an error. */
static bool is_pipe(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

/* Returns @code, or a failure if the output could not be written. */
static int printed(int code)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	if (!is_pipe(STDOUT_FILENO))
		perror("holdfast: cannot write");
	return code == CLI_OK ? CLI_FAILED : code;
}

int main(int argc, char **argv)
{
	const char *state_dir = getenv("HOLDFAST_STATE_DIR");
	struct cli cli = { .state_dir = state_dir && *state_dir ? state_dir : DEFAULT_STATE_DIR,
			   .errors = stderr };
	int option, code;

	signal(SIGPIPE, SIG_IGN);
	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		code = take_option(&cli, option);
		if (code >= 0)
			return printed(code);
	}
	if (cli.is_insecure)
		fputs("holdfast: --insecure: the server's certificate is not checked\n", stderr);
	cli.has_colour = wants_colour(&cli);
	return printed(run(&cli, argv + optind, argc - optind));
}
