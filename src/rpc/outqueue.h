/*
 * Bytes on their way out of a connection. Replies are encoded in place at the end of the last
 * segment, and leave together in one system call. An empty queue uses no memory.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct hf_socket;
struct hf_tls_session;

/* Segments to use again. Each lane has its own, so there is no lock. */
struct hf_segment_pool {
	struct hf_list free;
	size_t n;
};

void hf_segment_pool_init(struct hf_segment_pool *pool);
void hf_segment_pool_deinit(struct hf_segment_pool *pool);

struct hf_outqueue {
	struct hf_list segments;
	size_t n_bytes;
	size_t n_allocated; /* memory, which may be much more: a reply reserves room for its longest form */
};

void hf_outqueue_init(struct hf_outqueue *queue);
void hf_outqueue_clear(struct hf_outqueue *queue, struct hf_segment_pool *pool);

/* Room for @len bytes in one piece; NULL: no memory. hf_outqueue_commit() then queues @len of these bytes. */
uint8_t *hf_outqueue_reserve(struct hf_outqueue *queue, struct hf_segment_pool *pool, size_t len);
void hf_outqueue_commit(struct hf_outqueue *queue, size_t len);

/* Segments apart: any thread makes and fills one. Then it is queued as a whole, or given back. */
struct hf_segment;

struct hf_segment *hf_segment_new(size_t len);
uint8_t *hf_segment_data(struct hf_segment *segment);
void hf_segment_free(struct hf_segment *segment);
void hf_outqueue_append(struct hf_outqueue *queue, struct hf_segment *segment, size_t len);

/* Writes what the socket takes: 0 if all is out, -EAGAIN if some is left, or the error. */
int hf_outqueue_write(struct hf_outqueue *queue, struct hf_segment_pool *pool, struct hf_socket *socket);
/* The same through a TLS session. After -EAGAIN the next write begins with the same bytes. */
int hf_outqueue_write_tls(struct hf_outqueue *queue, struct hf_segment_pool *pool,
			  struct hf_tls_session *session);
