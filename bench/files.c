/*
 * Load for an NFSv3 server, holdfastd or another: one kind of call, from several
 * connections, some calls under way on each.
 *
 *	bench_files ADDRESS NFS_PORT MOUNT_PORT EXPORT WORKLOAD CONNECTIONS DEPTH SECONDS [DIRECTORY]
 *
 * DIRECTORY, of the export, is where files are made and removed.
 * Prints one line of JSON. bench/files.py prepares the directory and compares
 * servers. With the workloads plain-read-SIZE and plain-write-SIZE the other side
 * is bench_files_plain, which speaks no protocol at all.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "files_wire.h"

#define N_FILES   1000
#define FILE_SIZE (256u << 20)
#define MAX_DEPTH 64
#define HEAD      512

struct bench {
	const char *address;
	uint16_t nfs_port;
	uint16_t mount_port;
	const char *export;
	const char *workload;
	const char *directory;
	int n_connections;
	int depth;
	double seconds;
	uint32_t size; /* of the I/O */
	double deadline;
	struct handle root;
	struct handle handles[N_FILES];
	struct handle listed; /* the directory for READDIRPLUS */
	struct handle data;   /* the file for I/O */
	_Atomic uint64_t n_calls;
	_Atomic uint64_t n_bytes;
	_Atomic uint64_t n_entries;
	_Atomic uint64_t n_errors;
};

