/* Writing: adds records to batches, gives batches to the backend at the end of the turn, and reaches their
 * tickets when it is done. */
#include "store/store.h"

#include <assert.h>
#include <errno.h>

#include "base/error.h"
#include "store/backend.h"

/* Bound for writes that are queued for a slow medium. Deletes pass: there are never more of them than stored
 * facts. */
#define MAX_PENDING ((size_t)256 << 20)

#define MANY 256 /* writes; beyond this, the waiting replies fall out of the CPU's cache */

static void commit_stream(struct hf_store *store, struct hf_store_stream *stream);

static void on_end_of_turn(struct hf_task *task)
{
	struct hf_store *store = hf_container_of(task, struct hf_store, commit_task);

	commit_stream(store, &store->streams[HF_STORE_CLIENTS]);
	commit_stream(store, &store->streams[HF_STORE_LOCKS]);
}

void hf_store_init_writing(struct hf_store *store)
{
	for (int kind = 0; kind < 2; kind++) {
		struct hf_store_stream *stream = &store->streams[kind];

		hf_batch_init(&stream->batches[0], store, (enum hf_store_kind)kind);
		hf_batch_init(&stream->batches[1], store, (enum hf_store_kind)kind);
		stream->filling = &stream->batches[0];
	}
	hf_task_init(&store->commit_task, on_end_of_turn);
}

void hf_store_deinit_writing(struct hf_store *store)
{
	hf_task_cancel(&store->commit_task);
	for (int kind = 0; kind < 2; kind++) {
		hf_batch_deinit(&store->streams[kind].batches[0]);
		hf_batch_deinit(&store->streams[kind].batches[1]);
	}
}

/* Committing */

static void reach(struct hf_store *store, struct hf_store_batch *batch)
{
	struct hf_store_stream *stream = &store->streams[batch->kind];
	enum hf_store_kind kind = batch->kind;

	stream->reached = batch->last_ticket;
	hf_batch_reset(batch, store->next_id);
	if (stream->filling->last_ticket > stream->reached)
		hf_loop_defer(store->loop, &store->commit_task);
	store->events->on_reached(store->user, kind, hf_store_reached(store, kind));
}

static void commit_stream(struct hf_store *store, struct hf_store_stream *stream)
{
	struct hf_store_batch *batch = stream->filling;

	if (store->health != HF_STORE_HEALTHY || hf_store_stream_is_flying(stream) ||
	    batch->last_ticket <= stream->reached)
		return;
	if (store->state.is_clean)
		return; /* the marker of an orderly stop is the last write, and a timer may still fire */
	if (hf_batch_is_empty(batch)) {
		reach(store, batch);
		return;
	}
	stream->filling = batch == &stream->batches[0] ? &stream->batches[1] : &stream->batches[0];
	hf_batch_reset(stream->filling, store->next_id);
	stream->filling->last_ticket = 0;
	batch->is_flying = true;
	if (store->events->on_commit)
		batch->started_at = hf_loop_clock(store->loop);
	store->ops->commit(store, batch);
}

/* Only where a commit is just a write to the page cache. A slower commit is better made once, with as many
 * writes as possible. */
void hf_store_hurry(struct hf_store *store)
{
	struct hf_store_stream *stream = &store->streams[HF_STORE_LOCKS];

	if (store->state.durability == HF_STORE_PROCESS &&
	    stream->filling->n_records + stream->filling->n_void >= MANY)
		commit_stream(store, stream);
}

void hf_store_batch_done(struct hf_store_batch *batch, int r)
{
	struct hf_store *store = batch->store;

	assert(batch->is_flying);
	batch->is_flying = false;
	if (batch->kind == HF_STORE_ALL) {
		hf_store_resync_done(store, r);
		return;
	}
	if (batch->is_lost) {
		hf_batch_reset(batch, store->next_id);
		return;
	}
	if (r < 0) {
		batch->is_lost = true;
		hf_store_fail(store, r);
		return;
	}
	store->counts.n_commits++;
	store->counts.n_records += batch->n_records;
	if (store->events->on_commit)
		store->events->on_commit(store->user, batch->kind,
					 hf_loop_clock(store->loop) - batch->started_at);
	reach(store, batch);
}

/* Writes */

static int can_write(const struct hf_store *store, const struct hf_store_batch *batch)
{
	assert(store->has_begun);
	if (!hf_store_takes_writes(store))
		return -EROFS;
	return batch->len > MAX_PENDING ? -ENOBUFS : 0;
}

