#include "rig.h"

#include "../../until.h"
#include "../test.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "loop/loop.h"

const struct hf_rpc_limits rig_limits = {
	.max_connections = 1000,
	.max_connections_per_host = 1000,
	.max_gathering = 64 << 20,
	.max_unread = 64 << 10,
	.max_suspended_per_connection = 32,
	.max_suspended_bytes = 4 << 20,
	.max_charged = 256 << 20,
	.max_reply = 1 << 20,
	.idle_ns = 600 * HF_NS_PER_S,
	.stall_ns = 600 * HF_NS_PER_S,
	.stuck_ns = 600 * HF_NS_PER_S,
};

/* The scripted program */

static void serve_void(void *service, struct hf_rpc_call *call)
{
	hf_rpc_reply_void(call);
}

static void echo(struct hf_rpc_call *call)
{
	struct hf_bytes data = hf_xdr_get_opaque(hf_rpc_call_args(call), RIG_MAX_REQUEST);

	if (!hf_xdr_in_is_ok(hf_rpc_call_args(call)) || hf_xdr_in_left(hf_rpc_call_args(call)))
		hf_rpc_reply_garbage(call);
	else {
		hf_xdr_put_opaque(hf_rpc_reply_begin(call, 8 + (size_t)data.len), data);
		hf_rpc_reply_end(call);
	}
}

static void serve_echo(void *service, struct hf_rpc_call *call)
{
	echo(call);
}

static void remember(struct rig *rig, struct hf_rpc_call *call)
{
	if (hf_rpc_call_suspend(call) < 0)
		return;
	pthread_mutex_lock(&rig->lock);
	assert(rig->n_suspended < RIG_MAX_SUSPENDED); /* not cmocka's: this is another thread */
	rig->suspended[rig->n_suspended++] = call;
	pthread_cond_broadcast(&rig->one_more_suspended);
	pthread_mutex_unlock(&rig->lock);
}

static void serve_suspend(void *service, struct hf_rpc_call *call)
{
	remember(service, call);
}

static void serve_drop(void *service, struct hf_rpc_call *call)
{
	hf_rpc_call_drop(call);
}

static void serve_big(void *service, struct hf_rpc_call *call)
{
	uint32_t n = hf_xdr_get_u32(hf_rpc_call_args(call));
	struct hf_xdr_out *out = hf_rpc_reply_begin(call, 8 + (size_t)n);
	uint8_t *p;

	hf_xdr_put_u32(out, n);
	p = hf_xdr_reserve(out, (n + 3) & ~3u);
	for (uint32_t i = 0; p && i < ((n + 3) & ~3u); i++)
		p[i] = i < n ? (uint8_t)(i * 7 + n) : 0;
	hf_rpc_reply_end(call);
}

static void reply_count(struct rig *rig, struct hf_rpc_call *call)
{
	hf_xdr_put_u32(hf_rpc_reply_begin(call, 4), atomic_fetch_add(&rig->count, 1) + 1);
	hf_rpc_reply_end(call);
}

static void serve_count(void *service, struct hf_rpc_call *call)
{
	reply_count(service, call);
}

static void serve_reserve(void *service, struct hf_rpc_call *call)
{
	static const uint8_t zeros[RIG_RESERVE_USED];
	uint32_t max = hf_xdr_get_u32(hf_rpc_call_args(call));

	hf_xdr_put_fixed(hf_rpc_reply_begin(call, max), zeros, sizeof(zeros));
	hf_rpc_reply_end(call);
}

