#include "cluster/fence.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/macros.h"
#include "cluster/helper.h"

#define MAX_COMMAND 4096
#define MAX_WORDS   64
#define MAX_NODE    255
#define MAX_OUTPUT  160   /* of the command's first line */
#define KILL_MS     2000  /* for the helper's answer after the command's time is over */
#define BLANKS      " \t" /* between words */
#define OUTPUT_READ 4096

/* What the server and the helper tell each other */

struct order {
	uint32_t number;     /* of the run */
	uint32_t timeout_ms; /* 0: kill the command */
	char node[MAX_NODE + 1];
};

enum outcome {
	ENDED,     /* value: the exit status */
	KILLED_BY, /* value: the signal */
	TIMED_OUT,
	CANCELED,
	NOT_BEGUN, /* value: errno */
};

struct report {
	uint32_t number;
	uint32_t outcome;
	int32_t value;
	char output[MAX_OUTPUT + 1];
};

struct hf_fence {
	int socket; /* to the helper */
	int cancel; /* eventfd; readable once there was a cancel */
	uint32_t number;
};

HF_DEFINE_CLEANUP(struct hf_fence *, hf_fence_free)

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The command */

/* Splits @command, which it changes, into @words; their number, or 0 if there are too many. */
static size_t split(char *command, char *words[MAX_WORDS + 2])
{
	char *rest, *word = strtok_r(command, BLANKS, &rest);
	size_t n = 0;

	for (; word; word = strtok_r(NULL, BLANKS, &rest)) {
		if (n == MAX_WORDS)
			return 0;
		words[n++] = word;
	}
	words[n] = NULL;
	return n;
}

static bool has_control(const char *text)
{
	for (; *text; text++) {
		if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
			return true;
	}
	return false;
}

static int refuse(char *error, size_t error_size, const char *what)
{
	snprintf(error, error_size, "%s", what);
	return -EINVAL;
}

static int check_program(const char *path, char *error, size_t error_size)
{
	struct stat st;

	if (path[0] != '/')
		return refuse(error, error_size, "must begin with the absolute path of a program");
	if (stat(path, &st) < 0) {
		snprintf(error, error_size, "names a program that cannot be found: %s", strerror(errno));
		return -EINVAL;
	}
	if (!S_ISREG(st.st_mode) || access(path, X_OK) < 0)
		return refuse(error, error_size, "names a file that cannot be executed");
	if (st.st_mode & S_IWOTH)
		return refuse(error, error_size, "names a program that every user of this host can change");
	return 0;
}

int hf_fence_check(const char *command, char *error, size_t error_size)
{
	char *words[MAX_WORDS + 2];
	hf_cleanup(hf_freep) char *copy = NULL;

	if (strlen(command) > MAX_COMMAND || has_control(command))
		return refuse(error, error_size,
			      "must be one line of at most 4096 characters without control characters");
	if (strpbrk(command, "'\"\\`$|&;<>"))
		return refuse(error, error_size,
			      "is executed without a shell, so quotes and other signs of a shell have no "
			      "meaning in it; put them into a script and name that");
	copy = strdup(command);
	if (!copy)
		return -ENOMEM;
	if (split(copy, words) == 0)
		return refuse(error, error_size, "must be a program with at most 63 arguments");
	return check_program(words[0], error, error_size);
}

static bool is_usable_name(const char *node)
{
	return *node && *node != '-' && strlen(node) <= MAX_NODE && !has_control(node) && !strchr(node, '\t');
}

/* The helper: a process of its own, with one thread */

struct helper {
	int socket;  /* to the server */
	int signals; /* signalfd: readable when a child has ended */
	char *words[MAX_WORDS + 2];
	size_t n_words; /* of the command; the node's name follows them */
	/* The command that runs */
	pid_t child;
	int output; /* what it writes; -1: it has closed it */
	bool is_killed;
	int64_t end_ms; /* of its time; once it is killed: of the wait for its end */
	struct report report;
	size_t n_output;
	bool has_line; /* the first line of its output is complete */
};

static _Noreturn void execute(struct helper *helper, int output)
{
	static char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	char *environment[] = { path, NULL };
	sigset_t none;

	setpgid(0, 0);
	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	execve(helper->words[0], helper->words, environment);
	dprintf(STDERR_FILENO, "cannot execute %s: %s\n", helper->words[0], strerror(errno));
	_exit(127);
}

static int begin_command(struct helper *helper)
{
	int output[2];

	if (pipe2(output, O_CLOEXEC) < 0)
		return -errno;
	helper->child = fork();
	if (helper->child == 0)
		execute(helper, output[1]);
	close(output[1]);
	if (helper->child < 0) {
		int r = -errno;

		close(output[0]);
		return r;
	}
	setpgid(helper->child, helper->child); /* the child does it, too: one of them is first */
	fcntl(output[0], F_SETFL, O_NONBLOCK);
	helper->output = output[0];
	return 0;
}

