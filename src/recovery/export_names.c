/*
 * An export has a number in the lock table and a name in the store; a file has a key in
 * the lock table and a handle at the clients. The options translate (struct
 * hf_recovery_exports). Without them the name of an export is its number, and the key of
 * a file is its handle.
 */
#include <stdio.h>

#include "recovery/internal.h"

static struct hf_bytes number_name(void *user, uint32_t export)
{
	struct hf_recovery *recovery = user;
	int n;

	if (export == 0) /* the common case, where another server made the handles */
		return hf_bytes_of_str("0");
	n = snprintf(recovery->export_text, sizeof(recovery->export_text), "%u", export);

	return hf_bytes_of(recovery->export_text, (uint32_t)n);
}

static bool find_number(void *user, struct hf_bytes name, uint32_t *exportp)
{
	uint64_t value = 0;

	if (name.len == 0 || name.len > 10)
		return false;
	for (uint32_t i = 0; i < name.len; i++) {
		if (name.data[i] < '0' || name.data[i] > '9')
			return false;
		value = value * 10 + (name.data[i] - '0');
	}
	*exportp = (uint32_t)value;
	return value <= UINT32_MAX;
}

void hf_export_names_init(struct hf_recovery *recovery)
{
	if (recovery->options.exports)
		recovery->exports = *recovery->options.exports;
	else
		recovery->exports = (struct hf_recovery_exports){ .name = number_name,
								  .find = find_number,
								  .user = recovery };
}

struct hf_bytes hf_recovery_export_name(struct hf_recovery *recovery, uint32_t export)
{
	return recovery->exports.name(recovery->exports.user, export);
}

struct hf_bytes hf_export_names_key_of(struct hf_recovery *recovery, uint32_t export, struct hf_bytes handle,
				       uint8_t room[HF_LOCK_HANDLE_MAX])
{
	if (!recovery->exports.key)
		return handle;
	return recovery->exports.key(recovery->exports.user, export, handle, room);
}

struct hf_bytes hf_recovery_handle_of(struct hf_recovery *recovery, uint32_t export, struct hf_bytes key,
				      uint8_t room[HF_LOCK_HANDLE_MAX])
{
	if (!recovery->exports.handle)
		return key;
	return recovery->exports.handle(recovery->exports.user, export, key, room);
}
