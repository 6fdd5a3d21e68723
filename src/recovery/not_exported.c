/*
 * Stored locks and reservations of exports that are gone.
 *
 * No client can ask for them, so they are in no table. They stay stored until their
 * directory is exported again, at a start or by a reload (restart.c), or their client crashes (crash.c).
 * Their client stays registered: it must hear of the restart that brings them back. After an outage
 * everything in the store is replaced by what is true now: so this file has them as they were loaded, and
 * writes them again with the rest. A load also puts records here that conflict, until it has loaded all
 * others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "recovery/internal.h"

struct record {
	struct hf_link link;
	struct hf_client *client; /* a reference; NULL: it was not registered */
	enum hf_persist_kind kind;
	union { /* its bytes are in @room */
		struct hf_store_lock lock;
		struct hf_store_reservation reservation;
	};
	uint8_t room[];
};

static void count(struct hf_client *client, size_t n)
{
	client->recovery->n_not_exported += n;
	hf_client_pin(client, client->is_pinned); /* its place may be free now, or is not any more */
}

static struct record *record_new(struct hf_recovery *recovery, enum hf_persist_kind kind, size_t room,
				 struct hf_bytes client)
{
	struct record *record = malloc(sizeof(*record) + room);

	if (!record)
		return NULL;
	record->kind = kind;
	record->client = hf_clients_find_id(recovery->clients, client);
	if (record->client)
		count(record->client, 1);
	hf_list_push_back(&recovery->not_exported.records, &record->link);
	return record;
}

static void record_free(struct record *record)
{
	if (record->client)
		count(record->client, (size_t)-1);
	hf_client_unref(record->client);
	free(record);
}

/* Copies @bytes to *roomp, and lets them be there. */
static void move(struct hf_bytes *bytes, uint8_t **roomp)
{
	uint8_t *room = *roomp;

	if (bytes->len)
		memcpy(room, bytes->data, bytes->len);
	*roomp = room + bytes->len;
	*bytes = hf_bytes_of(room, bytes->len);
}

int hf_not_exported_add_lock(struct hf_recovery *recovery, const struct hf_store_lock *fact)
{
	size_t size = (size_t)fact->export.len + fact->handle.len + fact->client.len + fact->oh.len;
	struct record *record = record_new(recovery, HF_PERSIST_LOCK, size, fact->client);
	uint8_t *room;

	if (!record)
		return hf_trace(-ENOMEM);
	record->lock = *fact;
	room = record->room;
	move(&record->lock.export, &room);
	move(&record->lock.handle, &room);
	move(&record->lock.client, &room);
	move(&record->lock.oh, &room);
	return 0;
}

int hf_not_exported_add_reservation(struct hf_recovery *recovery, const struct hf_store_reservation *fact)
{
	struct hf_reservation its = { 0 };
	struct record *record;
	uint8_t *room;

	hf_reservation_decode(&its, fact->blob);
	record = record_new(recovery, HF_PERSIST_RESERVATION, fact->blob.len, its.client);
	if (!record)
		return hf_trace(-ENOMEM);
	record->reservation = *fact;
	room = record->room;
	move(&record->reservation.blob, &room);
	return 0;
}

/* All records of a kind, each of which @fn takes, or not. It may add one again. */
static void take(struct hf_recovery *recovery, enum hf_persist_kind kind,
		 int (*fn)(const struct record *record, void *context), void *context)
{
	struct hf_list *all = &recovery->not_exported.records;
	struct hf_list records = HF_LIST_INIT(records);
	struct hf_link *link;

	hf_list_splice(&records, all);
	while ((link = hf_list_pop_front(&records))) {
		struct record *record = hf_list_entry(link, struct record, link);

		if (record->kind == kind && fn(record, context) == 0)
			record_free(record);
		else
			hf_list_push_back(all, &record->link);
	}
}

struct taking {
	int (*lock)(void *user, const struct hf_store_lock *fact);
	int (*reservation)(void *user, const struct hf_store_reservation *fact);
	void *user;
};

static int take_lock(const struct record *record, void *context)
{
	const struct taking *taking = context;

	return taking->lock(taking->user, &record->lock);
}

static int take_reservation(const struct record *record, void *context)
{
	const struct taking *taking = context;

	return taking->reservation(taking->user, &record->reservation);
}

void hf_not_exported_take_locks(struct hf_recovery *recovery,
				int (*fn)(void *user, const struct hf_store_lock *fact), void *user)
{
	struct taking taking = { .lock = fn, .user = user };

	take(recovery, HF_PERSIST_LOCK, take_lock, &taking);
}

void hf_not_exported_take_reservations(struct hf_recovery *recovery,
				       int (*fn)(void *user, const struct hf_store_reservation *fact),
				       void *user)
{
	struct taking taking = { .reservation = fn, .user = user };

	take(recovery, HF_PERSIST_RESERVATION, take_reservation, &taking);
}

void hf_not_exported_resync(struct hf_recovery *recovery)
{
	/* The store knows of its own failures. */
	hf_list_for_each(pos, &recovery->not_exported.records) {
		const struct record *record = hf_list_entry(pos, struct record, link);

		if (record->kind == HF_PERSIST_LOCK)
			hf_store_resync_lock(recovery->store, &record->lock);
		else
			hf_store_resync_reservation(recovery->store, &record->reservation);
	}
}

void hf_not_exported_init(struct hf_recovery *recovery)
{
	hf_list_init(&recovery->not_exported.records);
}

void hf_not_exported_deinit(struct hf_recovery *recovery)
{
	struct hf_link *link;

	while ((link = hf_list_pop_front(&recovery->not_exported.records)))
		record_free(hf_list_entry(link, struct record, link));
}
