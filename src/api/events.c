#include "api/events.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/macros.h"
#include "loop/loop.h"

#define FLUSH_NS     (20 * HF_NS_PER_MS)
#define PING_NS      (10 * HF_NS_PER_S)
#define LOOK_NS      HF_NS_PER_S
#define READER_BLOCK 16384
#define LOST_ROOM    128

struct reader {
	struct hf_link link;
	struct hf_events *events;
	struct MHD_Connection *connection;
	uint64_t next;    /* number of the reader's next event */
	bool is_sleeping; /* suspended until there is an event for the reader */
	bool is_gone;     /* hung up; the library does not notice that while the reader sleeps */
	int fd;
	bool wants_ping;
	size_t n_pending, at; /* taken from the ring and not sent yet */
	char *pending;
	size_t pending_size;
};

/* The ring, under its lock */

static void drop_oldest(struct hf_events *events)
{
	struct hf_event_text **slot = &events->ring[events->first++ % HF_EVENTS_RING];

	events->n_bytes -= (*slot)->len;
	free(*slot);
	*slot = NULL;
}

static void put(struct hf_events *events, struct hf_event_text *text)
{
	while (events->next - events->first == HF_EVENTS_RING ||
	       (events->next > events->first && events->n_bytes + text->len > HF_EVENTS_MAX_BYTES))
		drop_oldest(events);
	events->ring[events->next++ % HF_EVENTS_RING] = text;
	events->n_bytes += text->len;
}

static void wake(struct hf_events *events, bool is_ping)
{
	hf_list_for_each(pos, &events->readers) {
		struct reader *reader = hf_list_entry(pos, struct reader, link);

		reader->wants_ping |= is_ping;
		if (!reader->is_sleeping || (!is_ping && !events->is_closed && reader->next == events->next))
			continue;
		reader->is_sleeping = false;
		MHD_resume_connection(reader->connection);
	}
}

