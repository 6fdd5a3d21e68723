#include "base/addr.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t mapped_prefix[12] = { [10] = 0xff, [11] = 0xff };

static void set_v6(struct hf_addr *addr, const uint8_t ip[16])
{
	if (memcmp(ip, mapped_prefix, sizeof(mapped_prefix)) == 0) {
		addr->family = AF_INET;
		memcpy(addr->ip, ip + 12, 4);
	} else {
		addr->family = AF_INET6;
		memcpy(addr->ip, ip, 16);
	}
}

bool hf_addr_from_sockaddr(struct hf_addr *addr, const struct sockaddr *sa)
{
	memset(addr, 0, sizeof(*addr));
	if (sa->sa_family == AF_INET) {
		struct sockaddr_in in;

		memcpy(&in, sa, sizeof(in));
		addr->family = AF_INET;
		memcpy(addr->ip, &in.sin_addr, 4);
		addr->port = ntohs(in.sin_port);
		return true;
	}
	if (sa->sa_family == AF_INET6) {
		struct sockaddr_in6 in6;

		memcpy(&in6, sa, sizeof(in6));
		set_v6(addr, in6.sin6_addr.s6_addr);
		addr->port = ntohs(in6.sin6_port);
		if (addr->family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr))
			addr->scope = in6.sin6_scope_id;
		return true;
	}
	return false;
}

socklen_t hf_addr_to_sockaddr(const struct hf_addr *addr, struct sockaddr_storage *ss)
{
	return hf_addr_to_sockaddr_on(addr, addr->family, ss);
}

socklen_t hf_addr_to_sockaddr_on(const struct hf_addr *addr, int family, struct sockaddr_storage *ss)
{
	memset(ss, 0, sizeof(*ss));
	if (family == AF_INET) {
		struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(addr->port) };

		memcpy(&in.sin_addr, addr->ip, 4);
		memcpy(ss, &in, sizeof(in));
		return sizeof(in);
	}

	struct sockaddr_in6 in6 = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(addr->port),
		.sin6_scope_id = addr->scope,
	};

	if (addr->family == AF_INET) {
		memcpy(in6.sin6_addr.s6_addr, mapped_prefix, sizeof(mapped_prefix));
		memcpy(in6.sin6_addr.s6_addr + 12, addr->ip, 4);
	} else {
		memcpy(&in6.sin6_addr, addr->ip, 16);
	}
	memcpy(ss, &in6, sizeof(in6));
	return sizeof(in6);
}

bool hf_addr_parse(struct hf_addr *addr, const char *text)
{
	uint8_t ip[16];
	char buf[HF_ADDR_TEXT];
	const char *percent;

	memset(addr, 0, sizeof(*addr));
	if (inet_pton(AF_INET, text, ip) == 1) {
		addr->family = AF_INET;
		memcpy(addr->ip, ip, 4);
		return true;
	}
	percent = strchr(text, '%');
	if (percent) {
		size_t len = (size_t)(percent - text);

		if (len >= sizeof(buf))
			return false;
		memcpy(buf, text, len);
		buf[len] = '\0';
		addr->scope = if_nametoindex(percent + 1);
		if (!addr->scope)
			return false;
		text = buf;
	}
	if (inet_pton(AF_INET6, text, ip) != 1)
		return false;
	set_v6(addr, ip);
	return true;
}

static bool parse_port(uint16_t *portp, const char *text)
{
	char *end;
	unsigned long port;

	if (*text < '0' || *text > '9')
		return false;
	port = strtoul(text, &end, 10);
	if (*end || port > UINT16_MAX)
		return false;
	*portp = (uint16_t)port;
	return true;
}

bool hf_addr_parse_with_port(struct hf_addr *addr, const char *text)
{
	const char *colon = strrchr(text, ':');
	char host[HF_ADDR_TEXT];
	size_t len;

	if (!colon)
		return false;
	len = (size_t)(colon - text);
	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		text++;
		len -= 2;
	} else if (memchr(text, ':', len)) {
		return false; /* a bare IPv6 address: no colon marks the port */
	}
	if (len >= sizeof(host))
		return false;
	memcpy(host, text, len);
	host[len] = '\0';
	return hf_addr_parse(addr, host) && parse_port(&addr->port, colon + 1);
}

const char *hf_addr_format(const struct hf_addr *addr, char *out, size_t size)
{
	char name[IF_NAMESIZE];

	if (!addr->family || !inet_ntop(addr->family, addr->ip, out, (socklen_t)size))
		snprintf(out, size, "-");
	else if (addr->scope && strlen(out) + 1 + IF_NAMESIZE < size && if_indextoname(addr->scope, name))
		snprintf(out + strlen(out), size - strlen(out), "%%%s", name);
	return out;
}

const char *hf_addr_format_with_port(const struct hf_addr *addr, char *out, size_t size)
{
	char host[HF_ADDR_TEXT];

	hf_addr_format(addr, host, sizeof(host));
	if (addr->family == AF_INET6)
		snprintf(out, size, "[%s]:%u", host, addr->port);
	else
		snprintf(out, size, "%s:%u", host, addr->port);
	return out;
}

bool hf_addr_is_any(const struct hf_addr *addr)
{
	static const uint8_t zero[16];

	return memcmp(addr->ip, zero, sizeof(zero)) == 0;
}

bool hf_addr_is_loopback(const struct hf_addr *addr)
{
	static const uint8_t loopback6[16] = { [15] = 1 };

	if (addr->family == AF_INET)
		return addr->ip[0] == 127;
	return addr->family == AF_INET6 && memcmp(addr->ip, loopback6, 16) == 0;
}

bool hf_addr_is_private(const struct hf_addr *addr)
{
	const uint8_t *ip = addr->ip;

	if (hf_addr_is_loopback(addr))
		return true;
	if (addr->family == AF_INET)
		return ip[0] == 10 || (ip[0] == 172 && (ip[1] & 0xf0) == 16) ||
		       (ip[0] == 192 && ip[1] == 168);
	return addr->family == AF_INET6 && (ip[0] & 0xfe) == 0xfc;
}

bool hf_addr_is_callable(const struct hf_addr *addr)
{
	static const uint8_t metadata[] = { 169, 254, 169, 254 };
	const uint8_t *ip = addr->ip;

	if (addr->family == AF_INET)
		return ip[0] != 0 && ip[0] < 224 && memcmp(ip, metadata, sizeof(metadata)) != 0;
	return addr->family == AF_INET6 && ip[0] != 0xff && !hf_addr_is_any(addr);
}

bool hf_network_parse(struct hf_network *network, const char *text)
{
	const char *slash = strchr(text, '/');
	char host[HF_ADDR_TEXT];
	uint16_t bits;
	uint8_t most;

	if (slash) {
		size_t len = (size_t)(slash - text);

		if (len >= sizeof(host))
			return false;
		memcpy(host, text, len);
		host[len] = '\0';
		text = host;
	}
	if (!hf_addr_parse(&network->addr, text))
		return false;
	most = network->addr.family == AF_INET ? 32 : 128;
	bits = most;
	if (slash && (!parse_port(&bits, slash + 1) || bits > most))
		return false;
	network->bits = (uint8_t)bits;
	return true;
}

bool hf_network_contains(const struct hf_network *network, const struct hf_addr *addr)
{
	uint8_t whole = network->bits / 8;
	uint8_t rest = network->bits % 8;

	if (network->addr.family != addr->family)
		return false;
	if (memcmp(network->addr.ip, addr->ip, whole) != 0)
		return false;
	return rest == 0 || ((network->addr.ip[whole] ^ addr->ip[whole]) >> (8 - rest)) == 0;
}
