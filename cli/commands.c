/* Commands that show state: status, clients, locks, waiters, reservations, shares. */
#include <string.h>

#include "base/macros.h"
#include "cli/cli.h"

static long long number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static const char *count(char out[32], const json_t *object, const char *key)
{
	snprintf(out, 32, "%lld", number(object, key));
	return out;
}

/* If the path is unknown, the beginning of the handle tells files apart. */
static const char *file_of(char *out, size_t size, const json_t *lock)
{
	const char *path = cli_text(lock, "file"), *handle = cli_text(lock, "handle");

	if (path)
		snprintf(out, size, "%s", path);
	else
		snprintf(out, size, "handle:%.16s%s", handle ? handle : "",
			 handle && strlen(handle) > 16 ? "..." : "");
	return out;
}

/* Status */

static void print_grace(const struct cli *cli, const json_t *grace)
{
	char left[32], reason[256];
	const char *why = cli_text(grace, "reason");

	cli_clean(reason, sizeof(reason), why ? why : "");
	if (!json_is_true(json_object_get(grace, "active"))) {
		printf("grace      no%s%s\n", *reason ? ": " : "", reason);
		return;
	}
	cli_duration(left, sizeof(left), json_number_value(json_object_get(grace, "ends_in_seconds")));
	printf("grace      %sactive, ends in %s%s, %lld locks unreclaimed%s%s\n", cli_yellow(cli), left,
	       cli_plain(cli), number(grace, "unreclaimed"), *reason ? ": " : "", reason);
}

/* A server before this version does not tell. */
static void print_exports(const struct cli *cli, const json_t *exports)
{
	if (json_integer_value(exports) > 0)
		printf("exports    %lld\n", (long long)json_integer_value(exports));
	else if (exports)
		printf("exports    %snone: clients can mount nothing%s; add one to the configuration, and "
		       "restart "
		       "holdfastd\n",
		       cli_yellow(cli), cli_plain(cli));
}

void cli_print_reload(const struct cli *cli, const json_t *reload)
{
	const json_t *keys = json_object_get(reload, "at_next_start"), *key;
	const char *reason = cli_text(reload, "reason");
	char clean[64], why[1024];
	size_t i;

	if (!json_is_object(reload))
		return;
	printf("reload     %s: ", cli_clean(clean, sizeof(clean), cli_text(reload, "at")));
	if (!json_is_true(json_object_get(reload, "loaded")))
		printf("%sfailed%s, the old configuration stays: %s", cli_red(cli), cli_plain(cli),
		       cli_clean(why, sizeof(why), reason ? reason : "the log says why"));
	else if (json_array_size(keys) == 0)
		printf("everything is in effect");
	else
		printf("%sonly at the next start:%s", cli_yellow(cli), cli_plain(cli));
	json_array_foreach(keys, i, key)
	{
		printf(" %s", cli_clean(clean, sizeof(clean), json_string_value(key)));
	}
	putchar('\n');
}

