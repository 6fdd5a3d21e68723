/* Tells the observers of what happens to clients, grace and locks. */
#include <stdatomic.h>

#include "recovery/internal.h"

void hf_recovery_observe(struct hf_recovery *recovery, struct hf_recovery_observer *observer)
{
	hf_list_push_back(&recovery->observers, &observer->link);
}

void hf_observe_tell(struct hf_recovery *recovery, const struct hf_recovery_event *event)
{
	hf_list_for_each_safe(pos, &recovery->observers) {
		struct hf_recovery_observer *observer = hf_list_entry(pos, struct hf_recovery_observer, link);

		observer->fn(observer, event);
	}
}

bool hf_recovery_wants_locks(const struct hf_recovery *recovery)
{
	for (const struct hf_link *pos = recovery->observers.head.next; pos != &recovery->observers.head;
	     pos = pos->next) {
		const struct hf_recovery_observer *observer =
			(const struct hf_recovery_observer *)((const char *)pos -
							      offsetof(struct hf_recovery_observer, link));

		if (atomic_load_explicit(&observer->wants_locks, memory_order_relaxed))
			return true;
	}
	return false;
}

void hf_recovery_tell_lock(struct hf_recovery *recovery, enum hf_recovery_event_kind kind,
			   const struct hf_lock_view *lock)
{
	const struct hf_recovery_event event = {
		.kind = kind,
		.client = hf_client_of(lock->who.client),
		.lock = lock,
	};

	hf_list_for_each_safe(pos, &recovery->observers) {
		struct hf_recovery_observer *observer = hf_list_entry(pos, struct hf_recovery_observer, link);

		if (atomic_load_explicit(&observer->wants_locks, memory_order_relaxed))
			observer->fn(observer, &event);
	}
}
