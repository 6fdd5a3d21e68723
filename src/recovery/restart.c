/*
 * A restart: from what is stored to the tables of a running server.
 *
 * Every lock and every reservation that is found is unreclaimed: it conflicts
 * as before, and waits for its owner. Both take the same way:
 *
 *	stored -> loaded, unreclaimed -> reclaimed
 *	       |                      -> dropped at the end of grace, remembered for a late reclaim
 *	       |                      -> purged with its client
 *	       -> of an export that is gone: it stays stored (not_exported.c)
 *	       -> cannot be true (a conflict with a later record, an impossible range): deleted
 *
 * Records conflict when a directory is exported by two names. While it was not exported by
 * the name of one record, another client got the lock by the other name. Of two conflicting
 * locks the one of the later run was granted last, and stays; within one run, the one with
 * the larger id. Where one owner has both, the part of the older lock outside the later one
 * stays, too. A reservation has no epoch, and keeps its id when it is reclaimed. Of two that
 * conflict, the one with the larger id was made last, and stays.
 *
 * A run that goes on where the last one ended (recovery.after_crash) takes the same way
 * and then holds everything without a reclaim. A lock that a waiter has been granted
 * while its client has not answered is not restored, but what the owner had before is:
 * the waiter is granted it again (waiting.c). A run that could go on, but for exports that
 * are gone, starts over: everything waits for its owner.
 *
 * An export that was gone may come back by a reload. In the grace of the start its records take
 * the same way. After grace they are deleted: from now on other clients get locks there, and a record
 * that stayed would be in the way of these after a restart. They are not remembered for a late
 * reclaim: other clients may have had the locks meanwhile by another name of the directory.
 *
 * A handle that this server did not make means that the key or the store was changed:
 * its owner could not reclaim the lock, and another client would get it. Then the
 * server does not start.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/le.h"
#include "base/log.h"
#include "recovery/internal.h"

/* The file of the last record: most others are of the same file, and to compare is cheaper than to make its
 * key. */
enum where {
	EXPORTED,
	NOT_EXPORTED,
	FOREIGN, /* this server did not make its handle */
};

struct record_file {
	enum where where;
	uint32_t export;
	struct hf_bytes key;
	uint8_t key_room[HF_LOCK_HANDLE_MAX];
	uint32_t name_len, handle_len; /* of what is in @room, as stored */
	uint8_t room[HF_STORE_MAX_EXPORT + HF_LOCK_HANDLE_MAX];
};

/* Records whose handles this server did not make, and the first of them. */
struct foreign {
	size_t n;
	struct hf_persist_record first;
};

/* A stored lock that is not in the table yet. */
struct aside {
	uint64_t id;
	uint64_t epoch;
	struct hf_client *client; /* a reference */
	struct hf_range range;
	uint64_t owner;
	uint32_t export;
	int32_t state;
	uint8_t kind;
	uint8_t mode;  /* enum hf_lock_mode, as stored */
	uint8_t prior; /* enum hf_lock_mode */
	uint8_t handle_len;
	uint16_t oh_len;
	uint8_t handle[HF_LOCK_HANDLE_MAX];
	uint8_t oh[HF_LOCK_OH_MAX];
};

struct asides {
	struct aside *all;
	size_t n, room;
};

struct loading {
	struct hf_recovery *recovery;
	struct hf_lock_load *locks;
	struct hf_lock_view view; /* of the last lock */
	struct record_file file;
	struct hf_client *last;          /* a reference: most locks follow another lock of their client */
	struct hf_bytes last_id;         /* its id */
	struct hf_persist_record *wrong; /* to be deleted */
	size_t n_wrong, wrong_room;
	struct asides provisional; /* what owners had before grants that their clients have not answered */
	/* Records that conflict with others, which may be older: they are in not_exported.c until the second
	 * pass loads them. And older ones that were deleted for them. */
	bool is_second_pass;
	int not_loaded; /* -errno of one of them */
	size_t n_conflicting, n_outdated;
	size_t n_conflicting_reservations, n_outdated_reservations;
	struct foreign foreign;
	size_t n_clients, n_locks, n_not_exported, n_unknown, n_reservations;
	size_t n_dropped; /* after grace */
};

/* Does what is loaded go on? What comes later does not: then clients were told to reclaim. */
static bool continues(const struct loading *loading)
{
	return loading->recovery->start.continues && loading->recovery->phase.now == HF_PHASE_LOADING;
}

/* The constant for a stored name, or NULL. */
static const char *find_protocol(struct loading *loading, struct hf_bytes name)
{
	const struct hf_protocol *protocol = hf_protocols_find(loading->recovery, name);

	return protocol ? protocol->rules.name : NULL;
}