static void print_status(struct cli *cli, const json_t *status)
{
	const json_t *store = json_object_get(status, "store");
	bool is_healthy = json_is_true(json_object_get(store, "healthy"));
	bool is_active = cli_text_is(status, "role", "active");
	char up[32], name[256], version[64], backend[64], durability[64], why[512];

	printf("server     %s%s%s, version %s, up %s, at %s\n", cli_bold(cli),
	       cli_clean(name, sizeof(name), cli_text(status, "name")), cli_plain(cli),
	       cli_clean(version, sizeof(version), cli_text(status, "version")),
	       cli_duration(up, sizeof(up), json_number_value(json_object_get(status, "uptime_seconds"))),
	       cli->endpoint);
	if (cli_text(status, "role"))
		printf("role       %s%s%s; see `holdfast cluster`\n",
		       is_active ? cli_green(cli) : cli_yellow(cli),
		       cli_clean(why, sizeof(why), cli_text(status, "role")), cli_plain(cli));
	if (json_is_null(json_object_get(status, "sm_state"))) {
		/* A standby has nothing else to show; the reason names the active node. */
		printf("service    %s\n",
		       cli_clean(why, sizeof(why), cli_text(json_object_get(status, "grace"), "reason")));
		cli_print_reload(cli, json_object_get(status, "reload"));
		return;
	}
	printf("state      %lld, epoch %lld\n", number(status, "sm_state"), number(status, "epoch"));
	printf("store      %s, durability %s, %s%s%s\n",
	       cli_clean(backend, sizeof(backend), cli_text(store, "backend")),
	       cli_clean(durability, sizeof(durability), cli_text(store, "lock_durability")),
	       is_healthy ? cli_green(cli) : cli_red(cli),
	       is_healthy ? "healthy" : "FAILING: no lock is granted", cli_plain(cli));
	print_grace(cli, json_object_get(status, "grace"));
	print_exports(cli, json_object_get(status, "exports"));
	cli_print_reload(cli, json_object_get(status, "reload"));
	printf("clients    %lld\nlocks      %lld\nwaiters    %lld\n", number(status, "clients"),
	       number(status, "locks"), number(status, "waiters"));
	if (number(status, "reservations"))
		printf("reserved   %lld\n", number(status, "reservations"));
	cli_print_tight_limits(cli);
}

int cli_status(struct cli *cli, const char *argument)
{
	int code;
	json_t *status = cli_ask(cli, "GET", "/api/v1/status", &code);

	if (status && cli->is_json) {
		cli_add_limits(cli, status);
		cli_print_json(status);
	} else if (status) {
		print_status(cli, status);
	}
	json_decref(status);
	return code;
}

/* Lists */

static void add_filter(char *target, size_t size, const char *name, const char *value)
{
	char escaped[4096];
	size_t len = strlen(target);

	if (!value)
		return;
	cli_escape(escaped, sizeof(escaped), value);
	snprintf(target + len, size - len, "%c%s=%s", strchr(target, '?') ? '&' : '?', name, escaped);
}

static struct cli_table *lock_table(const json_t *locks)
{
	static const char *const titles[] = { "SHARE", "FILE", "RANGE", "MODE", "STATE", "CLIENT", "OWNER" };
	struct cli_table *table = cli_table_new(titles, HF_ARRAY_SIZE(titles));
	const json_t *lock;
	size_t i;

	json_array_foreach(locks, i, lock)
	{
		char range[64], file[4096];

		cli_table_add(table,
			      (const char *[]){ cli_text(lock, "share"), file_of(file, sizeof(file), lock),
						cli_range(range, sizeof(range), lock), cli_text(lock, "mode"),
						cli_text(lock, "state"), cli_text(lock, "client"),
						cli_text(lock, "owner") });
	}
	return table;
}

void cli_print_locks(const struct cli *cli, FILE *out, const json_t *locks)
{
	struct cli_table *table = lock_table(locks);

	cli_table_print(table, out, cli->has_colour, CLI_NO_LIMIT, CLI_NO_LIMIT);
	cli_table_free(table);
}

static void print_transport(const json_t *client)
{
	const char *identity = cli_text(client, "identity");
	char clean[512];

	printf("transport  %s", cli_clean(clean, sizeof(clean), cli_text(client, "transport")));
	if (identity)
		printf(", identity %s", cli_clean(clean, sizeof(clean), identity));
	if (number(client, "refused_calls"))
		printf(", %lld calls refused for lack of TLS", number(client, "refused_calls"));
	putchar('\n');
}

/* An older server does not say it. */
static void print_connection(const json_t *client)
{
	const char *kind = cli_text(client, "tls_connection"), *names = cli_text(client, "authenticated_as");
	char clean[2048];

	if (!kind)
		return;
	printf("TLS now    %s", cli_clean(clean, sizeof(clean), kind));
	if (names)
		printf(", authenticated as %s", cli_clean(clean, sizeof(clean), names));
	putchar('\n');
}

