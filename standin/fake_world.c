#include "fake_world.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"
#include "loop/backend.h"
#include "loop/loop.h"

#define MAX_LOOPS     8
#define DEFAULT_PIPE  65536
#define MAX_DATAGRAMS 256 /* that wait at one place */
#define FIRST_PORT    40000
#define START_NS      (UINT64_C(1000) * HF_NS_PER_S)
/* The wall clock starts at the end of a second: a time that is rounded up shows. */
#define EPOCH_NS (UINT64_C(1699999001) * HF_NS_PER_S - 1)

struct fake_world {
	struct hf_list sockets; /* in the order in which they were made */
	struct hf_list strays;  /* datagrams for addresses outside */
	size_t n_strays;
	struct fake_loop *loops[MAX_LOOPS];
	size_t n_loops;
	uint64_t now;
	uint64_t random;
	size_t pipe_room;
	uint16_t next_port;
	bool is_of_one_loop; /* and ends with it */
};

struct fake_loop {
	struct hf_loop loop; /* first */
	struct fake_world *world;
	struct hf_list works;
};

/* One end of a stream: what has come to it and was not read. */
struct end {
	struct end *other; /* NULL: closed */
	uint8_t *data;     /* of @room bytes, once there were any */
	size_t start;
	size_t len;
	size_t room;
	bool is_ended; /* nothing more will come */
	bool is_reset;
};

enum kind {
	LISTENER,
	STREAM,
	DATAGRAMS,
};

struct fake_socket {
	struct hf_socket socket; /* first */
	struct hf_link link;     /* in world->sockets */
	struct hf_link waiting;  /* in a listener's queue, until accepted */
	struct fake_world *world;
	enum kind kind;
	bool is_closed; /* to be freed at the end of the turn */
	struct hf_addr local;
	struct hf_addr peer;
	struct end end;
	int bridge[2];        /* STREAM: descriptors of the library and of the world; 0: none */
	struct hf_list queue; /* LISTENER: sockets to accept; DATAGRAMS: those that came */
	size_t n_queue;
};

struct fake_peer {
	struct end end;
};

struct datagram {
	struct hf_link link;
	struct hf_addr from;
	struct hf_addr to;
	size_t len;
	uint8_t data[];
};

struct job {
	struct hf_link link;
	struct hf_work *work; /* NULL: cancelled */
};

static struct fake_loop *fake_loop_of(struct hf_loop *loop)
{
	return (struct fake_loop *)loop;
}

static struct fake_socket *fake_socket_of(struct hf_socket *socket)
{
	return (struct fake_socket *)socket;
}

/* Streams */

static void end_join(struct end *a, struct end *b, size_t room)
{
	*a = (struct end){ .other = b, .room = room };
	*b = (struct end){ .other = a, .room = room };
}

static void end_close(struct end *end)
{
	if (end->other) {
		end->other->is_ended = true;
		end->other->other = NULL;
	}
	end->other = NULL;
	free(end->data);
	end->data = NULL;
	end->start = end->len = 0;
}

static size_t end_put(struct end *to, const void *data, size_t len)
{
	size_t n = HF_MIN(len, to->room - to->len);

	if (!n)
		return 0;
	if (!to->data)
		to->data = malloc(to->room);
	if (!to->data)
		return 0;
	if (to->start + to->len + n > to->room) {
		memmove(to->data, to->data + to->start, to->len);
		to->start = 0;
	}
	memcpy(to->data + to->start + to->len, data, n);
	to->len += n;
	return n;
}

static size_t end_take(struct end *end, void *data, size_t len)
{
	size_t n = HF_MIN(len, end->len);

	if (!n)
		return 0;
	memcpy(data, end->data + end->start, n);
	end->start += n;
	end->len -= n;
	return n;
}

static void end_reset(struct end *end)
{
	struct end *other = end->other;

	end->is_reset = true;
	if (other)
		other->is_reset = true;
}

/* Sockets */