/* Clients */

static int restore_client(struct hf_client *client, const struct hf_store_client *fact)
{
	int r = 0;

	client->local = fact->local;
	if (client->local.scope)
		client->local.scope = client->address.scope;
	client->sm_state = fact->sm_state;
	client->is_state_proven = !fact->is_state_unproven;
	client->is_privileged = fact->is_privileged;
	client->recovery->told_state = fact->told_state;
	memcpy(client->priv, fact->priv, sizeof(client->priv));
	if (fact->has_callback)
		r = hf_client_set_callback(client, fact->callback_host, fact->callback_program,
					   fact->callback_version, fact->callback_procedure);
	else if (fact->callback_host.len)
		r = hf_client_restore_other_locals(client, fact->callback_host);
	if (r == 0 && !hf_bytes_equal(fact->mon_name, hf_bytes_of_str(client->name)))
		r = hf_client_set_mon_name(client, fact->mon_name);
	if (r == 0 && fact->is_secured)
		r = hf_client_restore_binding(client, fact->identity);
	if (r == 0)
		r = hf_client_restore(client, fact->registered_at, fact->last_seen);
	return r;
}

/* False: it is empty or too long, or has a NUL. */
static bool copy_id(char text[HF_STORE_MAX_ID + 1], struct hf_bytes id)
{
	if (id.len == 0 || id.len > HF_STORE_MAX_ID || memchr(id.data, '\0', id.len))
		return false;
	memcpy(text, id.data, id.len);
	text[id.len] = '\0';
	return true;
}

static int load_client(void *user, const struct hf_store_client *fact)
{
	struct loading *loading = user;
	const char *protocol = find_protocol(loading, fact->protocol);
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;
	char id[HF_STORE_MAX_ID + 1], quoted[128];
	int r = -EINVAL;

	if (protocol && copy_id(id, fact->id))
		r = hf_clients_get_stored(&client, loading->recovery->clients, protocol, &fact->address, id);
	if (r == -EINVAL) {
		hf_log_warn("left out a stored registration that is not valid", "id=%s",
			    hf_log_quote(quoted, sizeof(quoted), fact->id.data, fact->id.len));
		return 0;
	}
	if (r == 0)
		r = restore_client(client, fact);
	loading->n_clients++;
	return r;
}

/* An address of @len bytes, without its interface, which may not be there. */
static bool parse_address(struct hf_addr *address, const char *text, size_t len)
{
	char bare[HF_ADDR_TEXT];

	len = HF_MIN(len, strcspn(text, "%"));
	if (len >= sizeof(bare))
		return false;
	memcpy(bare, text, len);
	bare[len] = '\0';
	return hf_addr_parse(address, bare);
}

/* The client of a lock that is not registered, as its id names it. An IPv6 address has colons, a host's
 * name as a rule has none: the last colon with an address before it divides. */
static int make_client(struct loading *loading, struct hf_bytes id, struct hf_client **clientp)
{
	char text[HF_STORE_MAX_ID + 1];
	const char *address, *divide, *protocol;
	struct hf_addr parsed;
	int r;

	if (!copy_id(text, id))
		return -EINVAL;
	address = strchr(text, ':');
	if (!address)
		return -EINVAL;
	protocol = find_protocol(loading, hf_bytes_of(text, (uint32_t)(address - text)));
	address++;
	for (divide = text + id.len; protocol && divide > address; divide--) {
		if (*divide != ':' || !parse_address(&parsed, address, (size_t)(divide - address)))
			continue;
		r = hf_clients_get_stored(clientp, loading->recovery->clients, protocol, &parsed, text);
		if (r == 0)
			loading->n_unknown++;
		return r;
	}
	return -EINVAL;
}

static int client_of_lock(struct loading *loading, const struct hf_store_lock *fact,
			  struct hf_client **clientp)
{
	struct hf_client *client = loading->last;
	int r;

	if (!client || !hf_bytes_equal(loading->last_id, fact->client)) {
		client = hf_clients_find_id(loading->recovery->clients, fact->client);
		if (!client) {
			r = make_client(loading, fact->client, &client);
			if (r < 0)
				return r;
			/* It must hear of the server's restart as every client, so it is registered now. Its
			 * next state number tells of a restart, unless it is the one that it took this lock
			 * with. */
			client->sm_state = hf_client_stored_number(fact->client_state);
			client->is_state_proven = true;
			if (!loading->recovery->start.continues)
				client->recovery->told_state = 0;
			hf_client_restore(client, hf_loop_wall(loading->recovery->loop), 0);
		}
		hf_client_unref(loading->last);
		loading->last = client;
		loading->last_id = hf_bytes_of_str(client->id);
	}
	hf_client_note_stored_number(client, fact->client_state);
	*clientp = client;
	return 0;
}

