/*
 * A share has a number in the lock table and a name in the store; a file has a key in
 * the lock table and a handle at the clients. The options translate (struct
 * hf_recovery_shares). Without them the name of a share is its number, and the key of
 * a file is its handle.
 */
#include <stdio.h>

#include "recovery/internal.h"

static struct hf_bytes number_name(void *user, uint32_t share)
{
	struct hf_recovery *recovery = user;
	int n;

	if (share == 0) /* the common case, where another server made the handles */
		return hf_bytes_of_str("0");
	n = snprintf(recovery->share_text, sizeof(recovery->share_text), "%u", share);

	return hf_bytes_of(recovery->share_text, (uint32_t)n);
}

static bool find_number(void *user, struct hf_bytes name, uint32_t *sharep)
{
	uint64_t value = 0;

	if (name.len == 0 || name.len > 10)
		return false;
	for (uint32_t i = 0; i < name.len; i++) {
		if (name.data[i] < '0' || name.data[i] > '9')
			return false;
		value = value * 10 + (name.data[i] - '0');
	}
	*sharep = (uint32_t)value;
	return value <= UINT32_MAX;
}

void hf_share_names_init(struct hf_recovery *recovery)
{
	if (recovery->options.shares)
		recovery->shares = *recovery->options.shares;
	else
		recovery->shares = (struct hf_recovery_shares){ .name = number_name,
								.find = find_number,
								.user = recovery };
}

struct hf_bytes hf_recovery_share_name(struct hf_recovery *recovery, uint32_t share)
{
	return recovery->shares.name(recovery->shares.user, share);
}

struct hf_bytes hf_share_names_key_of(struct hf_recovery *recovery, uint32_t share, struct hf_bytes handle,
				      uint8_t room[HF_LOCK_HANDLE_MAX])
{
	if (!recovery->shares.key)
		return handle;
	return recovery->shares.key(recovery->shares.user, share, handle, room);
}

struct hf_bytes hf_recovery_handle_of(struct hf_recovery *recovery, uint32_t share, struct hf_bytes key,
				      uint8_t room[HF_LOCK_HANDLE_MAX])
{
	if (!recovery->shares.handle)
		return key;
	return recovery->shares.handle(recovery->shares.user, share, key, room);
}