static void give_ticket(struct hf_store *store, struct hf_store_batch *batch, uint64_t *ticketp)
{
	uint64_t ticket = store->issued + 1;

	if (batch) {
		struct hf_store_stream *stream = &store->streams[batch->kind];

		/* While a stream is idle, its reached ticket is store->issued; from here on the stream tracks
		 * its own. */
		if (store->health == HF_STORE_HEALTHY && hf_store_stream_is_idle(stream))
			stream->reached = store->issued;
		batch->last_ticket = ticket;
		hf_loop_defer(store->loop, &store->commit_task);
	}
	store->issued = ticket;
	if (ticketp)
		*ticketp = ticket;
}

static bool stores_locks(const struct hf_store *store)
{
	return store->state.durability != HF_STORE_NONE && !store->ops->is_volatile;
}

uint64_t hf_store_new_id(struct hf_store *store)
{
	assert(store->has_begun);
	return store->next_id++;
}

/* Room for a new lock, reservation or waiter. NULL in *outp: nothing is to be written, and the ticket is
 * given. */
static int reserve_new(struct hf_store *store, uint8_t **outp, uint64_t *ticketp)
{
	struct hf_store_batch *batch = store->streams[HF_STORE_LOCKS].filling;
	int r = can_write(store, batch);

	*outp = NULL;
	if (r < 0)
		return r;
	if (!stores_locks(store)) {
		give_ticket(store, NULL, ticketp);
		return 0;
	}
	*outp = hf_batch_reserve(batch);
	return *outp ? 0 : hf_trace(-ENOMEM);
}

static int add_new(struct hf_store *store, int length, uint64_t id, uint64_t *ticketp)
{
	struct hf_store_batch *batch = store->streams[HF_STORE_LOCKS].filling;

	if (length < 0)
		return hf_trace(length);
	hf_batch_add_new(batch, length, id);
	give_ticket(store, batch, ticketp);
	return 0;
}

int hf_store_put_lock(struct hf_store *store, const struct hf_store_lock *lock, uint64_t *ticketp)
{
	uint8_t *out;
	int r = reserve_new(store, &out, ticketp);

	return out ? add_new(store, hf_record_encode_lock(out, lock), lock->id, ticketp) : r;
}

int hf_store_put_reservation(struct hf_store *store, const struct hf_store_reservation *reservation,
			     uint64_t *ticketp)
{
	uint8_t *out;
	int r = reserve_new(store, &out, ticketp);

	return out ? add_new(store, hf_record_encode_reservation(out, reservation), reservation->id, ticketp)
		   : r;
}

int hf_store_put_waiter(struct hf_store *store, const struct hf_store_waiter *waiter, uint64_t *ticketp)
{
	uint8_t *out;
	int r = reserve_new(store, &out, ticketp);

	return out ? add_new(store, hf_record_encode_waiter(out, waiter), waiter->wants.id, ticketp) : r;
}

static int delete_id(struct hf_store *store, enum hf_record_type type, uint64_t id, uint64_t *ticketp)
{
	struct hf_store_batch *batch = store->streams[HF_STORE_LOCKS].filling;
	uint8_t *out;
	int r = can_write(store, batch);

	if (r < 0 && r != -ENOBUFS)
		return r;
	if (!stores_locks(store)) {
		give_ticket(store, NULL, ticketp);
		return 0;
	}
	if (!hf_batch_cancel(batch, id)) {
		out = hf_batch_reserve(batch);
		if (!out)
			return hf_trace(-ENOMEM);
		hf_batch_add(batch, hf_record_encode_delete(out, type, id));
	}
	give_ticket(store, batch, ticketp);
	return 0;
}

int hf_store_delete_lock(struct hf_store *store, uint64_t id, uint64_t *ticketp)
{
	return delete_id(store, HF_RECORD_LOCK_DELETE, id, ticketp);
}

int hf_store_delete_reservation(struct hf_store *store, uint64_t id, uint64_t *ticketp)
{
	return delete_id(store, HF_RECORD_RESERVATION_DELETE, id, ticketp);
}

int hf_store_delete_waiter(struct hf_store *store, uint64_t id, uint64_t *ticketp)
{
	return delete_id(store, HF_RECORD_WAITER_DELETE, id, ticketp);
}

