/*
 * Questions and orders to the kernel's routing tables (rtnetlink(7)) over one
 * socket that is opened before the sandbox. Every length in an answer is
 * checked before it is used. One thread at a time uses a socket.
 */
#pragma once

#include <linux/netlink.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

#define HF_NETLINK_TIMEOUT_MS 1000 /* for the whole answer to one request */

struct hf_netlink {
	int fd;
	uint32_t sequence; /* of the last request */
};

/* A request in the making. */
struct hf_netlink_request {
	union {
		struct nlmsghdr header;
		uint8_t bytes[256];
	};
};

/* One message of an answer: its type and what follows the header. */
typedef void (*hf_netlink_fn)(void *user, uint16_t type, struct hf_bytes body);

/* @groups: bits (RTMGRP_LINK and so on) of the changes that the kernel reports. */
int hf_netlink_open(struct hf_netlink *netlink, uint32_t groups);
void hf_netlink_close(struct hf_netlink *netlink);

/* The request is as long as its parts; more than it has room for is a mistake of the caller. */
void hf_netlink_begin(struct hf_netlink_request *request, uint16_t type, uint16_t flags, const void *body,
		      size_t len);
void hf_netlink_add(struct hf_netlink_request *request, uint16_t type, const void *value, size_t len);

/* Sends the request, and does not wait for an answer. */
int hf_netlink_send(struct hf_netlink *netlink, struct hf_netlink_request *request);
/* Sends the request, calls @fn, if any, for each message of the answer, and returns when the kernel has
 * acknowledged it: 0, or an -errno of the kernel or of this call, -ETIMEDOUT among them. */
int hf_netlink_ask(struct hf_netlink *netlink, struct hf_netlink_request *request, hf_netlink_fn fn,
		   void *user);

/* Takes the first message from the bytes of a read. false: there is no further whole message. */
bool hf_netlink_next(struct hf_bytes *bytes, struct nlmsghdr *header, struct hf_bytes *body);
/* The first attribute of @type after the @fixed bytes that begin a body; empty (data NULL) if there is none.
 */
struct hf_bytes hf_netlink_find(struct hf_bytes body, size_t fixed, uint16_t type);
/* The error in the body of an NLMSG_ERROR: 0 for an acknowledgement, else -errno. */
int hf_netlink_error(struct hf_bytes body);