/* Records of both kinds */

static int note_wrong(struct loading *loading, uint64_t id, enum hf_persist_kind kind)
{
	if (loading->n_wrong == loading->wrong_room) {
		size_t room = loading->wrong_room ? 2 * loading->wrong_room : 64;
		struct hf_persist_record *wrong = realloc(loading->wrong, room * sizeof(*wrong));

		if (!wrong)
			return hf_trace(-ENOMEM);
		loading->wrong = wrong;
		loading->wrong_room = room;
	}
	loading->wrong[loading->n_wrong++] = (struct hf_persist_record){ id, kind };
	return 0;
}

static void note_foreign(struct loading *loading, uint64_t id, enum hf_persist_kind kind)
{
	if (loading->foreign.n++ == 0)
		loading->foreign.first = (struct hf_persist_record){ id, kind };
}

static enum where find_export(struct loading *loading, struct hf_bytes name, struct hf_bytes handle)
{
	struct hf_recovery *recovery = loading->recovery;
	struct record_file *file = &loading->file;

	if (!recovery->exports.find(recovery->exports.user, name, &file->export))
		return NOT_EXPORTED;
	file->key = hf_export_names_key_of(recovery, file->export, handle, file->key_room);
	return recovery->exports.key && file->key.len == 0 ? FOREIGN : EXPORTED;
}

/* Sets loading->file. */
static enum where find_file(struct loading *loading, struct hf_bytes name, struct hf_bytes handle)
{
	struct record_file *file = &loading->file;

	if (hf_bytes_equal(hf_bytes_of(file->room, file->name_len), name) &&
	    hf_bytes_equal(hf_bytes_of(file->room + file->name_len, file->handle_len), handle))
		return file->where;
	file->name_len = name.len;
	file->handle_len = handle.len;
	hf_le_put_bytes(hf_le_put_bytes(file->room, name), handle);
	file->where = find_export(loading, name, hf_bytes_of(file->room + name.len, handle.len));
	return file->where;
}

/* Locks */

static bool is_possible(const struct hf_store_lock *fact)
{
	return hf_range_is_valid((struct hf_range){ fact->start, fact->end }) &&
	       fact->export.len <= HF_STORE_MAX_EXPORT && fact->handle.len <= HF_LOCK_HANDLE_MAX &&
	       fact->oh.len <= HF_LOCK_OH_MAX &&
	       (fact->mode == HF_LOCK_SHARED || fact->mode == HF_LOCK_EXCLUSIVE);
}

static const struct hf_lock_view *view_lock(struct loading *loading, const struct hf_store_lock *fact,
					    struct hf_client *client)
{
	struct hf_lock_view *view = &loading->view;

	view->tag = fact->id; /* it is stored already */
	view->who.export = loading->file.export;
	view->who.handle = loading->file.key;
	view->who.client = &client->locking;
	view->who.owner_id = fact->owner;
	view->who.owner_kind = fact->kind;
	/* By halves, as they were decoded just now: to read both at once would wait for the writing. */
	view->who.oh.len = fact->oh.len;
	view->who.oh.data = fact->oh.data;
	view->range = (struct hf_range){ fact->start, fact->end };
	view->mode = (enum hf_lock_mode)fact->mode;
	view->client_state = (uint32_t)hf_client_stored_number(fact->client_state);
	view->epoch = (uint32_t)fact->epoch;
	return view;
}

static int note_aside(struct asides *asides, const struct loading *loading, const struct hf_store_lock *fact,
		      struct hf_client *client)
{
	struct aside *aside;

	if (asides->n == asides->room) {
		size_t room = asides->room ? 2 * asides->room : 16;

		aside = realloc(asides->all, room * sizeof(*aside));
		if (!aside)
			return hf_trace(-ENOMEM);
		asides->all = aside;
		asides->room = room;
	}
	aside = &asides->all[asides->n++];
	*aside = (struct aside){
		.id = fact->id,
		.epoch = fact->epoch,
		.client = hf_client_ref(client),
		.range = { fact->start, fact->end },
		.owner = fact->owner,
		.export = loading->file.export,
		.state = hf_client_stored_number(fact->client_state),
		.kind = fact->kind,
		.mode = fact->mode,
		.prior = fact->flags >> HF_PERSIST_PRIOR_SHIFT & 3,
		.handle_len = (uint8_t)loading->file.key.len,
		.oh_len = (uint16_t)fact->oh.len,
	};
	memcpy(aside->handle, loading->file.key.data, loading->file.key.len);
	if (fact->oh.len)
		memcpy(aside->oh, fact->oh.data, fact->oh.len);
	return 0;
}

