#include "../test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "loop/backend.h"
#include "rpc/outqueue.h"

#define SINK_ROOM (8 << 20)

/* A socket that takes what it is told to take, and remembers it. */
struct sink {
	struct hf_socket socket;
	uint8_t *data;
	size_t len;
	size_t room; /* of the whole; then -EAGAIN */
	size_t bite; /* at most so much at a time */
	int error;   /* instead */
	int n_interrupts;
	int n_writes;
	size_t longest; /* most bytes offered at once */
};

static ssize_t sink_write(struct hf_socket *socket, const struct iovec *iov, int n_iov)
{
	struct sink *sink = (struct sink *)socket;
	size_t taken = 0, offered = 0;

	for (int i = 0; i < n_iov; i++)
		offered += iov[i].iov_len;
	sink->n_writes++;
	sink->longest = HF_MAX(sink->longest, offered);
	if (sink->n_interrupts > 0) {
		sink->n_interrupts--;
		return -EINTR;
	}
	if (sink->error)
		return sink->error;
	for (int i = 0; i < n_iov; i++) {
		size_t n = HF_MIN(iov[i].iov_len, HF_MIN(sink->bite - taken, sink->room - sink->len));

		assert_true(sink->len + n <= SINK_ROOM);
		if (!sink->data)
			sink->data = malloc(SINK_ROOM);
		memcpy(sink->data + sink->len, iov[i].iov_base, n);
		sink->len += n;
		taken += n;
	}
	return taken ? (ssize_t)taken : -EAGAIN;
}

static const struct hf_loop_ops ops = { .write = sink_write };
static struct hf_loop loop = { .ops = &ops };

static struct sink new_sink(void)
{
	return (struct sink){ .socket.loop = &loop, .room = SIZE_MAX, .bite = SIZE_MAX };
}

struct fixture {
	struct hf_segment_pool pool;
	struct hf_outqueue queue;
	uint8_t *sent;
	size_t len;
};

static void open_fixture(struct fixture *f)
{
	memset(f, 0, sizeof(*f));
	hf_segment_pool_init(&f->pool);
	hf_outqueue_init(&f->queue);
}

static void close_fixture(struct fixture *f, struct sink *sink)
{
	hf_outqueue_clear(&f->queue, &f->pool);
	assert_int_equal(f->queue.n_allocated, 0);
	hf_segment_pool_deinit(&f->pool);
	free(f->sent);
	free(sink->data);
}

static void queue_up(struct fixture *f, size_t reserve, size_t len)
{
	uint8_t *p = hf_outqueue_reserve(&f->queue, &f->pool, reserve);

	assert_non_null(p);
	f->sent = realloc(f->sent, f->len + len + 1);
	for (size_t i = 0; i < len; i++)
		p[i] = f->sent[f->len + i] = (uint8_t)((f->len + i) * 7 + (f->len + i) / 256);
	memset(p + len, 0xee, reserve - len); /* all of it is the caller's */
	f->len += len;
	hf_outqueue_commit(&f->queue, len);
}

static void check_all(struct fixture *f, struct sink *sink)
{
	assert_int_equal(sink->len, f->len);
	assert_memory_equal(sink->data, f->sent, f->len);
	assert_int_equal(f->queue.n_bytes, 0);
	assert_int_equal(f->queue.n_allocated, 0);
	assert_true(hf_list_is_empty(&f->queue.segments));
}

static void test_batched(void **state)
{
	struct sink sink = new_sink();
	struct fixture f;

	open_fixture(&f);
	assert_int_equal(hf_outqueue_write(&f.queue, &f.pool, &sink.socket), 0);
	assert_int_equal(sink.n_writes, 0);
	for (int i = 0; i < 1000; i++)
		queue_up(&f, 100, 28);
	assert_int_equal(f.queue.n_bytes, 28000);
	assert_int_equal(f.queue.n_allocated, 32768);
	assert_int_equal(hf_outqueue_write(&f.queue, &f.pool, &sink.socket), 0);
	assert_int_equal(sink.n_writes, 1); /* a thousand replies, one system call */
	check_all(&f, &sink);
	close_fixture(&f, &sink);
}

static void test_partial_writes(void **state)
{
	static const size_t bites[] = { 1, 997, 32768, 32769, 100000 };

	for (size_t k = 0; k < HF_ARRAY_SIZE(bites); k++) {
		struct sink sink = new_sink();
		struct fixture f;

		open_fixture(&f);
		sink.bite = bites[k];
		sink.n_interrupts = 3;
		for (size_t i = 0; i < (k ? 40 : 3); i++)
			queue_up(&f, 1000 * i + 1, 900 * i + 1);
		assert_int_equal(hf_outqueue_write(&f.queue, &f.pool, &sink.socket), 0);
		check_all(&f, &sink);
		close_fixture(&f, &sink);
	}
}

