/*
 * A live view: the state in the first lines, then the waiters, then the clients
 * with the most locks, as many as fit; or, by client and export, calls and bytes
 * a second. It is drawn once a second and when the window changes; c switches, q
 * ends it. With --once it is printed once, without a terminal.
 */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "base/macros.h"
#include "cli/cli.h"

#define PAUSE_MS 1000 /* between two readings */

struct window {
	size_t rows, columns;
};

static struct window window_of(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row == 0)
		return (struct window){ 24, 80 };
	return (struct window){ size.ws_row, size.ws_col };
}

static long long number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static int by_locks(const void *a, const void *b)
{
	long long x = number(*(json_t *const *)a, "locks"), y = number(*(json_t *const *)b, "locks");

	return x < y ? 1 : x > y ? -1 : 0;
}

static void put_waiters(FILE *out, struct cli *cli, const json_t *page, size_t room, size_t columns)
{
	static const char *const titles[] = { "WAITING", "RANGE", "MODE", "CLIENT", "BLOCKED BY" };
	struct cli_table *table = cli_table_new(titles, HF_ARRAY_SIZE(titles));
	const json_t *waiter;
	size_t i;

	json_array_foreach(json_object_get(page, "waiters"), i, waiter)
	{
		char since[32], range[64], blockers[8192];

		cli_table_add(table, (const char *[]){ cli_duration(since, sizeof(since),
								    json_number_value(json_object_get(
									    waiter, "waiting_seconds"))),
						       cli_range(range, sizeof(range), waiter),
						       cli_text(waiter, "mode"), cli_text(waiter, "client"),
						       cli_blockers(blockers, sizeof(blockers), waiter) });
	}
	cli_table_print(table, out, cli->has_colour, room, columns);
	cli_table_free(table);
}

static void put_clients(FILE *out, struct cli *cli, const json_t *clients, size_t room, size_t columns)
{
	static const char *const titles[] = { "CLIENT", "STATUS", "LOCKS", "WAITERS", "LAST SEEN" };
	struct cli_table *table = cli_table_new(titles, HF_ARRAY_SIZE(titles));
	size_t n = json_array_size(clients);
	json_t **sorted = calloc(n + 1, sizeof(json_t *));

	for (size_t i = 0; sorted && i < n; i++)
		sorted[i] = json_array_get(clients, i);
	if (sorted)
		qsort(sorted, n, sizeof(json_t *), by_locks);
	for (size_t i = 0; sorted && i < n && i < room; i++) {
		char locks[32], waiters[32];

		snprintf(locks, sizeof(locks), "%lld", number(sorted[i], "locks"));
		snprintf(waiters, sizeof(waiters), "%lld", number(sorted[i], "waiters"));
		cli_table_add(table,
			      (const char *[]){ cli_text(sorted[i], "id"), cli_text(sorted[i], "status"),
						locks, waiters, cli_text(sorted[i], "last_seen") });
	}
	free(sorted);
	cli_table_print(table, out, cli->has_colour, room, columns);
	cli_table_free(table);
}

static void put_head(FILE *out, struct cli *cli, const json_t *status, size_t columns)
{
	const json_t *grace = json_object_get(status, "grace"), *store = json_object_get(status, "store");
	bool is_healthy = json_is_true(json_object_get(store, "healthy"));
	char up[32], left[32], line[512], name[128], version[64], backend[64];

	snprintf(line, sizeof(line), "%s %s up %s  state %lld  store %s %s",
		 cli_clean(name, sizeof(name), cli_text(status, "name")),
		 cli_clean(version, sizeof(version), cli_text(status, "version")),
		 cli_duration(up, sizeof(up), json_number_value(json_object_get(status, "uptime_seconds"))),
		 number(status, "sm_state"), cli_clean(backend, sizeof(backend), cli_text(store, "backend")),
		 is_healthy ? "healthy" : "FAILING");
	fprintf(out, "%s%.*s%s\n", is_healthy ? cli_bold(cli) : cli_red(cli), (int)columns, line,
		cli_plain(cli));
	snprintf(line, sizeof(line), "clients %lld  locks %lld  waiters %lld  grace %s",
		 number(status, "clients"), number(status, "locks"), number(status, "waiters"),
		 json_is_true(json_object_get(grace, "active"))
			 ? cli_duration(left, sizeof(left),
					json_number_value(json_object_get(grace, "ends_in_seconds")))
			 : "no");
	fprintf(out, "%.*s\n", (int)columns, line);
}

/* What is shown: the state, or rates by client and export. */
struct view {
	bool by_client;
	struct cli_usage_reading reading;
};

static int put_state(struct cli *cli, FILE *out, const json_t *status, struct window window)
{
	int code;
	json_t *waiters = cli_ask(cli, "GET", "/api/v1/waiters?limit=100", &code);
	json_t *clients = waiters ? cli_ask_all(cli, "/api/v1/clients", "clients", &code) : NULL;
	size_t room = window.rows > 8 ? window.rows - 7 : 1;

	if (clients) {
		size_t n = json_array_size(json_object_get(waiters, "waiters"));
		size_t part = n < room / 2 ? n : room / 2;

		put_head(out, cli, status, window.columns);
		fputc('\n', out);
		put_waiters(out, cli, waiters, part, window.columns);
		fputc('\n', out);
		put_clients(out, cli, clients, room - part, window.columns);
	}
	json_decref(waiters);
	json_decref(clients);
	return code;
}

