/* How many steps may a search take? */
#pragma once

#include "lock/internal.h"

/* How many steps a search may take for @client now. */
uint64_t hf_steps_left(struct hf_locks *locks, struct hf_lock_client *client, uint64_t now);
/* Nothing is left but what each request has. */
bool hf_steps_are_spent(struct hf_locks *locks, struct hf_lock_client *client, uint64_t now);
HF_COLD void hf_steps_charge_some(struct hf_locks *locks, struct hf_lock_client *client);
/* The end of a call for @client: what it has cost. NULL: it was for no client, and costs none. */
static inline void hf_steps_charge(struct hf_locks *locks, struct hf_lock_client *client)
{
	if (HF_UNLIKELY(locks->n_steps))
		hf_steps_charge_some(locks, client);
}