static void free_asides(struct asides *asides)
{
	for (size_t i = 0; i < asides->n; i++)
		hf_client_unref(asides->all[i].client);
	free(asides->all);
}

static struct hf_lock_target who_of(const struct aside *aside)
{
	return (struct hf_lock_target){
		.export = aside->export,
		.handle = hf_bytes_of(aside->handle, aside->handle_len),
		.client = &aside->client->locking,
		.owner_id = aside->owner,
		.owner_kind = aside->kind,
		.oh = hf_bytes_of(aside->oh, aside->oh_len),
	};
}

/* What the owner had before the grant is stored anew, and the record of the grant goes: its waiter is granted
 * the lock again within this turn, so that both changes are written together. */
static int restore_prior(struct loading *loading, const struct aside *provisional)
{
	struct hf_recovery *recovery = loading->recovery;
	struct hf_lock_request request = {
		.who = who_of(provisional),
		.range = provisional->range,
		.mode = (enum hf_lock_mode)provisional->prior,
		.client_state = (uint32_t)provisional->state,
		.reclaim = true,
	};
	int r = 0;

	/* Its client may have been told, and no grant in flight would give it the lock again: the owner has
	 * it. */
	if (!hf_waiting_has_grant(recovery, &request.who, provisional->range)) {
		hf_log_warn("a stored lock belongs to a grant that is not stored: its owner has the lock",
			    "id=%llu", (unsigned long long)provisional->id);
		request.mode = (enum hf_lock_mode)provisional->mode;
	}
	if (request.mode)
		r = hf_lock_acquire(recovery->locks, &request, NULL);
	if (r < 0)
		return hf_trace(r);
	if (r > 0)
		hf_log_warn("a stored lock conflicts with others, and is deleted", "id=%llu",
			    (unsigned long long)provisional->id);
	return hf_persist_delete(recovery, (struct hf_persist_record){ provisional->id, HF_PERSIST_LOCK });
}

/* A waiter whose client is not registered. Without the client the waiter would be deleted, and its number
 * forgotten: killed before that is stored, the next run would find the waiter again, with the client that
 * registered after its own restart. */
static int find_client_of_waiter(void *user, const struct hf_store_lock *wants)
{
	struct loading *loading = user;
	struct hf_client *client;
	int r;

	if (!is_possible(wants) || find_file(loading, wants->export, wants->handle) != EXPORTED)
		return 0;
	r = client_of_lock(loading, wants, &client);
	return r == -EINVAL ? 0 : r;
}

static int accept_restored(struct loading *loading)
{
	int r = 0;

	hf_lock_accept_restored(loading->recovery->locks);
	for (size_t i = 0; r == 0 && i < loading->provisional.n; i++)
		r = restore_prior(loading, &loading->provisional.all[i]);
	if (r == 0)
		r = hf_waiting_visit(loading->recovery, find_client_of_waiter, loading);
	return r;
}

/* Of two records that conflict */

static bool has_same_owner(const struct hf_lock_view *lock, const struct hf_lock_view *other)
{
	return lock->who.client == other->who.client && lock->who.owner_id == other->who.owner_id &&
	       lock->who.owner_kind == other->who.owner_kind;
}

static bool is_in_the_way(const struct hf_lock_view *lock, const struct hf_lock_view *later)
{
	return hf_range_overlaps(lock->range, later->range) &&
	       (lock->mode == HF_LOCK_EXCLUSIVE || later->mode == HF_LOCK_EXCLUSIVE ||
		has_same_owner(lock, later));
}

struct ranges {
	struct hf_range *all;
	size_t n, room;
};

static int note_range(struct ranges *ranges, struct hf_range range)
{
	if (ranges->n == ranges->room) {
		size_t room = ranges->room ? 2 * ranges->room : 16;
		struct hf_range *all = realloc(ranges->all, room * sizeof(*all));

		if (!all)
			return hf_trace(-ENOMEM);
		ranges->all = all;
		ranges->room = room;
	}
	ranges->all[ranges->n++] = range;
	return 0;
}

static int compare_starts(const void *one, const void *other)
{
	const struct hf_range *a = one, *b = other;

	return (a->start > b->start) - (a->start < b->start);
}

