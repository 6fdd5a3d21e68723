#include "disk_view.h"

#include <stdlib.h>
#include <string.h>

/* Records */

static bool is_same_key(const struct disk_record *mine, const struct hf_record *other)
{
	switch (other->type) {
	case HF_RECORD_LOCK:
		return mine->type == HF_RECORD_LOCK && mine->id == other->lock.id;
	case HF_RECORD_LOCK_DELETE:
		return mine->type == HF_RECORD_LOCK && mine->id == other->id;
	case HF_RECORD_RESERVATION:
		return mine->type == HF_RECORD_RESERVATION && mine->id == other->reservation.id;
	case HF_RECORD_RESERVATION_DELETE:
		return mine->type == HF_RECORD_RESERVATION && mine->id == other->id;
	case HF_RECORD_WAITER:
		return mine->type == HF_RECORD_WAITER && mine->id == other->waiter.wants.id;
	case HF_RECORD_WAITER_DELETE:
		return mine->type == HF_RECORD_WAITER && mine->id == other->id;
	case HF_RECORD_CLIENT:
		return mine->type == HF_RECORD_CLIENT && hf_bytes_equal(disk_name(mine), other->client.id);
	case HF_RECORD_CLIENT_DELETE:
		return mine->type == HF_RECORD_CLIENT && hf_bytes_equal(disk_name(mine), other->name);
	default:
		return false;
	}
}

/* The key is read once. */
static void note_key(struct disk_record *mine, const struct hf_record *record)
{
	mine->id = 0;
	mine->name_at = mine->name_len = 0;
	switch (record->type) {
	case HF_RECORD_LOCK:
		mine->id = record->lock.id;
		break;
	case HF_RECORD_RESERVATION:
		mine->id = record->reservation.id;
		break;
	case HF_RECORD_WAITER:
		mine->id = record->waiter.wants.id;
		break;
	case HF_RECORD_CLIENT:
		mine->name_at = (uint16_t)(HF_RECORD_HEADER + (record->client.id.data - record->body.data));
		mine->name_len = (uint16_t)record->client.id.len;
		break;
	default:
		break;
	}
}

static void take_out(struct disk_view *view, const struct hf_record *record)
{
	for (uint32_t i = 0; i < view->n; i++) {
		if (!is_same_key(&view->records[i], record))
			continue;
		memmove(&view->records[i], &view->records[i + 1],
			(view->n - i - 1) * sizeof(view->records[0]));
		view->n--;
		return;
	}
}

static void put_in(struct disk_view *view, const struct hf_record *record)
{
	struct disk_record *mine = &view->records[view->n];

	if (view->n == DISK_RECORDS || record->body.len + HF_RECORD_HEADER > DISK_BYTES)
		abort();
	mine->type = (uint8_t)record->type;
	mine->len = (uint16_t)(record->body.len + HF_RECORD_HEADER);
	memcpy(mine->bytes + HF_RECORD_HEADER, record->body.data, record->body.len);
	note_key(mine, record);
	view->n++;
}

bool disk_record_read(const struct disk_record *mine, enum hf_record_type type, struct hf_record *record)
{
	return mine->type == type &&
	       hf_record_decode(record, type,
				hf_bytes_of(mine->bytes + HF_RECORD_HEADER,
					    (uint32_t)(mine->len - HF_RECORD_HEADER))) == 0;
}

/* Views */

void disk_view_init(struct disk_view *view)
{
	memset(view, 0, offsetof(struct disk_view, records));
}

void disk_view_copy(struct disk_view *view, const struct disk_view *from)
{
	uint64_t version = view->version + 1;

	memcpy(view, from, offsetof(struct disk_view, records) + from->n * sizeof(from->records[0]));
	view->version = version;
}

void disk_view_apply(struct disk_view *view, struct hf_bytes batch, enum hf_store_kind kind)
{
	struct hf_record record;
	int r;

	view->version++;
	if (kind == HF_STORE_ALL)
		view->n = 0;
	while ((r = hf_record_next(&record, &batch)) > 0) {
		switch (record.type) {
		case HF_RECORD_STATE:
			view->state = record.state;
			view->has_state = true;
			break;
		case HF_RECORD_LOCK:
		case HF_RECORD_RESERVATION:
		case HF_RECORD_WAITER:
		case HF_RECORD_CLIENT:
			take_out(view, &record);
			put_in(view, &record);
			break;
		default:
			take_out(view, &record);
			break;
		}
	}
	if (r < 0)
		abort();
}

static void drop_locks_of(struct disk_view *view)
{
	uint32_t n = 0;

	view->version++;
	for (uint32_t i = 0; i < view->n; i++)
		if (view->records[i].type == HF_RECORD_CLIENT)
			view->records[n++] = view->records[i];
	view->n = n;
}

void disk_view_save_state(struct disk_view *view, const struct hf_store_state *state, bool drop_locks)
{
	view->state = *state;
	view->has_state = true;
	if (drop_locks)
		drop_locks_of(view);
}

/* The place of the record of @type with the smallest id above @id; view->n: there is none. */
static uint32_t next_by_id(const struct disk_view *view, enum hf_record_type type, uint64_t id)
{
	uint32_t found = view->n;

	for (uint32_t i = 0; i < view->n; i++) {
		const struct disk_record *mine = &view->records[i];

		if (mine->type == type && mine->id > id &&
		    (found == view->n || mine->id < view->records[found].id))
			found = i;
	}
	return found;
}

static int load_by_id(const struct disk_view *view, enum hf_record_type type,
		      int (*fn)(void *user, const struct hf_record *record), void *user)
{
	struct hf_record record;
	uint64_t id = 0;
	uint32_t i;
	int r = 0;

	while (r == 0 && (i = next_by_id(view, type, id)) < view->n) {
		id = view->records[i].id;
		if (disk_record_read(&view->records[i], type, &record))
			r = fn(user, &record);
	}
	return r;
}

int disk_view_load(const struct disk_view *view, enum hf_record_type type,
		   int (*fn)(void *user, const struct hf_record *record), void *user)
{
	struct hf_record record;
	int r = 0;

	if (type == HF_RECORD_WAITER)
		return load_by_id(view, type, fn, user);
	for (uint32_t i = 0; i < view->n && r == 0; i++)
		if (disk_record_read(&view->records[i], type, &record))
			r = fn(user, &record);
	return r;
}
