/*
 * holdfast release: the locks of one client, of one client in one file, or of several
 * clients at once. Each form shows what it is about to release, says what that risks,
 * and asks, unless --yes is given.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "cli/cli.h"

static long long number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* Asking */

/* Accepts only "y" or "yes". */
static bool is_confirmed(void)
{
	char line[16];

	fflush(stdout);
	return fgets(line, sizeof(line), stdin) && (strcmp(line, "yes\n") == 0 || strcmp(line, "y\n") == 0);
}

/* Where the question goes: JSON on stdout stays JSON. */
static FILE *shown_on(const struct cli *cli)
{
	return cli->is_json ? stderr : stdout;
}

/* The caller has shown what is at stake. CLI_OK: go on. */
static int ask(const struct cli *cli)
{
	if (cli->is_yes)
		return CLI_OK;
	if (!isatty(STDIN_FILENO)) {
		fputs("holdfast: release asks for confirmation, and stdin is not a terminal; use --yes\n",
		      stderr);
		return CLI_USAGE;
	}
	fputs("Continue? [yes/no] ", shown_on(cli));
	fflush(stderr);
	if (is_confirmed())
		return CLI_OK;
	fputs("Nothing was changed.\n", shown_on(cli));
	return CLI_FAILED;
}

/* The order: adds what was released to *np. */
static int give(struct cli *cli, const char *target, long long *np)
{
	int code;
	json_t *answer = cli_ask(cli, "DELETE", target, &code);

	*np += answer ? number(answer, "locks_released") : 0;
	json_decref(answer);
	return code;
}

static void print_released(const struct cli *cli, long long n)
{
	json_t *json;

	if (!cli->is_json) {
		printf("%lld locks released.\n", n);
		return;
	}
	json = json_pack("{s:I}", "locks_released", (json_int_t)n);
	cli_print_json(json);
	json_decref(json);
}

/* One client */

static void target_of_client(char *target, size_t size, const char *id)
{
	char escaped[4096];

	cli_escape(escaped, sizeof(escaped), id);
	snprintf(target, size, "/api/v1/clients/%s", escaped);
}

static int show_client(struct cli *cli, const char *target, const char *id)
{
	char clean[2048];
	int code;
	json_t *client = cli_ask(cli, "GET", target, &code);

	if (client)
		fprintf(shown_on(cli),
			"%s%s%s will be declared crashed: %lld locks will be released and %lld waiters "
			"dropped.\n"
			"A client that is still alive does not learn of it, and may write to files that "
			"other clients "
			"lock then.\n",
			cli_bold(cli), cli_clean(clean, sizeof(clean), id), cli_plain(cli),
			number(client, "lock_count"), number(client, "waiters"));
	json_decref(client);
	return code;
}

static int release_client(struct cli *cli, const char *id)
{
	char target[8192];
	long long n = 0;
	int code = CLI_OK;

	target_of_client(target, sizeof(target), id);
	if (!cli->is_yes && isatty(STDIN_FILENO))
		code = show_client(cli, target, id);
	if (code == CLI_OK)
		code = ask(cli);
	if (code == CLI_OK)
		code = give(cli, target, &n);
	if (code == CLI_OK)
		print_released(cli, n);
	return code;
}

/* One client in one file */

#define HANDLE "handle:"

static bool is_handle(const char *file)
{
	return strncmp(file, HANDLE, strlen(HANDLE)) == 0;
}

static bool is_in_file(const json_t *lock, const char *file)
{
	const char *path = cli_text(lock, "file"), *handle = cli_text(lock, "handle");
	const char *digits = file + strlen(HANDLE);

	if (!is_handle(file))
		return path && strcmp(path, file) == 0;
	return *digits && handle && strncmp(handle, digits, strcspn(digits, ".")) == 0;
}

static bool is_wanted(const struct cli *cli, const json_t *lock)
{
	char range[64];

	return is_in_file(lock, cli->file) &&
	       (!cli->range || strcmp(cli_range(range, sizeof(range), lock), cli->range) == 0);
}

static json_t *find_locks(struct cli *cli, const char *id, int *codep)
{
	char target[8192], escaped[4096];
	json_t *all, *found = NULL, *lock;
	size_t i;

	cli_escape(escaped, sizeof(escaped), id);
	snprintf(target, sizeof(target), "/api/v1/locks?client=%s", escaped);
	all = cli_ask_all(cli, target, "locks", codep);
	if (!all)
		return NULL;
	found = json_array();
	json_array_foreach(all, i, lock)
	{
		if (is_wanted(cli, lock))
			json_array_append(found, lock);
	}
	json_decref(all);
	return found;
}

