/*
 * Reservations (DOS deny modes): may this owner open the file so?
 *
 * The owner of a reservation is a client and an oh. Windows opens a file several
 * times with one oh and closes it as often, so reservations are counted: one record stands for all of an
 * owner's with the same access and deny, at most 16 for an owner in a file. The owner's own reservations
 * never conflict with one another. Reservations affect neither locks nor reading
 * and writing.
 *
 * After a restart of the server a record has two numbers: those that the owner holds
 * (count), and those that were restored and wait to be reclaimed (n_unreclaimed).
 * Both conflict with other owners. A record exists while their sum is not 0.
 *
 * A file may have tens of thousands of records, all of one client's making, so no
 * request walks through them: records are found by a hash, and the file has the sums
 * of what they access and deny. What is not the owner's own of a sum is of others.
 */
#include "lock/internal.h"

#include <string.h>

#include "base/error.h"

static bool is_owned_by(const struct hf_lock_reservation *reservation, const struct hf_lock_target *who)
{
	return reservation->client == who->client && hf_bytes_equal(hf_oh_bytes(&reservation->oh), who->oh);
}

static uint64_t hash_of(const struct hf_locks *locks, const struct hf_lock_file *file,
			const struct hf_lock_target *who)
{
	const uint64_t parts[] = { file->id, who->client->id,
				   hf_siphash(&locks->key, who->oh.data, who->oh.len) };

	return hf_siphash(&locks->key, parts, sizeof(parts));
}

static struct hf_lock_reservation *reservation_of(struct hf_hash_node *node)
{
	return hf_container_of(node, struct hf_lock_reservation, node);
}

static struct hf_lock_reservation *find(const struct hf_locks *locks, const struct hf_lock_file *file,
					const struct hf_lock_target *who, uint8_t access, uint8_t deny)
{
	if (!file || !file->n_reservation_records)
		return NULL;
	hf_hash_for_each(node, &locks->reservations, hash_of(locks, file, who)) {
		struct hf_lock_reservation *reservation = reservation_of(node);

		if (reservation->access == access && reservation->deny == deny && reservation->file == file &&
		    is_owned_by(reservation, who))
			return reservation;
	}
	return NULL;
}

static struct hf_lock_reservation *
find_by_handle(const struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access, uint8_t deny)
{
	assert(access < 4 && deny < 4);
	return find(locks, hf_lock_file_of(locks, who->handle), who, access, deny);
}

/* How many reservations this is in the sums of its file. */
static uint32_t weight(const struct hf_lock_reservation *reservation)
{
	return reservation->count + reservation->n_unreclaimed;
}

/* What the owner's own reservations add to the sums of the file, and their state number. */
struct own {
	uint32_t n_access[2], n_deny[2];
	uint32_t state;
};

static struct own sum_own(const struct hf_locks *locks, const struct hf_lock_file *file,
			  const struct hf_lock_target *who)
{
	struct own own = { 0 };

	if (!file || !file->n_reservation_records)
		return own;
	hf_hash_for_each(node, &locks->reservations, hash_of(locks, file, who)) {
		const struct hf_lock_reservation *reservation = reservation_of(node);

		if (reservation->file != file || !is_owned_by(reservation, who))
			continue;
		own.state = reservation->state;
		for (unsigned int i = 0; i < 2; i++) {
			own.n_access[i] += reservation->access >> i & 1 ? weight(reservation) : 0;
			own.n_deny[i] += reservation->deny >> i & 1 ? weight(reservation) : 0;
		}
	}
	return own;
}

static bool conflicts_with_others(const struct hf_lock_file *file, const struct own *own, uint8_t access,
				  uint8_t deny)
{
	for (unsigned int i = 0; file && i < 2; i++) {
		if ((access >> i & 1) && file->n_deny[i] > own->n_deny[i])
			return true;
		if ((deny >> i & 1) && file->n_access[i] > own->n_access[i])
			return true;
	}
	return false;
}

/* Is @reservation before the position (@client, @seq) in locks->reservation_order? */
static bool is_before(const struct hf_lock_reservation *reservation, uint64_t client, uint64_t seq)
{
	return reservation->client->id < client ||
	       (reservation->client->id == client && reservation->seq < seq);
}

static struct hf_lock_reservation *ordered_of(struct hf_rb_node *node)
{
	return node ? hf_rb_entry(node, struct hf_lock_reservation, in_order) : NULL;
}