static struct fake_socket *socket_new(struct hf_loop *loop, enum kind kind, const struct hf_addr *local)
{
	struct fake_world *world = fake_loop_of(loop)->world;
	struct fake_socket *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->socket.loop = loop;
	s->world = world;
	s->kind = kind;
	s->local = *local;
	if (!s->local.port)
		s->local.port = world->next_port++;
	hf_link_init(&s->waiting);
	hf_list_init(&s->queue);
	hf_list_push_back(&world->sockets, &s->link);
	return s;
}

/* Who is bound to this address, or to any. */
static struct fake_socket *find_bound(struct fake_world *world, enum kind kind, const struct hf_addr *to)
{
	hf_list_for_each(link, &world->sockets) {
		struct fake_socket *s = hf_list_entry(link, struct fake_socket, link);

		if (s->kind == kind && !s->is_closed && s->local.port == to->port &&
		    s->local.family == to->family &&
		    (hf_addr_is_any(&s->local) || hf_addr_same_host(&s->local, to)))
			return s;
	}
	return NULL;
}

static int bind_new(struct hf_socket **socketp, struct hf_loop *loop, enum kind kind,
		    const struct hf_socket_bind *bind)
{
	struct fake_world *world = fake_loop_of(loop)->world;
	struct fake_socket *s;

	if (bind->addr.port && find_bound(world, kind, &bind->addr))
		return -EADDRINUSE;
	s = socket_new(loop, kind, &bind->addr);
	if (!s)
		return -ENOMEM;
	*socketp = &s->socket;
	return 0;
}

static int fake_tcp_listen(struct hf_socket **socketp, struct hf_loop *loop,
			   const struct hf_socket_bind *bind)
{
	return bind_new(socketp, loop, LISTENER, bind);
}

static int fake_udp_open(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind)
{
	return bind_new(socketp, loop, DATAGRAMS, bind);
}

/* The listener's end of a new connection, which waits to be accepted. */
static struct fake_socket *queue_connection(struct fake_socket *listener, const struct hf_addr *from,
					    const struct hf_addr *to)
{
	struct fake_socket *s = socket_new(listener->socket.loop, STREAM, to);

	if (!s)
		return NULL;
	s->peer = *from;
	hf_list_push_back(&listener->queue, &s->waiting);
	listener->n_queue++;
	return s;
}

static int fake_tcp_accept(struct hf_socket **socketp, struct hf_socket *listener, struct hf_addr *peerp)
{
	struct fake_socket *l = fake_socket_of(listener);
	struct hf_link *link = hf_list_pop_front(&l->queue);
	struct fake_socket *s;

	if (!link)
		return -EAGAIN;
	l->n_queue--;
	s = hf_list_entry(link, struct fake_socket, waiting);
	*peerp = s->peer;
	*socketp = &s->socket;
	return 0;
}

static int fake_tcp_connect(struct hf_socket **socketp, struct hf_loop *loop,
			    const struct hf_socket_bind *bind, const struct hf_addr *remote)
{
	struct fake_world *world = fake_loop_of(loop)->world;
	struct fake_socket *listener = find_bound(world, LISTENER, remote), *s, *other;

	if (!listener)
		return -ECONNREFUSED;
	s = socket_new(loop, STREAM, &bind->addr);
	other = s ? queue_connection(listener, &s->local, remote) : NULL;
	if (!other)
		return -ENOMEM; /* @s goes with the world */
	s->peer = *remote;
	end_join(&s->end, &other->end, world->pipe_room);
	*socketp = &s->socket;
	return 0;
}

static int fake_observe(struct hf_socket **socketp, struct hf_loop *loop, int fd)
{
	return -ENOTSUP;
}

/* A library that reads and writes by itself needs a descriptor: a pair of real sockets. The world carries
 * bytes between its own end of them and the stream, whenever it looks at the socket. */

static int fake_descriptor(struct hf_socket *socket)
{
	struct fake_socket *s = fake_socket_of(socket);

	if (!s->bridge[0] &&
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, s->bridge) < 0)
		return -errno;
	return s->bridge[0];
}

