/*
 * Reclaims that come after grace.
 *
 * A client whose reclaim is refused tells its programs nothing, and goes on with a
 * lock that it does not have. So what was dropped at the end of grace is remembered
 * for a while, until another owner gets something that conflicts with it, or its owner
 * unlocks it. As long as the record is here, no other owner had it since, and its owner
 * may have it back.
 *
 * Locks and reservations have the same records. They differ in who their owner
 * is and in what conflicts. Reservations are counted, so that each comes back once.
 *
 * This costs nothing while nothing is remembered, otherwise one look-up by file for
 * each lock or reservation that is granted.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "recovery/internal.h"

#define MAX_RECORDS  ((size_t)262144)
#define MAX_PER_FILE 1024 /* each grant in the file looks at all of them */

struct late_file {
	struct hf_hash_node node;
	struct hf_list records;
	size_t n;
	uint8_t handle_len;
	uint8_t handle[HF_LOCK_HANDLE_MAX];
};

/* What an owner had, gets or asks for in a file. */
struct item {
	struct hf_lock_client *client;
	uint32_t export;
	bool is_reservation;
	/* A lock */
	uint8_t owner_kind;
	uint8_t mode;
	uint64_t owner_id;
	struct hf_range range;
	/* Reservations */
	struct hf_bytes oh;
	uint32_t count;
	uint8_t access;
	uint8_t deny;
};

struct late {
	struct hf_link in_file;
	struct hf_link by_age;
	struct hf_link in_client;
	struct late_file *file;
	struct hf_client *client; /* a reference */
	uint64_t until;
	struct item what;
	uint8_t oh[];
};

/* Items */

static struct item item_of_lock(const struct hf_lock_target *who, struct hf_range range,
				enum hf_lock_mode mode)
{
	return (struct item){
		.client = who->client,
		.export = who->export,
		.owner_kind = who->owner_kind,
		.mode = (uint8_t)mode,
		.owner_id = who->owner_id,
		.range = range,
	};
}

static struct item item_of_reservation(const struct hf_lock_reservation_view *reservation)
{
	return (struct item){
		.client = reservation->client,
		.export = reservation->export,
		.is_reservation = true,
		.oh = reservation->oh,
		.access = reservation->access,
		.deny = reservation->deny,
	};
}

static bool has_same_owner(const struct item *a, const struct item *b)
{
	if (a->client != b->client || a->is_reservation != b->is_reservation)
		return false;
	if (a->is_reservation)
		return hf_bytes_equal(a->oh, b->oh);
	return a->owner_id == b->owner_id && a->owner_kind == b->owner_kind;
}

static bool conflicts(const struct item *a, const struct item *b)
{
	if (a->is_reservation != b->is_reservation || has_same_owner(a, b))
		return false;
	if (a->is_reservation)
		return (a->access & b->deny) || (a->deny & b->access);
	return (a->mode == HF_LOCK_EXCLUSIVE || b->mode == HF_LOCK_EXCLUSIVE) &&
	       hf_range_overlaps(a->range, b->range);
}

/* Files */

static uint64_t hash_of(const struct hf_recovery *recovery, struct hf_bytes handle)
{
	return hf_siphash(&recovery->key, handle.data, handle.len);
}

static struct late_file *find_file(const struct hf_recovery *recovery, struct hf_bytes handle)
{
	if (!recovery->late_reclaims.n)
		return NULL;
	hf_hash_for_each(node, &recovery->late_reclaims.files, hash_of(recovery, handle)) {
		struct late_file *file = hf_container_of(node, struct late_file, node);

		if (hf_bytes_equal(hf_bytes_of(file->handle, file->handle_len), handle))
			return file;
	}
	return NULL;
}

static struct late_file *get_file(struct hf_recovery *recovery, struct hf_bytes handle)
{
	struct late_file *file = find_file(recovery, handle);

	if (file)
		return file;
	file = calloc(1, sizeof(*file));
	if (!file)
		return NULL;
	assert(handle.len <= sizeof(file->handle));
	hf_list_init(&file->records);
	file->handle_len = (uint8_t)handle.len;
	memcpy(file->handle, handle.data, handle.len);
	hf_hashtable_insert(&recovery->late_reclaims.files, &file->node, hash_of(recovery, handle));
	return file;
}

static void put_file(struct hf_recovery *recovery, struct late_file *file)
{
	if (!hf_list_is_empty(&file->records))
		return;
	hf_hashtable_remove(&recovery->late_reclaims.files, &file->node);
	free(file);
}

/* Records */

