/* How many steps may a search take? */
#pragma once

#include "lock/internal.h"

/* How many steps a search may take for @client now. */
uint64_t hf_work_left(struct hf_locks *locks, struct hf_lock_client *client, uint64_t now);
/* Nothing is left but what each request has. */
bool hf_work_is_spent(struct hf_locks *locks, struct hf_lock_client *client, uint64_t now);
HF_COLD void hf_work_charge_steps(struct hf_locks *locks, struct hf_lock_client *client);
/* The end of a call for @client: what it has cost. NULL: it was for no client, and costs none. */
static inline void hf_work_charge(struct hf_locks *locks, struct hf_lock_client *client)
{
	if (HF_UNLIKELY(locks->n_steps))
		hf_work_charge_steps(locks, client);
}
