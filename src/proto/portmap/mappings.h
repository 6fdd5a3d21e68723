/*
 * Who serves what where: the table behind the embedded port mapper.
 *
 * Invariants: a (program, version, netid) is in it at most once. A program that
 * we serve ourselves is ours alone: no foreign mapping of any of its versions is
 * in it. Foreign mappings are bounded in number, and those of unprivileged callers
 * to a part of that, so that a program that root starts finds room. A mapping has
 * a fixed size.
 *
 * Lookups walk the table: it is short where it is ours alone, and at its bound
 * takes about a microsecond.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "proto/portmap/netid.h"

#define HF_MAPPINGS_MAX_FOREIGN 1024
#define HF_MAPPINGS_MAX_UNKNOWN 256 /* of these, those of unprivileged callers */

/* As rpcbind tells local callers apart: by their source port. */
enum hf_mapping_owner {
	HF_OWNER_US,
	HF_OWNER_SUPERUSER, /* called from a port below 1024 */
	HF_OWNER_UNKNOWN,   /* any unprivileged process of this host */
};

struct hf_mapping {
	uint32_t program;
	uint32_t version;
	enum hf_netid netid;
	enum hf_mapping_owner owner;
	struct hf_addr addr; /* with port; often the unspecified address */
};

struct hf_mappings {
	struct hf_mapping *all; /* in the order of their coming */
	size_t n;
	size_t n_foreign;
	size_t n_unknown; /* of these, HF_OWNER_UNKNOWN's */
	size_t capacity;
};

/* Answers */
enum {
	HF_MAPPINGS_OK = 0,
	HF_MAPPINGS_E_TAKEN,     /* another program has it, at another address */
	HF_MAPPINGS_E_OURS,      /* a program of our own */
	HF_MAPPINGS_E_NOT_YOURS, /* the superuser's: not removed */
	HF_MAPPINGS_E_RESERVED,  /* its port is for the superuser */
	HF_MAPPINGS_E_LIMIT,
};

void hf_mappings_init(struct hf_mappings *mappings);
void hf_mappings_deinit(struct hf_mappings *mappings);

/* Ours come first: they are added before others can ask. A mapping that is there already, at the same
 * address, is fine. The superuser takes over a mapping that an unprivileged caller has set. */
int hf_mappings_set(struct hf_mappings *mappings, const struct hf_mapping *mapping);

/* Of the @netids (HF_NETID_BIT); that there was none is fine. */
int hf_mappings_unset(struct hf_mappings *mappings, uint32_t program, uint32_t version, unsigned int netids,
		      enum hf_mapping_owner owner);

const struct hf_mapping *hf_mappings_find(const struct hf_mappings *mappings, uint32_t program,
					  uint32_t version, enum hf_netid netid);
/* That version, or where it is not there any other: so rpcbind answers, and so a client that asks for
 * version 0 ("rpcinfo -T tcp HOST PROGRAM") or a version that is too new finds the server, which then tells
 * it the range of its versions. */
const struct hf_mapping *hf_mappings_find_any_version(const struct hf_mappings *mappings, uint32_t program,
						      uint32_t version, enum hf_netid netid);
/* Ports of programs that root starts: those below 1024, and that of NFS. */
bool hf_mapping_port_is_reserved(uint16_t port);
const char *hf_mapping_owner_name(enum hf_mapping_owner owner);
