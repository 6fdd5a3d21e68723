/* What all worlds share: tasks, timers, and passing the rest on to the world. */
#include "loop/loop.h"

#include <assert.h>
#include <errno.h>

#include "loop/backend.h"

void hf_loop_init(struct hf_loop *loop, const struct hf_loop_ops *ops)
{
	*loop = (struct hf_loop){ .ops = ops };
	hf_list_init(&loop->deferred);
	hf_list_init(&loop->posts);
	pthread_mutex_init(&loop->posts_lock, NULL);
}

void hf_loop_deinit(struct hf_loop *loop)
{
	assert(hf_list_is_empty(&loop->posts));
	hf_timer_heap_deinit(&loop->timers);
	pthread_mutex_destroy(&loop->posts_lock);
}

struct hf_loop *hf_loop_free(struct hf_loop *loop)
{
	if (loop)
		loop->ops->free(loop);
	return NULL;
}

/* The clock may have been read during the set-up, perhaps long before the first turn. */
int hf_loop_run(struct hf_loop *loop)
{
	hf_loop_new_turn(loop);
	return loop->ops->run(loop);
}

void hf_loop_stop(struct hf_loop *loop)
{
	atomic_store(&loop->is_stopping, true);
	loop->ops->wake(loop);
}

uint64_t hf_loop_now(struct hf_loop *loop)
{
	if (!loop->now)
		loop->now = loop->ops->clock(loop);
	return loop->now;
}

uint64_t hf_loop_clock(struct hf_loop *loop)
{
	return loop->ops->clock(loop);
}

uint64_t hf_loop_boottime(struct hf_loop *loop)
{
	return loop->ops->boottime(loop);
}

void hf_loop_set_lease(struct hf_loop *loop, const struct hf_lease *lease)
{
	loop->lease = lease;
}

void hf_lease_set(struct hf_lease *lease, uint64_t ends_at, uint64_t now)
{
	if (atomic_load_explicit(&lease->ends_at, memory_order_relaxed) <= now)
		atomic_store_explicit(&lease->since, now, memory_order_relaxed);
	atomic_store_explicit(&lease->ends_at, ends_at, memory_order_release);
}

struct hf_loop_mark hf_loop_mark(struct hf_loop *loop)
{
	return (struct hf_loop_mark){ .lease_at = loop->lease ? hf_loop_boottime(loop) : 0,
				      .n_standstills = loop->n_standstills };
}

bool hf_loop_had_lease(struct hf_loop *loop, const struct hf_loop_mark *since)
{
	return HF_LIKELY(!loop->lease) ||
	       (hf_loop_may_act(loop) &&
		atomic_load_explicit(&loop->lease->since, memory_order_relaxed) <= since->lease_at);
}

static bool is_late(const struct hf_timer *timer, uint64_t now)
{
	return timer && timer->deadline + HF_LOOP_STANDSTILL_NS < now;
}

static void note_standstill(struct hf_loop *loop, uint64_t now)
{
	loop->n_standstills++;
	loop->stood_still_at = now;
}

/* While the machine sleeps, the clock of the timers stands still, so that none of them is late. Both clocks
 * are compared now and then. */
static void look_for_sleep(struct hf_loop *loop, uint64_t now)
{
	int64_t ahead;

	if (!loop->ops->boottime)
		return;
	ahead = (int64_t)(loop->ops->boottime(loop) - now);
	if (loop->compared_at && ahead > loop->boottime_ahead + (int64_t)HF_LOOP_STANDSTILL_NS)
		note_standstill(loop, now);
	loop->boottime_ahead = ahead;
	loop->compared_at = now;
}

/* A timer that has become due may ask this before the clocks are compared again. */
bool hf_loop_stood_still(struct hf_loop *loop, const struct hf_loop_mark *since)
{
	look_for_sleep(loop, hf_loop_now(loop));
	return loop->n_standstills != since->n_standstills;
}

/* In a turn, sockets are served before timers. */
bool hf_loop_stood_still_lately(struct hf_loop *loop, uint64_t ns)
{
	uint64_t now = hf_loop_now(loop);

	look_for_sleep(loop, now);
	if (is_late(hf_timer_heap_first(&loop->timers), now) ||
	    (loop->n_standstills && now - loop->stood_still_at < ns))
		return true;
	return loop->lease &&
	       hf_loop_boottime(loop) - atomic_load_explicit(&loop->lease->since, memory_order_relaxed) < ns;
}