/* Each handle once. One file has several where it is exported more than once. */
static json_t *handles_of(const json_t *locks)
{
	json_t *handles = json_object();
	const json_t *lock;
	size_t i;

	json_array_foreach(locks, i, lock)
	{
		json_object_set_new(handles, cli_text(lock, "handle"), json_true());
	}
	return handles;
}

static int check_locks(struct cli *cli, const char *id, const json_t *locks, const json_t *handles)
{
	if (json_array_size(locks) == 0) {
		fprintf(stderr, "holdfast: this client has no such lock; see `holdfast locks --client %s`\n",
			id);
		return CLI_NOT_FOUND;
	}
	if (is_handle(cli->file) && json_object_size(handles) > 1) {
		fputs("holdfast: several files have handles that begin so; `holdfast --json locks` shows all "
		      "digits\n",
		      stderr);
		return CLI_USAGE;
	}
	return CLI_OK;
}

static int release_locks(struct cli *cli, const char *id, const json_t *locks, json_t *handles)
{
	const json_t *first = json_array_get(locks, 0);
	char client[4096], file[3072], target[8192];
	long long n = 0;
	int code = CLI_OK;
	const char *handle;
	json_t *unused;

	cli_escape(client, sizeof(client), id);
	json_object_foreach(handles, handle, unused)
	{
		size_t len;

		cli_escape(file, sizeof(file), handle);
		len = (size_t)snprintf(target, sizeof(target), "/api/v1/locks?client=%s&handle=%s", client,
				       file);
		if (cli->range && len < sizeof(target))
			snprintf(target + len, sizeof(target) - len, "&offset=%lld&length=%lld",
				 number(first, "offset"), number(first, "length"));
		code = give(cli, target, &n);
		if (code != CLI_OK)
			break;
	}
	if (n || code == CLI_OK)
		print_released(cli, n);
	return code;
}

static int release_file(struct cli *cli, const char *id)
{
	int code;
	json_t *locks = find_locks(cli, id, &code);
	json_t *handles = locks ? handles_of(locks) : NULL;

	if (locks)
		code = check_locks(cli, id, locks, handles);
	if (code == CLI_OK && !cli->is_yes) {
		cli_print_locks(cli, shown_on(cli), locks);
		fputs("These locks will be released, and waiters get them at once. The client does not learn "
		      "of it: a program\n"
		      "that is still alive goes on writing in the belief that it holds the lock, while "
		      "another program does.\n",
		      shown_on(cli));
	}
	if (code == CLI_OK)
		code = ask(cli);
	if (code == CLI_OK)
		code = release_locks(cli, id, locks, handles);
	json_decref(locks);
	json_decref(handles);
	return code;
}

/* Several clients */

struct address {
	int family;
	uint8_t ip[16];
	const char *zone; /* an interface of the server, which this host may not have; empty: none */
};

static bool read_address(struct address *address, const char *text)
{
	size_t len = strcspn(text, "%");
	char ip[INET6_ADDRSTRLEN] = "";

	*address = (struct address){ .family = AF_INET6, .zone = text[len] ? text + len + 1 : "" };
	if (len >= sizeof(ip) || (text[len] && !*address->zone))
		return false;
	memcpy(ip, text, len);
	if (inet_pton(AF_INET6, ip, address->ip) == 1)
		return true;
	address->family = AF_INET;
	return !text[len] && inet_pton(AF_INET, ip, address->ip) == 1;
}

static bool is_same_address(const char *shown, const char *given)
{
	struct address a, b;

	return shown && read_address(&a, shown) && read_address(&b, given) && a.family == b.family &&
	       memcmp(a.ip, b.ip, sizeof(a.ip)) == 0 && strcmp(a.zone, b.zone) == 0;
}

static bool has_anything(const json_t *client)
{
	return number(client, "locks") || number(client, "waiters") || number(client, "reservations");
}

static bool is_chosen(const struct cli *cli, const json_t *client)
{
	const char *address = cli_text(client, "address");
	double silent = json_number_value(json_object_get(client, "silent_seconds"));

	return has_anything(client) && cli_text(client, "id") &&
	       (!cli->address || is_same_address(address, cli->address)) &&
	       (!cli->silent_for || silent >= strtod(cli->silent_for, NULL));
}

