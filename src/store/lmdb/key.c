/* The keys of facts in LMDB. */
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "store/checksum.h"
#include "store/lmdb/internal.h"

#define TAIL 17 /* '#' and 16 digits */

void hf_lmdb_key_of_text(struct hf_lmdb_key *key, const char *text)
{
	key->is_lock = false;
	key->len = strlen(text);
	memcpy(key->data, text, key->len);
}

static void add_id(struct hf_lmdb_key *key, uint64_t id)
{
	uint64_t be = htobe64(id);

	memcpy(key->data + key->len, &be, sizeof(be));
	key->len += sizeof(be);
}

void hf_lmdb_key_of_lock(struct hf_lmdb_key *key, uint64_t id)
{
	hf_lmdb_key_of_text(key, "lock:");
	add_id(key, id);
	key->is_lock = true;
}

void hf_lmdb_key_of_waiter(struct hf_lmdb_key *key, uint64_t id)
{
	hf_lmdb_key_of_text(key, "waiter:");
	add_id(key, id);
}

void hf_lmdb_key_of_reservation(struct hf_lmdb_key *key, uint64_t id)
{
	hf_lmdb_key_of_text(key, "share:");
	add_id(key, id);
}

/* A key that is too long is cut and ends in a checksum of the whole. A peer that finds two names with the
 * same checksum can only confuse its own registrations: an id starts with protocol and address. */
static void set_key(struct hf_lmdb_key *key, const char *text, size_t len)
{
	char tail[TAIL + 1];

	key->is_lock = false;
	key->len = len;
	if (len <= HF_LMDB_MAX_KEY) {
		memcpy(key->data, text, len);
		return;
	}
	key->len = HF_LMDB_MAX_KEY;
	snprintf(tail, sizeof(tail), "#%016llx", (unsigned long long)hf_checksum(text, len));
	memcpy(key->data, text, HF_LMDB_MAX_KEY - TAIL);
	memcpy(key->data + HF_LMDB_MAX_KEY - TAIL, tail, TAIL);
}

void hf_lmdb_key_of_client(struct hf_lmdb_key *key, struct hf_bytes id)
{
	char text[16 + HF_STORE_MAX_ID];
	int n = snprintf(text, sizeof(text), "nsm:client:");

	memcpy(text + n, id.data, id.len);
	set_key(key, text, (size_t)n + id.len);
}

void hf_lmdb_key_of_monname(struct hf_lmdb_key *key, struct hf_bytes name, struct hf_bytes id)
{
	char text[16 + HF_STORE_MAX_NAME + 1 + HF_STORE_MAX_ID];
	size_t n = (size_t)snprintf(text, sizeof(text), "nsm:monname:");

	if (name.len)
		memcpy(text + n, name.data, name.len);
	n += name.len;
	text[n++] = ':';
	memcpy(text + n, id.data, id.len);
	set_key(key, text, n + id.len);
}