bool hf_loop_may_act(struct hf_loop *loop)
{
	return HF_LIKELY(!loop->lease) ||
	       hf_loop_boottime(loop) < atomic_load_explicit(&loop->lease->ends_at, memory_order_acquire);
}

uint64_t hf_loop_turn(const struct hf_loop *loop)
{
	return loop->n_turns;
}

uint64_t hf_loop_wall(struct hf_loop *loop)
{
	return loop->ops->wall(loop);
}

void hf_loop_random(struct hf_loop *loop, void *out, size_t len)
{
	loop->ops->random(loop, out, len);
}

int hf_loop_on_signal(struct hf_loop *loop, int signum, void (*fn)(void *user, int signum), void *user)
{
	return loop->ops->on_signal ? loop->ops->on_signal(loop, signum, fn, user) : -ENOTSUP;
}

/* Tasks */

void hf_task_init(struct hf_task *task, void (*run)(struct hf_task *task))
{
	hf_link_init(&task->link);
	task->run = run;
}

void hf_loop_defer(struct hf_loop *loop, struct hf_task *task)
{
	if (!hf_link_is_linked(&task->link))
		hf_list_push_back(&loop->deferred, &task->link);
}

void hf_loop_defer_last(struct hf_loop *loop, struct hf_task *task)
{
	hf_link_remove(&task->link);
	hf_list_push_back(&loop->deferred, &task->link);
}

void hf_task_cancel(struct hf_task *task)
{
	hf_link_remove(&task->link);
}

void hf_loop_post(struct hf_loop *loop, struct hf_task *task)
{
	pthread_mutex_lock(&loop->posts_lock);
	hf_list_push_back(&loop->posts, &task->link);
	pthread_mutex_unlock(&loop->posts_lock);
	loop->ops->wake(loop);
}

static void run_all(struct hf_list *tasks)
{
	struct hf_link *link;

	while ((link = hf_list_pop_front(tasks))) {
		struct hf_task *task = hf_list_entry(link, struct hf_task, link);

		task->run(task);
		/* @task may be freed here */
	}
}

/* Turns */

void hf_loop_new_turn(struct hf_loop *loop)
{
	loop->now = 0;
	loop->n_turns++;
}

void hf_loop_run_posts(struct hf_loop *loop)
{
	struct hf_list posts = HF_LIST_INIT(posts);

	pthread_mutex_lock(&loop->posts_lock);
	hf_list_splice(&posts, &loop->posts);
	pthread_mutex_unlock(&loop->posts_lock);
	run_all(&posts);
}

void hf_loop_run_timers(struct hf_loop *loop)
{
	uint64_t now = hf_loop_now(loop);
	uint64_t newest = loop->timers.order;
	struct hf_timer *timer = hf_timer_heap_first(&loop->timers);

	if (is_late(timer, now))
		note_standstill(loop, now);
	if (now - loop->compared_at > HF_LOOP_STANDSTILL_NS / 4)
		look_for_sleep(loop, now);
	/* A timer that is started here without delay waits for the next turn. Otherwise two timers could
	 * start each other for ever. */
	while ((timer = hf_timer_heap_first(&loop->timers)) && timer->deadline <= now &&
	       timer->order <= newest) {
		hf_timer_heap_remove(&loop->timers, timer);
		timer->fn(timer);
		/* @timer may be freed here */
	}
}

static bool has_tasks(struct hf_loop *loop)
{
	bool has_posts;

	pthread_mutex_lock(&loop->posts_lock);
	has_posts = !hf_list_is_empty(&loop->posts);
	pthread_mutex_unlock(&loop->posts_lock);
	return has_posts || !hf_list_is_empty(&loop->deferred);
}

/* A posted task that has not run yet may own memory; and a task that runs may post and defer more. */
bool hf_loop_drain(struct hf_loop *loop)
{
	bool had_any = false;

	for (; has_tasks(loop); had_any = true) {
		hf_loop_run_posts(loop);
		hf_loop_run_deferred(loop);
	}
	return had_any;
}

