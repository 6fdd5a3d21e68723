#include "rpc/uaddr.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* Takes ".N", N from 0 to 255, off the end of the text. */
static bool take_byte(unsigned int *bytep, struct hf_bytes *text)
{
	unsigned int value = 0, scale = 1, n = 0;

	while (text->len && text->data[text->len - 1] != '.') {
		uint8_t c = text->data[--text->len];

		if (c < '0' || c > '9' || ++n > 3)
			return false;
		value += scale * (unsigned int)(c - '0');
		scale *= 10;
	}
	if (!text->len || !n || value > 255)
		return false;
	text->len--; /* the dot */
	*bytep = value;
	return true;
}

bool hf_uaddr_parse(struct hf_addr *addr, struct hf_bytes text)
{
	char host[HF_UADDR_TEXT];
	unsigned int high, low;
	const uint8_t *zone;

	if (!take_byte(&low, &text) || !take_byte(&high, &text))
		return false;
	zone = memchr(text.data, '%', text.len);
	if (zone)
		text.len = (uint32_t)(zone - text.data);
	if (text.len >= sizeof(host) || memchr(text.data, '\0', text.len))
		return false;
	memcpy(host, text.data, text.len);
	host[text.len] = '\0';
	if (!hf_addr_parse(addr, host))
		return false;
	addr->port = (uint16_t)(high << 8 | low);
	return true;
}

const char *hf_uaddr_format(const struct hf_addr *addr, char *out, size_t size)
{
	char host[INET6_ADDRSTRLEN];

	if (!addr->family || !inet_ntop(addr->family, addr->ip, host, sizeof(host)))
		host[0] = '\0';
	snprintf(out, size, "%s.%u.%u", host, addr->port >> 8, addr->port & 255u);
	return out;
}