static int show_client(struct cli *cli, const char *id)
{
	char target[8192], escaped[4096];
	json_t *client;
	int code;

	cli_escape(escaped, sizeof(escaped), id);
	snprintf(target, sizeof(target), "/api/v1/clients/%s", escaped);
	client = cli_ask(cli, "GET", target, &code);
	if (!client)
		return code;
	if (cli->is_json) {
		cli_print_json(client);
	} else {
		char clean[2048], status[64], when[64];
		const char *seen = cli_text(client, "last_seen");
		const json_t *locks = json_object_get(client, "locks");

		printf("client     %s%s%s\n", cli_bold(cli),
		       cli_clean(clean, sizeof(clean), cli_text(client, "id")), cli_plain(cli));
		printf("status     %s, state number %lld, last seen %s\n",
		       cli_clean(status, sizeof(status), cli_text(client, "status")),
		       number(client, "sm_state"), cli_clean(when, sizeof(when), seen ? seen : "never"));
		print_transport(client);
		print_connection(client);
		printf("locks      %lld\nwaiters    %lld\n\n", number(client, "lock_count"),
		       number(client, "waiters"));
		cli_print_list(cli, locks, lock_table(locks), "It has no locks.");
		if (json_is_true(json_object_get(client, "has_more_locks")))
			printf("\nThese are the first %zu; `holdfast locks --client %s` shows all.\n",
			       json_array_size(locks), clean);
	}
	json_decref(client);
	return code;
}

int cli_clients(struct cli *cli, const char *argument)
{
	static const char *const titles[] = { "ID",       "STATUS",    "STATE",
					      "LOCKS",    "WAITERS",   "TRANSPORT",
					      "IDENTITY", "TLS NOW",   "AUTHENTICATED AS",
					      "REFUSED",  "LAST SEEN", "SILENT FOR" };
	char target[8192] = "/api/v1/clients";
	struct cli_table *table;
	const json_t *client;
	json_t *clients;
	size_t i;
	int code;

	if (argument)
		return show_client(cli, argument);
	add_filter(target, sizeof(target), "status", cli->status);
	add_filter(target, sizeof(target), "protocol", cli->protocol);
	clients = cli_ask_all(cli, target, "clients", &code);
	if (!clients)
		return code;
	table = cli_table_new(titles, HF_ARRAY_SIZE(titles));
	json_array_foreach(clients, i, client)
	{
		char state[32], locks[32], waiters[32], silent[32], refused[32];
		const json_t *seconds = json_object_get(client, "silent_seconds");

		cli_table_add(table,
			      (const char *[]){
				      cli_text(client, "id"), cli_text(client, "status"),
				      count(state, client, "sm_state"), count(locks, client, "locks"),
				      count(waiters, client, "waiters"), cli_text(client, "transport"),
				      cli_text(client, "identity"), cli_text(client, "tls_connection"),
				      cli_text(client, "authenticated_as"),
				      count(refused, client, "refused_calls"), cli_text(client, "last_seen"),
				      json_is_number(seconds) ? cli_duration(silent, sizeof(silent),
									     json_number_value(seconds))
							      : NULL });
	}
	cli_print_list(cli, clients, table, "There are no clients.");
	json_decref(clients);
	return code;
}

int cli_locks(struct cli *cli, const char *argument)
{
	char target[8192] = "/api/v1/locks";
	json_t *locks;
	int code;

	add_filter(target, sizeof(target), "client", cli->client);
	add_filter(target, sizeof(target), "share", cli->share);
	locks = cli_ask_all(cli, target, "locks", &code);
	if (locks)
		cli_print_list(cli, locks, lock_table(locks), "There are no locks.");
	json_decref(locks);
	return code;
}

