#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_DEPTH   256
#define OUT_SIZE    (1 << 18)
#define IN_SIZE     (1 << 18)
#define MAX_SAMPLES (1 << 20)
#define UDP_BATCH   64
#define UDP_LOST_MS 200

struct peer {
	int fd;
	int index;
	uint64_t n_sent;
	uint64_t n_done;
	double sent_at[MAX_DEPTH]; /* by number modulo depth; replies come in order */
	size_t echo_len[MAX_DEPTH];
	uint8_t out[OUT_SIZE];
	size_t out_len;
	size_t out_done;
	uint8_t in[IN_SIZE];
	size_t in_len;
	bool waits_for_room;
};

struct run {
	const struct load_setup *setup;
	int epoll;
	double deadline;
	double now;
	struct peer **peers;
	float *samples;
	size_t n_samples;
	struct load_result result;
};

static double clock_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

size_t load_put_header(uint8_t *out, uint32_t program, uint32_t version, uint32_t procedure)
{
	const uint32_t words[10] = { 0, 0, htonl(2), htonl(program), htonl(version), htonl(procedure) };

	memcpy(out, words, sizeof(words));
	return sizeof(words);
}

static int connect_peer(struct run *run, struct peer *peer)
{
	const struct load_setup *setup = run->setup;
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(setup->port) };
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = peer };
	int one = 1, big = 4 << 20;

	inet_pton(AF_INET, setup->address, &to.sin_addr);
	peer->fd = socket(AF_INET, (setup->udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);
	if (peer->fd < 0 || connect(peer->fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		return -errno;
	setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(peer->fd, SOL_SOCKET, SO_RCVBUF, &big, sizeof(big));
	return epoll_ctl(run->epoll, EPOLL_CTL_ADD, peer->fd, &event) < 0 ? -errno : 0;
}

static size_t put_message(struct run *run, struct peer *peer, uint8_t *out)
{
	const struct load_message *message = run->setup->message(run->setup->user, peer->index, peer->n_sent);
	uint32_t xid = (uint32_t)peer->n_sent, mark = htonl(0x80000000u | (uint32_t)message->len);
	size_t prefix = run->setup->udp ? 0 : 4;
	size_t slot = peer->n_sent % (size_t)run->setup->depth;

	memcpy(out, &mark, prefix);
	memcpy(out + prefix, message->data, message->len);
	memcpy(out + prefix, &xid, 4);
	peer->sent_at[slot] = run->now;
	peer->echo_len[slot] = prefix + message->len;
	peer->n_sent++;
	return prefix + message->len;
}

static void send_tcp(struct run *run, struct peer *peer)
{
	while (peer->n_sent - peer->n_done < (uint64_t)run->setup->depth && peer->out_len + 2048 < OUT_SIZE)
		peer->out_len += put_message(run, peer, peer->out + peer->out_len);
	if (peer->out_done < peer->out_len) {
		ssize_t n = send(peer->fd, peer->out + peer->out_done, peer->out_len - peer->out_done,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0)
			peer->out_done += (size_t)n;
	}
	if (peer->out_done == peer->out_len)
		peer->out_done = peer->out_len = 0;
}

static void send_udp(struct run *run, struct peer *peer)
{
	struct mmsghdr messages[UDP_BATCH];
	struct iovec iov[UDP_BATCH];
	uint8_t *out = peer->out;
	unsigned int n = 0;

	memset(messages, 0, sizeof(messages));
	while (n < UDP_BATCH && peer->n_sent - peer->n_done < (uint64_t)run->setup->depth) {
		size_t len = put_message(run, peer, out);

		iov[n] = (struct iovec){ out, len };
		messages[n].msg_hdr.msg_iov = &iov[n];
		messages[n].msg_hdr.msg_iovlen = 1;
		out += len;
		n++;
	}
	if (n)
		sendmmsg(peer->fd, messages, n, 0);
}

static void count_reply(struct run *run, struct peer *peer, const uint8_t *reply, size_t len)
{
	const struct load_setup *setup = run->setup;
	size_t slot = peer->n_done % (size_t)setup->depth;
	uint32_t word;

	if (setup->reply_offset) {
		if (len < setup->reply_offset + 4) {
			run->result.n_wrong++;
		} else {
			memcpy(&word, reply + setup->reply_offset, 4);
			run->result.n_wrong += ntohl(word) != setup->reply_word;
		}
	}
	if (run->n_samples < MAX_SAMPLES && peer->n_done % 16 == 0)
		run->samples[run->n_samples++] = (float)(run->now - peer->sent_at[slot]);
	peer->n_done++;
	run->result.n_calls++;
}

static void take_echoes(struct run *run, struct peer *peer)
{
	size_t at = 0;

	for (;;) {
		size_t len = peer->echo_len[peer->n_done % (size_t)run->setup->depth];

		if (peer->n_done == peer->n_sent || peer->in_len - at < len)
			break;
		count_reply(run, peer, peer->in + at, len);
		at += len;
	}
	memmove(peer->in, peer->in + at, peer->in_len - at);
	peer->in_len -= at;
}

static void take_records(struct run *run, struct peer *peer)
{
	size_t at = 0;
	uint32_t mark;

	while (peer->in_len - at >= 4) {
		memcpy(&mark, peer->in + at, 4);
		mark = ntohl(mark) & 0x7fffffffu;
		if (peer->in_len - at - 4 < mark)
			break;
		count_reply(run, peer, peer->in + at + 4, mark);
		at += 4 + mark;
	}
	memmove(peer->in, peer->in + at, peer->in_len - at);
	peer->in_len -= at;
}

static int receive_tcp(struct run *run, struct peer *peer)
{
	ssize_t n = recv(peer->fd, peer->in + peer->in_len, IN_SIZE - peer->in_len, MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN))
		return -ECONNRESET;
	if (n > 0)
		peer->in_len += (size_t)n;
	run->now = clock_now();
	if (run->setup->is_echo)
		take_echoes(run, peer);
	else
		take_records(run, peer);
	return 0;
}

static int receive_udp(struct run *run, struct peer *peer)
{
	struct mmsghdr messages[UDP_BATCH];
	struct iovec iov[UDP_BATCH];
	int n;

	memset(messages, 0, sizeof(messages));
	for (int i = 0; i < UDP_BATCH; i++) {
		iov[i] = (struct iovec){ peer->in + 2048 * i, 2048 };
		messages[i].msg_hdr.msg_iov = &iov[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	n = recvmmsg(peer->fd, messages, UDP_BATCH, MSG_DONTWAIT, NULL);
	run->now = clock_now();
	for (int i = 0; i < n; i++)
		count_reply(run, peer, iov[i].iov_base, messages[i].msg_len);
	return 0;
}

static void send_more(struct run *run, struct peer *peer)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = peer };
	bool waits;

	if (run->setup->udp) {
		send_udp(run, peer);
		return;
	}
	send_tcp(run, peer);
	waits = peer->out_done < peer->out_len;
	if (waits != peer->waits_for_room) {
		event.events |= waits ? EPOLLOUT : 0;
		epoll_ctl(run->epoll, EPOLL_CTL_MOD, peer->fd, &event);
		peer->waits_for_room = waits;
	}
}

static int loop(struct run *run)
{
	struct epoll_event events[256];

	while (run->now < run->deadline && run->result.n_calls < (run->setup->n_calls ?: UINT64_MAX)) {
		int n = epoll_wait(run->epoll, events, 256, UDP_LOST_MS);

		if (n == 0) /* lost datagrams: forget them */
			for (int i = 0; i < run->setup->n_connections; i++)
				run->peers[i]->n_done = run->peers[i]->n_sent;
		for (int i = 0; i < n; i++) {
			struct peer *peer = events[i].data.ptr;
			int r = run->setup->udp ? receive_udp(run, peer) : receive_tcp(run, peer);

			if (r < 0)
				return r;
			send_more(run, peer);
		}
		if (n == 0) {
			run->now = clock_now();
			for (int i = 0; i < run->setup->n_connections; i++)
				send_more(run, run->peers[i]);
		}
	}
	return 0;
}

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static void summarise(struct run *run, double seconds)
{
	struct load_result *result = &run->result;

	result->rate = (double)result->n_calls / seconds;
	qsort(run->samples, run->n_samples, sizeof(float), by_value);
	if (run->n_samples) {
		result->p50_us = 1e6 * (double)run->samples[run->n_samples / 2];
		result->p99_us = 1e6 * (double)run->samples[run->n_samples * 99 / 100];
	}
}

static int open_peers(struct run *run)
{
	for (int i = 0; i < run->setup->n_connections; i++) {
		int r;

		run->peers[i] = calloc(1, sizeof(struct peer));
		if (!run->peers[i])
			return -ENOMEM;
		run->peers[i]->index = i;
		run->peers[i]->fd = -1;
		r = connect_peer(run, run->peers[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

int load_run(const struct load_setup *setup, struct load_result *resultp)
{
	struct run run = { .setup = setup, .epoll = epoll_create1(EPOLL_CLOEXEC) };
	double start;
	int r;

	run.peers = calloc((size_t)setup->n_connections, sizeof(struct peer *));
	run.samples = malloc(MAX_SAMPLES * sizeof(float));
	r = run.peers && run.samples && setup->depth <= MAX_DEPTH ? open_peers(&run) : -EINVAL;
	run.now = start = clock_now();
	run.deadline = start + setup->seconds;
	for (int i = 0; i < setup->n_connections && r == 0; i++)
		send_more(&run, run.peers[i]);
	if (r == 0)
		r = loop(&run);
	summarise(&run, clock_now() - start);
	for (int i = 0; i < setup->n_connections && run.peers && run.peers[i]; i++) {
		if (run.peers[i]->fd >= 0)
			close(run.peers[i]->fd);
		free(run.peers[i]);
	}
	free(run.peers);
	free(run.samples);
	close(run.epoll);
	*resultp = run.result;
	return r;
}