static void close_output(struct helper *helper)
{
	if (helper->output >= 0)
		close(helper->output);
	helper->output = -1;
}

/* Takes the first line, and drops the rest so that the command does not wait for a reader. */
static void read_output(struct helper *helper)
{
	char buffer[OUTPUT_READ];
	ssize_t n = helper->output < 0 ? -1 : read(helper->output, buffer, sizeof(buffer));

	for (ssize_t i = 0; i < n && !helper->has_line; i++) {
		if (buffer[i] == '\n' || helper->n_output == MAX_OUTPUT)
			helper->has_line = true;
		else
			helper->report.output[helper->n_output++] =
				buffer[i] >= ' ' && buffer[i] < 0x7f ? buffer[i] : '?';
	}
	if (n == 0)
		close_output(helper);
}

static void kill_command(struct helper *helper, enum outcome outcome)
{
	helper->report.outcome = outcome;
	helper->is_killed = true;
	helper->end_ms = now_ms() + KILL_MS / 2;
	kill(-helper->child, SIGKILL);
}

/* Reaps what has ended. Was the command among it? */
static bool has_ended(struct helper *helper)
{
	bool is_over = false;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != helper->child)
			continue; /* one that took long to die */
		is_over = true;
		if (!helper->is_killed) {
			helper->report.outcome = WIFEXITED(status) ? ENDED : KILLED_BY;
			helper->report.value = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
		}
	}
	return is_over;
}

/* Waits until the command has ended. Kills it when its time is over, or when the server cancels it or is
 * gone. A process that waits for a dead disk does not even die then: the helper leaves it. */
static void watch_command(struct helper *helper)
{
	while (!has_ended(helper)) {
		struct pollfd polled[] = {
			{ .fd = helper->signals, .events = POLLIN },
			{ .fd = helper->output, .events = POLLIN },
			{ .fd = helper->is_killed ? -1 : helper->socket, .events = POLLIN },
		};
		int64_t left = helper->end_ms - now_ms();
		struct signalfd_siginfo info;

		if (left <= 0 && helper->is_killed)
			return;
		if (left <= 0) {
			kill_command(helper, TIMED_OUT);
			continue;
		}
		poll(polled, HF_ARRAY_SIZE(polled), (int)left);
		if (polled[0].revents)
			(void)!read(helper->signals, &info, sizeof(info));
		if (polled[1].revents)
			read_output(helper);
		if (polled[2].revents)
			kill_command(helper, CANCELED);
	}
	read_output(helper); /* written before the end, and not read yet */
}

static void serve_order(struct helper *helper, struct order *order)
{
	int r;

	helper->report = (struct report){ .number = order->number };
	helper->n_output = 0;
	helper->has_line = helper->is_killed = false;
	helper->end_ms = now_ms() + order->timeout_ms;
	helper->words[helper->n_words] = order->node;
	r = begin_command(helper);
	if (r == 0) {
		watch_command(helper);
		close_output(helper);
	} else {
		helper->report.outcome = NOT_BEGUN;
		helper->report.value = -r;
	}
	send(helper->socket, &helper->report, sizeof(helper->report), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The newest order: the server has given up those before it. false: the server is gone. */
static bool receive_order(struct helper *helper, struct order *order)
{
	ssize_t n = recv(helper->socket, order, sizeof(*order), 0);

	while (n == sizeof(*order)) {
		struct order newer;

		n = recv(helper->socket, &newer, sizeof(newer), MSG_DONTWAIT);
		if (n < 0)
			return true;
		*order = newer;
	}
	return n < 0 && errno == EINTR;
}

static _Noreturn void help(struct helper *helper)
{
	struct order order = { 0 };

	while (receive_order(helper, &order)) {
		order.node[MAX_NODE] = '\0';
		if (order.timeout_ms)
			serve_order(helper, &order);
		order.timeout_ms = 0;
	}
	_exit(0);
}

static void become_helper(void *user, int socket)
{
	struct helper *helper = user;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_SETMASK, &set, NULL);
	helper->socket = socket;
	helper->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	help(helper);
}

/* The server's side */

int hf_fence_new(struct hf_fence **fencep, const char *command)
{
	hf_cleanup(hf_fence_freep) struct hf_fence *fence = calloc(1, sizeof(*fence));
	hf_cleanup(hf_freep) char *copy = strdup(command);
	struct helper helper = { .output = -1 };
	int r;

	if (!fence || !copy)
		return hf_trace(-ENOMEM);
	fence->socket = -1;
	fence->cancel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fence->cancel < 0)
		return hf_trace(-errno);
	helper.n_words = split(copy, helper.words);
	if (helper.n_words == 0)
		return hf_trace(-EINVAL);
	r = hf_helper_fork("holdfast-fence", false, become_helper, &helper, &fence->socket);
	if (r < 0)
		return r;
	*fencep = fence;
	fence = NULL;
	return 0;
}

