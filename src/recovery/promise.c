/*
 * Delayed replies: a reply waits here until the store has reached the registration and
 * the lock that the reply speaks of.
 *
 * There are two queues, because a registration is synced and takes milliseconds, while
 * a lock may need no more than a write to the page cache: the reply to a client that is
 * registered already does not wait behind the reply to one that is not.
 */
#include <assert.h>

#include "recovery/internal.h"

bool hf_recovery_can_promise(const struct hf_recovery *recovery)
{
	return hf_store_is_healthy(recovery->store) && !recovery->persist.has_unsaved;
}

void hf_promises_look(struct hf_recovery *recovery)
{
	if (recovery->locks) /* it is made after the store, and goes before it */
		hf_lock_pause_grants(recovery->locks, !hf_recovery_can_promise(recovery));
}

static bool has_lock(struct hf_recovery *recovery, const struct hf_promise *promise)
{
	return promise->lock_ticket <= hf_store_reached(recovery->store, HF_STORE_LOCKS);
}

static bool has_client(struct hf_recovery *recovery, const struct hf_promise *promise)
{
	return promise->client_ticket <= hf_store_reached(recovery->store, HF_STORE_CLIENTS);
}

static struct hf_promise *promise_of(struct hf_link *link)
{
	return hf_list_entry(link, struct hf_promise, link);
}

static uint64_t lock_ticket_of(const struct hf_promise *promise)
{
	return promise->lock_ticket;
}

static uint64_t client_ticket_of(const struct hf_promise *promise)
{
	return promise->client_ticket;
}

/* In the order of tickets; as a rule its position is the end. */
static inline void queue(struct hf_list *list, struct hf_promise *promise,
			 uint64_t (*ticket_of)(const struct hf_promise *promise))
{
	struct hf_link *at = &list->head;

	while (at->prev != &list->head && ticket_of(promise_of(at->prev)) > ticket_of(promise))
		at = at->prev;
	hf_link_insert_before(at, &promise->link);
}

static void queue_for_lock(struct hf_promises *promises, struct hf_promise *promise)
{
	queue(&promises->by_lock, promise, lock_ticket_of);
}

static void set(struct hf_promise *promise, uint64_t lock_ticket, uint64_t client_ticket)
{
	hf_link_init(&promise->link);
	promise->lock_ticket = lock_ticket;
	promise->client_ticket = client_ticket;
	promise->is_of_restart = false;
}

static bool await(struct hf_recovery *recovery, struct hf_promise *promise, uint64_t lock_ticket,
		  uint64_t client_ticket)
{
	struct hf_promises *promises = &recovery->promises;

	set(promise, lock_ticket, client_ticket);
	if (!has_client(recovery, promise)) {
		queue(&promises->by_client, promise, client_ticket_of);
		return false;
	}
	if (has_lock(recovery, promise))
		return true;
	queue_for_lock(promises, promise);
	return false;
}

bool hf_promises_await(struct hf_recovery *recovery, struct hf_promise *promise, uint64_t lock_ticket,
		       uint64_t client_ticket, hf_delay_fn fn)
{
	promise->delays = NULL;
	promise->fn = fn;
	return await(recovery, promise, lock_ticket, client_ticket);
}

static bool is_registered(const struct hf_recovery *recovery, const struct hf_client *client)
{
	return !client || client->registration_ticket <= hf_store_reached(recovery->store, HF_STORE_CLIENTS);
}

enum hf_recovery_durability hf_recovery_durability(const struct hf_recovery *recovery,
						   const struct hf_client *client)
{
	if (!hf_recovery_can_promise(recovery) || !is_registered(recovery, client))
		return HF_DURABLE_NOT;
	if (recovery->persist.ticket <= hf_store_reached(recovery->store, HF_STORE_LOCKS))
		return HF_DURABLE;
	return recovery->options.durability == HF_STORE_PROCESS ? HF_DURABLE_SOON : HF_DURABLE_NOT;
}

bool hf_recovery_promise_more(struct hf_recovery *recovery, struct hf_promise *promise)
{
	if (!hf_store_is_gathering(recovery->store, promise->lock_ticket))
		return false;
	promise->lock_ticket = recovery->persist.ticket;
	if (promise->link.next != &recovery->promises.by_lock.head) {
		hf_link_remove(&promise->link);
		queue_for_lock(&recovery->promises, promise);
	}
	return true;
}

/* At the end of the turn: the service is in the middle of its call now. */
static void break_later(struct hf_recovery *recovery, struct hf_promise *promise)
{
	set(promise, 0, 0);
	hf_list_push_back(&recovery->promises.broken, &promise->link);
	hf_loop_defer(recovery->loop, &recovery->promises.break_task);
}

static bool await_if_healthy(struct hf_recovery *recovery, struct hf_promise *promise, uint64_t lock_ticket,
			     uint64_t client_ticket)
{
	if (!recovery->persist.has_unsaved) {
		if (!await(recovery, promise, lock_ticket, client_ticket))
			return false;
		/* What is released while the store is away has no ticket: it is stored with everything else.
		 */
		if (hf_store_is_healthy(recovery->store))
			return true;
	}
	break_later(recovery, promise);
	return false;
}

bool hf_recovery_is_release_durable(const struct hf_recovery *recovery)
{
	bool is_stored = recovery->persist.ticket <= hf_store_reached(recovery->store, HF_STORE_LOCKS);

	if (recovery->persist.stores_waiters)
		return is_stored && hf_recovery_can_promise(recovery);
	return is_stored || !hf_store_takes_writes(recovery->store);
}