static void carry(struct fake_socket *s)
{
	struct end *end = &s->end;
	uint8_t data[4096];
	size_t room;
	ssize_t n;

	while (end->len && (n = send(s->bridge[1], end->data + end->start, end->len, MSG_NOSIGNAL)) > 0) {
		end->start += (size_t)n;
		end->len -= (size_t)n;
	}
	if (end->is_reset || (end->is_ended && !end->len))
		shutdown(s->bridge[1], SHUT_WR);
	while (end->other && (room = HF_MIN(end->other->room - end->other->len, sizeof(data))) > 0 &&
	       (n = read(s->bridge[1], data, room)) > 0)
		end_put(end->other, data, (size_t)n);
}

static unsigned int ready_for_library(struct fake_socket *s)
{
	struct pollfd look = { .fd = s->bridge[0], .events = POLLIN | POLLOUT };

	carry(s);
	if (poll(&look, 1, 0) < 0)
		return 0;
	return (look.revents & (POLLIN | POLLHUP) ? HF_SOCKET_READ : 0) |
	       (look.revents & POLLOUT ? HF_SOCKET_WRITE : 0);
}

static void fake_close(struct hf_socket *socket)
{
	struct fake_socket *s = fake_socket_of(socket);
	struct hf_link *link;

	assert(!s->is_closed);
	s->is_closed = true; /* freed when no turn looks at it any more */
	s->socket.events = 0;
	if (s->bridge[0]) {
		carry(s); /* its last words */
		close(s->bridge[0]);
		close(s->bridge[1]);
	}
	if (s->kind == STREAM)
		end_close(&s->end);
	while ((link = hf_list_pop_front(&s->queue))) {
		if (s->kind == LISTENER)
			fake_close(&hf_list_entry(link, struct fake_socket, waiting)->socket);
		else
			free(hf_list_entry(link, struct datagram, link));
	}
}

static int fake_watch(struct hf_socket *socket, unsigned int events)
{
	return 0; /* a turn looks for itself */
}

static int fake_move(struct hf_socket **socketp, struct hf_loop *loop)
{
	(*socketp)->loop = loop;
	(*socketp)->events = 0;
	return 0;
}

static ssize_t fake_read(struct hf_socket *socket, void *data, size_t len)
{
	struct end *end = &fake_socket_of(socket)->end;

	if (end->is_reset)
		return -ECONNRESET;
	if (end->len)
		return (ssize_t)end_take(end, data, len);
	return end->is_ended ? 0 : -EAGAIN;
}

static ssize_t fake_write(struct hf_socket *socket, const struct iovec *iov, int n_iov)
{
	struct end *end = &fake_socket_of(socket)->end;
	size_t written = 0;

	if (end->is_reset)
		return -ECONNRESET;
	if (!end->other)
		return -EPIPE;
	for (int i = 0; i < n_iov; i++)
		written += end_put(end->other, iov[i].iov_base, iov[i].iov_len);
	return written ? (ssize_t)written : -EAGAIN;
}

/* What is written has arrived. */
static void fake_drop_unsent(struct hf_socket *socket)
{
}

static int fake_set_keepalive(struct hf_socket *socket, int keepalive_s)
{
	return 0;
}

static int fake_error(struct hf_socket *socket)
{
	return fake_socket_of(socket)->end.is_reset ? -ECONNRESET : 0;
}

static void fake_local(struct hf_socket *socket, struct hf_addr *localp)
{
	*localp = fake_socket_of(socket)->local;
}

/* Datagrams */

static bool deliver(struct fake_world *world, const struct hf_addr *from, const struct hf_addr *to,
		    const void *data, size_t len)
{
	struct fake_socket *s = find_bound(world, DATAGRAMS, to);
	size_t *n = s ? &s->n_queue : &world->n_strays;
	struct datagram *d = *n < MAX_DATAGRAMS ? malloc(sizeof(*d) + len) : NULL;

	if (!d)
		return false;
	*d = (struct datagram){ .from = *from, .to = *to, .len = len };
	if (len)
		memcpy(d->data, data, len);
	hf_link_init(&d->link);
	hf_list_push_back(s ? &s->queue : &world->strays, &d->link);
	++*n;
	return true;
}

