/* What is on the disk: registrations, locks, reservations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "sim.h"
#include "store/backend.h"
#include "store/record.h"

static bool is_client(const struct disk_record *record, struct hf_bytes id)
{
	return record->type == HF_RECORD_CLIENT && hf_bytes_equal(disk_name(record), id);
}

static bool get_client(const struct disk_record *record, struct hf_store_client *clientp)
{
	struct hf_record found;

	if (!disk_record_read(record, HF_RECORD_CLIENT, &found))
		return false;
	*clientp = found.client;
	return true;
}

static bool find_client(const struct world *world, const char *id, struct hf_store_client *clientp)
{
	const struct disk_view *view = &world->disk.synced;

	for (uint32_t i = 0; i < view->n; i++)
		if (is_client(&view->records[i], hf_bytes_of_str(id)))
			return get_client(&view->records[i], clientp);
	return false;
}

bool disk_has_client(const struct world *world, const char *id)
{
	const struct disk_view *view = &world->disk.synced;
	struct hf_bytes name = hf_bytes_of_str(id);

	for (uint32_t i = 0; i < view->n; i++)
		if (is_client(&view->records[i], name))
			return true;
	return false;
}

bool disk_get_state_of(const struct world *world, const char *id, int32_t *statep)
{
	struct hf_store_client client;

	if (!find_client(world, id, &client))
		return false;
	*statep = client.is_state_unproven ? 0 : client.sm_state;
	return true;
}

bool disk_has_number(const struct world *world, const char *id, int32_t state)
{
	struct hf_store_client client;

	return find_client(world, id, &client) && client.sm_state == state;
}

const struct disk_view *disk_promised(const struct world *world)
{
	return world->server->durability == HF_STORE_MACHINE ? &world->disk.synced : &world->disk.cached;
}

static bool is_at(struct hf_bytes client, const struct host *host)
{
	char prefix[HF_ADDR_TEXT + 8], text[HF_ADDR_TEXT];
	int n = snprintf(prefix, sizeof(prefix), "nlm:%s:", hf_addr_format(&host->addr, text, sizeof(text)));

	return client.len >= (uint32_t)n && memcmp(client.data, prefix, (size_t)n) == 0 &&
	       (!host->is_shared || hf_bytes_equal(hf_bytes_of(client.data + n, client.len - (uint32_t)n),
						   hf_bytes_of_str(host->name)));
}

bool disk_has_client_of(const struct host *host)
{
	const struct disk_view *view = &host->world->disk.synced;

	for (uint32_t i = 0; i < view->n; i++)
		if (view->records[i].type == HF_RECORD_CLIENT && is_at(disk_name(&view->records[i]), host))
			return true;
	return false;
}

/* A reservation is a blob to the store; src/recovery/reservation.c says what is in it. */
struct stored_reservation {
	uint8_t access, deny;
	uint32_t count;
	struct hf_bytes parts[4]; /* reservation, handle, client, oh */
};

static bool read_reservation(struct stored_reservation *out, const struct disk_record *mine)
{
	struct hf_record record;
	struct hf_bytes blob;
	uint32_t at = 18;

	if (!disk_record_read(mine, HF_RECORD_RESERVATION, &record))
		return false;
	blob = record.reservation.blob;
	out->access = blob.data[0];
	out->deny = blob.data[1];
	for (int i = 0; i < 4; i++) {
		out->parts[i] = hf_bytes_of(blob.data + at, blob.data[2 + 2 * i]);
		at += out->parts[i].len;
	}
	out->count = blob.data[10];
	return at == blob.len || at + 8 == blob.len; /* a mark may follow */
}

uint32_t disk_count_reservation(const struct disk_view *view, const struct host *host, uint32_t svid,
				uint8_t file, const struct reservation *reservation)
{
	struct stored_reservation stored;
	uint32_t n = 0;

	for (uint32_t i = 0; i < view->n; i++)
		if (read_reservation(&stored, &view->records[i]) && stored.parts[1].data[0] == file &&
		    stored.access == reservation->access && stored.deny == reservation->deny &&
		    is_at(stored.parts[2], host) && nat_has_oh(host, svid, stored.parts[3]))
			n += stored.count;
	return n;
}

