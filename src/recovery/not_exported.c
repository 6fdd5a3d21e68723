/*
 * What is stored of shares that are not exported now.
 *
 * Those locks and reservations are in no table, since no client can ask for them;
 * but they stay stored, for the day on which their share is exported again. After an
 * outage everything in the store is replaced by what is true now. So they are kept
 * here, as they were loaded, to be written again with the rest.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "recovery/internal.h"

struct kept_lock {
	struct hf_link link;
	struct hf_store_lock fact; /* its bytes are in @room */
	uint8_t room[];
};

struct kept_share {
	struct hf_link link;
	struct hf_store_share fact; /* likewise */
	uint8_t room[];
};

/* Copies @bytes to *roomp, and lets them be there. */
static void move(struct hf_bytes *bytes, uint8_t **roomp)
{
	uint8_t *room = *roomp;

	if (bytes->len)
		memcpy(room, bytes->data, bytes->len);
	*roomp = room + bytes->len;
	*bytes = hf_bytes_of(room, bytes->len);
}

int hf_not_exported_keep_lock(struct hf_recovery *recovery, const struct hf_store_lock *fact)
{
	size_t size = (size_t)fact->share.len + fact->handle.len + fact->client.len + fact->oh.len;
	struct kept_lock *kept = malloc(sizeof(*kept) + size);
	uint8_t *room;

	if (!kept)
		return hf_trace(-ENOMEM);
	kept->fact = *fact;
	room = kept->room;
	move(&kept->fact.share, &room);
	move(&kept->fact.handle, &room);
	move(&kept->fact.client, &room);
	move(&kept->fact.oh, &room);
	hf_list_push_back(&recovery->not_exported.locks, &kept->link);
	return 0;
}

int hf_not_exported_keep_share(struct hf_recovery *recovery, const struct hf_store_share *fact)
{
	struct kept_share *kept = malloc(sizeof(*kept) + fact->blob.len);
	uint8_t *room;

	if (!kept)
		return hf_trace(-ENOMEM);
	kept->fact = *fact;
	room = kept->room;
	move(&kept->fact.blob, &room);
	hf_list_push_back(&recovery->not_exported.shares, &kept->link);
	return 0;
}

void hf_not_exported_resync(struct hf_recovery *recovery)
{
	/* The store knows of its own failures. */
	hf_list_for_each(pos, &recovery->not_exported.locks)
		hf_store_resync_lock(recovery->store, &hf_list_entry(pos, struct kept_lock, link)->fact);
	hf_list_for_each(pos, &recovery->not_exported.shares)
		hf_store_resync_share(recovery->store, &hf_list_entry(pos, struct kept_share, link)->fact);
}

void hf_not_exported_init(struct hf_recovery *recovery)
{
	hf_list_init(&recovery->not_exported.locks);
	hf_list_init(&recovery->not_exported.shares);
}

void hf_not_exported_deinit(struct hf_recovery *recovery)
{
	struct hf_link *link;

	while ((link = hf_list_first(&recovery->not_exported.locks))) {
		hf_link_remove(link);
		free(hf_list_entry(link, struct kept_lock, link));
	}
	while ((link = hf_list_first(&recovery->not_exported.shares))) {
		hf_link_remove(link);
		free(hf_list_entry(link, struct kept_share, link));
	}
}