static void put_in_order(struct hf_locks *locks, struct hf_lock_reservation *reservation)
{
	struct hf_rb_node **link = &locks->reservation_order.root, *parent = NULL;

	reservation->seq = ++locks->last_reservation;
	while (*link) {
		parent = *link;
		link = is_before(ordered_of(parent), reservation->client->id, reservation->seq)
			       ? &parent->right
			       : &parent->left;
	}
	hf_rb_insert(&locks->reservation_order, &reservation->in_order, parent, link, NULL);
}

static struct hf_lock_reservation *make(struct hf_locks *locks, struct hf_lock_file *file,
					const struct hf_lock_target *who, uint8_t access, uint8_t deny)
{
	struct hf_lock_reservation *reservation = hf_pool_take(&locks->reservation_pool);

	memset(reservation, 0, sizeof(*reservation));
	reservation->file = file;
	reservation->export = who->export;
	reservation->client = who->client;
	reservation->access = access;
	reservation->deny = deny;
	hf_oh_set(locks, who->client, &reservation->oh, who->oh);
	hf_room_use(locks, who->client, HF_COST_RESERVATION);
	hf_link_init(&reservation->unreclaimed);
	hf_list_push_back(&file->reservations, &reservation->in_file);
	hf_list_push_back(&who->client->reservations, &reservation->in_client);
	hf_hashtable_insert(&locks->reservations, &reservation->node, hash_of(locks, file, who));
	put_in_order(locks, reservation);
	file->n_reservation_records++;
	return reservation;
}

/* Adds @n to the sums of the file. @n may stand for a negative number. */
static void add_to_sums(struct hf_lock_reservation *reservation, uint32_t n)
{
	for (unsigned int i = 0; i < 2; i++) {
		reservation->file->n_access[i] += reservation->access >> i & 1 ? n : 0;
		reservation->file->n_deny[i] += reservation->deny >> i & 1 ? n : 0;
	}
}

static void count(struct hf_locks *locks, struct hf_lock_reservation *reservation, uint32_t n)
{
	reservation->count += n;
	reservation->n_unsure = HF_MIN(reservation->n_unsure, reservation->count);
	reservation->file->n_reservations += n;
	hf_crowd_note(locks, reservation->file);
	reservation->client->n_reservations += n;
	reservation->client->group->n_reservations += n;
	locks->n.reservations += (uint64_t)(int64_t)(int32_t)n;
	add_to_sums(reservation, n);
}

static void count_unreclaimed(struct hf_locks *locks, struct hf_lock_reservation *reservation, uint32_t n)
{
	if (!reservation->n_unreclaimed) {
		hf_list_push_back(&locks->unreclaimed_reservations, &reservation->unreclaimed);
		locks->n.unreclaimed_reservations++;
		locks->n.outliving += reservation->client->outlives_grace;
	}
	reservation->n_unreclaimed += n;
	add_to_sums(reservation, n);
	if (!reservation->n_unreclaimed) {
		hf_link_remove(&reservation->unreclaimed);
		locks->n.unreclaimed_reservations--;
		locks->n.outliving -= reservation->client->outlives_grace;
	}
}

/* Frees @reservation if it stands for nothing, and then its file if nothing else refers to it. */
static void free_if_empty(struct hf_locks *locks, struct hf_lock_reservation *reservation)
{
	struct hf_lock_file *file = reservation->file;

	if (weight(reservation))
		return;
	hf_hashtable_remove(&locks->reservations, &reservation->node);
	hf_rb_erase(&locks->reservation_order, &reservation->in_order, NULL);
	hf_link_remove(&reservation->in_file);
	hf_link_remove(&reservation->in_client);
	hf_oh_deinit(locks, reservation->client, &reservation->oh);
	hf_room_use(locks, reservation->client, -(int64_t)HF_COST_RESERVATION);
	hf_pool_give(&locks->reservation_pool, reservation);
	file->n_reservation_records--;
	hf_lock_file_free_if_unused(locks, file);
}

static int reserve(struct hf_locks *locks, const struct hf_lock_target *who, const struct hf_lock_file *file,
		   const struct hf_lock_reservation *reservation)
{
	int r = 0;

	if (!reservation)
		r = hf_pool_reserve(&locks->reservation_pool, 1);
	if (!r && !reservation)
		r = hf_oh_reserve(locks, who->oh);
	if (!r && !file)
		r = hf_pool_reserve(&locks->file_pool, 1);
	return r;
}