/* The state number is written when what the client held is gone, by a promise in front of this one. Only then
 * does it have a ticket. */
static bool await_states(struct hf_recovery *recovery, struct hf_promise *promise)
{
	return await_if_healthy(recovery, promise, 0, hf_store_last_ticket(recovery->store));
}

static bool await_restart(struct hf_recovery *recovery, struct hf_promise *promise)
{
	if (await_if_healthy(recovery, promise, recovery->persist.ticket, 0))
		return await_states(recovery, promise);
	promise->is_of_restart = true;
	return false;
}

/*
 * A store that takes no writes gives no ticket: the last one may be lost, and would be waited for in vain.
 * And what was released meanwhile is gone from the store only when the store is healthy again.
 */
static bool await_release(struct hf_recovery *recovery, struct hf_promise *promise, uint64_t client_ticket)
{
	bool takes_writes = hf_store_takes_writes(recovery->store);

	if (takes_writes && !await(recovery, promise, recovery->persist.ticket, client_ticket))
		return false;
	if (!recovery->persist.stores_waiters || hf_store_is_healthy(recovery->store))
		return true;
	break_later(recovery, promise);
	return false;
}

static bool await_what(struct hf_recovery *recovery, struct hf_promise *promise, enum hf_reply_says says,
		       const struct hf_client *client)
{
	uint64_t client_ticket = client ? client->registration_ticket : 0;

	switch (says) {
	case HF_SAYS_RELEASED:
		return await_release(recovery, promise, client_ticket);
	case HF_SAYS_RESTARTED:
		return await_restart(recovery, promise);
	default:
		return await_if_healthy(recovery, promise, recovery->persist.ticket, client_ticket);
	}
}

bool hf_delays_add(const struct hf_delays *delays, struct hf_promise *promise, enum hf_reply_says says,
		   const struct hf_client *client, hf_delay_fn fn)
{
	hf_link_init(&promise->link);
	promise->delays = delays;
	promise->fn = fn;
	return await_what(delays->recovery, promise, says, client);
}

void hf_recovery_hurry(struct hf_recovery *recovery)
{
	hf_store_hurry(recovery->store);
}

void hf_promise_cancel(struct hf_promise *promise)
{
	if (promise->link.next)
		hf_link_remove(&promise->link);
}

static void tell(struct hf_recovery *recovery, struct hf_promise *promise, bool is_durable)
{
	hf_link_remove(&promise->link);
	if (is_durable && promise->is_of_restart && !await_states(recovery, promise))
		return;
	promise->fn(promise, is_durable);
	/* @promise may be gone here */
}

void hf_promises_reached(struct hf_recovery *recovery)
{
	struct hf_promises *promises = &recovery->promises;
	struct hf_promise *promise;
	struct hf_link *link;

	while ((link = hf_list_first(&promises->by_client))) {
		promise = promise_of(link);
		if (!has_client(recovery, promise))
			break;
		if (has_lock(recovery, promise)) {
			tell(recovery, promise, true);
		} else {
			hf_link_remove(link);
			queue_for_lock(promises, promise);
		}
	}
	while ((link = hf_list_first(&promises->by_lock)) && has_lock(recovery, promise_of(link)))
		tell(recovery, promise_of(link), true);
}

static void break_list(struct hf_recovery *recovery, struct hf_list *list)
{
	struct hf_list taken;
	struct hf_link *link;

	hf_list_init(&taken);
	hf_list_splice(&taken, list); /* promises that are made meanwhile wait for the next time */
	while ((link = hf_list_first(&taken)))
		tell(recovery, promise_of(link), false);
}

void hf_promises_break(struct hf_recovery *recovery)
{
	break_list(recovery, &recovery->promises.by_client);
	break_list(recovery, &recovery->promises.by_lock);
}

static void on_break(struct hf_task *task)
{
	struct hf_recovery *recovery = hf_container_of(task, struct hf_recovery, promises.break_task);

	break_list(recovery, &recovery->promises.broken);
}

static void end_list(struct hf_list *list, const struct hf_delays *delays,
		     void (*drop)(struct hf_promise *promise))
{
	hf_list_for_each_safe(link, list) {
		struct hf_promise *promise = promise_of(link);

		if (promise->delays != delays)
			continue;
		hf_link_remove(link);
		if (drop)
			drop(promise);
	}
}

void hf_delays_end(const struct hf_delays *delays, void (*drop)(struct hf_promise *promise))
{
	struct hf_promises *promises = &delays->recovery->promises;

	end_list(&promises->by_client, delays, drop);
	end_list(&promises->by_lock, delays, drop);
	end_list(&promises->broken, delays, drop);
}

void hf_promises_init(struct hf_recovery *recovery)
{
	struct hf_promises *promises = &recovery->promises;

	hf_list_init(&promises->by_client);
	hf_list_init(&promises->by_lock);
	hf_list_init(&promises->broken);
	hf_task_init(&promises->break_task, on_break);
}

/* No reply is sent any more, as if the server had been killed. */
void hf_promises_deinit(struct hf_recovery *recovery)
{
	struct hf_promises *promises = &recovery->promises;
	struct hf_list *lists[] = { &promises->by_client, &promises->by_lock, &promises->broken };

	hf_task_cancel(&promises->break_task);
	for (size_t i = 0; i < HF_ARRAY_SIZE(lists); i++)
		while (hf_list_pop_front(lists[i]))
			continue;
}
