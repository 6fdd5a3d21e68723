#include "client/host_name.h"

#include <string.h>

#include "base/addr.h"
#include "base/macros.h"
#include "client/client.h"

bool hf_host_name_is_address(struct hf_bytes name)
{
	char text[HF_ADDR_TEXT];
	struct hf_addr addr;

	if (name.len >= sizeof(text))
		return false;
	memcpy(text, name.data, name.len);
	text[name.len] = '\0';
	return hf_addr_parse(&addr, text);
}

static uint32_t before_last_colon(struct hf_bytes name)
{
	const uint8_t *colon = name.len ? memrchr(name.data, ':', name.len) : NULL;

	return colon ? (uint32_t)(colon - name.data) : name.len;
}

static uint32_t before_dot_or_colon(struct hf_bytes name)
{
	uint32_t len = 0;

	while (len < name.len && name.data[len] != '.' && name.data[len] != ':')
		len++;
	return len;
}

static uint32_t stem_of(struct hf_bytes name)
{
	uint32_t host = before_last_colon(name);

	if (hf_host_name_is_address(name))
		return name.len;
	if (host != name.len && hf_host_name_is_address(hf_bytes_of(name.data, host)))
		return host;
	return before_dot_or_colon(name);
}

uint64_t hf_host_name_hash(const struct hf_siphash_key *key, struct hf_bytes name)
{
	uint8_t lower[HF_CLIENT_MAX_NAME];
	uint32_t len = HF_MIN(stem_of(name), (uint32_t)sizeof(lower));

	for (uint32_t i = 0; i < len; i++)
		lower[i] = name.data[i] >= 'A' && name.data[i] <= 'Z' ? name.data[i] | 0x20 : name.data[i];
	return hf_siphash(key, lower, len);
}