/* The owner has one state number: that of its last request that had one. */
static void set_state(struct hf_locks *locks, const struct hf_lock_file *file,
		      const struct hf_lock_target *who, uint32_t state)
{
	hf_hash_for_each(node, &locks->reservations, hash_of(locks, file, who)) {
		struct hf_lock_reservation *reservation = reservation_of(node);

		if (reservation->file == file && is_owned_by(reservation, who))
			reservation->state = state;
	}
}

/* A reclaim takes one that waits for it; a repeated reclaim finds what the one before it took. */
static void take(struct hf_locks *locks, struct hf_lock_reservation *reservation, bool reclaim)
{
	if (reclaim && reservation->n_unsure) {
		reservation->n_unsure--;
		return;
	}
	if (reclaim && reservation->n_unreclaimed)
		count_unreclaimed(locks, reservation, UINT32_MAX);
	count(locks, reservation, 1);
	hf_emit_reservation_added(locks, reservation, reclaim);
}

/* Did a run before this one count the request, and only its reply was lost? */
static bool is_repeated(const struct hf_lock_reservation *reservation, uint64_t mark)
{
	return reservation && mark && reservation->is_restored && reservation->mark == mark;
}

static void set_mark(struct hf_lock_reservation *reservation, uint64_t mark)
{
	reservation->mark = mark;
	reservation->is_restored = false;
}

int hf_lock_reserve(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access, uint8_t deny,
		    uint32_t client_state, bool reclaim)
{
	return hf_lock_reserve_once(locks, who, access, deny, client_state, reclaim, 0);
}

int hf_lock_reserve_once(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			 uint8_t deny, uint32_t client_state, bool reclaim, uint64_t mark)
{
	uint64_t hash = hf_lock_file_hash(locks, who->handle);
	struct hf_lock_file *file;
	struct hf_lock_reservation *reservation;
	struct own own;
	bool is_counted;
	int r;

	assert(!locks->in_event && access < 4 && deny < 4 && who->client->id &&
	       who->oh.len <= HF_LOCK_OH_MAX);
	if (locks->is_grace && !reclaim)
		return HF_LOCK_E_GRACE;
	file = hf_lock_file_find(locks, hash, who->handle);
	reservation = find(locks, file, who, access, deny);
	if (is_repeated(reservation, mark))
		return HF_LOCK_OK;
	own = sum_own(locks, file, who);
	if (conflicts_with_others(file, &own, access, deny))
		return HF_LOCK_E_CONFLICT;
	/* What was restored is counted already. */
	is_counted = reclaim && reservation && (reservation->n_unreclaimed || reservation->n_unsure);
	if (!is_counted && !hf_room_for_reservation(locks, file, who, !reservation, reclaim))
		return hf_room_refuse(locks, file, who, HF_ROOM_TO_RESERVE, 1);
	r = reserve(locks, who, file, reservation);
	if (r < 0)
		return hf_trace(r);
	if (!file)
		file = hf_lock_file_make(locks, hash, who->handle);
	if (!reservation)
		reservation = make(locks, file, who, access, deny);
	set_state(locks, file, who, client_state ? client_state : own.state);
	set_mark(reservation, mark);
	take(locks, reservation, reclaim);
	return HF_LOCK_OK;
}

int hf_lock_unreserve(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access, uint8_t deny)
{
	return hf_lock_unreserve_once(locks, who, access, deny, 0);
}

int hf_lock_unreserve_once(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			   uint8_t deny, uint64_t mark)
{
	struct hf_lock_reservation *reservation = find_by_handle(locks, who, access, deny);

	assert(!locks->in_event);
	if (!reservation || is_repeated(reservation, mark))
		return HF_LOCK_OK;
	set_mark(reservation, mark);
	if (reservation->count)
		count(locks, reservation, UINT32_MAX);
	else
		count_unreclaimed(locks, reservation, UINT32_MAX);
	hf_emit_reservation_removed(locks, reservation, 1, HF_LOCK_CAUSE_REQUEST);
	free_if_empty(locks, reservation);
	return HF_LOCK_OK;
}

/* While there is a record, the owner has one more of the same: none that conflicts can have come. Without a
 * record, the next release finds nothing. */
void hf_lock_undo_unreserve(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			    uint8_t deny)
{
	struct hf_lock_reservation *reservation = find_by_handle(locks, who, access, deny);

	assert(!locks->in_event);
	if (!reservation)
		return;
	set_mark(reservation, 0);
	count(locks, reservation, 1);
	hf_emit_reservation_added(locks, reservation, false);
}

