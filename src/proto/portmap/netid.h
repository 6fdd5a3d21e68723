/*
 * Network identifiers (RFC 5665): rpcbind's names of transports, such as
 * "tcp6".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/bytes.h"

enum hf_netid {
	HF_NETID_UDP,
	HF_NETID_TCP,
	HF_NETID_UDP6,
	HF_NETID_TCP6,
	HF_N_NETIDS, /* also the value for "none of these" */
};

/* Sets of identifiers */
#define HF_NETID_BIT(netid) (1u << (netid))
#define HF_NETIDS_IPV4      (HF_NETID_BIT(HF_NETID_UDP) | HF_NETID_BIT(HF_NETID_TCP))
#define HF_NETIDS_IPV6      (HF_NETID_BIT(HF_NETID_UDP6) | HF_NETID_BIT(HF_NETID_TCP6))
#define HF_NETIDS_ALL       (HF_NETIDS_IPV4 | HF_NETIDS_IPV6)

static inline unsigned int hf_netids_of(int family)
{
	return family == AF_INET6 ? HF_NETIDS_IPV6 : HF_NETIDS_IPV4;
}

struct hf_netid_info {
	const char *name;
	const char *family_name; /* as in netconfig(5) */
	const char *proto_name;
	uint8_t family;     /* AF_ */
	uint8_t protocol;   /* IPPROTO_ */
	uint32_t semantics; /* 1: datagrams, 3: a stream with an orderly end */
};

const struct hf_netid_info *hf_netid_info(enum hf_netid netid);
const char *hf_netid_name(enum hf_netid netid);

/* HF_N_NETIDS if there is none. */
enum hf_netid hf_netid_parse(struct hf_bytes name);
enum hf_netid hf_netid_of(int family, int protocol);

/* Parses a universal address (rpc/uaddr.h) of @netid's family; false: it is none. */
bool hf_netid_parse_uaddr(struct hf_addr *addr, enum hf_netid netid, struct hf_bytes text);
