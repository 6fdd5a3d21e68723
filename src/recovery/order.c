/* An operator releases a single lock. The client does not learn of it. */
#include "recovery/internal.h"

int hf_recovery_revoke(struct hf_recovery *recovery, const struct hf_lock_view *lock)
{
	const struct hf_lock_target who = lock->who;
	struct hf_client *client = hf_client_ref(hf_client_of(who.client));
	int r;

	/* The observers see the lock while it exists, and before they see who gets it. */
	hf_observe_tell(recovery, &(struct hf_recovery_event){ .kind = HF_EVENT_UNLOCK,
							       .client = client,
							       .lock = lock,
							       .reason = "an operator released it" });
	r = hf_lock_revoke(recovery->locks, &who, lock->range);
	hf_client_unref(client);
	return r;
}