bool hf_lock_find_reservation(const struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			      uint8_t deny, struct hf_lock_reservation_view *viewp)
{
	const struct hf_lock_reservation *reservation = find_by_handle(locks, who, access, deny);

	if (reservation)
		hf_view_reservation(reservation, viewp);
	return reservation != NULL;
}

bool hf_lock_has_reservations_but(const struct hf_locks *locks, const struct hf_lock_target *who,
				  uint32_t client_state)
{
	const struct hf_lock_file *file = hf_lock_file_of(locks, who->handle);

	if (!file || !file->n_reservation_records)
		return false;
	hf_hash_for_each(node, &locks->reservations, hash_of(locks, file, who)) {
		const struct hf_lock_reservation *reservation = reservation_of(node);

		if (reservation->file == file && reservation->state != client_state &&
		    is_owned_by(reservation, who))
			return true;
	}
	return false;
}

uint32_t hf_lock_count_reservations(const struct hf_locks *locks, const struct hf_lock_target *who,
				    uint8_t access, uint8_t deny)
{
	const struct hf_lock_reservation *reservation = find_by_handle(locks, who, access, deny);

	return reservation ? reservation->count : 0;
}

/* RESTART */

int hf_lock_restore_reservation(struct hf_locks *locks, const struct hf_lock_reservation_view *view)
{
	const struct hf_lock_target who = {
		.export = view->export, .handle = view->handle, .client = view->client, .oh = view->oh
	};
	uint64_t hash = hf_lock_file_hash(locks, view->handle);
	struct hf_lock_file *file = hf_lock_file_find(locks, hash, view->handle);
	const struct own own = sum_own(locks, file, &who);
	struct hf_lock_reservation *reservation;
	int r;

	assert(!locks->in_event && view->access < 4 && view->deny < 4 && view->count);
	if (find(locks, file, &who, view->access, view->deny) ||
	    conflicts_with_others(file, &own, view->access, view->deny))
		return HF_LOCK_E_CONFLICT;
	r = reserve(locks, &who, file, NULL);
	if (r < 0)
		return hf_trace(r);
	if (!file)
		file = hf_lock_file_make(locks, hash, view->handle);
	reservation = make(locks, file, &who, view->access, view->deny);
	reservation->state = view->client_state;
	reservation->tag = view->tag;
	reservation->mark = view->mark;
	reservation->is_restored = true;
	count_unreclaimed(locks, reservation, view->count);
	return HF_LOCK_OK;
}

static bool drop_if_older(struct hf_locks *locks, struct hf_lock_reservation *reservation, uint64_t tag)
{
	uint32_t n = reservation->n_unreclaimed;

	if (reservation->count || reservation->tag > tag)
		return false;
	count_unreclaimed(locks, reservation, -n);
	hf_emit_reservation_removed(locks, reservation, n, HF_LOCK_CAUSE_REQUEST);
	free_if_empty(locks, reservation);
	return true;
}

/* The file stays for the caller to free. */
static size_t drop_older_of_others(struct hf_locks *locks, struct hf_lock_file *file,
				   const struct hf_lock_target *who,
				   const struct hf_lock_reservation_view *later)
{
	size_t n = 0;

	hf_list_for_each_safe(pos, &file->reservations) {
		struct hf_lock_reservation *other = hf_list_entry(pos, struct hf_lock_reservation, in_file);

		if (!is_owned_by(other, who) &&
		    ((other->access & later->deny) || (other->deny & later->access)))
			n += drop_if_older(locks, other, later->tag);
	}
	return n;
}

/* Only if there is a conflict, this walks through the file's records. */
size_t hf_lock_drop_older_reservations(struct hf_locks *locks, const struct hf_lock_reservation_view *later)
{
	const struct hf_lock_target who = {
		.export = later->export, .handle = later->handle, .client = later->client, .oh = later->oh
	};
	struct hf_lock_file *file = hf_lock_file_of(locks, later->handle);
	struct hf_lock_reservation *same = find(locks, file, &who, later->access, later->deny);
	const struct own own = sum_own(locks, file, &who);
	size_t n = 0;

	if (!file)
		return 0;
	file->n_reservation_records++; /* so that the last of them does not free it */
	if (conflicts_with_others(file, &own, later->access, later->deny))
		n += drop_older_of_others(locks, file, &who, later);
	if (same)
		n += drop_if_older(locks, same, later->tag);
	file->n_reservation_records--;
	hf_lock_file_free_if_unused(locks, file);
	return n;
}

