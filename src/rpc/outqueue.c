#include "rpc/outqueue.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "base/macros.h"
#include "loop/socket.h"
#include "tls/tls.h"

#define SEGMENT_SIZE     32768
#define POOL_MAX         64
#define SEGMENTS_AT_ONCE 16

struct hf_segment {
	struct hf_link link;
	size_t size;     /* of data, as it was allocated */
	size_t capacity; /* the part of it that the queue may fill */
	size_t start;    /* bytes before this are out */
	size_t end;
	uint8_t data[];
};

static struct hf_segment *segment_of(struct hf_link *link)
{
	return hf_list_entry(link, struct hf_segment, link);
}

void hf_segment_pool_init(struct hf_segment_pool *pool)
{
	hf_list_init(&pool->free);
	pool->n = 0;
}

void hf_segment_pool_deinit(struct hf_segment_pool *pool)
{
	struct hf_link *link;

	while ((link = hf_list_pop_front(&pool->free)))
		free(segment_of(link));
}

static struct hf_segment *segment_get(struct hf_segment_pool *pool, size_t len)
{
	struct hf_link *link = len <= SEGMENT_SIZE ? hf_list_pop_front(&pool->free) : NULL;
	size_t capacity = len > SEGMENT_SIZE ? len : SEGMENT_SIZE;
	struct hf_segment *segment;

	if (link) {
		pool->n--;
		segment = segment_of(link);
	} else {
		segment = malloc(sizeof(*segment) + capacity);
		if (!segment)
			return NULL;
		hf_link_init(&segment->link);
		segment->size = segment->capacity = capacity;
	}
	segment->start = segment->end = 0;
	return segment;
}

static void segment_put(struct hf_segment_pool *pool, struct hf_segment *segment)
{
	if (segment->size != SEGMENT_SIZE || segment->capacity != SEGMENT_SIZE || pool->n >= POOL_MAX) {
		free(segment);
		return;
	}
	hf_list_push_front(&pool->free, &segment->link);
	pool->n++;
}

void hf_outqueue_init(struct hf_outqueue *queue)
{
	hf_list_init(&queue->segments);
	queue->n_bytes = queue->n_allocated = 0;
}

void hf_outqueue_clear(struct hf_outqueue *queue, struct hf_segment_pool *pool)
{
	struct hf_link *link;

	while ((link = hf_list_pop_front(&queue->segments)))
		segment_put(pool, segment_of(link));
	queue->n_bytes = queue->n_allocated = 0;
}

uint8_t *hf_outqueue_reserve(struct hf_outqueue *queue, struct hf_segment_pool *pool, size_t len)
{
	struct hf_link *last = hf_list_last(&queue->segments);
	struct hf_segment *segment = last ? segment_of(last) : NULL;

	if (!segment || segment->capacity - segment->end < len) {
		segment = segment_get(pool, len);
		if (!segment)
			return NULL;
		hf_list_push_back(&queue->segments, &segment->link);
		queue->n_allocated += segment->size;
	}
	return segment->data + segment->end;
}

void hf_outqueue_commit(struct hf_outqueue *queue, size_t len)
{
	struct hf_segment *segment = segment_of(hf_list_last(&queue->segments));

	assert(segment->capacity - segment->end >= len);
	segment->end += len;
	queue->n_bytes += len;
}

struct hf_segment *hf_segment_new(size_t len)
{
	struct hf_segment *segment = malloc(sizeof(*segment) + len);

	if (!segment)
		return NULL;
	hf_link_init(&segment->link);
	segment->size = segment->capacity = len;
	segment->start = segment->end = 0;
	return segment;
}

uint8_t *hf_segment_data(struct hf_segment *segment)
{
	return segment->data;
}

void hf_segment_free(struct hf_segment *segment)
{
	free(segment);
}

void hf_outqueue_append(struct hf_outqueue *queue, struct hf_segment *segment, size_t len)
{
	assert(len <= segment->capacity);
	segment->end = len;
	/* It counts as full, whatever room it has: the queue fills only segments of its own. */
	segment->capacity = len;
	hf_list_push_back(&queue->segments, &segment->link);
	queue->n_bytes += len;
	queue->n_allocated += segment->size;
}

static int gather(struct hf_outqueue *queue, struct iovec iov[SEGMENTS_AT_ONCE])
{
	int n = 0;

	hf_list_for_each(link, &queue->segments) {
		struct hf_segment *segment = segment_of(link);

		if (n == SEGMENTS_AT_ONCE)
			break;
		iov[n++] = (struct iovec){ segment->data + segment->start, segment->end - segment->start };
	}
	return n;
}

static void consume(struct hf_outqueue *queue, struct hf_segment_pool *pool, size_t len)
{
	queue->n_bytes -= len;
	while (!hf_list_is_empty(&queue->segments)) {
		struct hf_segment *segment = segment_of(hf_list_first(&queue->segments));
		size_t len_here = segment->end - segment->start;

		if (len < len_here) {
			segment->start += len;
			return;
		}
		len -= len_here;
		hf_link_remove(&segment->link);
		queue->n_allocated -= segment->size;
		segment_put(pool, segment);
	}
}

typedef ssize_t (*write_fn)(void *to, const struct iovec *iov, int n_iov);

static HF_ALWAYS_INLINE int write_by(struct hf_outqueue *queue, struct hf_segment_pool *pool, write_fn write,
				     void *to)
{
	struct iovec iov[SEGMENTS_AT_ONCE];

	while (queue->n_bytes) {
		ssize_t n = write(to, iov, gather(queue, iov));

		if (n == -EINTR)
			continue;
		if (n < 0)
			return (int)n;
		consume(queue, pool, (size_t)n);
	}
	hf_outqueue_clear(queue, pool); /* a segment that was reserved and never committed */
	return 0;
}

static ssize_t to_socket(void *to, const struct iovec *iov, int n_iov)
{
	return hf_socket_write(to, iov, n_iov);
}

int hf_outqueue_write(struct hf_outqueue *queue, struct hf_segment_pool *pool, struct hf_socket *socket)
{
	return write_by(queue, pool, to_socket, socket);
}

static ssize_t to_session(void *to, const struct iovec *iov, int n_iov)
{
	return hf_tls_session_write(to, iov, n_iov);
}

int hf_outqueue_write_tls(struct hf_outqueue *queue, struct hf_segment_pool *pool,
			  struct hf_tls_session *session)
{
	return write_by(queue, pool, to_session, session);
}