static void test_full_socket(void **state)
{
	struct sink sink = new_sink();
	struct fixture f;

	open_fixture(&f);
	sink.room = 0;
	for (int i = 0; i < 50; i++)
		queue_up(&f, 5000, 3000);
	assert_int_equal(hf_outqueue_write(&f.queue, &f.pool, &sink.socket), -EAGAIN);
	assert_int_equal(f.queue.n_bytes, 150000);
	for (size_t room = 1; f.queue.n_bytes; room += 4999) {
		size_t before = f.queue.n_bytes;
		int r;

		sink.room = room;
		r = hf_outqueue_write(&f.queue, &f.pool, &sink.socket);
		assert_int_equal(r, f.queue.n_bytes ? -EAGAIN : 0);
		assert_true(f.queue.n_bytes < before);
		if (room == 4999 * 3 + 1) /* more comes while some is on its way */
			queue_up(&f, 4000, 4000);
	}
	check_all(&f, &sink);
	close_fixture(&f, &sink);
}

static void test_broken(void **state)
{
	struct sink sink = new_sink();
	struct fixture f;

	open_fixture(&f);
	sink.error = -EPIPE;
	queue_up(&f, 10, 10);
	assert_int_equal(hf_outqueue_write(&f.queue, &f.pool, &sink.socket), -EPIPE);
	close_fixture(&f, &sink);
}

static void test_reserved_only(void **state)
{
	struct sink sink = new_sink();
	struct fixture f;

	open_fixture(&f);
	assert_non_null(hf_outqueue_reserve(&f.queue, &f.pool, 100));
	assert_int_equal(hf_outqueue_write(&f.queue, &f.pool, &sink.socket), 0);
	assert_int_equal(sink.n_writes, 0);
	assert_true(hf_list_is_empty(&f.queue.segments));
	/* reserved and not used, between others */
	queue_up(&f, 100, 50);
	assert_non_null(hf_outqueue_reserve(&f.queue, &f.pool, 32768));
	assert_non_null(hf_outqueue_reserve(&f.queue, &f.pool, 100000));
	queue_up(&f, 100, 100);
	assert_int_equal(hf_outqueue_write(&f.queue, &f.pool, &sink.socket), 0);
	check_all(&f, &sink);
	close_fixture(&f, &sink);
}

/* What is held is counted, however little of it is used; the pool keeps some, not all. */
static void test_memory(void **state)
{
	struct sink sink = new_sink();
	struct fixture f;

	open_fixture(&f);
	for (int i = 0; i < 10; i++)
		queue_up(&f, 1 << 20, 4);
	assert_int_equal(f.queue.n_bytes, 40);
	assert_true(f.queue.n_allocated >= 10 << 20);
	assert_int_equal(hf_outqueue_write(&f.queue, &f.pool, &sink.socket), 0);
	assert_int_equal(f.queue.n_allocated, 0);
	assert_int_equal(f.pool.n, 0);
	for (int i = 0; i < 200; i++)
		queue_up(&f, 32768, 4);
	assert_int_equal(hf_outqueue_write(&f.queue, &f.pool, &sink.socket), 0);
	assert_in_range(f.pool.n, 1, 64);
	check_all(&f, &sink);
	close_fixture(&f, &sink);
}

/* Segments made elsewhere go in between, in order, and are counted for what they hold. */
static void test_apart(void **state)
{
	struct sink sink = new_sink();
	struct fixture f;

	open_fixture(&f);
	sink.bite = 10000;
	for (int i = 0; i < 30; i++) {
		size_t size = i % 3 ? 50000 : 32768, len = i % 3 == 1 ? 50000 : i % 3 == 2 ? 17 : 32768;
		struct hf_segment *segment = hf_segment_new(size);
		size_t before = f.queue.n_allocated;

		queue_up(&f, 100, 77);
		f.sent = realloc(f.sent, f.len + len);
		memset(f.sent + f.len, 'A' + i, len);
		memset(hf_segment_data(segment), 'A' + i, size);
		f.len += len;
		hf_outqueue_append(&f.queue, segment, len);
		assert_true(f.queue.n_allocated >= before + size);
		queue_up(&f, 100, 78);
	}
	assert_int_equal(f.queue.n_bytes, f.len);
	assert_int_equal(hf_outqueue_write(&f.queue, &f.pool, &sink.socket), 0);
	check_all(&f, &sink);
	/* and cleared with some of them inside */
	hf_outqueue_append(&f.queue, hf_segment_new(100), 50);
	hf_segment_free(hf_segment_new(10));
	hf_segment_free(NULL);
	close_fixture(&f, &sink);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_batched),       cmocka_unit_test(test_partial_writes),
		cmocka_unit_test(test_full_socket),   cmocka_unit_test(test_broken),
		cmocka_unit_test(test_reserved_only), cmocka_unit_test(test_memory),
		cmocka_unit_test(test_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