static json_t *choose(struct cli *cli, int *codep)
{
	json_t *all = cli_ask_all(cli, "/api/v1/clients", "clients", codep), *chosen, *client;
	size_t i;

	if (!all)
		return NULL;
	chosen = json_array();
	json_array_foreach(all, i, client)
	{
		if (is_chosen(cli, client))
			json_array_append(chosen, client);
	}
	json_decref(all);
	return chosen;
}

static void show_chosen(const struct cli *cli, const json_t *clients)
{
	static const char *const titles[] = { "ID", "LOCKS", "WAITERS", "RESERVATIONS", "SILENT FOR" };
	struct cli_table *table = cli_table_new(titles, HF_ARRAY_SIZE(titles));
	const json_t *client;
	size_t i;

	json_array_foreach(clients, i, client)
	{
		char n[3][32], silent[32];

		snprintf(n[0], sizeof(n[0]), "%lld", number(client, "locks"));
		snprintf(n[1], sizeof(n[1]), "%lld", number(client, "waiters"));
		snprintf(n[2], sizeof(n[2]), "%lld", number(client, "reservations"));
		cli_duration(silent, sizeof(silent),
			     json_number_value(json_object_get(client, "silent_seconds")));
		cli_table_add(table, (const char *[]){ cli_text(client, "id"), n[0], n[1], n[2], silent });
	}
	cli_table_print(table, shown_on(cli), cli->has_colour, CLI_NO_LIMIT, CLI_NO_LIMIT);
	cli_table_free(table);
	fprintf(shown_on(cli),
		"These %zu clients will be declared crashed, and all that they have will be released. A "
		"client that is\n"
		"still alive does not learn of it, and may write to files that other clients lock then. A "
		"client whose\n"
		"programs ask the server for nothing is silent, too.\n",
		json_array_size(clients));
}

static int release_chosen(struct cli *cli, const json_t *clients)
{
	const json_t *client;
	char target[8192];
	long long n = 0;
	int code = CLI_OK, worst = CLI_OK;
	size_t i;

	json_array_foreach(clients, i, client)
	{
		target_of_client(target, sizeof(target), cli_text(client, "id"));
		code = give(cli, target, &n);
		if (code != CLI_OK && code != CLI_NOT_FOUND) /* one that is gone has nothing */
			worst = code;
		if (code == CLI_UNREACHABLE || code == CLI_DENIED) /* so are all others */
			break;
	}
	if (i) /* an order was carried out before an error */
		print_released(cli, n);
	return worst;
}

static int release_many(struct cli *cli)
{
	int code;
	json_t *clients = choose(cli, &code);

	if (clients && json_array_size(clients) == 0) {
		if (cli->is_json)
			print_released(cli, 0);
		else
			puts("No such client has anything to release.");
	} else if (clients) {
		show_chosen(cli, clients);
		code = ask(cli);
		if (code == CLI_OK)
			code = release_chosen(cli, clients);
	}
	json_decref(clients);
	return code;
}

static const char *find_fault(const struct cli *cli, const char *id)
{
	bool is_many = cli->address || cli->silent_for;
	struct address address;
	char *end = NULL;

	if (!id && !is_many)
		return "release needs the ID of a client, --address or --silent-for; see `holdfast clients`";
	if (id && is_many)
		return "release takes an ID, or --address and --silent-for, not both";
	if (cli->file && !id)
		return "release --file needs the ID of a client; see `holdfast locks`";
	if (cli->range && !cli->file)
		return "release --range needs --file; see `holdfast locks`";
	if (cli->address && !read_address(&address, cli->address))
		return "--address needs an address, as in `holdfast clients`";
	if (cli->silent_for && (!(strtod(cli->silent_for, &end) >= 1) || *end)) /* "nan" is no number */
		return "--silent-for needs a number of seconds, 1 or more";
	return NULL;
}

int cli_release(struct cli *cli, const char *argument)
{
	const char *fault = find_fault(cli, argument);

	if (fault) {
		fprintf(stderr, "holdfast: %s\n", fault);
		return CLI_USAGE;
	}
	if (!argument)
		return release_many(cli);
	return cli->file ? release_file(cli, argument) : release_client(cli, argument);
}