static int fake_receive(struct hf_socket *socket, struct hf_datagram *datagrams, int n)
{
	struct fake_socket *s = fake_socket_of(socket);
	int got = 0;

	while (got < n && got < HF_DATAGRAM_BATCH) {
		struct hf_link *link = hf_list_pop_front(&s->queue);
		struct datagram *d;

		if (!link)
			break;
		d = hf_list_entry(link, struct datagram, link);
		s->n_queue--;
		datagrams[got].peer = d->from;
		datagrams[got].local = d->to;
		datagrams[got].local.port = 0;
		datagrams[got].len = d->len <= datagrams[got].len ? d->len : 0;
		memcpy(datagrams[got].data, d->data, datagrams[got].len);
		free(d);
		got++;
	}
	return got ? got : -EAGAIN;
}

static int fake_send(struct hf_socket *socket, const struct hf_datagram *datagrams, int n)
{
	struct fake_socket *s = fake_socket_of(socket);

	n = HF_MIN(n, HF_DATAGRAM_BATCH);
	for (int i = 0; i < n; i++) {
		struct hf_addr from = datagrams[i].local.family ? datagrams[i].local : s->local;

		from.port = s->local.port;
		deliver(s->world, &from, &datagrams[i].peer, datagrams[i].data, datagrams[i].len);
	}
	return n;
}

/* Loops */

static uint64_t fake_clock(struct hf_loop *loop)
{
	return fake_loop_of(loop)->world->now;
}

static uint64_t fake_wall(struct hf_loop *loop)
{
	return fake_loop_of(loop)->world->now + EPOCH_NS;
}

/* xorshift64* */
static void fake_random(struct hf_loop *loop, void *out, size_t len)
{
	struct fake_world *world = fake_loop_of(loop)->world;
	uint8_t *p = out;

	while (len--) {
		world->random ^= world->random >> 12;
		world->random ^= world->random << 25;
		world->random ^= world->random >> 27;
		*p++ = (uint8_t)((world->random * UINT64_C(2685821657736338717)) >> 56);
	}
}

static void fake_wake(struct hf_loop *loop)
{
}

static int fake_work_submit(struct hf_loop *loop, struct hf_work *work)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		return -ENOMEM;
	job->work = work;
	work->request = job;
	hf_list_push_back(&fake_loop_of(loop)->works, &job->link);
	return 0;
}

static void fake_work_cancel(struct hf_work *work)
{
	struct job *job = work->request;

	work->request = NULL;
	hf_link_remove(&job->link);
	free(job);
}

static bool run_works(struct fake_loop *fake)
{
	struct hf_list works = HF_LIST_INIT(works);
	struct hf_link *link;
	bool any = false;

	hf_list_splice(&works, &fake->works);
	while ((link = hf_list_pop_front(&works))) {
		struct job *job = hf_list_entry(link, struct job, link);
		struct hf_work *work = job->work;

		free(job);
		work->run(work);
		work->request = NULL;
		work->done(work);
		any = true;
	}
	return any;
}

static unsigned int ready_for(struct fake_socket *s)
{
	const struct end *end = &s->end;

	if (s->kind != STREAM)
		return (s->n_queue ? HF_SOCKET_READ : 0) | (s->kind == DATAGRAMS ? HF_SOCKET_WRITE : 0);
	if (s->bridge[0] && !s->is_closed)
		return ready_for_library(s);
	if (end->is_reset)
		return HF_SOCKET_READ | HF_SOCKET_WRITE;
	return (end->len || end->is_ended ? HF_SOCKET_READ : 0) |
	       (!end->other || end->other->len < end->other->room ? HF_SOCKET_WRITE : 0);
}

/* Those that are ready, oldest first; sockets made meanwhile wait for the next turn. */
static bool serve_sockets(struct fake_loop *fake)
{
	struct hf_link *last = fake->world->sockets.head.prev;
	bool any = false;

	for (struct hf_link *link = fake->world->sockets.head.next; link != &fake->world->sockets.head;
	     link = link->next) {
		struct fake_socket *s = hf_list_entry(link, struct fake_socket, link);
		unsigned int events = s->socket.events & ready_for(s);

		if (s->socket.loop == &fake->loop && !s->is_closed && events) {
			s->socket.fn(s->socket.user, events);
			any = true;
		}
		if (link == last)
			break;
	}
	return any;
}