static void wake_gone(struct hf_events *events)
{
	hf_list_for_each(pos, &events->readers) {
		struct reader *reader = hf_list_entry(pos, struct reader, link);
		char byte;

		if (!reader->is_sleeping || reader->fd < 0 ||
		    recv(reader->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0)
			continue;
		reader->is_gone = true;
		reader->is_sleeping = false;
		MHD_resume_connection(reader->connection);
	}
}

/* The loop's side */

void hf_events_add(struct hf_events *events, const char *kind, const char *data, size_t len)
{
	size_t room = strlen(kind) + len + 32;
	struct hf_event_text *text = NULL;

	if (events->n_pending < HF_EVENTS_RING && events->n_pending_bytes + room < HF_EVENTS_MAX_BYTES)
		text = malloc(sizeof(*text) + room);
	if (!text) {
		events->n_dropped++;
		return;
	}
	if (hf_list_is_empty(&events->pending))
		hf_timer_start(&events->timer, FLUSH_NS);
	text->len = (size_t)snprintf(text->text, room, "event: %s\ndata: %.*s\n", kind, (int)len, data);
	hf_list_push_back(&events->pending, &text->link);
	events->n_pending++;
	events->n_pending_bytes += text->len;
}

static void flush(struct hf_timer *timer)
{
	struct hf_events *events = hf_container_of(timer, struct hf_events, timer);
	uint64_t now = hf_loop_now(events->loop);
	bool is_ping = now - events->pinged >= PING_NS;
	bool is_look = now - events->looked >= LOOK_NS;
	struct hf_link *link;

	if (pthread_mutex_trylock(&events->lock) != 0) {
		hf_timer_start(timer, FLUSH_NS);
		return;
	}
	hf_timer_start(timer, LOOK_NS); /* the next event restarts it sooner */
	if (events->n_dropped) { /* leaves a gap in the numbers, which every reader sees as lost events */
		while (events->first < events->next)
			drop_oldest(events);
		events->first = events->next += events->n_dropped;
		events->n_dropped = 0;
	}
	while ((link = hf_list_pop_front(&events->pending)))
		put(events, hf_list_entry(link, struct hf_event_text, link));
	events->n_pending = events->n_pending_bytes = 0;
	if (is_ping)
		events->pinged = now;
	wake(events, is_ping);
	if (is_look) {
		wake_gone(events);
		events->looked = now;
	}
	pthread_mutex_unlock(&events->lock);
}

/* The readers' side */

static bool append(struct reader *reader, const char *text, size_t len)
{
	if (reader->n_pending + len > reader->pending_size) {
		size_t size = HF_MAX(reader->n_pending + len, (size_t)READER_BLOCK);
		char *pending = realloc(reader->pending, size);

		if (!pending)
			return false;
		reader->pending = pending;
		reader->pending_size = size;
	}
	memcpy(reader->pending + reader->n_pending, text, len);
	reader->n_pending += len;
	return true;
}

/* Under the lock: copies whole events, about a block of them, so that the reader can send them at its own
 * pace. */
static void take(struct reader *reader)
{
	struct hf_events *events = reader->events;
	char line[LOST_ROOM];

	reader->n_pending = reader->at = 0;
	if (reader->next < events->first) {
		uint64_t n = events->first - reader->next;

		atomic_fetch_add_explicit(&events->n_lost, n, memory_order_relaxed);
		append(reader, line,
		       (size_t)snprintf(line, sizeof(line), "event: lost\ndata: {\"lost\":%llu}\n\n",
					(unsigned long long)n));
		reader->next = events->first;
	}
	while (reader->next < events->next && reader->n_pending < READER_BLOCK) {
		const struct hf_event_text *text = events->ring[reader->next % HF_EVENTS_RING];
		size_t n =
			(size_t)snprintf(line, sizeof(line), "id: %llu\n", (unsigned long long)reader->next);

		if (!append(reader, line, n) || !append(reader, text->text, text->len) ||
		    !append(reader, "\n", 1))
			break;
		reader->next++;
	}
	if (reader->wants_ping && reader->n_pending == 0)
		append(reader, ": ping\n\n", 8);
	reader->wants_ping = false;
}

static ssize_t on_read(void *user, uint64_t at, char *out, size_t max)
{
	struct reader *reader = user;
	struct hf_events *events = reader->events;
	bool is_closed;
	size_t n;

	if (reader->is_gone)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (reader->at == reader->n_pending) {
		pthread_mutex_lock(&events->lock);
		take(reader);
		is_closed = events->is_closed;
		if (reader->n_pending == 0 && !is_closed) {
			reader->is_sleeping = true;
			MHD_suspend_connection(reader->connection);
		}
		pthread_mutex_unlock(&events->lock);
		if (reader->n_pending == 0)
			return is_closed ? MHD_CONTENT_READER_END_OF_STREAM : 0;
	}
	n = HF_MIN(max, reader->n_pending - reader->at);
	memcpy(out, reader->pending + reader->at, n);
	reader->at += n;
	return (ssize_t)n;
}

static void on_end(void *user)
{
	struct reader *reader = user;
	struct hf_events *events = reader->events;

	pthread_mutex_lock(&events->lock);
	hf_link_remove(&reader->link);
	events->n_readers--;
	atomic_store(events->wanted, events->n_readers > 0);
	pthread_mutex_unlock(&events->lock);
	free(reader->pending);
	free(reader);
}

void hf_events_show_limit(struct hf_events *events, struct hf_limit_use uses[HF_N_LIMITS])
{
	pthread_mutex_lock(&events->lock);
	uses[HF_LIMIT_EVENT_READERS] = (struct hf_limit_use){ .used = events->n_readers,
							      .max = HF_EVENTS_MAX_READERS,
							      .refused = events->n_refused };
	pthread_mutex_unlock(&events->lock);
}

static bool add_reader(struct hf_events *events, struct reader *reader, uint64_t since)
{
	bool is_room;

	pthread_mutex_lock(&events->lock);
	is_room = events->n_readers < HF_EVENTS_MAX_READERS && !events->is_closed;
	events->n_refused += !is_room;
	if (is_room) {
		/* A reader from the beginning (0) has lost nothing that is already gone. A number in the
		 * future comes from before a restart of this server. */
		reader->next = since == UINT64_MAX                  ? events->next
			       : since == 0 || since > events->next ? events->first
								    : since;
		hf_list_push_back(&events->readers, &reader->link);
		events->n_readers++;
		atomic_store(events->wanted, true);
	}
	pthread_mutex_unlock(&events->lock);
	return is_room;
}

struct MHD_Response *hf_events_stream(struct hf_events *events, struct MHD_Connection *connection,
				      uint64_t since)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct reader *reader = calloc(1, sizeof(*reader));
	struct MHD_Response *response;

	if (!reader)
		return NULL;
	reader->events = events;
	reader->connection = connection;
	reader->fd = info ? info->connect_fd : -1;
	/* Send bytes at once, so that the caller sees that the stream is open. */
	reader->wants_ping = true;
	if (!add_reader(events, reader, since)) {
		free(reader);
		return NULL;
	}
	response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, READER_BLOCK, on_read, reader, on_end);
	if (!response)
		on_end(reader);
	return response;
}

/* Making and freeing */

void hf_events_init(struct hf_events *events, struct hf_loop *loop, _Atomic bool *wanted)
{
	events->loop = loop;
	events->wanted = wanted;
	events->first = events->next = 1;
	pthread_mutex_init(&events->lock, NULL);
	hf_list_init(&events->readers);
	hf_list_init(&events->pending);
	hf_timer_init(&events->timer, loop, flush);
}

void hf_events_start(struct hf_events *events)
{
	events->pinged = hf_loop_now(events->loop);
	hf_timer_start(&events->timer, FLUSH_NS);
}

void hf_events_close(struct hf_events *events)
{
	hf_timer_stop(&events->timer);
	pthread_mutex_lock(&events->lock);
	events->is_closed = true;
	wake(events, false);
	pthread_mutex_unlock(&events->lock);
}

void hf_events_deinit(struct hf_events *events)
{
	struct hf_link *link;

	while (events->first < events->next)
		drop_oldest(events);
	while ((link = hf_list_pop_front(&events->pending)))
		free(hf_list_entry(link, struct hf_event_text, link));
	pthread_mutex_destroy(&events->lock);
}