void hf_reservations_accept_restored(struct hf_locks *locks)
{
	hf_list_for_each_safe(pos, &locks->unreclaimed_reservations) {
		struct hf_lock_reservation *reservation =
			hf_list_entry(pos, struct hf_lock_reservation, unreclaimed);
		uint32_t n = reservation->n_unreclaimed;

		if (reservation->client->outlives_grace)
			continue;
		count_unreclaimed(locks, reservation, -n);
		count(locks, reservation, n);
	}
}

void hf_lock_doubt_reservation(struct hf_locks *locks, const struct hf_lock_target *who, uint8_t access,
			       uint8_t deny)
{
	struct hf_lock_reservation *reservation = find_by_handle(locks, who, access, deny);

	if (reservation && reservation->n_unsure < reservation->count)
		reservation->n_unsure++;
}

static void drop(struct hf_locks *locks, struct hf_lock_reservation *reservation)
{
	uint32_t n = reservation->n_unreclaimed;

	count_unreclaimed(locks, reservation, -n);
	hf_emit_reservation_removed(locks, reservation, n, HF_LOCK_CAUSE_EXPIRY);
	free_if_empty(locks, reservation);
}

void hf_reservations_drop_unreclaimed(struct hf_locks *locks, struct hf_lock_client *client)
{
	if (client) {
		hf_list_for_each_safe(pos, &client->reservations) {
			struct hf_lock_reservation *reservation =
				hf_list_entry(pos, struct hf_lock_reservation, in_client);

			if (reservation->n_unreclaimed)
				drop(locks, reservation);
		}
		return;
	}
	hf_list_for_each_safe(pos, &locks->unreclaimed_reservations) {
		struct hf_lock_reservation *reservation =
			hf_list_entry(pos, struct hf_lock_reservation, unreclaimed);

		if (!reservation->client->outlives_grace)
			drop(locks, reservation);
	}
}

/* CRASH */

static void purge_reservation(struct hf_locks *locks, struct hf_lock_reservation *reservation)
{
	uint32_t n = weight(reservation);

	count(locks, reservation, -reservation->count);
	if (reservation->n_unreclaimed)
		count_unreclaimed(locks, reservation, -reservation->n_unreclaimed);
	hf_emit_reservation_removed(locks, reservation, n, HF_LOCK_CAUSE_CRASH);
	free_if_empty(locks, reservation);
}

void hf_reservations_purge(const struct hf_purge *purge, struct hf_lock_client *client)
{
	hf_list_for_each_safe(pos, &client->reservations) {
		struct hf_lock_reservation *reservation =
			hf_list_entry(pos, struct hf_lock_reservation, in_client);

		if (hf_purge_is_dead(purge, reservation->state))
			purge_reservation(purge->locks, reservation);
	}
}

/* WALK */

/* The first record at the position (@client, @seq) or behind it. */
static struct hf_lock_reservation *first_from(const struct hf_locks *locks, uint64_t client, uint64_t seq)
{
	struct hf_rb_node *node = locks->reservation_order.root, *found = NULL;

	while (node) {
		bool is_early = is_before(ordered_of(node), client, seq);

		if (!is_early)
			found = node;
		node = is_early ? node->right : node->left;
	}
	return ordered_of(found);
}

bool hf_lock_next_reservation(const struct hf_locks *locks, const struct hf_lock_client *client,
			      struct hf_lock_cursor *cursor, struct hf_lock_reservation_view *viewp)
{
	struct hf_lock_reservation *next;

	if (client && cursor->owner != client->id)
		*cursor = (struct hf_lock_cursor){ .owner = client->id };
	next = first_from(locks, cursor->owner, cursor->id + 1);
	if (!next || (client && next->client != client))
		return false;
	cursor->owner = next->client->id;
	cursor->id = next->seq;
	hf_view_reservation(next, viewp);
	return true;
}

void hf_lock_tag_all_reservations(struct hf_locks *locks,
				  uint64_t (*fn)(void *context,
						 const struct hf_lock_reservation_view *reservation),
				  void *context)
{
	struct hf_lock_reservation_view view;

	locks->in_event = true;
	for (struct hf_rb_node *node = hf_rb_first(&locks->by_id); node; node = hf_rb_next(node)) {
		hf_list_for_each(pos, &hf_rb_entry(node, struct hf_lock_file, by_id)->reservations) {
			struct hf_lock_reservation *reservation =
				hf_list_entry(pos, struct hf_lock_reservation, in_file);

			hf_view_reservation(reservation, &view);
			reservation->tag = fn(context, &view);
		}
	}
	locks->in_event = false;
}