static void bury(struct fake_world *world)
{
	hf_list_for_each_safe(link, &world->sockets) {
		struct fake_socket *s = hf_list_entry(link, struct fake_socket, link);

		if (!s->is_closed)
			continue;
		hf_link_remove(&s->link);
		hf_link_remove(&s->waiting);
		free(s);
	}
}

static bool turn(struct fake_loop *fake)
{
	struct hf_loop *loop = &fake->loop;
	struct hf_timer *first;
	bool any = !hf_list_is_empty(&loop->posts) || !hf_list_is_empty(&loop->deferred);

	hf_loop_new_turn(loop);
	hf_loop_run_posts(loop);
	any |= run_works(fake);
	any |= serve_sockets(fake);
	first = hf_timer_heap_first(&loop->timers);
	if (first && first->deadline <= fake->world->now) {
		hf_loop_run_timers(loop);
		any = true;
	}
	hf_loop_run_deferred(loop);
	return any;
}

bool fake_world_turn(struct fake_world *world)
{
	bool any = false;

	for (size_t i = 0; i < world->n_loops; i++)
		if (world->loops[i])
			any |= turn(world->loops[i]);
	bury(world);
	return any;
}

void fake_world_settle(struct fake_world *world)
{
	while (fake_world_turn(world))
		;
}

static bool next_deadline(const struct fake_world *world, uint64_t *deadlinep)
{
	bool any = false;

	for (size_t i = 0; i < world->n_loops; i++) {
		const struct hf_timer *first =
			world->loops[i] ? hf_timer_heap_first(&world->loops[i]->loop.timers) : NULL;

		if (first && (!any || first->deadline < *deadlinep)) {
			*deadlinep = first->deadline;
			any = true;
		}
	}
	return any;
}

void fake_world_advance(struct fake_world *world, uint64_t by_ns)
{
	uint64_t until = world->now + by_ns, deadline;

	fake_world_settle(world);
	while (next_deadline(world, &deadline) && deadline <= until) {
		world->now = HF_MAX(world->now, deadline);
		fake_world_settle(world);
	}
	world->now = until;
	fake_world_settle(world);
}

uint64_t fake_world_now(const struct fake_world *world)
{
	return world->now;
}

/* The whole world moves while one of its loops runs. */
static int fake_run(struct hf_loop *loop)
{
	struct fake_world *world = fake_loop_of(loop)->world;
	uint64_t deadline;

	for (;;) {
		bool any = fake_world_turn(world);

		if (atomic_exchange(&loop->is_stopping, false))
			return 0;
		if (any)
			continue;
		if (!next_deadline(world, &deadline))
			abort(); /* nothing can ever happen again */
		world->now = HF_MAX(world->now, deadline);
	}
}

static void fake_free(struct hf_loop *loop)
{
	struct fake_loop *fake = fake_loop_of(loop);
	struct fake_world *world = fake->world;

	hf_loop_drain(loop);
	run_works(fake);
	for (size_t i = 0; i < world->n_loops; i++)
		if (world->loops[i] == fake)
			world->loops[i] = NULL;
	bury(world);
	hf_loop_deinit(loop);
	free(fake);
	if (world->is_of_one_loop)
		fake_world_free(world);
}

static const struct hf_loop_ops fake_ops = {
	.free = fake_free,
	.run = fake_run,
	.wake = fake_wake,
	.clock = fake_clock,
	.boottime = fake_clock,
	.wall = fake_wall,
	.random = fake_random,
	.tcp_listen = fake_tcp_listen,
	.tcp_accept = fake_tcp_accept,
	.tcp_connect = fake_tcp_connect,
	.udp_open = fake_udp_open,
	.observe = fake_observe,
	.close = fake_close,
	.watch = fake_watch,
	.move = fake_move,
	.read = fake_read,
	.write = fake_write,
	.error = fake_error,
	.drop_unsent = fake_drop_unsent,
	.set_keepalive = fake_set_keepalive,
	.receive = fake_receive,
	.send = fake_send,
	.local = fake_local,
	.descriptor = fake_descriptor,
	.work_submit = fake_work_submit,
	.work_cancel = fake_work_cancel,
};

