/*
 * A live view: the state in the first lines, then the waiters, then the clients
 * with the most locks, as many as fit. It is drawn once a second and when the
 * window changes; q ends it.
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

static const char *text(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
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
						       text(waiter, "mode"), text(waiter, "client"),
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
		cli_table_add(table, (const char *[]){ text(sorted[i], "id"), text(sorted[i], "status"),
						       locks, waiters, text(sorted[i], "last_seen") });
	}
	free(sorted);
	cli_table_print(table, out, cli->has_colour, room, columns);
	cli_table_free(table);
}

static void put_head(FILE *out, struct cli *cli, const json_t *status, size_t columns)
{
	const json_t *grace = json_object_get(status, "grace"), *store = json_object_get(status, "store");
	bool is_healthy = json_is_true(json_object_get(store, "healthy"));
	char up[32], left[32], line[512], name[128];

	snprintf(line, sizeof(line), "%s %s up %s  state %lld  store %s %s",
		 cli_clean(name, sizeof(name), text(status, "name") ? text(status, "name") : ""),
		 text(status, "version"),
		 cli_duration(up, sizeof(up), json_number_value(json_object_get(status, "uptime_seconds"))),
		 number(status, "sm_state"), text(store, "backend"), is_healthy ? "healthy" : "FAILING");
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

/* Writes one screen at once, so that it does not flicker. */
static int draw(struct cli *cli)
{
	struct window window = window_of();
	char *screen = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&screen, &len);
	int code;
	json_t *status = cli_ask(cli, "GET", "/api/v1/status", &code);
	json_t *waiters = status ? cli_ask(cli, "GET", "/api/v1/waiters?limit=100", &code) : NULL;
	json_t *clients = waiters ? cli_ask_all(cli, "/api/v1/clients", "clients", &code) : NULL;
	size_t room = window.rows > 8 ? window.rows - 7 : 1;

	if (clients && out) {
		size_t n = json_array_size(json_object_get(waiters, "waiters"));
		size_t part = n < room / 2 ? n : room / 2;

		fputs("\033[H\033[J", out);
		put_head(out, cli, status, window.columns);
		fputc('\n', out);
		put_waiters(out, cli, waiters, part, window.columns);
		fputc('\n', out);
		put_clients(out, cli, clients, room - part, window.columns);
		fprintf(out, "\033[%zu;1H%sq%s ends", window.rows, cli_bold(cli), cli_plain(cli));
	}
	if (out)
		fclose(out);
	if (clients)
		fwrite(screen, 1, len, stdout);
	fflush(stdout);
	free(screen);
	json_decref(status);
	json_decref(waiters);
	json_decref(clients);
	return code;
}

static int watch(struct cli *cli, int signals)
{
	struct pollfd fds[] = { { .fd = STDIN_FILENO, .events = POLLIN },
				{ .fd = signals, .events = POLLIN } };

	for (;;) {
		struct signalfd_siginfo info;
		int code = draw(cli);
		char key;

		if (code != CLI_OK)
			return code;
		if (poll(fds, HF_ARRAY_SIZE(fds), 1000) <= 0)
			continue;
		if (fds[0].revents && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q'))
			return CLI_OK;
		if (fds[1].revents && read(signals, &info, sizeof(info)) == sizeof(info) &&
		    info.ssi_signo != SIGWINCH)
			return CLI_OK;
	}
}

/* Leaving the alternate screen erases it, so the reason is printed afterwards. */
static int watch_on_other_screen(struct cli *cli, int signals)
{
	char *said = NULL;
	size_t len = 0;
	FILE *errors = open_memstream(&said, &len);
	int code;

	if (!errors)
		return CLI_FAILED;
	cli->errors = errors;
	fputs("\033[?1049h\033[?25l", stdout); /* alternate screen, no cursor */
	code = watch(cli, signals);
	fputs("\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	cli->errors = stderr;
	fclose(errors);
	fputs(said, stderr);
	free(said);
	return code;
}

int cli_top(struct cli *cli, const char *argument)
{
	struct termios before, raw;
	sigset_t set;
	int signals, code;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		fputs("holdfast: top needs a terminal; for scripts use `holdfast status --json`\n", stderr);
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
	code = watch_on_other_screen(cli, signals);
	tcsetattr(STDIN_FILENO, TCSANOW, &before);
	close(signals);
	return code;
}
