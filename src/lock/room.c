/*
 * May the lock table grow?
 *
 * Everything that a peer can make the server store has a limit for the client, for
 * its address (the group), for the file where one is concerned, and for the whole
 * table. A group may have half of what the table may have, so that one address
 * cannot take everything.
 *
 * Numbers alone do not bound memory: a lock may need an owner, a file and 1,024
 * bytes of owner handle. So bytes are counted too, for each record the most that it
 * can cost (HF_COST_*): the sum is never less than what is allocated. Locks are not
 * counted in bytes one by one: their number is known. A request may exceed the limit
 * of bytes by what it needs itself.
 *
 * Owner handles of more than 70 bytes have a small limit of their own.
 *
 * Only requests that add records are refused. A load is never refused.
 */
#include "lock/internal.h"
#include "lock/steps.h"

#define SCARCE_PART 8 /* see hf_room_is_scarce() */

/* of the memory for long owner handles */
#define OH_PART_OF_CLIENT 8
#define OH_PART_OF_GROUP  2

static bool is_alone(const struct hf_locks *locks, const struct hf_lock_client *client)
{
	return client->group == &locks->alone;
}

static uint64_t sum(uint64_t bytes, uint64_t n_locks)
{
	return bytes + n_locks * HF_COST_LOCK;
}

static bool has_bytes(const struct hf_locks *locks, const struct hf_lock_client *client, uint64_t times)
{
	const struct hf_lock_limits *limits = &locks->limits;
	const struct hf_lock_group *group = client->group;

	return sum(client->bytes, client->n_locks) < times * limits->bytes_per_client &&
	       (is_alone(locks, client) ||
		sum(group->bytes, group->n_locks) < times * limits->bytes_per_group) &&
	       sum(locks->bytes, locks->n.locks) < times * limits->bytes;
}

bool hf_room_for_oh(const struct hf_locks *locks, const struct hf_lock_client *client, struct hf_bytes oh)
{
	uint64_t most = locks->limits.oh_bytes;

	return !hf_oh_is_long(oh) || (client->oh_bytes + HF_LOCK_OH_MAX <= most / OH_PART_OF_CLIENT &&
				      (is_alone(locks, client) ||
				       client->group->oh_bytes + HF_LOCK_OH_MAX <= most / OH_PART_OF_GROUP) &&
				      locks->oh_bytes + HF_LOCK_OH_MAX <= most);
}

void hf_room_init(struct hf_locks *locks)
{
	const struct hf_lock_limits *limits = &locks->limits;

	locks->least_locks = HF_MIN(HF_MIN(limits->locks_per_client, limits->locks_per_group),
				    HF_MIN(limits->locks_per_file, limits->locks));
	locks->least_bytes = HF_MIN(HF_MIN(limits->bytes_per_client, limits->bytes_per_group), limits->bytes);
}

/* Has the whole table less than the least of its limits? Then no client, group or file has as much as it may,
 * and need not be looked at. */
static bool is_small(const struct hf_locks *locks, uint64_t n)
{
	return locks->n.locks + locks->n.waiters + n <= locks->least_locks &&
	       sum(locks->bytes, locks->n.locks) < locks->least_bytes;
}

static bool fit_locks(const struct hf_locks *locks, const struct hf_lock_file *file,
		      const struct hf_lock_client *client, uint64_t n, uint64_t times)
{
	const struct hf_lock_limits *limits = &locks->limits;
	const struct hf_lock_group *group = client->group;

	return (uint64_t)client->n_locks + client->n_waiters + n <= times * limits->locks_per_client &&
	       (is_alone(locks, client) ||
		(uint64_t)group->n_locks + group->n_waiters + n <= times * limits->locks_per_group) &&
	       (!file || (uint64_t)file->n_locks + file->n_waiters + n <= times * limits->locks_per_file) &&
	       locks->n.locks + locks->n.waiters + n <= times * limits->locks &&
	       has_bytes(locks, client, times);
}

bool hf_room_for_locks(const struct hf_locks *locks, const struct hf_lock_file *file,
		       const struct hf_lock_target *who, const struct hf_owner *owner, int growth,
		       bool is_doubled)
{
	uint64_t n = (uint64_t)growth;

	if (growth <= 0)
		return true;
	return (is_small(locks, n) || fit_locks(locks, file, who->client, n, is_doubled ? 2 : 1)) &&
	       (owner || hf_room_for_oh(locks, who->client, who->oh));
}

/* Does the group have less than half of the waiters that the file may have? */
static bool has_its_part_of_queue(struct hf_locks *locks, const struct hf_lock_file *file,
				  const struct hf_lock_client *client)
{
	uint32_t n = 0, part = (locks->limits.waiters_per_file + 1) / 2;

	if (!file || file->n_waiters < part || is_alone(locks, client))
		return true;
	hf_list_for_each(pos, &file->queue) {
		const struct hf_waiter *waiter = hf_list_entry(pos, struct hf_waiter, in_queue);

		n += waiter->holding->owner->client->group == client->group;
	}
	locks->n_steps += file->n_waiters;
	return n < part;
}

