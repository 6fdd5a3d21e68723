/*
 * Events: the loop fills a ring, and readers empty it, each at its own pace.
 *
 * The loop never waits. It puts events on a list of its own and moves them to
 * the ring every 20 ms, if no other thread has the ring's lock. The ring is
 * bounded in number and bytes. A reader that was too slow misses the oldest
 * events and gets one `lost` event with their number.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limit.h"
#include "base/list.h"
#include "loop/timer.h"

struct MHD_Connection;
struct MHD_Response;
struct hf_loop;

#define HF_EVENTS_RING        4096
#define HF_EVENTS_MAX_BYTES   (2 << 20)
#define HF_EVENTS_MAX_READERS 64

struct hf_event_text {
	struct hf_link link;
	size_t len;
	char text[]; /* as it is sent: "event: …\ndata: …\n" */
};

struct hf_events {
	struct hf_loop *loop;
	pthread_mutex_t lock;
	struct hf_event_text *ring[HF_EVENTS_RING]; /* (q) indexed by number */
	uint64_t first, next;              /* (q) numbers in the ring: first and the one after the last */
	size_t n_bytes;                    /* (q) */
	struct hf_list readers;            /* (q) */
	size_t n_readers;                  /* (q) */
	uint64_t n_refused;                /* (q) readers that were too many */
	bool is_closed;                    /* (q) */
	struct hf_list pending;            /* (l) not in the ring yet */
	size_t n_pending, n_pending_bytes; /* (l) */
	uint64_t n_dropped; /* (l) events that never reached the ring: its lock was taken for too long */
	uint64_t pinged;    /* (l) */
	uint64_t looked;    /* (l) when the loop last looked for readers that are gone */
	struct hf_timer timer;
	_Atomic uint64_t n_lost; /* over all readers */
	_Atomic bool *wanted;    /* is there a reader? The maker of events asks this first */
};

void hf_events_init(struct hf_events *events, struct hf_loop *loop, _Atomic bool *wanted);
void hf_events_start(struct hf_events *events);
void hf_events_close(struct hf_events *events); /* ends all streams */
void hf_events_deinit(struct hf_events *events);

/* On the loop. @data is one line of JSON. */
void hf_events_add(struct hf_events *events, const char *kind, const char *data, size_t len);

void hf_events_show_limit(struct hf_events *events, struct hf_limit_use uses[HF_N_LIMITS]); /* any thread */

/* On the HTTP thread: opens a stream that starts with event @since (UINT64_MAX: with the next one). NULL:
 * there are too many readers, or no memory. */
struct MHD_Response *hf_events_stream(struct hf_events *events, struct MHD_Connection *connection,
				      uint64_t since);
