/*
 * The sockets with which a node changes its host: addresses come and go, are
 * announced, and clients are made to speak.
 *
 * Raw, packet and netlink sockets need rights that the sandbox takes away, and
 * address families that it forbids. So they are opened once, before the
 * sandbox. An open raw or packet socket needs no further right. The kernel
 * asks for CAP_NET_ADMIN again with each change of an address: address.c
 * raises it for that time only. One thread at a time uses them.
 */
#pragma once

#include <stddef.h>

#include "cluster/netlink.h"

struct hf_service_address;

struct hf_host {
	struct hf_netlink route;
	int packet; /* link layer; receives nothing */
	int raw[2]; /* IPv4, IPv6, with headers that the server makes; receive nothing; -1: no such address */
};

/* What the addresses need. On failure @error says what to do, and nothing is open. */
int hf_host_open(struct hf_host *host, const struct hf_service_address *addresses, size_t n, char *error,
		 size_t error_size);
/* Also for an HF_HOST_CLOSED. */
void hf_host_close(struct hf_host *host);

#define HF_HOST_CLOSED                                                 \
	{                                                              \
		.route = { .fd = -1 }, .packet = -1, .raw = { -1, -1 } \
	}
