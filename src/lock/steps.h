/* How many steps of searches may one address cause? */
#pragma once

#include "lock/internal.h"

#define HF_STEPS_OF_A_GROUP (UINT64_C(1) << 18) /* at once */

/* How many steps a search may take for @client now. */
uint64_t hf_steps_left(struct hf_locks *locks, struct hf_lock_client *client, uint64_t now);
/* Has @client only the FREE steps left that each request has? */
bool hf_steps_are_spent(struct hf_locks *locks, struct hf_lock_client *client, uint64_t now);
/* What is charged to @group, after its decay. */
uint64_t hf_steps_spent(const struct hf_lock_group *group, uint64_t now);
HF_COLD void hf_steps_charge_some(struct hf_locks *locks, struct hf_lock_client *client);
/* Ends a call: charges its steps to @client. NULL: the call was for no client and is not charged. */
static inline void hf_steps_charge(struct hf_locks *locks, struct hf_lock_client *client)
{
	if (HF_UNLIKELY(locks->n_steps))
		hf_steps_charge_some(locks, client);
}