static void serve_who(void *service, struct hf_rpc_call *call)
{
	const struct hf_rpc_cred *cred = hf_rpc_call_cred(call);
	struct hf_xdr_out *out = hf_rpc_reply_begin(call, 1024);

	hf_xdr_put_fixed(out, hf_rpc_call_peer(call)->ip, 16);
	hf_xdr_put_u32(out, hf_rpc_call_peer(call)->port);
	hf_xdr_put_fixed(out, hf_rpc_call_local(call)->ip, 16);
	hf_xdr_put_u32(out, hf_rpc_call_transport(call));
	hf_xdr_put_u32(out, cred->flavor);
	hf_xdr_put_u32(out, cred->uid);
	hf_xdr_put_u32(out, cred->gid);
	hf_xdr_put_u32(out, cred->n_gids);
	for (uint32_t i = 0; i < cred->n_gids; i++)
		hf_xdr_put_u32(out, cred->gids[i]);
	hf_xdr_put_opaque(out, cred->machine);
	hf_rpc_reply_end(call);
}

static void serve_overrun(void *service, struct hf_rpc_call *call)
{
	struct hf_xdr_out *out = hf_rpc_reply_begin(call, 8);

	for (int i = 0; i < 3; i++)
		hf_xdr_put_u32(out, 7);
	hf_rpc_reply_end(call);
}

static void serve_refuse(void *service, struct hf_rpc_call *call)
{
	hf_rpc_reply_auth_error(call, HF_RPC_AUTH_TOOWEAK);
}

static void serve_work(void *service, struct hf_rpc_call *call)
{
	struct rig *rig = service;
	uint64_t turn = hf_loop_turn(hf_rpc_call_loop(call));

	rig->n_in_turn = turn == rig->turn ? rig->n_in_turn + 1 : 1;
	rig->turn = turn;
	if (rig->n_in_turn > atomic_load(&rig->most_in_turn))
		atomic_store(&rig->most_in_turn, rig->n_in_turn);
	hf_rpc_call_spend(call, hf_xdr_get_u32(hf_rpc_call_args(call)));
	hf_rpc_reply_void(call);
}

/* Around each handler: which one ran on which thread. */
static void account(struct rig *rig, const struct hf_rpc_call *call)
{
	int lane = 0;

	while (lane < rig->n_lanes && !pthread_equal(pthread_self(), rig->threads[lane]))
		lane++;
	assert(lane < rig->n_lanes);
	assert(hf_rpc_call_loop(call) == rig->loops[lane]);
	atomic_fetch_add(&rig->n_on[lane], 1);
	atomic_fetch_add(&rig->n_served, 1);
	if (hf_rpc_call_header(call)->program == RIG_HOME && lane != 0)
		atomic_fetch_add(&rig->n_away, 1);
}

#define ACCOUNTED(name)                                                    \
	static void handle_##name(void *service, struct hf_rpc_call *call) \
	{                                                                  \
		account(service, call);                                    \
		serve_##name(service, call);                               \
	}

ACCOUNTED(void)
ACCOUNTED(echo)
ACCOUNTED(suspend)
ACCOUNTED(drop)
ACCOUNTED(big)
ACCOUNTED(count)
ACCOUNTED(reserve)
ACCOUNTED(who)
ACCOUNTED(overrun)
ACCOUNTED(refuse)
ACCOUNTED(work)

static const struct hf_rpc_proc procs[] = {
	[RIG_VOID] = { "VOID", handle_void },
	[RIG_ECHO] = { "ECHO", handle_echo },
	[RIG_SUSPEND] = { "SUSPEND", handle_suspend },
	[RIG_DROP] = { "DROP", handle_drop },
	[RIG_BIG] = { "BIG", handle_big, .has_long_reply = true },
	[RIG_COUNT] = { "COUNT", handle_count, HF_RPC_REPLAY_ALWAYS },
	[RIG_COUNT_SUSPEND] = { "COUNT_SUSPEND", handle_suspend, HF_RPC_REPLAY_ALWAYS },
	[RIG_COUNT_UDP] = { "COUNT_UDP", handle_count, HF_RPC_REPLAY_UDP },
	[RIG_RESERVE] = { "RESERVE", handle_reserve },
	[RIG_WHO] = { "WHO", handle_who },
	[RIG_OVERRUN] = { "OVERRUN", handle_overrun },
	[RIG_REFUSE] = { "REFUSE", handle_refuse },
	[RIG_WORK] = { "WORK", handle_work },
};

