/* The servers to measure: bare loops that echo or say always the same, and holdfastd. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

#define ECHO_BUFFER (1 << 18)
#define UDP_BATCH   64

struct load_echo {
	pid_t pid;
};

static void echo_udp(int fd)
{
	static uint8_t buffers[UDP_BATCH][2048];
	struct mmsghdr messages[UDP_BATCH];
	struct sockaddr_in peers[UDP_BATCH];
	struct iovec iov[UDP_BATCH];

	for (;;) {
		int n;

		memset(messages, 0, sizeof(messages));
		for (int i = 0; i < UDP_BATCH; i++) {
			iov[i] = (struct iovec){ buffers[i], sizeof(buffers[i]) };
			messages[i].msg_hdr.msg_iov = &iov[i];
			messages[i].msg_hdr.msg_iovlen = 1;
			messages[i].msg_hdr.msg_name = &peers[i];
			messages[i].msg_hdr.msg_namelen = sizeof(peers[i]);
		}
		n = recvmmsg(fd, messages, UDP_BATCH, MSG_WAITFORONE, NULL);
		for (int i = 0; i < n; i++)
			iov[i].iov_len = messages[i].msg_len;
		if (n > 0)
			sendmmsg(fd, messages, (unsigned int)n, 0);
	}
}

/* What a bare loop says. */
struct load_line {
	const uint8_t *reply; /* to each record, with its xid; NULL: what came */
	size_t len;
};

static bool send_all(int fd, const uint8_t *data, size_t len)
{
	return send(fd, data, len, MSG_NOSIGNAL) == (ssize_t)len;
}

/* A load sends whole records, and no more of them than fit; one that was cut in two goes unanswered. */
static bool answer_records(int fd, const struct load_line *line, const uint8_t *in, size_t len)
{
	static uint8_t out[ECHO_BUFFER];
	uint32_t mark, ours = htonl(0x80000000u | (uint32_t)line->len);
	size_t n = 0;

	for (size_t at = 0; len - at >= 8 && n + 4 + line->len <= sizeof(out); at += 4 + mark) {
		memcpy(&mark, in + at, 4);
		mark = ntohl(mark) & 0x7fffffffu;
		if (len - at - 4 < mark)
			break;
		memcpy(out + n, &ours, 4);
		memcpy(out + n + 4, line->reply, line->len);
		memcpy(out + n + 4, in + at + 4, 4);
		n += 4 + line->len;
	}
	return send_all(fd, out, n);
}

static void serve_tcp(int listener, const struct load_line *line)
{
	static uint8_t buffer[ECHO_BUFFER];
	struct epoll_event events[256], event = { .events = EPOLLIN, .data.fd = listener };
	int epoll = epoll_create1(0), one = 1;

	epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
	for (;;) {
		int n = epoll_wait(epoll, events, 256, -1);

		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			ssize_t len;

			if (fd == listener) {
				fd = accept(listener, NULL, NULL);
				setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
				event.data.fd = fd;
				epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
				continue;
			}
			len = recv(fd, buffer, sizeof(buffer), 0);
			if (len <= 0 || !(line->reply ? answer_records(fd, line, buffer, (size_t)len)
						      : send_all(fd, buffer, (size_t)len)))
				close(fd);
		}
	}
}

static int start(struct load_echo **echop, bool udp, struct load_line line, uint16_t *portp)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(to);
	int fd = socket(AF_INET, udp ? SOCK_DGRAM : SOCK_STREAM, 0);
	struct load_echo *echo = malloc(sizeof(*echo));

	if (!echo || fd < 0 || bind(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ||
	    (!udp && listen(fd, 128) < 0) || getsockname(fd, (struct sockaddr *)&to, &len) < 0) {
		free(echo);
		return -errno;
	}
	*portp = ntohs(to.sin_port);
	echo->pid = fork();
	if (echo->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (udp)
			echo_udp(fd);
		else
			serve_tcp(fd, &line);
		_exit(0);
	}
	close(fd);
	*echop = echo;
	return 0;
}

int load_echo_start(struct load_echo **echop, bool udp, uint16_t *portp)
{
	return start(echop, udp, (struct load_line){ 0 }, portp);
}

int load_answer_start(struct load_echo **echop, const void *reply, size_t len, uint16_t *portp)
{
	return start(echop, false, (struct load_line){ reply, len }, portp);
}

pid_t load_echo_pid(const struct load_echo *echo)
{
	return echo->pid;
}

void load_echo_stop(struct load_echo *echo)
{
	kill(echo->pid, SIGKILL);
	waitpid(echo->pid, NULL, 0);
	free(echo);
}

/* holdfastd */

struct load_daemon {
	pid_t pid;
	char dir[64];
};

static int read_port(const char *dir, uint16_t *portp)
{
	char path[128];
	unsigned int port = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/state/ports.json", dir);
	file = fopen(path, "r");
	if (!file)
		return -errno;
	if (fscanf(file, "{\"rpc\":%u", &port) != 1)
		port = 0;
	fclose(file);
	*portp = (uint16_t)port;
	return port ? 0 : -EAGAIN;
}

static void exec_daemon(const char *program, const char *dir, const char *const *settings)
{
	const char *argv[64] = { program,
				 "--set",
				 "server.port=0",
				 "--set",
				 "server.portmap=off",
				 "--set",
				 "server.listen=[127.0.0.1]",
				 "--set",
				 "log.level=warn" };
	char state[128];
	int n = 9;

	snprintf(state, sizeof(state), "server.state_dir=%s/state", dir);
	argv[n++] = "--set";
	argv[n++] = state;
	for (; settings && *settings && n < 60; settings++) {
		if (strncmp(*settings, "--", 2) != 0)
			argv[n++] = "--set";
		argv[n++] = *settings;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execv(program, (char *const *)(uintptr_t)argv);
	_exit(127);
}

int load_daemon_start(struct load_daemon **daemonp, const char *program, const char *const *settings,
		      uint16_t *portp)
{
	struct load_daemon *daemon = calloc(1, sizeof(*daemon));
	struct timespec tick = { .tv_nsec = 5000000 };
	int r = -EAGAIN;

	if (!daemon)
		return -ENOMEM;
	strcpy(daemon->dir, "/tmp/holdfast-bench-XXXXXX");
	if (!mkdtemp(daemon->dir)) {
		free(daemon);
		return -errno;
	}
	daemon->pid = fork();
	if (daemon->pid == 0)
		exec_daemon(program, daemon->dir, settings);
	for (int i = 0; i < 2000 && r < 0 && waitpid(daemon->pid, NULL, WNOHANG) == 0; i++) {
		r = read_port(daemon->dir, portp);
		nanosleep(&tick, NULL);
	}
	if (r < 0) {
		load_daemon_stop(daemon);
		return r;
	}
	*daemonp = daemon;
	return 0;
}

void load_daemon_stop(struct load_daemon *daemon)
{
	char command[128];

	kill(daemon->pid, SIGTERM);
	waitpid(daemon->pid, NULL, 0);
	snprintf(command, sizeof(command), "rm -rf '%s'", daemon->dir);
	if (system(command) != 0)
		fprintf(stderr, "could not remove %s\n", daemon->dir);
	free(daemon);
}

pid_t load_daemon_pid(const struct load_daemon *daemon)
{
	return daemon->pid;
}

double load_cpu(pid_t pid)
{
	struct timespec used;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) < 0)
		return 0;
	return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}
