/*
 * Makes the clients of a predecessor speak.
 *
 * After a takeover this node's kernel knows nothing of the connections that
 * clients had with the node before. It resets each one as soon as the client
 * sends a segment. A client that only waits for an answer sends nothing for
 * minutes. So this node sends it a segment that cannot belong to the stream: an
 * ACK whose sequence number is outside the window. The client's kernel must
 * answer with the numbers that it expects (RFC 9293 3.10.7.4). This node's
 * kernel resets the connection with exactly these numbers, and the client
 * connects again at once.
 *
 * Where a connection is known here already, the answer changes nothing. Where
 * the client has closed it, its kernel answers with a reset, which the kernel
 * here ignores. A packet filter on this node that drops what belongs to no
 * known connection drops these segments, too.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"

struct hf_host;

/* A connection of the predecessor: both with port, of the same family. */
struct hf_nudge {
	struct hf_addr service;
	struct hf_addr client;
};

#define HF_NUDGE_BATCH 1000 /* connections that one call handles at most */

/* Nudges the first connections of the list and returns their number: at most HF_NUDGE_BATCH, or fewer if the
 * interface cannot send more now. Wait for some milliseconds before the rest. An entry that cannot be sent
 * (no way to the client, an address that is not one) counts as handled. Nothing confirms that the client has
 * heard it: repeat the whole list after half a second, as a client's kernel answers only twice a second. */
size_t hf_nudge_some(struct hf_host *host, const struct hf_nudge *list, size_t n);

/* What it sends: an IP header and a TCP header */
#define HF_NUDGE_PACKET 60

/* The packet's length; 0: this is no connection that can be nudged. */
size_t hf_nudge_encode(uint8_t out[HF_NUDGE_PACKET], const struct hf_nudge *nudge, uint32_t sequence);