void hf_fence_free(struct hf_fence *fence)
{
	if (!fence)
		return;
	if (fence->socket >= 0)
		close(fence->socket);
	if (fence->cancel >= 0)
		close(fence->cancel);
	free(fence);
}

void hf_fence_cancel(struct hf_fence *fence)
{
	eventfd_write(fence->cancel, 1); /* never read: it stays so */
}

static int send_order(struct hf_fence *fence, const struct order *order)
{
	if (send(fence->socket, order, sizeof(*order), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return hf_trace(-errno);
	return 0;
}

static void give_up(struct hf_fence *fence)
{
	send_order(fence, &(struct order){ .number = fence->number });
}

static int explain(const struct report *report, uint32_t timeout_ms, char *message, size_t size)
{
	const char *colon = report->output[0] ? ": " : "";

	switch ((enum outcome)report->outcome) {
	case ENDED:
		snprintf(message, size, "exit status %d%s%s", report->value, colon, report->output);
		return report->value == 0 ? HF_FENCE_OK : HF_FENCE_E_FAILED;
	case KILLED_BY:
		snprintf(message, size, "ended by signal %d%s%s", report->value, colon, report->output);
		return HF_FENCE_E_FAILED;
	case TIMED_OUT:
		snprintf(message, size, "killed after %u ms without an end%s%s", timeout_ms, colon,
			 report->output);
		return HF_FENCE_E_FAILED;
	case NOT_BEGUN:
		snprintf(message, size, "cannot be started: %s", strerror(report->value));
		return HF_FENCE_E_FAILED;
	case CANCELED:
		break;
	}
	snprintf(message, size, "canceled");
	return -ECANCELED;
}

static bool is_canceled(const struct hf_fence *fence)
{
	struct pollfd polled = { .fd = fence->cancel, .events = POLLIN };

	return poll(&polled, 1, 0) > 0;
}

/* 0: the report has come; -EAGAIN: not yet. */
static int receive_report(struct hf_fence *fence, struct report *report)
{
	ssize_t n = recv(fence->socket, report, sizeof(*report), MSG_DONTWAIT);

	if (n == 0)
		return hf_trace(-EPIPE);
	if (n < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	return n == sizeof(*report) && report->number == fence->number ? 0 : -EAGAIN;
}

/* 0, -ECANCELED, -ETIMEDOUT, or the helper is gone. */
static int wait_for_report(struct hf_fence *fence, struct report *report, int64_t end_ms)
{
	int r = -EAGAIN;

	while (r == -EAGAIN) {
		struct pollfd polled[] = {
			{ .fd = fence->socket, .events = POLLIN },
			{ .fd = fence->cancel, .events = POLLIN },
		};
		int64_t left = HF_MAX(end_ms - now_ms(), 0);
		int n = poll(polled, HF_ARRAY_SIZE(polled), (int)left);

		if (polled[1].revents)
			r = -ECANCELED;
		else if (polled[0].revents)
			r = receive_report(fence, report);
		else if (n == 0 && left == 0)
			r = -ETIMEDOUT;
	}
	return r;
}

int hf_fence_run(struct hf_fence *fence, const char *node, uint32_t timeout_ms, char *message,
		 size_t message_size)
{
	struct order order = { .number = ++fence->number, .timeout_ms = HF_MAX(timeout_ms, 1u) };
	struct report report = { 0 };
	int r;

	snprintf(message, message_size, "%s", "");
	if (!is_usable_name(node)) {
		snprintf(message, message_size, "the node's name cannot be the argument of a command");
		return HF_FENCE_E_FAILED;
	}
	memcpy(order.node, node, strlen(node));
	r = is_canceled(fence) ? -ECANCELED : send_order(fence, &order);
	if (r == 0)
		r = wait_for_report(fence, &report, now_ms() + order.timeout_ms + KILL_MS);
	if (r == 0) {
		report.output[MAX_OUTPUT] = '\0';
		return explain(&report, order.timeout_ms, message, message_size);
	}
	give_up(fence);
	if (r == -ETIMEDOUT) {
		snprintf(message, message_size, "did not end when it was killed");
		return HF_FENCE_E_FAILED;
	}
	snprintf(message, message_size, "%s",
		 r == -ECANCELED ? "canceled" : "the process that runs the command is gone");
	return r;
}