int fake_loop_new(struct hf_loop **loopp, struct fake_world *world)
{
	struct fake_loop *fake = calloc(1, sizeof(*fake));

	assert(world->n_loops < MAX_LOOPS);
	if (!fake)
		return -ENOMEM;
	hf_loop_init(&fake->loop, &fake_ops);
	fake->world = world;
	hf_list_init(&fake->works);
	world->loops[world->n_loops++] = fake;
	*loopp = &fake->loop;
	return 0;
}

/* World */

struct fake_world *fake_world_new(uint64_t seed)
{
	struct fake_world *world = calloc(1, sizeof(*world));

	if (!world)
		return NULL;
	hf_list_init(&world->sockets);
	hf_list_init(&world->strays);
	world->now = START_NS;
	world->random = seed ? seed : 1;
	world->pipe_room = DEFAULT_PIPE;
	world->next_port = FIRST_PORT;
	return world;
}

void fake_world_free(struct fake_world *world)
{
	struct hf_link *link;

	hf_list_for_each(l, &world->sockets) {
		struct fake_socket *s = hf_list_entry(l, struct fake_socket, link);

		if (!s->is_closed)
			fake_close(&s->socket);
	}
	bury(world);
	while ((link = hf_list_pop_front(&world->strays)))
		free(hf_list_entry(link, struct datagram, link));
	free(world);
}

int fake_loop_new_alone(struct hf_loop **loopp)
{
	struct fake_world *world = fake_world_new(1);
	int r;

	if (!world)
		return -ENOMEM;
	r = fake_loop_new(loopp, world);
	if (r < 0)
		fake_world_free(world);
	else
		world->is_of_one_loop = true;
	return r;
}

void fake_world_set_pipe(struct fake_world *world, size_t bytes)
{
	world->pipe_room = bytes;
}

/* Outside */

struct fake_peer *fake_peer_connect(struct fake_world *world, const struct hf_addr *from,
				    const struct hf_addr *to)
{
	struct fake_socket *listener = find_bound(world, LISTENER, to), *s;
	struct fake_peer *peer;

	if (!listener)
		return NULL;
	peer = calloc(1, sizeof(*peer));
	s = queue_connection(listener, from, to);
	if (!peer || !s)
		abort();
	end_join(&peer->end, &s->end, world->pipe_room);
	return peer;
}

void fake_peer_free(struct fake_peer *peer)
{
	if (!peer)
		return;
	end_close(&peer->end);
	free(peer);
}

size_t fake_peer_send(struct fake_peer *peer, const void *data, size_t len)
{
	struct end *other = peer->end.other;

	return other && !other->is_ended && !peer->end.is_reset ? end_put(other, data, len) : 0;
}

size_t fake_peer_receive(struct fake_peer *peer, void *data, size_t len)
{
	return peer->end.is_reset ? 0 : end_take(&peer->end, data, len);
}

void fake_peer_end(struct fake_peer *peer)
{
	if (peer->end.other)
		peer->end.other->is_ended = true;
}

void fake_peer_reset(struct fake_peer *peer)
{
	end_reset(&peer->end);
}

bool fake_peer_is_closed(const struct fake_peer *peer)
{
	return peer->end.is_reset || (peer->end.is_ended && peer->end.len == 0);
}

bool fake_datagram_send(struct fake_world *world, const struct hf_addr *from, const struct hf_addr *to,
			const void *data, size_t len)
{
	return find_bound(world, DATAGRAMS, to) && deliver(world, from, to, data, len);
}

ssize_t fake_datagram_receive(struct fake_world *world, struct hf_addr *fromp, struct hf_addr *top,
			      void *data, size_t room)
{
	struct hf_link *link = hf_list_pop_front(&world->strays);
	struct datagram *d;
	size_t len;

	if (!link)
		return -1;
	d = hf_list_entry(link, struct datagram, link);
	world->n_strays--;
	*fromp = d->from;
	*top = d->to;
	len = HF_MIN(d->len, room);
	memcpy(data, d->data, len);
	free(d);
	return (ssize_t)len;
}