void hf_loop_run_deferred(struct hf_loop *loop)
{
	run_all(&loop->deferred);
}

/* Timers */

void hf_timer_init(struct hf_timer *timer, struct hf_loop *loop, void (*fn)(struct hf_timer *timer))
{
	*timer = (struct hf_timer){ .loop = loop, .fn = fn };
}

int hf_timer_start(struct hf_timer *timer, uint64_t delay_ns)
{
	return hf_timer_start_at(timer, hf_loop_now(timer->loop) + delay_ns);
}

int hf_timer_start_at(struct hf_timer *timer, uint64_t deadline_ns)
{
	hf_timer_stop(timer);
	timer->deadline = deadline_ns;
	return hf_timer_heap_insert(&timer->loop->timers, timer);
}

void hf_timer_stop(struct hf_timer *timer)
{
	if (timer->position)
		hf_timer_heap_remove(&timer->loop->timers, timer);
}

/* Sockets */

int hf_tcp_listen(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind)
{
	return loop->ops->tcp_listen(socketp, loop, bind);
}

int hf_tcp_accept(struct hf_socket **socketp, struct hf_socket *listener, struct hf_addr *peerp)
{
	return listener->loop->ops->tcp_accept(socketp, listener, peerp);
}

int hf_tcp_connect(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind,
		   const struct hf_addr *remote)
{
	return loop->ops->tcp_connect(socketp, loop, bind, remote);
}

int hf_udp_open(struct hf_socket **socketp, struct hf_loop *loop, const struct hf_socket_bind *bind)
{
	return loop->ops->udp_open(socketp, loop, bind);
}

int hf_socket_observe(struct hf_socket **socketp, struct hf_loop *loop, int fd)
{
	return loop->ops->observe ? loop->ops->observe(socketp, loop, fd) : -ENOTSUP;
}

void hf_socket_close(struct hf_socket *socket)
{
	if (socket)
		socket->loop->ops->close(socket);
}

int hf_socket_watch(struct hf_socket *socket, unsigned int events, hf_socket_fn fn, void *user)
{
	socket->fn = fn;
	socket->user = user;
	if (socket->events == events)
		return 0;
	socket->events = events;
	return socket->loop->ops->watch(socket, events);
}

int hf_socket_move(struct hf_socket **socketp, struct hf_loop *loop)
{
	return loop->ops->move(socketp, loop);
}

ssize_t hf_socket_read(struct hf_socket *socket, void *data, size_t len)
{
	return socket->loop->ops->read(socket, data, len);
}

ssize_t hf_socket_write(struct hf_socket *socket, const struct iovec *iov, int n_iov)
{
	return hf_loop_may_act(socket->loop) ? socket->loop->ops->write(socket, iov, n_iov) : -ESTALE;
}

int hf_socket_error(struct hf_socket *socket)
{
	return socket->loop->ops->error(socket);
}

void hf_socket_drop_unsent(struct hf_socket *socket)
{
	socket->loop->ops->drop_unsent(socket);
}

int hf_socket_set_keepalive(struct hf_socket *socket, int keepalive_s)
{
	return socket->loop->ops->set_keepalive(socket, keepalive_s);
}

int hf_socket_probe(struct hf_socket *socket, bool is_on)
{
	return socket->loop->ops->probe(socket, is_on);
}

bool hf_socket_heard(struct hf_socket *socket, struct hf_heard *heardp)
{
	return socket->loop->ops->heard(socket, heardp);
}

int hf_udp_receive(struct hf_socket *socket, struct hf_datagram *datagrams, int n)
{
	return socket->loop->ops->receive(socket, datagrams, n);
}

int hf_udp_send(struct hf_socket *socket, const struct hf_datagram *datagrams, int n)
{
	return hf_loop_may_act(socket->loop) ? socket->loop->ops->send(socket, datagrams, n) : n;
}

void hf_socket_local(struct hf_socket *socket, struct hf_addr *localp)
{
	socket->loop->ops->local(socket, localp);
}

int hf_socket_descriptor(struct hf_socket *socket)
{
	const struct hf_loop_ops *ops = socket->loop->ops;

	return ops->descriptor ? ops->descriptor(socket) : -ENOTSUP;
}