static const struct hf_rpc_version versions[] = {
	{ RIG_VERSION_LOW, 1, procs },
	{ RIG_VERSION, RIG_N_PROCS, procs },
};

static const struct hf_rpc_program programs[] = {
	{ RIG_PROGRAM, "anywhere", 2, versions, RIG_MAX_REQUEST, false },
	{ RIG_HOME, "home", 2, versions, RIG_MAX_REQUEST, true },
	{ RIG_SMALL, "small", 2, versions, RIG_SMALL_REQUEST, false },
};

/* Making and freeing */

struct lane_thread {
	struct rig *rig;
	int lane;
	sem_t go;
};

static void *run_lane(void *arg)
{
	struct lane_thread *start = arg;
	struct hf_loop *loop = start->rig->loops[start->lane];

	sem_wait(&start->go); /* rig->threads[] is complete */
	sem_destroy(&start->go);
	free(start);
	hf_loop_run(loop);
	return NULL;
}

void rig_start(struct rig *rig, const struct hf_rpc_limits *limits, int n_lanes, const char *address)
{
	struct lane_thread *starts[RIG_MAX_LANES];
	struct hf_addr addr;

	memset(rig, 0, sizeof(*rig));
	pthread_mutex_init(&rig->lock, NULL);
	pthread_cond_init(&rig->one_more_suspended, NULL);
	rig->n_lanes = n_lanes;
	assert_int_equal(hf_rpc_server_new(&rig->server, limits), 0);
	for (size_t i = 0; i < HF_ARRAY_SIZE(programs); i++)
		assert_int_equal(hf_rpc_server_add_program(rig->server, &programs[i], rig), 0);
	assert_true(hf_addr_parse(&addr, address));
	for (int i = 0; i < n_lanes; i++) {
		assert_int_equal(hf_loop_new(&rig->loops[i]), 0);
		assert_int_equal(hf_rpc_server_add_lane(rig->server, rig->loops[i], &rig->lanes[i]), 0);
	}
	assert_int_equal(hf_rpc_server_listen_tcp(rig->server, &addr, &rig->tcp), 0);
	assert_int_equal(hf_rpc_server_listen_udp(rig->server, &addr, &rig->udp), 0);
	for (int i = 0; i < n_lanes; i++) {
		starts[i] = malloc(sizeof(*starts[i]));
		*starts[i] = (struct lane_thread){ rig, i };
		sem_init(&starts[i]->go, 0, 0);
		assert_int_equal(pthread_create(&rig->threads[i], NULL, run_lane, starts[i]), 0);
		rig->is_running[i] = true;
	}
	for (int i = 0; i < n_lanes; i++)
		sem_post(&starts[i]->go);
}

static void close_lane(struct rig *rig, void *arg)
{
	struct hf_rpc_lane *lane = arg;

	if (!lane->is_closed)
		hf_rpc_lane_close(lane);
	hf_loop_stop(lane->loop);
}

/* Home goes last, so that a message on its way there arrives. */
void rig_stop(struct rig *rig)
{
	for (int i = rig->n_lanes - 1; i >= 0; i--) {
		rig_run_on(rig, i, close_lane, rig->lanes[i]);
		pthread_join(rig->threads[i], NULL);
		rig->is_running[i] = false;
	}
	for (size_t i = 0; i < rig->n_suspended; i++)
		hf_rpc_call_drop(rig->suspended[i]);
	for (int i = 0; i < rig->n_lanes; i++)
		hf_loop_free(rig->loops[i]);
	assert_int_equal(rig_counts(rig).connections, 0);
	for (int i = 0; i < rig->n_lanes; i++)
		assert_int_equal(rig->lanes[i]->n_gathering, 0);
	hf_rpc_server_free(rig->server);
	pthread_cond_destroy(&rig->one_more_suspended);
	pthread_mutex_destroy(&rig->lock);
}

