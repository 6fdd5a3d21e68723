/*
 * Universal addresses (RFC 5665): how rpcbind writes an address with its port,
 * "192.0.2.1.8.1" for port 2049, "2001:db8::1.8.1".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/addr.h"
#include "base/bytes.h"

#define HF_UADDR_TEXT 64 /* room for any, with its NUL */

/* Reads text from a peer. A zone ("%eth0") is skipped: it means something only on the peer. */
bool hf_uaddr_parse(struct hf_addr *addr, struct hf_bytes text);
const char *hf_uaddr_format(const struct hf_addr *addr, char *out, size_t size);