/* Its file stays for the caller to put. */
static void forget(struct hf_recovery *recovery, struct late *late)
{
	late->file->n--;
	hf_link_remove(&late->in_file);
	hf_link_remove(&late->by_age);
	hf_link_remove(&late->in_client);
	hf_client_unref(late->client);
	free(late);
	recovery->late_reclaims.n--;
}

static void forget_with_file(struct hf_recovery *recovery, struct late *late)
{
	struct late_file *file = late->file;

	forget(recovery, late);
	put_file(recovery, file);
}

static void remember(struct hf_recovery *recovery, struct hf_bytes handle, const struct item *what)
{
	uint64_t now = hf_loop_now(recovery->loop);
	struct late_file *file;
	struct late *late;

	if (recovery->late_reclaims.n >= MAX_RECORDS || !recovery->options.notify_retry_ns)
		return;
	file = get_file(recovery, handle);
	late = file && file->n < MAX_PER_FILE ? calloc(1, sizeof(*late) + what->oh.len) : NULL;
	if (!late) {
		if (file)
			put_file(recovery, file);
		return; /* its reclaim will be refused, which is safe */
	}
	late->file = file;
	late->client = hf_client_ref(hf_client_of(what->client));
	late->what = *what;
	late->what.oh = hf_bytes_of(late->oh, what->oh.len);
	if (what->oh.len)
		memcpy(late->oh, what->oh.data, what->oh.len);
	late->until = now + recovery->options.notify_retry_ns;
	hf_list_push_back(&file->records, &late->in_file);
	file->n++;
	hf_list_push_back(&recovery->late_reclaims.by_age, &late->by_age);
	hf_list_push_back(&late->client->recovery->late, &late->in_client);
	recovery->late_reclaims.n++;
	if (!hf_timer_is_running(&recovery->late_reclaims.timer))
		hf_timer_start_at(&recovery->late_reclaims.timer, late->until);
}

/* @what was granted: forget the records that conflict with it. */
static void granted(struct hf_recovery *recovery, struct hf_bytes handle, const struct item *what)
{
	struct late_file *file = find_file(recovery, handle);

	if (!file)
		return;
	hf_list_for_each_safe(pos, &file->records) {
		struct late *late = hf_list_entry(pos, struct late, in_file);

		if (conflicts(&late->what, what))
			forget(recovery, late);
	}
	put_file(recovery, file);
}

/* Locks */

void hf_late_reclaim_remember(struct hf_recovery *recovery, const struct hf_lock_view *lock)
{
	const struct item what = item_of_lock(&lock->who, lock->range, lock->mode);

	remember(recovery, lock->who.handle, &what);
}

void hf_late_reclaim_granted(struct hf_recovery *recovery, const struct hf_lock_view *lock)
{
	const struct item what = item_of_lock(&lock->who, lock->range, lock->mode);

	granted(recovery, lock->who.handle, &what);
}

/* The first byte from @pos on that none of this owner's records has in the wanted mode or a stronger one. */
static uint64_t had_until(const struct late_file *file, const struct item *wanted, uint64_t pos, bool *movedp)
{
	*movedp = false;
	hf_list_for_each(link, &file->records) {
		const struct item *had = &hf_list_entry(link, struct late, in_file)->what;

		if (has_same_owner(had, wanted) && had->mode >= wanted->mode && had->range.start <= pos &&
		    had->range.end >= pos) {
			*movedp = true;
			return had->range.end + 1;
		}
	}
	return pos;
}

/* A second record for the end of what @late has. Without room for it the end is forgotten, and its reclaim is
 * refused, which is safe. */
static void split(struct hf_recovery *recovery, struct late *late, uint64_t from)
{
	bool has_room = recovery->late_reclaims.n < MAX_RECORDS && late->file->n < MAX_PER_FILE;
	struct late *rest = has_room ? malloc(sizeof(*rest)) : NULL;

	if (!rest)
		return;
	*rest = *late;
	rest->what.range.start = from;
	rest->what.oh = (struct hf_bytes){ 0 }; /* locks have none here */
	hf_client_ref(rest->client);
	hf_link_insert_before(late->in_file.next, &rest->in_file);
	hf_link_insert_before(late->by_age.next, &rest->by_age);
	hf_link_insert_before(late->in_client.next, &rest->in_client);
	rest->file->n++;
	recovery->late_reclaims.n++;
}

/* The owner gives up a part of what it had, or all of it. */
static void give_up(struct hf_recovery *recovery, struct late *late, struct hf_range range)
{
	struct hf_range *had = &late->what.range;

	if (range.start > had->start && range.end < had->end)
		split(recovery, late, range.end + 1);
	if (range.start > had->start)
		had->end = range.start - 1;
	else if (range.end < had->end)
		had->start = range.end + 1;
	else
		forget(recovery, late);
}

