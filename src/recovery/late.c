/*
 * Reclaims that come after grace. A client that is refused then tells its
 * programs nothing, and goes on with a lock that it does not have. So what was
 * dropped at the end of grace is remembered for a while, until somebody else gets
 * a lock that conflicts with it: as long as it is here, nobody had it since, and
 * its owner may have it back.
 *
 * Costs nothing while nothing is remembered, else one look-up by file for each
 * lock that is granted.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "recovery/internal.h"

#define MAX_RECORDS  ((size_t)262144)
#define MAX_PER_FILE 1024 /* each lock that is granted in the file looks at them all */

struct late_file {
	struct hf_hash_node node;
	struct hf_list records;
	size_t n;
	uint8_t handle_len;
	uint8_t handle[HF_LOCK_HANDLE_MAX];
};

struct late {
	struct hf_link in_file;
	struct hf_link by_age;
	struct hf_link in_client;
	struct late_file *file;
	struct hf_client *client; /* a reference */
	struct hf_range range;
	uint64_t owner_id;
	uint64_t until;
	uint8_t owner_kind;
	uint8_t mode;
};

static uint64_t hash_of(const struct hf_recovery *recovery, const struct hf_lock_target *who)
{
	return hf_siphash(&recovery->key, who->handle.data, who->handle.len);
}

static struct late_file *find_file(const struct hf_recovery *recovery, const struct hf_lock_target *who)
{
	hf_hash_for_each(node, &recovery->late.files, hash_of(recovery, who)) {
		struct late_file *file = hf_container_of(node, struct late_file, node);

		if (hf_bytes_equal(hf_bytes_of(file->handle, file->handle_len), who->handle))
			return file;
	}
	return NULL;
}

static struct late_file *get_file(struct hf_recovery *recovery, const struct hf_lock_target *who)
{
	struct late_file *file = find_file(recovery, who);

	if (file)
		return file;
	file = calloc(1, sizeof(*file));
	if (!file)
		return NULL;
	assert(who->handle.len <= sizeof(file->handle));
	hf_list_init(&file->records);
	file->handle_len = (uint8_t)who->handle.len;
	memcpy(file->handle, who->handle.data, who->handle.len);
	hf_hashtable_insert(&recovery->late.files, &file->node, hash_of(recovery, who));
	return file;
}

static void put_file(struct hf_recovery *recovery, struct late_file *file)
{
	if (!hf_list_is_empty(&file->records))
		return;
	hf_hashtable_remove(&recovery->late.files, &file->node);
	free(file);
}

/* Its file stays for the caller to put. */
static void forget(struct hf_recovery *recovery, struct late *late)
{
	late->file->n--;
	hf_link_remove(&late->in_file);
	hf_link_remove(&late->by_age);
	hf_link_remove(&late->in_client);
	hf_client_unref(late->client);
	free(late);
	recovery->late.n--;
}

static void forget_with_file(struct hf_recovery *recovery, struct late *late)
{
	struct late_file *file = late->file;

	forget(recovery, late);
	put_file(recovery, file);
}

static bool is_owner(const struct late *late, const struct hf_lock_target *who)
{
	return &late->client->holds == who->client && late->owner_id == who->owner_id &&
	       late->owner_kind == who->owner_kind;
}

void hf_late_remember(struct hf_recovery *recovery, const struct hf_lock_view *lock)
{
	uint64_t now = hf_loop_now(recovery->loop);
	struct late_file *file;
	struct late *late;

	if (recovery->late.n >= MAX_RECORDS || !recovery->options.notify_retry_ns)
		return;
	file = get_file(recovery, &lock->who);
	late = file && file->n < MAX_PER_FILE ? calloc(1, sizeof(*late)) : NULL;
	if (!late) {
		if (file)
			put_file(recovery, file);
		return; /* its reclaim will be refused: safe, if not kind */
	}
	late->file = file;
	late->client = hf_client_ref(hf_client_of(lock->who.client));
	late->range = lock->range;
	late->owner_id = lock->who.owner_id;
	late->owner_kind = lock->who.owner_kind;
	late->mode = (uint8_t)lock->mode;
	late->until = now + recovery->options.notify_retry_ns;
	hf_list_push_back(&file->records, &late->in_file);
	file->n++;
	hf_list_push_back(&recovery->late.by_age, &late->by_age);
	hf_list_push_back(&late->client->late, &late->in_client);
	recovery->late.n++;
	if (!hf_timer_is_running(&recovery->late.timer))
		hf_timer_start_at(&recovery->late.timer, late->until);
}

/* Somebody got something: whoever had it before cannot have it back as if nothing had been. */
void hf_late_granted(struct hf_recovery *recovery, const struct hf_lock_view *lock)
{
	struct late_file *file = find_file(recovery, &lock->who);

	if (!file)
		return;
	hf_list_for_each_safe(pos, &file->records) {
		struct late *late = hf_list_entry(pos, struct late, in_file);
		bool is_exclusive = late->mode == HF_LOCK_EXCLUSIVE || lock->mode == HF_LOCK_EXCLUSIVE;

		if (is_exclusive && !is_owner(late, &lock->who) &&
		    hf_range_overlaps(late->range, lock->range))
			forget(recovery, late);
	}
	put_file(recovery, file);
}

/* The first byte from @pos on that none of this owner's records has in @mode or better. */
static uint64_t covered_until(const struct late_file *file, const struct hf_lock_request *request,
			      uint64_t pos, bool *movedp)
{
	*movedp = false;
	hf_list_for_each(link, &file->records) {
		const struct late *late = hf_list_entry(link, struct late, in_file);

		if (is_owner(late, &request->who) && late->mode >= request->mode &&
		    late->range.start <= pos && late->range.end >= pos) {
			*movedp = true;
			return late->range.end + 1;
		}
	}
	return pos;
}

bool hf_late_allows(struct hf_recovery *recovery, const struct hf_lock_request *request)
{
	const struct late_file *file =
		recovery->late.n && request->who.client ? find_file(recovery, &request->who) : NULL;
	uint64_t pos = request->range.start;
	bool moved = file != NULL;

	while (moved && pos <= request->range.end)
		pos = covered_until(file, request, pos, &moved);
	return moved;
}

/* The caller has a reference to @client. */
void hf_late_forget(struct hf_recovery *recovery, struct hf_client *client)
{
	struct hf_link *link;

	while ((link = hf_list_first(&client->late)))
		forget_with_file(recovery, hf_list_entry(link, struct late, in_client));
}

static void on_timer(struct hf_timer *timer)
{
	struct hf_recovery *recovery = hf_container_of(timer, struct hf_recovery, late.timer);
	uint64_t now = hf_loop_now(recovery->loop);
	struct hf_link *link;

	while ((link = hf_list_first(&recovery->late.by_age))) {
		struct late *late = hf_list_entry(link, struct late, by_age);

		if (late->until > now) {
			hf_timer_start_at(timer, late->until);
			return;
		}
		forget_with_file(recovery, late);
	}
}

int hf_late_init(struct hf_recovery *recovery)
{
	hf_list_init(&recovery->late.by_age);
	hf_timer_init(&recovery->late.timer, recovery->loop, on_timer);
	return hf_trace(hf_hashtable_init(&recovery->late.files));
}

void hf_late_deinit(struct hf_recovery *recovery)
{
	struct hf_link *link;

	while ((link = hf_list_first(&recovery->late.by_age)))
		forget_with_file(recovery, hf_list_entry(link, struct late, by_age));
	hf_timer_stop(&recovery->late.timer);
	hf_hashtable_deinit(&recovery->late.files);
}