static int put_usage(struct cli *cli, FILE *out, const json_t *status, struct window window,
		     struct view *view)
{
	bool is_first = !view->reading.rows;
	int code;
	json_t *rates = cli_usage_rates(cli, &view->reading, &code);

	if (rates) {
		put_head(out, cli, status, window.columns);
		fputc('\n', out);
		if (is_first)
			fputs("counting...\n", out);
		else
			cli_usage_put_rates(cli, out, rates, window.rows > 6 ? window.rows - 5 : 1,
					    window.columns);
	}
	json_decref(rates);
	return code;
}

static bool is_counted(const json_t *status)
{
	return json_is_true(json_object_get(status, "per_client"));
}

static void put_keys(const struct cli *cli, FILE *out, const json_t *status, struct window window,
		     const struct view *view)
{
	fprintf(out, "\033[%zu;1H%sq%s ends", window.rows, cli_bold(cli), cli_plain(cli));
	if (is_counted(status))
		fprintf(out, ", %sc%s shows %s", cli_bold(cli), cli_plain(cli),
			view->by_client ? "the state" : "rates by client");
}

/* Writes one screen at once, so that it does not flicker. */
static int draw(struct cli *cli, struct view *view, struct window window, bool is_screen)
{
	char *screen = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&screen, &len);
	int code = CLI_FAILED;
	json_t *status = out ? cli_ask(cli, "GET", "/api/v1/status", &code) : NULL;

	if (status && is_screen)
		fputs("\033[H\033[J", out);
	if (status)
		code = view->by_client ? put_usage(cli, out, status, window, view)
				       : put_state(cli, out, status, window);
	if (status && is_screen)
		put_keys(cli, out, status, window, view);
	if (out)
		fclose(out);
	if (code == CLI_OK)
		fwrite(screen, 1, len, stdout);
	fflush(stdout);
	free(screen);
	json_decref(status);
	return code;
}

/* A server that does not count by client has nothing to switch to. */
static void switch_view(struct cli *cli, struct view *view)
{
	int code;
	json_t *status = cli_ask(cli, "GET", "/api/v1/status", &code);

	if (is_counted(status))
		view->by_client = !view->by_client;
	json_decref(status);
	cli_usage_forget(&view->reading);
}

static int watch(struct cli *cli, struct view *view, int signals)
{
	struct pollfd fds[] = { { .fd = STDIN_FILENO, .events = POLLIN },
				{ .fd = signals, .events = POLLIN } };

	for (;;) {
		struct signalfd_siginfo info;
		int code = draw(cli, view, window_of(), true);
		char key = 0;

		if (code != CLI_OK)
			return code;
		if (poll(fds, HF_ARRAY_SIZE(fds), PAUSE_MS) <= 0)
			continue;
		if (fds[0].revents && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q'))
			return CLI_OK;
		if (key == 'c' || key == 'C')
			switch_view(cli, view);
		if (fds[1].revents && read(signals, &info, sizeof(info)) == sizeof(info) &&
		    info.ssi_signo != SIGWINCH)
			return CLI_OK;
	}
}

/* Leaving the alternate screen erases it, so the reason is printed afterwards. */
static int watch_on_other_screen(struct cli *cli, struct view *view, int signals)
{
	char *said = NULL;
	size_t len = 0;
	FILE *errors = open_memstream(&said, &len);
	int code;

	if (!errors)
		return CLI_FAILED;
	cli->errors = errors;
	fputs("\033[?1049h\033[?25l", stdout); /* alternate screen, no cursor */
	code = watch(cli, view, signals);
	fputs("\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	cli->errors = stderr;
	fclose(errors);
	fputs(said, stderr);
	free(said);
	return code;
}

static int watch_on_terminal(struct cli *cli, struct view *view)
{
	struct termios before, raw;
	sigset_t set;
	int signals, code;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		fputs("holdfast: top needs a terminal; for scripts use `holdfast status --json`, or "
		      "`holdfast top "
		      "--once`\n",
		      stderr);
		return CLI_USAGE;
	}
	sigemptyset(&set);
	sigaddset(&set, SIGWINCH);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	if (signals < 0 || tcgetattr(STDIN_FILENO, &before) < 0)
		return CLI_FAILED;
	raw = before;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	code = watch_on_other_screen(cli, view, signals);
	tcsetattr(STDIN_FILENO, TCSANOW, &before);
	close(signals);
	return code;
}

/* Without a terminal. Rates need two readings. */
static int show_once(struct cli *cli, struct view *view)
{
	const struct window all = { CLI_NO_LIMIT, CLI_NO_LIMIT };
	json_t *rates;
	int code;

	if (!view->by_client)
		return draw(cli, view, all, false);
	json_decref(cli_usage_rates(cli, &view->reading, &code));
	if (code != CLI_OK)
		return code;
	(void)poll(NULL, 0, PAUSE_MS);
	if (!cli->is_json)
		return draw(cli, view, all, false);
	rates = cli_usage_rates(cli, &view->reading, &code);
	if (rates)
		cli_print_json(rates);
	json_decref(rates);
	return code;
}

int cli_top(struct cli *cli, const char *argument)
{
	struct view view = { .by_client = argument != NULL };
	int code;

	if (argument && strcmp(argument, "clients") != 0) {
		fprintf(stderr, "holdfast: top takes nothing, or clients\n");
		return CLI_USAGE;
	}
	if (cli->is_once || (cli->is_json && view.by_client))
		code = show_once(cli, &view);
	else
		code = watch_on_terminal(cli, &view);
	cli_usage_forget(&view.reading);
	return code;
}