/* What lies in the way of @whole: the owner's own ranges, in order. 1: another owner has something there. */
static int find_own(const struct loading *loading, const struct hf_lock_view *whole, struct ranges *own)
{
	const struct hf_lock_scope scope = { .file = &whole->who,
					     .range = &whole->range,
					     .with_ghosts = true };
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view lock;
	int r = 0;

	while (r == 0 && hf_lock_next_lock(loading->recovery->locks, &scope, &cursor, &lock))
		if (is_in_the_way(&lock, whole))
			r = has_same_owner(&lock, whole) ? note_range(own, lock.range) : 1;
	if (own->n)
		qsort(own->all, own->n, sizeof(*own->all), compare_starts);
	return r;
}

static int load_part(struct loading *loading, struct hf_lock_view *part, struct hf_range range)
{
	int r;

	part->range = range;
	part->tag = hf_persist_add_lock(loading->recovery, part);
	r = hf_lock_load_add(loading->locks, part);
	if (r == HF_LOCK_E_CONFLICT)
		return note_wrong(loading, part->tag, HF_PERSIST_LOCK);
	if (r < 0)
		return hf_trace(r);
	loading->n_locks++;
	hf_export_counts_add(loading->recovery, loading->file.export, part->who.client);
	return 0;
}

static int load_rest(struct loading *loading, struct hf_lock_view *part, const struct ranges *own)
{
	struct hf_range left = part->range;
	bool is_left = true;
	int r = 0;

	for (size_t i = 0; i < own->n && r == 0 && is_left; i++) {
		struct hf_range taken = own->all[i];

		if (taken.start > left.start)
			r = load_part(loading, part, (struct hf_range){ left.start, taken.start - 1 });
		is_left = taken.end < left.end;
		if (is_left)
			left.start = HF_MAX(left.start, taken.end + 1);
	}
	return r == 0 && is_left ? load_part(loading, part, left) : r;
}

/* A later lock conflicts with this one. If another owner has it, all of this one is outdated. What later
 * locks of the same owner leave of it is still the owner's: that is stored anew, before the record goes. */
static int load_rest_of_older(struct loading *loading, const struct hf_store_lock *fact,
			      struct hf_client *client)
{
	struct hf_lock_view part = *view_lock(loading, fact, client);
	struct ranges own = { 0 };
	int r = find_own(loading, &part, &own);

	if (r == 0)
		r = load_rest(loading, &part, &own);
	free(own.all);
	return r < 0 ? r : note_wrong(loading, fact->id, HF_PERSIST_LOCK);
}

static int load_lock(void *user, const struct hf_store_lock *fact)
{
	struct loading *loading = user;
	struct hf_client *client;
	enum where where;
	int r;

	if (!is_possible(fact))
		return note_wrong(loading, fact->id, HF_PERSIST_LOCK);
	where = find_file(loading, fact->export, fact->handle);
	if (where == FOREIGN) {
		note_foreign(loading, fact->id, HF_PERSIST_LOCK);
		return 0;
	}
	r = client_of_lock(loading, fact, &client);
	if (r == -EINVAL)
		return note_wrong(loading, fact->id, HF_PERSIST_LOCK);
	if (r < 0)
		return r;
	if (where == NOT_EXPORTED) {
		loading->n_not_exported++;
		return hf_not_exported_add_lock(loading->recovery, fact);
	}
	if (continues(loading) && fact->flags & HF_PERSIST_OF_GRANT)
		return note_aside(&loading->provisional, loading, fact, client);
	r = hf_lock_load_add(loading->locks, view_lock(loading, fact, client));
	if (r == HF_LOCK_E_CONFLICT && loading->is_second_pass)
		return load_rest_of_older(loading, fact, client);
	if (r == HF_LOCK_E_CONFLICT) {
		loading->n_conflicting++;
		return hf_not_exported_add_lock(loading->recovery, fact);
	}
	if (r < 0)
		return hf_trace(r);
	loading->n_locks++;
	hf_export_counts_add(loading->recovery, loading->file.export, &client->locking);
	return 0;
}

/* The older one goes */

/* A lock that its owner has reclaimed in this run is later than all that is stored. Of two that are stored,
 * the epochs say in which run each was granted; the rest of an older lock that was cut is stored later than
 * both. */
static bool is_older(const struct hf_lock_view *lock, const struct hf_lock_view *later)
{
	if (!(lock->flags & HF_LOCK_UNRECLAIMED))
		return false;
	return lock->epoch == later->epoch ? lock->tag < later->tag : lock->epoch < later->epoch;
}

/* What of an older lock cannot be true. Of the same owner's, what is beside the later lock stays. */
static struct hf_range untrue_part(const struct hf_lock_view *lock, const struct hf_lock_view *later)
{
	if (!has_same_owner(lock, later))
		return lock->range;
	return (struct hf_range){ HF_MAX(lock->range.start, later->range.start),
				  HF_MIN(lock->range.end, later->range.end) };
}