/* On the loop's thread */

struct errand {
	struct hf_task task;
	struct rig *rig;
	void (*fn)(struct rig *rig, void *arg);
	void *arg;
	sem_t done;
};

static void run_errand(struct hf_task *task)
{
	struct errand *errand = hf_container_of(task, struct errand, task);

	errand->fn(errand->rig, errand->arg);
	sem_post(&errand->done);
}

void rig_run_on(struct rig *rig, int lane, void (*fn)(struct rig *rig, void *arg), void *arg)
{
	struct errand errand = { .rig = rig, .fn = fn, .arg = arg };

	sem_init(&errand.done, 0, 0);
	hf_task_init(&errand.task, run_errand);
	hf_loop_post(rig->loops[lane], &errand.task);
	while (sem_wait(&errand.done) < 0)
		;
	sem_destroy(&errand.done);
}

/* Waiting */

uint64_t rig_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void rig_wait(bool (*is_true)(void *arg), void *arg, const char *what)
{
	struct until until = until_begin(UNTIL_PATIENCE);

	while (!is_true(arg))
		if (!until_again(&until))
			fail_msg("waited in vain: %s", what);
}

size_t rig_suspended(struct rig *rig)
{
	size_t n;

	pthread_mutex_lock(&rig->lock);
	n = rig->n_suspended;
	pthread_mutex_unlock(&rig->lock);
	return n;
}

void rig_wait_suspended(struct rig *rig, size_t n)
{
	struct timespec end;
	size_t n_suspended;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += UNTIL_PATIENCE;
	pthread_mutex_lock(&rig->lock);
	while (rig->n_suspended < n && r == 0)
		r = pthread_cond_timedwait(&rig->one_more_suspended, &rig->lock, &end);
	n_suspended = rig->n_suspended;
	pthread_mutex_unlock(&rig->lock);
	if (n_suspended < n)
		fail_msg("waited in vain: calls to be suspended: %zu of %zu", n_suspended, n);
}

static struct hf_rpc_call *take_suspended(struct rig *rig)
{
	struct hf_rpc_call *call;

	pthread_mutex_lock(&rig->lock);
	assert_true(rig->n_suspended > 0);
	call = rig->suspended[0];
	memmove(rig->suspended, rig->suspended + 1, --rig->n_suspended * sizeof(rig->suspended[0]));
	pthread_mutex_unlock(&rig->lock);
	return call;
}

static void release_one(struct rig *rig, void *arg)
{
	struct hf_rpc_call *call = arg;

	if (hf_rpc_call_header(call)->procedure == RIG_COUNT_SUSPEND)
		reply_count(rig, call);
	else
		echo(call);
}

static void drop_one(struct rig *rig, void *arg)
{
	hf_rpc_call_drop(arg);
}

static void end_suspended(struct rig *rig, size_t n, void (*fn)(struct rig *rig, void *arg))
{
	while (n--) {
		struct hf_rpc_call *call = take_suspended(rig);
		int lane = 0;

		while (rig->lanes[lane] != call->lane)
			lane++;
		rig_run_on(rig, lane, fn, call);
	}
}

void rig_release(struct rig *rig, size_t n)
{
	end_suspended(rig, n, release_one);
}

void rig_drop(struct rig *rig, size_t n)
{
	end_suspended(rig, n, drop_one);
}

struct hf_rpc_counts rig_counts(struct rig *rig)
{
	struct hf_rpc_counts counts;

	hf_rpc_server_counts(rig->server, &counts);
	return counts;
}

struct awaited {
	struct rig *rig;
	size_t n;
};

static bool has_connections(void *arg)
{
	struct awaited *awaited = arg;

	return rig_counts(awaited->rig).connections == awaited->n;
}

void rig_wait_connections(struct rig *rig, size_t n)
{
	rig_wait(has_connections, &(struct awaited){ rig, n }, "the number of connections");
}