/* A connection: what was sent and received on it. */
struct peer {
	struct bench *bench;
	int index;
	int fd;
	uint64_t n_sent;
	uint64_t n_done;
	uint64_t cookie; /* of the listing */
	uint8_t *in;
	size_t begin; /* of what was received and is not taken yet, in @in */
	size_t end;
	uint8_t *out; /* small calls that leave together */
	size_t n_out;
	uint8_t *payload;
	struct handle dir; /* its own, for making files */
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Connections */

static int connect_to(const struct bench *bench, uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in from = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	static _Atomic int low = 1020; /* some servers want a reserved port */

	inet_pton(AF_INET, bench->address, &to.sin_addr);
	for (int tries = 0; tries < 300; tries++) {
		from.sin_port = htons((uint16_t)low--);
		if (bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0)
			break;
	}
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* One call at a time, to prepare */

static struct handle mount_root(const struct bench *bench, uint8_t *in)
{
	int fd = connect_to(bench, bench->mount_port);
	uint8_t call[HEAD], *p = put_call(call, 1, 100005, 3, 1);
	const uint8_t *results;
	size_t len;

	p = put_bytes(p, bench->export, (uint32_t)strlen(bench->export));
	send_call(fd, call, p, NULL, 0);
	results = receive_reply(fd, in, &len);
	if (!results || get32(results) != 0)
		die("mount");
	close(fd);
	return get_handle(results + 4);
}

static struct handle lookup(int fd, const struct handle *dir, const char *name, uint8_t *in)
{
	uint8_t call[HEAD], *p = put_handle(put_call(call, 2, 100003, 3, 3), dir);
	const uint8_t *results;
	size_t len;

	p = put_bytes(p, name, (uint32_t)strlen(name));
	send_call(fd, call, p, NULL, 0);
	results = receive_reply(fd, in, &len);
	if (!results || get32(results) != 0)
		die(name);
	return get_handle(results + 4);
}

static void prepare(struct bench *bench)
{
	uint8_t *in = malloc(BENCH_BUFFER);
	char name[64];
	struct handle small;
	int fd;

	bench->root = mount_root(bench, in);
	fd = connect_to(bench, bench->nfs_port);
	bench->data = lookup(fd, &bench->root, "data", in);
	bench->listed = lookup(fd, &bench->root, "listed", in);
	small = lookup(fd, &bench->root, "small", in);
	for (int i = 0; i < N_FILES; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		bench->handles[i] = lookup(fd, &small, name, in);
	}
	close(fd);
	free(in);
}

/* Small calls, which leave together, and their replies, of which one system call takes all that have come. A
 * system call for each would cost several times what the server takes for the call. */

static void put_out(struct peer *peer, uint8_t *call, const uint8_t *end)
{
	put32(call, 0x80000000u | (uint32_t)(end - call - 4));
	memcpy(peer->out + peer->n_out, call, (size_t)(end - call));
	peer->n_out += (size_t)(end - call);
}

static void flush(struct peer *peer)
{
	struct iovec iov = { peer->out, peer->n_out };

	if (peer->n_out)
		send_all(peer->fd, &iov, 1);
	peer->n_out = 0;
}

/* The whole length of the reply that is there; 0: it has not come as a whole. */
static size_t reply_there(const struct peer *peer)
{
	size_t there = peer->end - peer->begin, len;

	if (there < 4)
		return 0;
	len = 4 + (get32(peer->in + peer->begin) & 0x7fffffff);
	if (len > BENCH_BUFFER)
		die("reply too long");
	return len <= there ? len : 0;
}

static void receive_more(struct peer *peer)
{
	ssize_t n;

	memmove(peer->in, peer->in + peer->begin, peer->end - peer->begin);
	peer->end -= peer->begin;
	peer->begin = 0;
	n = recv(peer->fd, peer->in + peer->end, BENCH_BUFFER - peer->end, 0);
	if (n <= 0)
		die("receive");
	peer->end += (size_t)n;
}

/* Waits for one reply, and takes all that are there. */
static void receive_small(struct peer *peer)
{
	size_t len, skipped;

	flush(peer);
	while (!reply_there(peer))
		receive_more(peer);
	while ((len = reply_there(peer))) {
		const uint8_t *results = find_results(peer->in + peer->begin + 4, len - 4, &skipped);

		if (!results || get32(results) != 0)
			atomic_fetch_add(&peer->bench->n_errors, 1);
		peer->begin += len;
		peer->n_done++;
	}
}

/* Workloads: each sends one call */

static uint64_t io_offset(const struct peer *peer)
{
	uint64_t n_places = FILE_SIZE / peer->bench->size;
	uint64_t share = n_places / (uint64_t)peer->bench->n_connections;

	return ((uint64_t)peer->index * share + peer->n_sent % share) * peer->bench->size;
}

static void send_getattr(struct peer *peer)
{
	uint8_t call[HEAD], *p = put_call(call, (uint32_t)peer->n_sent, 100003, 3, 1);

	p = put_handle(p, &peer->bench->handles[(peer->n_sent * 7 + (uint64_t)peer->index) % N_FILES]);
	put_out(peer, call, p);
}

static void send_lookup(struct peer *peer)
{
	uint8_t call[HEAD], *p = put_call(call, (uint32_t)peer->n_sent, 100003, 3, 3);
	char name[64];

	p = put_handle(p, &peer->dir);
	p = put_bytes(p, name,
		      (uint32_t)snprintf(name, sizeof(name), "f%d", (int)(peer->n_sent * 7 % N_FILES)));
	put_out(peer, call, p);
}

/* Makes @depth files, then removes them, and again. */
static void send_create_remove(struct peer *peer)
{
	uint64_t depth = (uint64_t)peer->bench->depth, turn = peer->n_sent / depth;
	bool is_create = turn % 2 == 0;
	uint8_t call[HEAD], *p = put_call(call, (uint32_t)peer->n_sent, 100003, 3, is_create ? 8 : 12);
	char name[64];

	p = put_handle(p, &peer->dir);
	p = put_bytes(p, name,
		      (uint32_t)snprintf(name, sizeof(name), "new-%d-%d-%d", (int)getpid(), peer->index,
					 (int)(peer->n_sent % depth)));
	if (is_create) {
		p = put32(p, 1); /* GUARDED */
		p = put32(put32(p, 1), 0644);
		for (int i = 0; i < 5; i++)
			p = put32(p, 0);
	}
	put_out(peer, call, p);
}

static void send_readdirplus(struct peer *peer)
{
	uint8_t call[HEAD], *p = put_call(call, (uint32_t)peer->n_sent, 100003, 3, 17);

	p = put_handle(p, &peer->bench->listed);
	p = put64(p, peer->cookie);
	p = put64(p, 0);
	p = put32(p, 8192);
	p = put32(p, 32768);
	send_call(peer->fd, call, p, NULL, 0);
}

static void send_read(struct peer *peer)
{
	uint8_t call[HEAD], *p = put_call(call, (uint32_t)peer->n_sent, 100003, 3, 6);

	p = put_handle(p, &peer->bench->data);
	p = put64(p, io_offset(peer));
	p = put32(p, peer->bench->size);
	send_call(peer->fd, call, p, NULL, 0);
}

static void send_write(struct peer *peer)
{
	uint8_t call[HEAD], *p = put_call(call, (uint32_t)peer->n_sent, 100003, 3, 7);

	p = put_handle(p, &peer->bench->data);
	p = put64(p, io_offset(peer));
	p = put32(p, peer->bench->size);
	p = put32(p, 0); /* UNSTABLE */
	p = put32(p, peer->bench->size);
	send_call(peer->fd, call, p, peer->payload, peer->bench->size);
}

/* The plain ones: offset and size, data one way, a word the other */
static void send_plain(struct peer *peer, bool is_write)
{
	uint8_t call[16];
	struct iovec iov[2] = { { call, 16 }, { peer->payload, is_write ? peer->bench->size : 0 } };

	put32(put32(put64(call, io_offset(peer)), peer->bench->size), is_write);
	send_all(peer->fd, iov, is_write ? 2 : 1);
}

static void send_plain_read(struct peer *peer)
{
	send_plain(peer, false);
}

static void send_plain_write(struct peer *peer)
{
	send_plain(peer, true);
}

static void receive_plain(struct peer *peer)
{
	bool is_write = strncmp(peer->bench->workload, "plain-w", 7) == 0;

	receive_exactly(peer->fd, peer->in, is_write ? 4 : peer->bench->size);
	peer->n_done++;
}

/* Replies */

/* The listing goes on where it was, or begins anew. One call at a time, so that the cookie is known. */
static void follow_listing(struct peer *peer, const uint8_t *results)
{
	const uint8_t *p = results + 4;

	p += get32(p) ? 88 : 4;
	p += 8;
	while (get32(p)) {
		p += 12;
		p += 4 + ((get32(p) + 3) & ~3u);
		peer->cookie = get64(p);
		p += 8;
		p += get32(p) ? 88 : 4;
		p += get32(p) ? 8 + ((get32(p + 4) + 3) & ~3u) : 4;
		atomic_fetch_add_explicit(&peer->bench->n_entries, 1, memory_order_relaxed);
	}
	if (get32(p + 4))
		peer->cookie = 0;
}

static void receive_one(struct peer *peer, bool is_listing)
{
	const uint8_t *results;
	size_t len = 0;

	results = receive_reply(peer->fd, peer->in, &len);
	if (!results || get32(results) != 0)
		atomic_fetch_add(&peer->bench->n_errors, 1);
	else if (is_listing)
		follow_listing(peer, results);
	peer->n_done++;
}

struct workload {
	const char *name;
	void (*send)(struct peer *peer);
	uint32_t size;
	bool is_plain;
	bool is_small;
	int depth; /* 0: as asked for */
};

static const struct workload workloads[] = {
	{ "getattr", send_getattr, .is_small = true },
	{ "lookup", send_lookup, .is_small = true },
	{ "create-remove", send_create_remove, .is_small = true },
	{ "readdirplus", send_readdirplus, .depth = 1 },
	{ "read-64k", send_read, 65536 },
	{ "read-1m", send_read, 1 << 20 },
	{ "write-64k", send_write, 65536 },
	{ "write-1m", send_write, 1 << 20 },
	{ "plain-read-64k", send_plain_read, 65536, true },
	{ "plain-read-1m", send_plain_read, 1 << 20, true },
	{ "plain-write-64k", send_plain_write, 65536, true },
	{ "plain-write-1m", send_plain_write, 1 << 20, true },
};

static const struct workload *find_workload(const char *name)
{
	for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++)
		if (strcmp(workloads[i].name, name) == 0)
			return &workloads[i];
	return NULL;
}

static void *run_peer(void *arg)
{
	struct peer *peer = arg;
	struct bench *bench = peer->bench;
	const struct workload *workload = find_workload(bench->workload);
	uint64_t depth = (uint64_t)(workload->depth ? workload->depth : bench->depth);
	bool is_listing = workload->send == send_readdirplus;
	bool in_turns = workload->send == send_create_remove; /* all are made before the first is removed */

	peer->fd = connect_to(bench, bench->nfs_port);
	if (!workload->is_plain)
		peer->dir = lookup(peer->fd, &bench->root, bench->directory, peer->in);
	for (;;) {
		bool is_over = now() >= bench->deadline;

		if (is_over && (!in_turns || peer->n_sent % (2 * depth) == 0) && peer->n_done == peer->n_sent)
			break;
		if (!is_over || (in_turns && peer->n_sent % (2 * depth)))
			while (peer->n_sent - peer->n_done < depth) {
				workload->send(peer);
				peer->n_sent++;
			}
		do {
			if (workload->is_small)
				receive_small(peer);
			else if (workload->is_plain)
				receive_plain(peer);
			else
				receive_one(peer, is_listing);
		} while (in_turns && peer->n_done < peer->n_sent);
	}
	close(peer->fd);
	atomic_fetch_add(&bench->n_calls, peer->n_done);
	return NULL;
}

int main(int argc, char **argv)
{
	static struct bench bench;
	const struct workload *workload;
	pthread_t threads[MAX_DEPTH];
	struct peer *peers;
	double begun, took;

	if (argc < 9 || argc > 10 || !(workload = find_workload(argv[5]))) {
		fprintf(stderr,
			"usage: bench_files ADDRESS NFS_PORT MOUNT_PORT EXPORT WORKLOAD CONNECTIONS DEPTH "
			"SECONDS [DIRECTORY]\n");
		return 2;
	}
	bench.address = argv[1];
	bench.nfs_port = (uint16_t)atoi(argv[2]);
	bench.mount_port = (uint16_t)atoi(argv[3]);
	bench.export = argv[4];
	bench.workload = argv[5];
	bench.n_connections = atoi(argv[6]);
	bench.depth = atoi(argv[7]);
	bench.seconds = atof(argv[8]);
	bench.directory = argc > 9 ? argv[9] : "small";
	bench.size = workload->size;
	if (bench.n_connections < 1 || bench.n_connections > MAX_DEPTH || bench.depth < 1)
		die("connections or depth");
	if (!workload->is_plain)
		prepare(&bench);
	peers = calloc((size_t)bench.n_connections, sizeof(*peers));
	begun = now();
	bench.deadline = begun + bench.seconds;
	for (int i = 0; i < bench.n_connections; i++) {
		peers[i] = (struct peer){ .bench = &bench, .index = i, .in = malloc(BENCH_BUFFER) };
		peers[i].out = malloc((size_t)bench.depth * HEAD);
		peers[i].payload = calloc(1, 1 << 20);
		pthread_create(&threads[i], NULL, run_peer, &peers[i]);
	}
	for (int i = 0; i < bench.n_connections; i++)
		pthread_join(threads[i], NULL);
	took = now() - begun;
	printf("{\"workload\":\"%s\",\"seconds\":%.3f,\"calls_per_second\":%.0f,\"mib_per_second\":%.1f,"
	       "\"entries_per_second\":%.0f,\"errors\":%llu}\n",
	       bench.workload, took, (double)bench.n_calls / took,
	       (double)bench.n_calls * bench.size / took / (1 << 20), (double)bench.n_entries / took,
	       (unsigned long long)bench.n_errors);
	return 0;
}