/* From the table and from the store. One that is not older stays. */
static int remove_older(struct loading *loading, const struct hf_lock_view *later)
{
	struct hf_locks *locks = loading->recovery->locks;
	const struct hf_lock_scope scope = { .file = &later->who,
					     .range = &later->range,
					     .with_ghosts = true };
	struct hf_lock_cursor cursor = { 0 };
	struct hf_lock_view lock;
	int r = 0;

	while (r >= 0 && hf_lock_next_lock(locks, &scope, &cursor, &lock)) {
		struct hf_range part = untrue_part(&lock, later);

		if (!is_in_the_way(&lock, later) || !is_older(&lock, later))
			continue;
		loading->n_outdated += hf_range_equal(part, lock.range) && !(lock.flags & HF_LOCK_GHOST);
		r = hf_lock_take_back(locks, &lock.who, part);
	}
	return r < 0 ? r : 0;
}

/* One alone: before the next one, others may go from the table. */
static int load_conflicting_lock(void *user, const struct hf_store_lock *fact)
{
	struct loading *loading = user;
	struct hf_client *client;
	struct hf_lock_view view;
	int r;

	if (find_file(loading, fact->export, fact->handle) != EXPORTED)
		return hf_not_exported_add_lock(loading->recovery, fact);
	r = client_of_lock(loading, fact, &client);
	if (r == 0) {
		view = *view_lock(loading, fact, client);
		r = remove_older(loading, &view);
	}
	if (r == 0)
		r = hf_lock_load_new(&loading->locks, loading->recovery->locks);
	if (r == 0)
		r = load_lock(loading, fact);
	loading->locks = hf_lock_load_free(loading->locks);
	if (r < 0)
		loading->not_loaded = r;
	return r;
}

/* The later ones are loaded. This writes to the store. */
static int load_conflicting_locks(struct loading *loading)
{
	if (!loading->n_conflicting)
		return 0;
	loading->is_second_pass = true;
	hf_not_exported_take_locks(loading->recovery, load_conflicting_lock, loading);
	loading->is_second_pass = false;
	return loading->not_loaded;
}

/* Of a run that could go on, and starts over: a grant in flight is a lock as others. */
static int load_provisional(struct loading *loading)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < loading->provisional.n; i++) {
		const struct aside *aside = &loading->provisional.all[i];
		const struct hf_lock_view view = {
			.tag = aside->id,
			.who = who_of(aside),
			.range = aside->range,
			.mode = (enum hf_lock_mode)aside->mode,
			.client_state = (uint32_t)aside->state,
			.epoch = (uint32_t)aside->epoch,
		};

		r = remove_older(loading, &view);
		if (r == 0)
			r = hf_lock_load_new(&loading->locks, loading->recovery->locks);
		if (r == 0)
			r = hf_lock_load_add(loading->locks, &view);
		loading->locks = hf_lock_load_free(loading->locks);
		if (r > 0) {
			r = note_wrong(loading, aside->id, HF_PERSIST_LOCK);
		} else if (r == 0) {
			loading->n_locks++;
			hf_export_counts_add(loading->recovery, aside->export, &aside->client->locking);
		}
	}
	return r;
}

/* Reservations. A client that was told that it has one is registered: a reservation without its client was
 * never promised. */

static struct hf_lock_reservation_view view_reservation(const struct loading *loading,
							const struct hf_reservation *fact,
							struct hf_client *client, uint64_t id)
{
	return (struct hf_lock_reservation_view){
		.tag = id,
		.export = loading->file.export,
		.handle = loading->file.key,
		.client = &client->locking,
		.oh = fact->oh,
		.client_state = (uint32_t)hf_client_stored_number(fact->state),
		.access = fact->access,
		.deny = fact->deny,
		.count = fact->count,
		.mark = continues(loading) ? fact->mark : 0,
	};
}

static int load_reservation(void *user, const struct hf_store_reservation *reservation)
{
	struct loading *loading = user;
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;
	struct hf_lock_reservation_view view;
	struct hf_reservation fact;
	int r;

	if (hf_reservation_decode(&fact, reservation->blob))
		client = hf_clients_find_id(loading->recovery->clients, fact.client);
	if (!client)
		return note_wrong(loading, reservation->id, HF_PERSIST_RESERVATION);
	switch (find_file(loading, fact.export, fact.handle)) {
	case NOT_EXPORTED:
		loading->n_not_exported++;
		return hf_not_exported_add_reservation(loading->recovery, reservation);
	case FOREIGN:
		note_foreign(loading, reservation->id, HF_PERSIST_RESERVATION);
		return 0;
	case EXPORTED:
		break;
	}
	view = view_reservation(loading, &fact, client, reservation->id);
	r = hf_lock_restore_reservation(loading->recovery->locks, &view);
	if (r == HF_LOCK_E_CONFLICT && loading->is_second_pass)
		return note_wrong(loading, reservation->id, HF_PERSIST_RESERVATION);
	if (r == HF_LOCK_E_CONFLICT) {
		loading->n_conflicting_reservations++;
		return hf_not_exported_add_reservation(loading->recovery, reservation);
	}
	if (r < 0)
		return hf_trace(r);
	loading->n_reservations++;
	return 0;
}