uint32_t disk_count_older(const struct disk_view *view, const struct host *host, struct hf_bytes name)
{
	struct stored_reservation reservation;
	struct hf_record lock;
	char id[96], text[HF_ADDR_TEXT];
	uint32_t n = 0;

	hf_addr_format(&host->addr, text, sizeof(text));
	snprintf(id, sizeof(id), "nlm:%s:%.*s", text, (int)name.len, (const char *)name.data);
	for (uint32_t i = 0; i < view->n; i++) {
		if (disk_record_read(&view->records[i], HF_RECORD_LOCK, &lock))
			n += hf_bytes_equal(lock.lock.client, hf_bytes_of_str(id)) &&
			     lock.lock.owner / 100 < host->life;
		else if (read_reservation(&reservation, &view->records[i]))
			n += hf_bytes_equal(reservation.parts[2], hf_bytes_of_str(id)) &&
			     strtoul((const char *)reservation.parts[3].data, NULL, 10) / 100 < host->life;
	}
	return n;
}

uint32_t disk_count_reservations(const struct world *world, const struct disk_view *view)
{
	struct stored_reservation stored;
	uint32_t n = 0;

	for (uint32_t i = 0; i < view->n; i++)
		if (read_reservation(&stored, &view->records[i]) &&
		    !reload_is_absent(world->server, stored.parts[1].data[0]))
			n += stored.count;
	return n;
}

void disk_read_locks(const struct world *world, const struct disk_view *view, const struct host *host,
		     uint32_t svid, uint8_t has[MAX_FILES][N_UNITS])
{
	memset(has, 0, MAX_FILES * N_UNITS);
	for (uint32_t i = 0; i < view->n; i++) {
		struct hf_record record;
		struct span span;

		if (!disk_record_read(&view->records[i], HF_RECORD_LOCK, &record) ||
		    record.lock.owner != svid || !is_at(record.lock.client, host) ||
		    !span_of_range(&span, (struct hf_range){ record.lock.start, record.lock.end }))
			continue;
		for (int unit = span.first; unit <= span.last; unit++)
			has[record.lock.handle.data[0]][unit] = record.lock.mode;
	}
}

uint32_t disk_count_waiters(const struct world *world)
{
	const struct disk_view *view = &world->disk.cached;
	uint32_t n = 0;

	for (uint32_t i = 0; i < view->n; i++)
		n += view->records[i].type == HF_RECORD_WAITER;
	return n;
}

/* Of waiters whose clients are registered: the others were not told that they wait. */
uint32_t disk_count_promised_waiters(const struct world *world)
{
	const struct disk_view *view = &world->disk.cached;
	struct hf_record record;
	uint32_t n = 0;

	for (uint32_t i = 0; i < view->n; i++) {
		const struct disk_record *mine = &view->records[i];
		bool is_registered = false;

		if (!disk_record_read(mine, HF_RECORD_WAITER, &record))
			continue;
		for (uint32_t j = 0; j < view->n; j++)
			is_registered |= is_client(&view->records[j], record.waiter.wants.client);
		n += is_registered;
	}
	return n;
}

/* A wait, and not a grant that is on its way. */
bool disk_has_wait_of(const struct disk_view *view, const struct proc *proc, const struct span *span)
{
	struct hf_record record;

	for (uint32_t i = 0; i < view->n; i++) {
		const struct hf_store_lock *wants = &record.waiter.wants;
		struct span its;

		if (disk_record_read(&view->records[i], HF_RECORD_WAITER, &record) &&
		    !record.waiter.is_granted && wants->owner == proc->svid && wants->mode == span->mode &&
		    wants->handle.data[0] == span->file && is_at(wants->client, proc->host) &&
		    span_of_range(&its, (struct hf_range){ wants->start, wants->end }) &&
		    its.first == span->first && its.last == span->last)
			return true;
	}
	return false;
}

/* Under any id: a waiter that is passed by another gets a new one. */
bool disk_has_waiter(const struct disk_view *view, const struct hf_lock_view *waiter)
{
	const struct hf_client *client = hf_container_of(waiter->who.client, struct hf_client, locking);
	struct hf_record record;

	for (uint32_t i = 0; i < view->n; i++) {
		const struct hf_store_lock *wants = &record.waiter.wants;

		if (disk_record_read(&view->records[i], HF_RECORD_WAITER, &record) &&
		    wants->owner == waiter->who.owner_id && wants->start == waiter->range.start &&
		    wants->end == waiter->range.end && wants->mode == waiter->mode &&
		    hf_bytes_equal(wants->handle, waiter->who.handle) &&
		    hf_bytes_equal(wants->client, hf_bytes_of_str(client->id)))
			return true;
	}
	return false;
}