int hf_store_put_client(struct hf_store *store, const struct hf_store_client *client, uint64_t *ticketp)
{
	struct hf_store_batch *batch = store->streams[HF_STORE_CLIENTS].filling;
	uint8_t *out;
	int r = can_write(store, batch);

	if (r < 0)
		return r;
	out = hf_batch_reserve(batch);
	if (!out)
		return hf_trace(-ENOMEM);
	r = hf_record_encode_client(out, client);
	if (r < 0)
		return hf_trace(r);
	if (store->ops->is_volatile) {
		give_ticket(store, NULL, ticketp);
		return 0;
	}
	hf_batch_add(batch, r);
	give_ticket(store, batch, ticketp);
	return 0;
}

/* Room for a record that is small or deletes something, so a full batch does not refuse it. NULL in *outp as
 * in reserve_new(). */
static int reserve_small(struct hf_store *store, uint8_t **outp, uint64_t *ticketp)
{
	struct hf_store_batch *batch = store->streams[HF_STORE_CLIENTS].filling;
	int r = can_write(store, batch);

	*outp = NULL;
	if (r < 0 && r != -ENOBUFS)
		return r;
	if (store->ops->is_volatile) {
		give_ticket(store, NULL, ticketp);
		return 0;
	}
	*outp = hf_batch_reserve(batch);
	return *outp ? 0 : hf_trace(-ENOMEM);
}

static int add_small(struct hf_store *store, int length, uint64_t *ticketp)
{
	struct hf_store_batch *batch = store->streams[HF_STORE_CLIENTS].filling;

	if (length < 0)
		return hf_trace(length);
	hf_batch_add(batch, length);
	give_ticket(store, batch, ticketp);
	return 0;
}

int hf_store_delete_client(struct hf_store *store, struct hf_bytes id, uint64_t *ticketp)
{
	uint8_t *out;
	int r = reserve_small(store, &out, ticketp);

	return out ? add_small(store, hf_record_encode_client_delete(out, id), ticketp) : r;
}

/* Memory holds the new state even if it cannot be written now: a resync writes it later. */
static int put_state(struct hf_store *store, uint64_t *ticketp)
{
	uint8_t *out;
	int r = reserve_small(store, &out, ticketp);

	return out ? add_small(store, hf_record_encode_state(out, &store->state), ticketp) : r;
}

int hf_store_mark_complete(struct hf_store *store, uint64_t *ticketp)
{
	store->state.is_complete = stores_locks(store);
	return put_state(store, ticketp);
}

int hf_store_mark_settled(struct hf_store *store, uint64_t *ticketp)
{
	store->state.is_settled = store->continues && store->state.is_complete;
	return put_state(store, ticketp);
}

int hf_store_raise_state(struct hf_store *store, int32_t *statep, uint64_t *ticketp)
{
	struct hf_store_state before = store->state;
	int r;

	store->state.sm_state = hf_store_next_sm_state(store->state.sm_state);
	store->state.is_settled = false;
	r = put_state(store, ticketp);
	if (r < 0 && r != -EROFS) { /* no resync follows that would write it */
		store->state = before;
		return r;
	}
	*statep = store->state.sm_state;
	return r;
}

/* Tickets */

/* While writes are lost, only tickets that were really written count. */
static uint64_t reached_by(const struct hf_store *store, enum hf_store_kind kind)
{
	const struct hf_store_stream *stream = &store->streams[kind];
	bool is_stored = kind == HF_STORE_LOCKS ? stores_locks(store) : !store->ops->is_volatile;

	if (is_stored && (store->health != HF_STORE_HEALTHY || !hf_store_stream_is_idle(stream)))
		return stream->reached;
	return store->issued;
}

uint64_t hf_store_reached(const struct hf_store *store, enum hf_store_kind kind)
{
	if (HF_LIKELY(kind != HF_STORE_ALL))
		return reached_by(store, kind);
	return HF_MIN(reached_by(store, HF_STORE_CLIENTS), reached_by(store, HF_STORE_LOCKS));
}

bool hf_store_is_gathering(const struct hf_store *store, uint64_t ticket)
{
	const struct hf_store_stream *stream = &store->streams[HF_STORE_LOCKS];
	const struct hf_store_batch *other = &stream->batches[stream->filling == &stream->batches[0]];

	return ticket > (other->is_flying ? other->last_ticket : stream->reached);
}

uint64_t hf_store_last_ticket(const struct hf_store *store)
{
	return store->issued;
}

bool hf_store_is_idle(const struct hf_store *store)
{
	return !store->resync.is_flying && hf_store_stream_is_idle(&store->streams[HF_STORE_CLIENTS]) &&
	       hf_store_stream_is_idle(&store->streams[HF_STORE_LOCKS]);
}