static int load_conflicting_reservation(void *user, const struct hf_store_reservation *reservation)
{
	struct loading *loading = user;
	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;
	struct hf_lock_reservation_view view;
	struct hf_reservation fact;

	hf_reservation_decode(&fact, reservation->blob);
	if (find_file(loading, fact.export, fact.handle) != EXPORTED)
		return hf_not_exported_add_reservation(loading->recovery, reservation);
	client = hf_clients_find_id(loading->recovery->clients, fact.client);
	if (client) {
		view = view_reservation(loading, &fact, client, reservation->id);
		loading->n_outdated_reservations +=
			hf_lock_drop_older_reservations(loading->recovery->locks, &view);
	}
	return load_reservation(loading, reservation);
}

static void load_conflicting_reservations(struct loading *loading)
{
	loading->is_second_pass = true;
	if (loading->n_conflicting_reservations)
		hf_not_exported_take_reservations(loading->recovery, load_conflicting_reservation, loading);
}

/* All of it */

static void delete_wrong(struct loading *loading)
{
	struct hf_recovery *recovery = loading->recovery;
	size_t n = loading->n_wrong + loading->n_outdated + loading->n_outdated_reservations;

	for (size_t i = 0; i < loading->n_wrong; i++)
		hf_persist_delete(recovery, loading->wrong[i]);
	if (n)
		hf_log_warn("deleted stored locks that cannot be true", "n=%zu", n);
}

static int refuse_foreign(const struct loading *loading)
{
	const struct foreign *foreign = &loading->foreign;

	if (foreign->n == 0)
		return 0;
	hf_log_error(
		"stored locks name files by handles that this server did not make: the key of the file "
		"handles "
		"was replaced, or the store was changed. Restore either, or start once with --clear-store: "
		"all locks are forgotten then, and all clients mount again",
		"n=%zu of=%zu first=%s id=%llu file=%s/handle.key", foreign->n,
		foreign->n + loading->n_locks + loading->n_reservations,
		foreign->first.kind == HF_PERSIST_LOCK ? "lock" : "reservation",
		(unsigned long long)foreign->first.id, loading->recovery->options.store_path);
	return -EKEYREJECTED;
}

static void register_unknown(struct loading *loading)
{
	struct hf_client *client;
	uint64_t serial = 0;

	if (!loading->n_unknown)
		return;
	hf_log_warn("stored locks or waiters had clients that were not registered; registered them",
		    "clients=%zu", loading->n_unknown);
	while ((client = hf_clients_next(loading->recovery->clients, serial))) {
		serial = client->serial;
		if (client->last_seen == 0)
			hf_client_register(client);
		hf_client_unref(client);
	}
}

static int load_locks(struct loading *loading)
{
	struct hf_recovery *recovery = loading->recovery;
	int r = hf_lock_load_new(&loading->locks, recovery->locks);

	if (r == 0)
		r = hf_store_load_locks(recovery->store, load_lock, loading);
	loading->locks = hf_lock_load_free(loading->locks);
	return r;
}

static int load_all(struct loading *loading)
{
	struct hf_recovery *recovery = loading->recovery;
	int r = hf_store_load_clients(recovery->store, load_client, loading);

	if (r == 0 && recovery->persist.stores_locks)
		r = load_locks(loading);
	if (r == 0 && recovery->persist.stores_locks)
		r = hf_store_load_reservations(recovery->store, load_reservation, loading);
	if (r == 0)
		r = refuse_foreign(loading);
	return r == 0 && recovery->persist.stores_locks ? hf_waiting_load(recovery) : r;
}

/* Locks of exports that are gone are not in the table. Other clients could get them: by another name of the
 * directory, or when the export is back. So clients are told. Until the new state number is stored, nothing
 * is granted, and what is stored is left as it is: the next run may go on with it. */
static void start_over_if_incomplete(struct loading *loading)
{
	struct hf_recovery *recovery = loading->recovery;

	if (!recovery->start.continues || !loading->n_not_exported)
		return;
	hf_log_warn("locks of directories that are not exported now are stored: clients are told to reclaim",
		    "n=%zu", loading->n_not_exported);
	recovery->start.continues = false;
	recovery->starts_over = true;
}

