/* Writes bytes from peers as text that any database accepts. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "store/checksum.h"
#include "store/postgres/internal.h"

static const char digits[] = "0123456789abcdef";

size_t hf_pg_escape(char *out, struct hf_bytes bytes)
{
	char *p = out;

	for (uint32_t i = 0; i < bytes.len; i++) {
		uint8_t c = bytes.data[i];

		if (c >= 0x20 && c < 0x7f && c != '\\') {
			*p++ = (char)c;
			continue;
		}
		*p++ = '\\';
		*p++ = 'x';
		*p++ = digits[c >> 4];
		*p++ = digits[c & 15];
	}
	*p = '\0';
	return (size_t)(p - out);
}

static int digit(char c)
{
	const char *p = c ? strchr(digits, c) : NULL;

	return p ? (int)(p - digits) : -1;
}

int hf_pg_unescape(uint8_t *out, const char *text, size_t len)
{
	uint8_t *p = out;

	for (size_t i = 0; i < len; i++) {
		int high, low;

		if (text[i] != '\\') {
			*p++ = (uint8_t)text[i];
			continue;
		}
		if (len - i < 4 || text[i + 1] != 'x')
			return -EBADMSG;
		high = digit(text[i + 2]);
		low = digit(text[i + 3]);
		if (high < 0 || low < 0)
			return -EBADMSG;
		*p++ = (uint8_t)(high << 4 | low);
		i += 3;
	}
	return (int)(p - out);
}

/* An index takes no long keys. lmdb/key.c says which registrations two names of the same checksum confuse;
 * write_put() in statements.c lets one statement have both. */
size_t hf_pg_client_key(char *out, struct hf_bytes id)
{
	char text[HF_PG_MAX_TEXT(HF_STORE_MAX_ID)];
	size_t len = hf_pg_escape(text, id);

	if (len < HF_PG_MAX_KEY) {
		memcpy(out, text, len + 1);
		return len;
	}
	memcpy(out, text, HF_PG_MAX_KEY - 18);
	snprintf(out + HF_PG_MAX_KEY - 18, 18, "#%016llx", (unsigned long long)hf_checksum(text, len));
	return HF_PG_MAX_KEY - 1;
}

void hf_pg_addr_write(uint8_t out[HF_PG_ADDR], const struct hf_addr *addr)
{
	uint16_t port = htobe16(addr->port);
	uint32_t scope = htobe32(addr->scope);

	out[0] = addr->family;
	memcpy(out + 1, addr->ip, 16);
	memcpy(out + 17, &port, sizeof(port));
	memcpy(out + 19, &scope, sizeof(scope));
}

bool hf_pg_addr_read(struct hf_addr *addr, struct hf_bytes bytes)
{
	uint16_t port;
	uint32_t scope;

	memset(addr, 0, sizeof(*addr));
	if (bytes.len != HF_PG_ADDR)
		return false;
	addr->family = bytes.data[0];
	memcpy(addr->ip, bytes.data + 1, 16);
	memcpy(&port, bytes.data + 17, sizeof(port));
	memcpy(&scope, bytes.data + 19, sizeof(scope));
	addr->port = be16toh(port);
	addr->scope = be32toh(scope);
	return addr->family == 0 || addr->family == AF_INET || addr->family == AF_INET6;
}
