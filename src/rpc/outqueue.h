/*
 * Bytes on their way out of a connection: replies are encoded in place at the
 * end of the last segment, and as many as there are go out in one system call.
 * An empty queue holds no memory.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct hf_socket;

/* Segments that wait to be used again; one for each lane, so there is no lock. */
struct hf_segment_pool {
	struct hf_list free;
	size_t n;
};

void hf_segment_pool_init(struct hf_segment_pool *pool);
void hf_segment_pool_deinit(struct hf_segment_pool *pool);

struct hf_outqueue {
	struct hf_list segments;
	size_t n_bytes;
	size_t n_held; /* memory, which may be much more: who replies reserves for the worst */
};

void hf_outqueue_init(struct hf_outqueue *queue);
void hf_outqueue_clear(struct hf_outqueue *queue, struct hf_segment_pool *pool);

/* Room for @len bytes in one piece, NULL when there is no memory; of these, @len are then queued by
 * hf_outqueue_commit(). */
uint8_t *hf_outqueue_reserve(struct hf_outqueue *queue, struct hf_segment_pool *pool, size_t len);
void hf_outqueue_commit(struct hf_outqueue *queue, size_t len);

/* Segments apart: made and filled by any thread, then queued whole, or given back. */
struct hf_segment;

struct hf_segment *hf_segment_new(size_t len);
uint8_t *hf_segment_data(struct hf_segment *segment);
void hf_segment_free(struct hf_segment *segment);
void hf_outqueue_append(struct hf_outqueue *queue, struct hf_segment *segment, size_t len);

/* Writes what the socket takes: 0 when all is out, -EAGAIN when some is left, or the error. */
int hf_outqueue_write(struct hf_outqueue *queue, struct hf_segment_pool *pool, struct hf_socket *socket);