int hf_restart_load(struct hf_recovery *recovery)
{
	struct loading loading = { .recovery = recovery };
	struct hf_lock_counters counters;
	int r = load_all(&loading);

	/* All that was loaded fits the key. The store takes it before the first write of this epoch: so far
	 * nothing was written, from here on everything may be. */
	if (r == 0 && recovery->options.handle_key)
		r = hf_store_name_key(recovery->store, recovery->options.handle_key);
	if (r == 0)
		start_over_if_incomplete(&loading);
	if (r == 0)
		r = load_conflicting_locks(&loading);
	if (r == 0 && recovery->starts_over)
		r = load_provisional(&loading);
	if (r == 0)
		load_conflicting_reservations(&loading);
	if (r == 0 && recovery->start.continues)
		r = accept_restored(&loading);
	else if (r == 0 && !recovery->starts_over)
		hf_waiting_forget(recovery);
	if (r == 0) {
		delete_wrong(&loading);
		register_unknown(&loading);
		hf_lock_count(recovery->locks, &counters);
		hf_log_info("stored clients and locks loaded",
			    "epoch=%llu state=%d clients=%zu locks=%zu reservations=%zu not_exported=%zu",
			    (unsigned long long)recovery->start.epoch, recovery->sm_state, loading.n_clients,
			    (size_t)counters.locks, loading.n_reservations - loading.n_outdated_reservations,
			    loading.n_not_exported);
	}
	hf_client_unref(loading.last);
	free(loading.wrong);
	free_asides(&loading.provisional);
	return r < 0 ? hf_trace(r) : 0;
}

/* Exports that are back */

/* The grace of the start lasts, or is about to begin. In that of a simulated restart it is too late. */
static bool may_reclaim(const struct hf_recovery *recovery)
{
	return !recovery->phase.has_served;
}

/* If its client has crashed in this run, the lock is of the life that goes on: crash.c has deleted all
 * others. */
static int take_up_lock(void *user, const struct hf_store_lock *fact)
{
	struct loading *loading = user;
	struct hf_recovery *recovery = loading->recovery;

	if (find_file(loading, fact->export, fact->handle) != EXPORTED)
		return hf_not_exported_add_lock(recovery, fact);
	if (loading->locks) {
		if (recovery->exports.take_up)
			recovery->exports.take_up(recovery->exports.take_up_user, loading->file.export,
						  loading->file.key);
		return load_lock(loading, fact);
	}
	loading->n_dropped++;
	return hf_persist_delete(recovery, (struct hf_persist_record){ fact->id, HF_PERSIST_LOCK });
}

static int take_up_reservation(void *user, const struct hf_store_reservation *reservation)
{
	struct loading *loading = user;
	struct hf_recovery *recovery = loading->recovery;
	struct hf_reservation fact;

	hf_reservation_decode(&fact, reservation->blob);
	if (find_file(loading, fact.export, fact.handle) != EXPORTED)
		return hf_not_exported_add_reservation(recovery, reservation);
	if (may_reclaim(recovery))
		return load_reservation(loading, reservation);
	loading->n_dropped++;
	return hf_persist_delete(recovery,
				 (struct hf_persist_record){ reservation->id, HF_PERSIST_RESERVATION });
}

/* Without memory they wait for the next reload. */
static int take_up_locks(struct loading *loading)
{
	struct hf_recovery *recovery = loading->recovery;

	if (may_reclaim(recovery) && hf_lock_load_new(&loading->locks, recovery->locks) < 0)
		return hf_trace(-ENOMEM);
	hf_not_exported_take_locks(recovery, take_up_lock, loading);
	loading->locks = hf_lock_load_free(loading->locks);
	return 0;
}

void hf_recovery_exports_changed(struct hf_recovery *recovery)
{
	struct loading loading = { .recovery = recovery };

	if (hf_list_is_empty(&recovery->not_exported.records) || hf_phase_is_over(recovery) ||
	    take_up_locks(&loading) < 0)
		return;
	(void)load_conflicting_locks(&loading); /* without memory the next start does it */
	hf_not_exported_take_reservations(recovery, take_up_reservation, &loading);
	load_conflicting_reservations(&loading);
	delete_wrong(&loading);
	register_unknown(&loading);
	hf_client_unref(loading.last);
	free(loading.wrong);
	if (loading.n_locks || loading.n_reservations || loading.n_dropped)
		hf_log_info("stored locks of directories that are exported again",
			    "unreclaimed=%zu dropped=%zu", loading.n_locks + loading.n_reservations,
			    loading.n_dropped);
	hf_phase_settle(recovery);
}
