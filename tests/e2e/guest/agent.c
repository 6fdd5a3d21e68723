/*
 * The hands of a play inside a client machine: runs shell commands that come over a virtio serial port, many
 * at a time, and passes on what they say. It is started by init as process 1, so it also collects orphans.
 *
 * A frame, into the agent and out of it: number of the command, type, length of the payload (32 bits each,
 * big endian), payload.
 *	in	X text		run this with sh
 *		I bytes		for its standard input;  Z: that is all
 *		S signal	(32 bits) for its main process alone
 *	out	R		the machine is ready (command 0)
 *		O bytes		it said this, on its output or error output
 *		Q status	it ended: exit status, or 128 + signal
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	N_COMMANDS = 64,
	MAX_PAYLOAD = 65536,
};

struct command {
	uint32_t number; /* 0: this place is free */
	pid_t pid;       /* 0: ended, its output may still come */
	int in, out;     /* the agent's ends of its pipes, -1: closed */
	int status;
};

struct agent {
	int port;
	bool is_alone; /* no program is connected outside; SIGIO says when that changes */
	int signals;   /* signalfd */
	struct command commands[N_COMMANDS];
};

static void write_all(int fd, const void *data, size_t size)
{
	const char *at = data;

	while (size > 0) {
		ssize_t n = write(fd, at, size);

		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return; /* no program reads: the play is over, or the command has closed its input */
		if (n > 0) {
			at += n;
			size -= (size_t)n;
		}
	}
}

static void read_all(int port, void *data, size_t size)
{
	char *at = data;
	sigset_t change;

	sigemptyset(&change);
	sigaddset(&change, SIGIO);
	while (size > 0) {
		ssize_t n = read(port, at, size);

		if (n > 0) {
			at += n;
			size -= (size_t)n;
		} else if (n == 0) {
			sigwaitinfo(&change, NULL); /* until a program is connected */
		}
	}
}

static void say(struct agent *agent, uint32_t number, char type, const void *data, uint32_t size)
{
	uint32_t head[3] = { htonl(number), htonl((uint32_t)type), htonl(size) };

	write_all(agent->port, head, sizeof(head));
	write_all(agent->port, data, size);
}

static struct command *find(struct agent *agent, uint32_t number)
{
	for (int i = 0; i < N_COMMANDS; i++) {
		if (agent->commands[i].number == number)
			return &agent->commands[i];
	}
	return NULL;
}

static void start(struct agent *agent, uint32_t number, const char *text)
{
	struct command *command = find(agent, 0);
	int in[2], out[2];

	if (!command)
		errx(1, "more than %d commands at a time", N_COMMANDS);
	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		err(1, "pipe2");
	*command = (struct command){ .number = number, .pid = fork(), .in = in[1], .out = out[0] };
	if (command->pid < 0)
		err(1, "fork");
	if (command->pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		signal(SIGPIPE, SIG_DFL);
		setsid();
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		dup2(out[1], STDERR_FILENO);
		execl("/bin/sh", "sh", "-c", text, NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
}

static void close_input(struct command *command)
{
	if (command->in >= 0)
		close(command->in);
	command->in = -1;
}

static void on_frame(struct agent *agent)
{
	static char payload[MAX_PAYLOAD + 1];
	uint32_t head[3], signal_number;
	struct command *command;

	read_all(agent->port, head, sizeof(head));
	for (int i = 0; i < 3; i++)
		head[i] = ntohl(head[i]);
	if (head[2] > MAX_PAYLOAD)
		errx(1, "a frame of %u bytes", head[2]);
	read_all(agent->port, payload, head[2]);
	payload[head[2]] = '\0';

	if (head[1] == 'X') {
		start(agent, head[0], payload);
		return;
	}
	command = find(agent, head[0]);
	if (!command || !command->pid)
		return; /* it ended while this was under way */
	if (head[1] == 'I' && command->in >= 0) {
		write_all(command->in, payload, head[2]);
	} else if (head[1] == 'Z') {
		close_input(command);
	} else if (head[1] == 'S') {
		memcpy(&signal_number, payload, sizeof(signal_number));
		kill(command->pid, (int)ntohl(signal_number));
	}
}

/* Passes on all that there is. */
static void pass_output(struct agent *agent, struct command *command)
{
	char data[16384];
	ssize_t n;

	while (command->out >= 0 && (n = read(command->out, data, sizeof(data))) != 0) {
		if (n < 0)
			return;
		say(agent, command->number, 'O', data, (uint32_t)n);
	}
	if (command->out >= 0)
		close(command->out);
	command->out = -1;
}

static void on_children(struct agent *agent)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (int i = 0; i < N_COMMANDS; i++) {
			struct command *command = &agent->commands[i];
			uint32_t code;

			if (!command->number || command->pid != pid)
				continue;
			/* Its background children may keep the pipe open: what it said itself is in there by
			 * now. */
			pass_output(agent, command);
			close_input(command);
			if (command->out >= 0)
				close(command->out);
			code = htonl(WIFEXITED(status) ? (uint32_t)WEXITSTATUS(status)
						       : 128 + (uint32_t)WTERMSIG(status));
			say(agent, command->number, 'Q', &code, sizeof(code));
			command->number = 0;
		}
	}
}

static void on_signal(struct agent *agent)
{
	struct signalfd_siginfo info;

	if (read(agent->signals, &info, sizeof(info)) < 0)
		return;
	if (info.ssi_signo == SIGIO)
		agent->is_alone = false; /* or it is found out again */
	else
		on_children(agent);
}

static int open_port(void)
{
	static const char dir_path[] = "/sys/class/virtio-ports";
	DIR *dir = opendir(dir_path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char path[512], name[32] = "";
		FILE *file;

		snprintf(path, sizeof(path), "%s/%s/name", dir_path, entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (!fgets(name, sizeof(name), file))
			name[0] = '\0';
		fclose(file);
		if (strcmp(name, "hf.agent\n") != 0)
			continue;
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		return open(path, O_RDWR | O_CLOEXEC);
	}
	return -1;
}

int main(void)
{
	static struct agent agent;
	struct pollfd polled[N_COMMANDS + 2];
	sigset_t signals;

	agent.port = open_port();
	if (agent.port < 0)
		err(1, "no port hf.agent");
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGIO);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	agent.signals = signalfd(-1, &signals, SFD_CLOEXEC);
	if (fcntl(agent.port, F_SETOWN, getpid()) < 0 || fcntl(agent.port, F_SETFL, O_ASYNC) < 0)
		err(1, "hf.agent");
	say(&agent, 0, 'R', "", 0);

	for (;;) {
		polled[0] = (struct pollfd){ .fd = agent.is_alone ? -1 : agent.port, .events = POLLIN };
		polled[1] = (struct pollfd){ .fd = agent.signals, .events = POLLIN };
		for (int i = 0; i < N_COMMANDS; i++) {
			struct command *command = &agent.commands[i];

			polled[i + 2] = (struct pollfd){ .fd = command->number ? command->out : -1,
							 .events = POLLIN };
		}
		if (poll(polled, N_COMMANDS + 2, -1) < 0)
			continue;
		for (int i = 0; i < N_COMMANDS; i++) {
			if (polled[i + 2].revents)
				pass_output(&agent, &agent.commands[i]);
		}
		/* Before the signals: one of them may say that it is so no longer. */
		if (polled[0].revents && !(polled[0].revents & POLLIN))
			agent.is_alone = true;
		if (polled[1].revents)
			on_signal(&agent);
		if (polled[0].revents & POLLIN)
			on_frame(&agent);
	}
}