struct idle {
	struct rig *rig;
	uint64_t ns, wanted_ns;
};

static void look_at_idle(struct rig *rig, void *arg)
{
	struct hf_link *link = hf_list_first(&rig->lanes[0]->idle);
	struct idle *idle = arg;

	idle->ns = 0;
	if (link)
		idle->ns = hf_loop_now(rig->loops[0]) -
			   hf_list_entry(link, struct hf_rpc_connection, link)->since;
}

static bool is_idle_long(void *arg)
{
	struct idle *idle = arg;

	rig_run_on(idle->rig, 0, look_at_idle, idle);
	return idle->ns >= idle->wanted_ns;
}

void rig_wait_idle(struct rig *rig, uint64_t ns)
{
	rig_wait(is_idle_long, &(struct idle){ .rig = rig, .wanted_ns = ns }, "an idle connection");
}

/* The client */

static socklen_t address(struct sockaddr_storage *ss, const char *text, uint16_t port)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		return sizeof(*in);
	}
	assert_int_equal(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	return sizeof(*in6);
}

static void be_patient(int fd)
{
	struct timeval patience = { .tv_sec = 20 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

static int connect_to(const char *to, uint16_t port, const char *from, int rcvbuf)
{
	struct sockaddr_storage ss;
	socklen_t len = address(&ss, to, port);
	int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	be_patient(fd);
	if (rcvbuf) {
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf));
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){ 65536 }, sizeof(int));
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	if (from) {
		struct sockaddr_storage mine;
		socklen_t mine_len = address(&mine, from, 0);

		assert_int_equal(bind(fd, (struct sockaddr *)&mine, mine_len), 0);
	}
	assert_int_equal(connect(fd, (struct sockaddr *)&ss, len), 0);
	return fd;
}

int rig_connect(const char *to, uint16_t port, const char *from)
{
	return connect_to(to, port, from, 0);
}

int rig_connect_small(const char *to, uint16_t port, int rcvbuf)
{
	return connect_to(to, port, NULL, rcvbuf);
}

/* A connection inherits the buffers of the listening socket, which is one of this process. */
void rig_narrow(uint16_t port)
{
	const int size = 32768;
	bool is_found = false;

	for (int fd = 0; fd < 256; fd++) {
		struct sockaddr_in at = { 0 };
		int is_listening = 0;

		getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening,
			   &(socklen_t){ sizeof(is_listening) });
		getsockname(fd, (struct sockaddr *)&at, &(socklen_t){ sizeof(at) });
		if (!is_listening || ntohs(at.sin_port) != port)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		is_found = true;
	}
	assert_true(is_found);
}

int rig_udp(const char *from)
{
	struct sockaddr_storage ss;
	socklen_t len = address(&ss, from, 0);
	int fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	be_patient(fd);
	assert_int_equal(bind(fd, (struct sockaddr *)&ss, len), 0);
	return fd;
}

void rig_send_all(int fd, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n <= 0)
			fail_msg("send: %s", strerror(errno));
		p += n;
		len -= (size_t)n;
	}
}

void rig_send_record(int fd, const void *data, size_t len)
{
	uint8_t *record = malloc(4 + len);

	rig_put(record, 0x80000000u | (uint32_t)len);
	memcpy(record + 4, data, len);
	rig_send_all(fd, record, 4 + len);
	free(record);
}

