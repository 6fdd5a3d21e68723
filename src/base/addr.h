/*
 * A peer's address: IPv4 or IPv6, with a port. IPv4-mapped IPv6 addresses
 * (::ffff:a.b.c.d) become IPv4 on input, so that one host is one key on every
 * socket. Unused bytes are zero: two addresses are equal when their bytes are.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#define HF_ADDR_TEXT 64 /* room for any text form below, with its NUL */

struct hf_addr {
	uint8_t ip[16]; /* IPv4 uses the first four */
	uint32_t scope; /* interface of a link-local IPv6 address, else 0 */
	uint16_t port;  /* host byte order */
	uint8_t family; /* AF_INET, AF_INET6; 0: none */
	uint8_t unused;
};

/* From and to the kernel's form */
bool hf_addr_from_sockaddr(struct hf_addr *addr, const struct sockaddr *sa);
socklen_t hf_addr_to_sockaddr(const struct hf_addr *addr, struct sockaddr_storage *ss);
/* The same for a socket of @family: on an AF_INET6 socket an IPv4 address becomes IPv4-mapped. */
socklen_t hf_addr_to_sockaddr_on(const struct hf_addr *addr, int family, struct sockaddr_storage *ss);

/* Text: "192.0.2.1", "2001:db8::1"; with port "192.0.2.1:2049", "[2001:db8::1]:2049". */
bool hf_addr_parse(struct hf_addr *addr, const char *text);           /* an address without port; no name */
bool hf_addr_parse_with_port(struct hf_addr *addr, const char *text); /* host:port, [v6]:port */
const char *hf_addr_format(const struct hf_addr *addr, char *out, size_t size);
const char *hf_addr_format_with_port(const struct hf_addr *addr, char *out, size_t size);

/* Questions */
/* Ignores the ports. */
static inline bool hf_addr_same_host(const struct hf_addr *a, const struct hf_addr *b)
{
	return memcmp(a->ip, b->ip, 16) == 0 && a->scope == b->scope && a->family == b->family;
}

static inline bool hf_addr_equal(const struct hf_addr *a, const struct hf_addr *b)
{
	return hf_addr_same_host(a, b) && a->port == b->port;
}

/* Ports below this one: on a host that follows BSD's rule, only the superuser may call from them. */
#define HF_ADDR_RESERVED_PORTS 1024

static inline bool hf_addr_has_reserved_port(const struct hf_addr *addr)
{
	return addr->port < HF_ADDR_RESERVED_PORTS;
}

bool hf_addr_is_any(const struct hf_addr *addr);
bool hf_addr_is_loopback(const struct hf_addr *addr);
bool hf_addr_is_private(const struct hf_addr *addr); /* loopback, RFC 1918, unique local */
/* May the server call this address? It calls no unspecified, multicast or broadcast address, and not
 * 169.254.169.254, the metadata service of a cloud. Clients have the other link-local addresses. */
bool hf_addr_is_callable(const struct hf_addr *addr);

/* A network: an address and the number of leading bits to compare. */
struct hf_network {
	struct hf_addr addr;
	uint8_t bits;
};

bool hf_network_parse(struct hf_network *network, const char *text); /* "10.0.0.0/8", "::1", "10.1.2.3" */
bool hf_network_contains(const struct hf_network *network, const struct hf_addr *addr);