int cli_waiters(struct cli *cli, const char *argument)
{
	static const char *const titles[] = { "WAITING", "FILE", "RANGE", "MODE", "CLIENT", "BLOCKED BY" };
	char target[8192] = "/api/v1/waiters";
	struct cli_table *table;
	const json_t *waiter;
	json_t *waiters;
	size_t i;
	int code;

	add_filter(target, sizeof(target), "client", cli->client);
	add_filter(target, sizeof(target), "share", cli->share);
	waiters = cli_ask_all(cli, target, "waiters", &code);
	if (!waiters)
		return code;
	table = cli_table_new(titles, HF_ARRAY_SIZE(titles));
	json_array_foreach(waiters, i, waiter)
	{
		char range[64], file[4096], since[32], blockers[8192];
		double seconds = json_number_value(json_object_get(waiter, "waiting_seconds"));

		cli_table_add(table, (const char *[]){ cli_duration(since, sizeof(since), seconds),
						       file_of(file, sizeof(file), waiter),
						       cli_range(range, sizeof(range), waiter),
						       cli_text(waiter, "mode"), cli_text(waiter, "client"),
						       cli_blockers(blockers, sizeof(blockers), waiter) });
	}
	cli_print_list(cli, waiters, table, "There are no waiters.");
	json_decref(waiters);
	return code;
}

/* "read_write" -> "read+write", "deny_read" -> "read" */
static const char *access_of(char out[32], const char *name)
{
	static const char deny[] = "deny_";
	bool denies = name && strncmp(name, deny, strlen(deny)) == 0;
	char *blank;

	snprintf(out, 32, "%s", name ? name + (denies ? strlen(deny) : 0) : "-");
	blank = strchr(out, '_');
	if (blank)
		*blank = '+';
	return out;
}

int cli_reservations(struct cli *cli, const char *argument)
{
	static const char *const titles[] = { "SHARE", "FILE",        "ACCESS", "DENIES",
					      "COUNT", "UNRECLAIMED", "CLIENT", "OWNER" };
	char target[8192] = "/api/v1/reservations";
	struct cli_table *table;
	const json_t *item;
	json_t *items;
	size_t i;
	int code;

	add_filter(target, sizeof(target), "client", cli->client);
	add_filter(target, sizeof(target), "share", cli->share);
	items = cli_ask_all(cli, target, "reservations", &code);
	if (!items)
		return code;
	table = cli_table_new(titles, HF_ARRAY_SIZE(titles));
	json_array_foreach(items, i, item)
	{
		char file[4096], access[32], denies[32], n[32], unreclaimed[32];

		cli_table_add(table, (const char *[]){
					     cli_text(item, "share"), file_of(file, sizeof(file), item),
					     access_of(access, cli_text(item, "access")),
					     access_of(denies, cli_text(item, "mode")),
					     count(n, item, "count"), count(unreclaimed, item, "unreclaimed"),
					     cli_text(item, "client"), cli_text(item, "owner") });
	}
	cli_print_list(cli, items, table, "There are no reservations.");
	json_decref(items);
	return code;
}

int cli_shares(struct cli *cli, const char *argument)
{
	static const char *const titles[] = { "NAME", "PATH", "CLIENTS", "LOCKS", "WAITERS" };
	struct cli_table *table;
	const json_t *share;
	json_t *shares;
	size_t i;
	int code;

	shares = cli_ask_all(cli, "/api/v1/shares", "shares", &code);
	if (!shares)
		return code;
	table = cli_table_new(titles, HF_ARRAY_SIZE(titles));
	json_array_foreach(shares, i, share)
	{
		char clients[32], locks[32], waiters[32];

		cli_table_add(table, (const char *[]){ cli_text(share, "name"), cli_text(share, "path"),
						       count(clients, share, "clients"),
						       count(locks, share, "locks"),
						       count(waiters, share, "waiters") });
	}
	cli_print_list(cli, shares, table, "There are no exports.");
	json_decref(shares);
	return code;
}
