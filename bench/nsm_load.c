/*
 * A fleet of hosts that calls a status monitor or a lock manager over UDP, each
 * call from a socket of its own, with a number of calls under way; nsm.py runs it.
 *
 *	nsm_load PORT mon|lock|notify+ROUND FIRST COUNT HOSTS DEPTH
 *
 * Host i has the address 10.77+i/65536.i/256.i. mon: SM_MON from loopback, to
 * watch host FIRST and those after it. lock: each of them takes a lock. notify:
 * they tell of their restart in turn, with a new state number each time and in
 * each round.
 * Prints calls a second and how many were refused.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

#define NSM        100024
#define NLM        100021
#define MAX_DEPTH  1024
#define TRY_S      2.0
#define HEADER_LEN 24 /* of a reply */

enum kind {
	MON,
	LOCK,
	NOTIFY
};

struct slot {
	int fd;
	uint64_t number;
	double sent;
	size_t len;
	uint8_t call[512];
};

struct fleet {
	enum kind kind;
	uint16_t port;
	uint64_t first, count, n_hosts;
	uint64_t round;
	uint64_t n_begun, n_done, n_refused;
	size_t depth;
	struct slot slots[MAX_DEPTH];
	struct pollfd polls[MAX_DEPTH];
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void die(const char *what)
{
	fprintf(stderr, "nsm_load: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint32_t address_of(uint64_t host)
{
	return (10u << 24) + (77u << 16) + (uint32_t)host;
}

/* Messages */

static size_t put_u32(uint8_t *out, size_t at, uint32_t value)
{
	value = htonl(value);
	memcpy(out + at, &value, 4);
	return at + 4;
}

static size_t put_string(uint8_t *out, size_t at, const char *text)
{
	uint32_t len = (uint32_t)strlen(text);

	at = put_u32(out, at, len);
	memset(out + at, 0, (len + 3) & ~3u);
	memcpy(out + at, text, len);
	return at + ((len + 3) & ~3u);
}

static size_t put_mon(uint8_t *out, const char *host)
{
	size_t at = load_put_header(out, NSM, 1, 2);

	at = put_string(out, at, host);
	at = put_string(out, at, "localhost");
	at = put_u32(out, at, NLM);
	at = put_u32(out, at, 3);
	at = put_u32(out, at, 16);
	memset(out + at, 7, 16);
	return at + 16;
}

static size_t put_lock(uint8_t *out, const char *host, uint64_t number)
{
	size_t at = load_put_header(out, NLM, 4, 2);

	at = put_string(out, at, "cook");
	at = put_u32(out, at, 0); /* block */
	at = put_u32(out, at, 1); /* exclusive */
	at = put_string(out, at, host);
	at = put_string(out, at, host); /* the file's handle */
	at = put_string(out, at, host); /* the owner's */
	at = put_u32(out, at, (uint32_t)number);
	for (int i = 0; i < 5; i++)
		at = put_u32(out, at, 0); /* all of the file; no reclaim */
	return put_u32(out, at, 3);
}

static size_t put_notify(uint8_t *out, const char *host, uint32_t state)
{
	size_t at = load_put_header(out, NSM, 1, 6);

	at = put_string(out, at, host);
	return put_u32(out, at, state);
}

static uint32_t state_of(const struct fleet *fleet, uint64_t number)
{
	return (uint32_t)(5 + 2 * (fleet->round * fleet->count + number / fleet->n_hosts));
}

static void write_call(const struct fleet *fleet, struct slot *slot)
{
	uint64_t host = fleet->first + slot->number % fleet->n_hosts;
	struct in_addr address = { htonl(address_of(host)) };
	const char *name = inet_ntoa(address);

	switch (fleet->kind) {
	case MON:
		slot->len = put_mon(slot->call, name);
		break;
	case LOCK:
		slot->len = put_lock(slot->call, name, slot->number);
		break;
	case NOTIFY:
		slot->len = put_notify(slot->call, name, state_of(fleet, slot->number));
		break;
	}
	put_u32(slot->call, 0, (uint32_t)slot->number);
}

/* Calls */

static void begin(struct fleet *fleet, struct slot *slot)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(fleet->port) };
	struct sockaddr_in from = { .sin_family = AF_INET };

	slot->number = fleet->n_begun++;
	write_call(fleet, slot);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	from.sin_addr = to.sin_addr;
	if (fleet->kind != MON)
		from.sin_addr.s_addr = htonl(address_of(fleet->first + slot->number % fleet->n_hosts));
	if (fleet->kind != MON || slot->fd < 0) {
		slot->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (slot->fd < 0 || bind(slot->fd, (struct sockaddr *)&from, sizeof(from)) < 0 ||
		    connect(slot->fd, (struct sockaddr *)&to, sizeof(to)) < 0)
			die("socket");
	}
	slot->sent = now();
	if (send(slot->fd, slot->call, slot->len, 0) < 0)
		die("send");
}

static void end(struct fleet *fleet, struct slot *slot, const uint8_t *reply, size_t len)
{
	uint32_t stat = 0;

	if (fleet->kind == MON && len >= HEADER_LEN + 4)
		memcpy(&stat, reply + HEADER_LEN, 4);
	if (fleet->kind == LOCK && len >= 4)
		memcpy(&stat, reply + len - 4, 4);
	fleet->n_refused += stat != 0;
	fleet->n_done++;
	if (fleet->kind != MON || fleet->n_begun == fleet->count) {
		close(slot->fd);
		slot->fd = -1;
	}
	if (fleet->n_begun < fleet->count)
		begin(fleet, slot);
}

static void look_at(struct fleet *fleet, struct slot *slot, bool is_readable)
{
	uint8_t reply[512];
	ssize_t n = is_readable ? recv(slot->fd, reply, sizeof(reply), 0) : -1;

	if (n >= HEADER_LEN && memcmp(reply, slot->call, 4) == 0) {
		end(fleet, slot, reply, (size_t)n);
	} else if (now() - slot->sent > TRY_S) {
		slot->sent = now();
		if (send(slot->fd, slot->call, slot->len, 0) < 0)
			die("send");
	}
}

static double run(struct fleet *fleet)
{
	double began = now();

	for (size_t i = 0; i < fleet->depth; i++) {
		fleet->slots[i].fd = -1;
		if (fleet->n_begun < fleet->count)
			begin(fleet, &fleet->slots[i]);
	}
	while (fleet->n_done < fleet->count) {
		for (size_t i = 0; i < fleet->depth; i++)
			fleet->polls[i] = (struct pollfd){ .fd = fleet->slots[i].fd, .events = POLLIN };
		if (poll(fleet->polls, fleet->depth, 100) < 0)
			die("poll");
		for (size_t i = 0; i < fleet->depth; i++)
			if (fleet->slots[i].fd >= 0)
				look_at(fleet, &fleet->slots[i], fleet->polls[i].revents != 0);
	}
	return now() - began;
}

int main(int argc, char **argv)
{
	static struct fleet fleet;
	double took;

	if (argc != 7) {
		fprintf(stderr, "usage: %s PORT mon|lock|notify+ROUND FIRST COUNT HOSTS DEPTH\n", argv[0]);
		return 2;
	}
	fleet.port = (uint16_t)strtoul(argv[1], NULL, 10);
	fleet.kind = strcmp(argv[2], "mon") == 0 ? MON : strcmp(argv[2], "lock") == 0 ? LOCK : NOTIFY;
	if (fleet.kind == NOTIFY && strchr(argv[2], '+'))
		fleet.round = strtoull(strchr(argv[2], '+') + 1, NULL, 10);
	fleet.first = strtoull(argv[3], NULL, 10);
	fleet.count = strtoull(argv[4], NULL, 10);
	fleet.n_hosts = strtoull(argv[5], NULL, 10);
	fleet.depth = strtoull(argv[6], NULL, 10);
	if (!fleet.n_hosts || fleet.depth == 0 || fleet.depth > MAX_DEPTH) {
		fprintf(stderr, "nsm_load: no hosts, or not 1 to %d calls under way\n", MAX_DEPTH);
		return 2;
	}
	took = run(&fleet);
	printf("%.1f %llu\n", (double)fleet.count / took, (unsigned long long)fleet.n_refused);
	return 0;
}
