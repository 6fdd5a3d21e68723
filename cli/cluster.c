/* The nodes of the cluster: shows them, and hands the service from one to another. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "cli/cli.h"

#define NO_LIMIT ((size_t)1 << 30)
#define POLL_MS  200
/* The node that has taken the service serves first, and then writes its takeover into the database. It writes
 * none if no node had the service before. */
#define REPORT_MS 3000
/* With four leases, for the result of an order: longer than the order holds (src/cluster/node.c), and the
 * service has to be built. */
#define WAIT_S 60

static double seconds(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

/* Show */

static void print_lease(const json_t *lease)
{
	const char *holder = cli_text(lease, "holder");
	char clean[512];

	if (!holder) {
		printf("lease      no node holds it; %g s long\n", seconds(lease, "seconds"));
		return;
	}
	printf("lease      held by %s, renewed %.1f s ago, %g s long",
	       cli_clean(clean, sizeof(clean), holder), seconds(lease, "renewed_seconds_ago"),
	       seconds(lease, "seconds"));
	if (seconds(lease, "seconds_left") > 0)
		printf(", %.1f s left", seconds(lease, "seconds_left"));
	putchar('\n');
}

/* "from a to b in 3.91 s, all locks were held: the lease was over" */
static void print_result(const json_t *takeover)
{
	bool is_continued = cli_text_is(takeover, "result", "continued");
	const char *from = cli_text(takeover, "from");
	char clean[1024];

	if (from && !cli_text_is(takeover, "to", from))
		printf("from %s ", cli_clean(clean, sizeof(clean), from));
	printf("to %s in %.2f s, %s", cli_clean(clean, sizeof(clean), cli_text(takeover, "to")),
	       seconds(takeover, "seconds"),
	       is_continued ? "all locks were held" : "clients reclaim their locks");
	printf(": %s\n", cli_clean(clean, sizeof(clean), cli_text(takeover, "reason")));
}

static void print_nodes(const struct cli *cli, const json_t *nodes)
{
	static const char *const titles[] = { "NODE", "ROLE", "VERSION", "LAST SEEN" };
	struct cli_table *table = cli_table_new(titles, HF_ARRAY_SIZE(titles));
	const json_t *node;
	size_t i;

	json_array_foreach(nodes, i, node)
	{
		cli_table_add(table,
			      (const char *[]){ cli_text(node, "name"), cli_text(node, "role"),
						cli_text(node, "version"), cli_text(node, "last_seen") });
	}
	cli_table_print(table, stdout, cli->has_colour, NO_LIMIT, NO_LIMIT);
	cli_table_free(table);
}

static void print_cluster(const struct cli *cli, const json_t *cluster)
{
	const json_t *takeover = json_object_get(cluster, "last_takeover"), *address;
	bool is_well = cli_text_is(cluster, "role", "active") || cli_text_is(cluster, "role", "standby");
	const char *reason = cli_text(cluster, "reason");
	char clean[1024];
	size_t i;

	printf("service    %s%s%s, epoch %lld\n", cli_bold(cli),
	       cli_clean(clean, sizeof(clean), cli_text(cluster, "service")), cli_plain(cli),
	       (long long)json_integer_value(json_object_get(cluster, "epoch")));
	printf("node       %s, ", cli_clean(clean, sizeof(clean), cli_text(cluster, "node")));
	printf("%s%s%s", is_well ? cli_green(cli) : cli_red(cli),
	       cli_clean(clean, sizeof(clean), cli_text(cluster, "role")), cli_plain(cli));
	printf("%s%s\n", reason ? ": " : "", reason ? cli_clean(clean, sizeof(clean), reason) : "");
	print_lease(json_object_get(cluster, "lease"));
	printf("takeover   ");
	if (json_is_object(takeover)) {
		printf("%s ", cli_clean(clean, sizeof(clean), cli_text(takeover, "at")));
		print_result(takeover);
	} else {
		puts("there was none");
	}
	printf("addresses ");
	json_array_foreach(json_object_get(cluster, "addresses"), i, address)
		printf(" %s", cli_clean(clean, sizeof(clean), json_string_value(address)));
	puts(i ? "" : " moved by another program");
	printf("fence      %s\n", json_is_true(json_object_get(cluster, "fence")) ? "yes" : "none");
	printf("automatic  %s\n\n", json_is_true(json_object_get(cluster, "automatic"))
					    ? "yes"
					    : "no: takes over only with `holdfast cluster take`");
	print_nodes(cli, json_object_get(cluster, "nodes"));
}

static int show(struct cli *cli)
{
	int code;
	json_t *cluster = cli_ask(cli, "GET", "/api/v1/cluster", &code);

	if (cluster && cli->is_json)
		cli_print_json(cluster);
	else if (cluster)
		print_cluster(cli, cluster);
	json_decref(cluster);
	return code;
}

/* Orders */

/* An answer of the node, or NULL: its API ends and starts again while its role changes, maybe at another
 * port. */
static json_t *ask_quietly(struct cli *cli, const char *target)
{
	struct cli_response response = { 0 };
	json_t *answer = NULL;

	if (cli_find_server(cli) == CLI_OK && cli_request(cli, "GET", target, &response) == 0 &&
	    response.status == 200)
		answer = json_loadb(response.body, response.len, 0, NULL);
	free(response.body);
	return answer;
}

static bool is_ready(struct cli *cli)
{
	json_t *ready = ask_quietly(cli, "/readyz");
	bool is_answered = ready != NULL;

	json_decref(ready);
	return is_answered;
}

static json_int_t epoch_of(const json_t *cluster)
{
	return json_integer_value(json_object_get(cluster, "epoch"));
}

/* The node that was active at the order. */
static const char *holder_of(const json_t *before)
{
	const char *holder = cli_text(json_object_get(before, "lease"), "holder");

	return holder ? holder : "";
}

/* Each takeover has an epoch of its own. This node may learn of the takeover before, its epoch and its
 * report, later than it got the order: that one made the node active that was so at the order. */
static bool is_new(const json_t *before, const json_t *after)
{
	const json_t *takeover = json_object_get(after, "last_takeover");

	return epoch_of(after) > epoch_of(before) && json_is_object(takeover) &&
	       !json_equal(takeover, json_object_get(before, "last_takeover")) &&
	       !cli_text_is(takeover, "to", holder_of(before));
}

/* A node that takes the service knows itself when it serves. A node that hands it over sees the takeover. */
static bool is_done(struct cli *cli, const json_t *before, const json_t *after, bool takes)
{
	if (!takes)
		return is_new(before, after);
	return cli_text_is(after, "role", "active") && is_ready(cli);
}

static bool is_by_this_node(const json_t *after)
{
	const char *node = cli_text(after, "node");

	return node && cli_text_is(json_object_get(after, "last_takeover"), "to", node);
}

static bool has_lease(const json_t *after)
{
	const char *node = cli_text(after, "node");

	return node && cli_text_is(json_object_get(after, "lease"), "holder", node);
}

/* Another node took the service instead of this one. While this node has the lease, the report is of a
 * takeover before. */
static bool is_lost(const json_t *before, const json_t *after, bool takes)
{
	return takes && is_new(before, after) && cli_text(after, "node") && !is_by_this_node(after) &&
	       !has_lease(after);
}

static int tell_result(const struct cli *cli, const json_t *before, const json_t *after)
{
	const json_t *takeover = json_object_get(after, "last_takeover");

	if (cli->is_json) {
		cli_print_json(takeover);
	} else if (is_new(before, after)) {
		printf("The service moved ");
		print_result(takeover);
	} else {
		puts("This node serves.");
	}
	return CLI_OK;
}

static int wait_for_result(struct cli *cli, const json_t *before, bool takes)
{
	double limit = WAIT_S + 4 * seconds(json_object_get(before, "lease"), "seconds");
	bool has_dots = isatty(STDERR_FILENO), done = false, lost = false;
	int code = CLI_FAILED, served_ms = 0;
	json_t *after = NULL;

	for (int waited = 0; !done && !lost && waited < limit * 1000; waited += POLL_MS) {
		nanosleep(&(struct timespec){ .tv_nsec = POLL_MS * 1000000L }, NULL);
		if (has_dots && waited % 1000 == 0)
			fputc('.', stderr);
		json_decref(after);
		after = ask_quietly(cli, "/api/v1/cluster");
		done = is_done(cli, before, after, takes);
		lost = !done && is_lost(before, after, takes);
		if (done && takes && !(is_new(before, after) && is_by_this_node(after)))
			done = (served_ms += POLL_MS) > REPORT_MS;
	}
	if (has_dots)
		fputc('\n', stderr);
	if (done)
		code = tell_result(cli, before, after);
	else
		fprintf(stderr,
			"holdfast: the order was accepted, but %s; see `holdfast cluster` and the logs of "
			"the nodes\n",
			lost ? "another node took the service over"
			     : "no node took the service over in time");
	json_decref(after);
	return code;
}

static int give_order(struct cli *cli, const char *target, bool takes)
{
	json_t *before, *answer = NULL;
	int code;

	before = cli_ask(cli, "GET", "/api/v1/cluster", &code);
	if (before)
		answer = cli_ask(cli, "POST", target, &code);
	if (answer && !cli->no_wait)
		code = wait_for_result(cli, before, takes);
	else if (answer && cli->is_json)
		cli_print_json(answer);
	else if (answer)
		puts("The order was accepted; `holdfast cluster` shows its result.");
	json_decref(before);
	json_decref(answer);
	return code;
}

int cli_cluster(struct cli *cli, const char *argument)
{
	char target[8192] = "/api/v1/cluster/move", escaped[4096];

	if (!argument)
		return show(cli);
	if (strcmp(argument, "take") == 0 && !cli->object)
		return give_order(cli, "/api/v1/cluster/take", true);
	if (strcmp(argument, "move") != 0) {
		fprintf(stderr,
			"holdfast: cluster %s%s%s: unknown arguments; use `move`, `move NODE` or `take`\n",
			argument, cli->object ? " " : "", cli->object ? cli->object : "");
		return CLI_USAGE;
	}
	if (cli->object) {
		cli_escape(escaped, sizeof(escaped), cli->object);
		snprintf(target, sizeof(target), "/api/v1/cluster/move?to=%s", escaped);
	}
	return give_order(cli, target, false);
}