void hf_late_reclaim_unlocked(struct hf_recovery *recovery, const struct hf_lock_target *who,
			      struct hf_range range)
{
	const struct item what = item_of_lock(who, range, HF_LOCK_NONE);
	struct late_file *file = find_file(recovery, who->handle);

	if (!file)
		return;
	hf_list_for_each_safe(pos, &file->records) {
		struct late *late = hf_list_entry(pos, struct late, in_file);

		if (has_same_owner(&late->what, &what) && hf_range_overlaps(late->what.range, range))
			give_up(recovery, late, range);
	}
	put_file(recovery, file);
}

bool hf_late_reclaim_allows(struct hf_recovery *recovery, const struct hf_lock_request *request)
{
	const struct item wanted = item_of_lock(&request->who, request->range, request->mode);
	const struct late_file *file = wanted.client ? find_file(recovery, request->who.handle) : NULL;
	uint64_t pos = request->range.start;
	bool moved = file != NULL;

	while (moved && pos <= request->range.end)
		pos = had_until(file, &wanted, pos, &moved);
	return moved;
}

/* Reservations */

void hf_late_reclaim_remember_reservations(struct hf_recovery *recovery,
					   const struct hf_lock_reservation_view *reservations, uint32_t n)
{
	struct item what = item_of_reservation(reservations);

	what.count = n;
	remember(recovery, reservations->handle, &what);
}

static struct late *find_reservation(struct hf_recovery *recovery,
				     const struct hf_lock_reservation_view *reservation)
{
	const struct item wanted = item_of_reservation(reservation);
	const struct late_file *file = find_file(recovery, reservation->handle);

	if (!file)
		return NULL;
	hf_list_for_each(link, &file->records) {
		struct late *late = hf_list_entry(link, struct late, in_file);

		if (has_same_owner(&late->what, &wanted) && late->what.access == wanted.access &&
		    late->what.deny == wanted.deny)
			return late;
	}
	return NULL;
}

void hf_late_reclaim_reservation_granted(struct hf_recovery *recovery,
					 const struct hf_lock_reservation_view *reservation)
{
	const struct item what = item_of_reservation(reservation);

	granted(recovery, reservation->handle, &what);
	if (reservation->is_reclaim)
		hf_late_reclaim_take_reservation(recovery, reservation);
}

bool hf_late_reclaim_allows_reservation(struct hf_recovery *recovery,
					const struct hf_lock_reservation_view *reservation)
{
	return find_reservation(recovery, reservation) != NULL;
}

bool hf_late_reclaim_take_reservation(struct hf_recovery *recovery,
				      const struct hf_lock_reservation_view *reservation)
{
	struct late *late = find_reservation(recovery, reservation);

	if (!late)
		return false;
	if (--late->what.count == 0)
		forget_with_file(recovery, late);
	return true;
}

void hf_late_reclaim_show_exports(const struct hf_recovery *recovery,
				  void (*fn)(void *context, uint32_t export), void *context)
{
	hf_list_for_each(link, &recovery->late_reclaims.by_age)
		fn(context, hf_list_entry(link, const struct late, by_age)->what.export);
}

/* Making and freeing */

/* The caller has a reference to @client. */
void hf_late_reclaim_forget(struct hf_recovery *recovery, struct hf_client *client)
{
	struct hf_link *link;

	while ((link = hf_list_first(&client->recovery->late)))
		forget_with_file(recovery, hf_list_entry(link, struct late, in_client));
}

static void on_timer(struct hf_timer *timer)
{
	struct hf_recovery *recovery = hf_container_of(timer, struct hf_recovery, late_reclaims.timer);
	uint64_t now = hf_loop_now(recovery->loop);
	struct hf_link *link;

	while ((link = hf_list_first(&recovery->late_reclaims.by_age))) {
		struct late *late = hf_list_entry(link, struct late, by_age);

		if (late->until > now) {
			hf_timer_start_at(timer, late->until);
			return;
		}
		forget_with_file(recovery, late);
	}
}

int hf_late_reclaim_init(struct hf_recovery *recovery)
{
	hf_list_init(&recovery->late_reclaims.by_age);
	hf_timer_init(&recovery->late_reclaims.timer, recovery->loop, on_timer);
	return hf_trace(hf_hashtable_init(&recovery->late_reclaims.files));
}

void hf_late_reclaim_deinit(struct hf_recovery *recovery)
{
	struct hf_link *link;

	while ((link = hf_list_first(&recovery->late_reclaims.by_age)))
		forget_with_file(recovery, hf_list_entry(link, struct late, by_age));
	hf_timer_stop(&recovery->late_reclaims.timer);
	hf_hashtable_deinit(&recovery->late_reclaims.files);
}