static bool receive_all(int fd, uint8_t *p, size_t len)
{
	while (len) {
		ssize_t n = recv(fd, p, len, 0);

		if (n < 0 && errno == EAGAIN)
			fail_msg("no reply came");
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

ssize_t rig_recv_record(int fd, void *data, size_t room)
{
	uint8_t mark[4];
	uint32_t len;

	if (!receive_all(fd, mark, 4))
		return -1;
	assert_true(rig_get(mark) & 0x80000000u); /* the server always sends one fragment */
	len = rig_get(mark) & 0x7fffffffu;
	assert_true(len <= room);
	return receive_all(fd, data, len) ? (ssize_t)len : -1;
}

bool rig_is_closed(int fd)
{
	uint8_t byte;
	ssize_t n = recv(fd, &byte, 1, 0);

	return n == 0 || (n < 0 && errno == ECONNRESET);
}

void rig_sendto(int fd, const char *to, uint16_t port, const void *data, size_t len)
{
	struct sockaddr_storage ss;
	socklen_t ss_len = address(&ss, to, port);

	assert_int_equal(sendto(fd, data, len, 0, (struct sockaddr *)&ss, ss_len), len);
}

ssize_t rig_recvfrom(int fd, void *data, size_t room, struct sockaddr_storage *from)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	ssize_t n = recvfrom(fd, data, room, 0, (struct sockaddr *)&ss, &len);

	if (from)
		*from = ss;
	return n;
}

/* Bytes */

uint8_t *rig_put(uint8_t *p, uint32_t word)
{
	word = htonl(word);
	memcpy(p, &word, 4);
	return p + 4;
}

uint32_t rig_get(const uint8_t *p)
{
	uint32_t word;

	memcpy(&word, p, 4);
	return ntohl(word);
}

size_t rig_call(uint8_t *out, uint32_t xid, uint32_t program, uint32_t proc, const void *args, size_t len)
{
	const uint32_t words[] = { xid, 0, 2, program, RIG_VERSION, proc, 0, 0, 0, 0 };
	uint8_t *p = out;

	for (size_t i = 0; i < HF_ARRAY_SIZE(words); i++)
		p = rig_put(p, words[i]);
	if (len)
		memcpy(p, args, len);
	return (size_t)(p - out) + len;
}

size_t rig_call_opaque(uint8_t *out, uint32_t xid, uint32_t program, uint32_t proc, const void *data,
		       uint32_t len)
{
	size_t at = rig_call(out, xid, program, proc, NULL, 0);
	size_t padded = (len + 3) & ~3u;

	rig_put(out + at, len);
	memset(out + at + 4, 0, padded);
	if (len)
		memcpy(out + at + 4, data, len);
	return at + 4 + padded;
}

size_t rig_call_word(uint8_t *out, uint32_t xid, uint32_t program, uint32_t proc, uint32_t word)
{
	uint8_t args[4];

	rig_put(args, word);
	return rig_call(out, xid, program, proc, args, 4);
}

void rig_expect_words(int fd, const uint32_t *words, size_t n)
{
	uint8_t expected[256], got[4096];
	ssize_t len;
	int type;
	socklen_t type_len = sizeof(type);

	for (size_t i = 0; i < n; i++)
		rig_put(expected + 4 * i, words[i]);
	getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len);
	len = type == SOCK_STREAM ? rig_recv_record(fd, got, sizeof(got))
				  : rig_recvfrom(fd, got, sizeof(got), NULL);
	assert_int_equal(len, 4 * n);
	assert_memory_equal(got, expected, 4 * n);
}

void rig_check_success(const uint8_t *reply, ssize_t len, uint32_t xid)
{
	assert_true(len >= 24);
	assert_int_equal(rig_get(reply), xid);
	assert_int_equal(rig_get(reply + 4), 1);
	for (int i = 2; i < 6; i++)
		assert_int_equal(rig_get(reply + 4 * i), 0);
}

size_t rig_expect_success(int fd, uint32_t xid, uint8_t *results, size_t room)
{
	uint8_t *reply = malloc(24 + room);
	ssize_t len = rig_recv_record(fd, reply, 24 + room);

	if (len < 0)
		fail_msg("closed instead of a reply to %u", xid);
	rig_check_success(reply, len, xid);
	if (len > 24)
		memcpy(results, reply + 24, (size_t)len - 24);
	free(reply);
	return (size_t)len - 24;
}