bool hf_room_to_wait(struct hf_locks *locks, const struct hf_lock_file *file,
		     const struct hf_lock_target *who, const struct hf_owner *owner)
{
	const struct hf_lock_limits *limits = &locks->limits;
	const struct hf_lock_client *client = who->client;

	return (!file || file->n_waiters < limits->waiters_per_file) &&
	       has_its_part_of_queue(locks, file, client) &&
	       client->n_waiters + client->n_grants < limits->waiters_per_client &&
	       (is_alone(locks, client) || client->group->n_waiters < limits->waiters_per_group) &&
	       locks->n.waiters + locks->n.grants < limits->waiters &&
	       hf_room_for_locks(locks, file, who, owner, 1, false);
}

bool hf_room_for_reservation(const struct hf_locks *locks, const struct hf_lock_file *file,
			     const struct hf_lock_target *who, bool is_new, bool is_reclaim)
{
	const struct hf_lock_limits *limits = &locks->limits;
	const struct hf_lock_client *client = who->client;

	return client->n_reservations < limits->reservations_per_client &&
	       (is_alone(locks, client) || client->group->n_reservations < limits->reservations_per_group) &&
	       (!file || file->n_reservations < limits->reservations_per_file) &&
	       locks->n.reservations < limits->reservations &&
	       (!is_new ||
		(has_bytes(locks, client, is_reclaim ? 2 : 1) && hf_room_for_oh(locks, client, who->oh)));
}

static bool is_file_scarce(const struct hf_locks *locks, const struct hf_lock_file *file)
{
	return file && (file->n_locks >= locks->limits.locks_per_file / SCARCE_PART ||
			file->n_waiters >= locks->limits.waiters_per_file / SCARCE_PART ||
			file->n_reservations >= locks->limits.reservations_per_file / SCARCE_PART);
}

bool hf_room_is_scarce(const struct hf_locks *locks, const struct hf_lock_file *file, struct hf_bytes oh)
{
	const struct hf_lock_limits *limits = &locks->limits;

	return locks->n.locks + locks->n.waiters >= limits->locks / SCARCE_PART ||
	       locks->n.waiters + locks->n.grants >= limits->waiters / SCARCE_PART ||
	       locks->n.reservations >= limits->reservations / SCARCE_PART ||
	       sum(locks->bytes, locks->n.locks) >= limits->bytes / SCARCE_PART ||
	       (hf_oh_is_long(oh) && locks->oh_bytes >= limits->oh_bytes / SCARCE_PART) ||
	       is_file_scarce(locks, file);
}

bool hf_room_to_split(const struct hf_locks *locks, const struct hf_lock_file *file,
		      const struct hf_lock_client *client)
{
	const struct hf_lock_limits *limits = &locks->limits;

	return client->n_locks < 2 * (uint64_t)limits->locks_per_client &&
	       (is_alone(locks, client) || client->group->n_locks < 2 * (uint64_t)limits->locks_per_group) &&
	       file->n_locks < 2 * (uint64_t)limits->locks_per_file &&
	       locks->n.locks < 2 * (uint64_t)limits->locks;
}

/* Limits, as operators see them */

static void show_maxima(const struct hf_lock_limits *limits, struct hf_limit_use *uses)
{
	uses[HF_LIMIT_WAITERS_PER_CLIENT].max = limits->waiters_per_client;
	uses[HF_LIMIT_WAITERS_PER_ADDRESS].max = limits->waiters_per_group;
	uses[HF_LIMIT_WAITERS_PER_FILE].max = limits->waiters_per_file;
	uses[HF_LIMIT_WAITERS].max = limits->waiters;
	uses[HF_LIMIT_LOCKS_PER_CLIENT].max = limits->locks_per_client;
	uses[HF_LIMIT_LOCKS_PER_ADDRESS].max = limits->locks_per_group;
	uses[HF_LIMIT_LOCKS_PER_FILE].max = limits->locks_per_file;
	uses[HF_LIMIT_LOCKS].max = limits->locks;
	uses[HF_LIMIT_LOCK_BYTES_PER_CLIENT].max = limits->bytes_per_client;
	uses[HF_LIMIT_LOCK_BYTES_PER_ADDRESS].max = limits->bytes_per_group;
	uses[HF_LIMIT_LOCK_BYTES].max = limits->bytes;
	uses[HF_LIMIT_OWNER_BYTES_PER_CLIENT].max = limits->oh_bytes / OH_PART_OF_CLIENT;
	uses[HF_LIMIT_OWNER_BYTES_PER_ADDRESS].max = limits->oh_bytes / OH_PART_OF_GROUP;
	uses[HF_LIMIT_OWNER_BYTES].max = limits->oh_bytes;
	uses[HF_LIMIT_RESERVATIONS_PER_CLIENT].max = limits->reservations_per_client;
	uses[HF_LIMIT_RESERVATIONS_PER_ADDRESS].max = limits->reservations_per_group;
	uses[HF_LIMIT_RESERVATIONS_PER_FILE].max = limits->reservations_per_file;
	uses[HF_LIMIT_RESERVATIONS].max = limits->reservations;
	uses[HF_LIMIT_LOCK_SEARCHES].max = HF_STEPS_OF_A_GROUP;
}

static void show_file(const struct hf_lock_file *file, struct hf_limit_use *uses)
{
	uses[HF_LIMIT_WAITERS_PER_FILE].used = file->n_waiters;
	uses[HF_LIMIT_LOCKS_PER_FILE].used = (uint64_t)file->n_locks + file->n_waiters;
	uses[HF_LIMIT_RESERVATIONS_PER_FILE].used = file->n_reservations;
}

void hf_lock_show_limits(const struct hf_locks *locks, struct hf_limit_use uses[HF_N_LIMITS])
{
	show_maxima(&locks->limits, uses);
	uses[HF_LIMIT_WAITERS].used = locks->n.waiters + locks->n.grants;
	uses[HF_LIMIT_LOCKS].used = locks->n.locks + locks->n.waiters;
	uses[HF_LIMIT_LOCK_BYTES].used = sum(locks->bytes, locks->n.locks);
	uses[HF_LIMIT_OWNER_BYTES].used = locks->oh_bytes;
	uses[HF_LIMIT_RESERVATIONS].used = locks->n.reservations;
	for (size_t i = HF_LIMIT_WAITERS_PER_CLIENT; i <= HF_LIMIT_LOCK_SEARCHES; i++)
		uses[i].refused = locks->refused[i];
}

void hf_lock_show_client_limits(const struct hf_locks *locks, const struct hf_lock_client *client,
				uint64_t now, struct hf_limit_use uses[HF_N_LIMITS])
{
	const struct hf_lock_group *group = client->group;

	uses[HF_LIMIT_WAITERS_PER_CLIENT].used = (uint64_t)client->n_waiters + client->n_grants;
	uses[HF_LIMIT_LOCKS_PER_CLIENT].used = (uint64_t)client->n_locks + client->n_waiters;
	uses[HF_LIMIT_LOCK_BYTES_PER_CLIENT].used = sum(client->bytes, client->n_locks);
	uses[HF_LIMIT_OWNER_BYTES_PER_CLIENT].used = client->oh_bytes;
	uses[HF_LIMIT_RESERVATIONS_PER_CLIENT].used = client->n_reservations;
	if (is_alone(locks, client))
		return;
	uses[HF_LIMIT_WAITERS_PER_ADDRESS].used = group->n_waiters;
	uses[HF_LIMIT_LOCKS_PER_ADDRESS].used = (uint64_t)group->n_locks + group->n_waiters;
	uses[HF_LIMIT_LOCK_BYTES_PER_ADDRESS].used = sum(group->bytes, group->n_locks);
	uses[HF_LIMIT_OWNER_BYTES_PER_ADDRESS].used = group->oh_bytes;
	uses[HF_LIMIT_RESERVATIONS_PER_ADDRESS].used = group->n_reservations;
	uses[HF_LIMIT_LOCK_SEARCHES].used = hf_steps_spent(group, now);
}

/* The first limit that is reached. In a long queue an address may have half of the file's waiters. */
static enum hf_limit find_reached(const struct hf_limit_use *uses, enum hf_limit first, enum hf_limit last,
				  uint64_t n, enum hf_limit otherwise)
{
	for (enum hf_limit i = first; i <= last; i++)
		if (uses[i].used + n > uses[i].max)
			return i;
	return otherwise;
}

int hf_room_refuse(struct hf_locks *locks, const struct hf_lock_file *file, const struct hf_lock_target *who,
		   enum hf_room_request what, uint64_t n)
{
	struct hf_limit_use uses[HF_N_LIMITS] = { 0 };
	bool is_oh = !hf_room_for_oh(locks, who->client, who->oh);
	enum hf_limit of_oh;
	enum hf_limit reached = HF_LIMIT_LOCK_SEARCHES;

	hf_lock_show_limits(locks, uses);
	hf_lock_show_client_limits(locks, who->client, 0, uses);
	of_oh = find_reached(uses, HF_LIMIT_OWNER_BYTES_PER_CLIENT, HF_LIMIT_OWNER_BYTES_PER_ADDRESS,
			     HF_LOCK_OH_MAX, HF_LIMIT_OWNER_BYTES);
	if (file)
		show_file(file, uses);
	if (what == HF_ROOM_TO_LOCK)
		reached = find_reached(uses, HF_LIMIT_LOCKS_PER_CLIENT, HF_LIMIT_LOCK_BYTES, n, of_oh);
	else if (what == HF_ROOM_TO_WAIT)
		reached = find_reached(uses, HF_LIMIT_WAITERS_PER_CLIENT, HF_LIMIT_LOCK_BYTES, n,
				       is_oh ? of_oh : HF_LIMIT_WAITERS_PER_FILE);
	else if (what == HF_ROOM_TO_RESERVE)
		reached = find_reached(uses, HF_LIMIT_RESERVATIONS_PER_CLIENT, HF_LIMIT_RESERVATIONS, n,
				       is_oh ? of_oh : HF_LIMIT_LOCK_BYTES);
	locks->refused[reached]++;
	return HF_LOCK_E_LIMIT;
}
