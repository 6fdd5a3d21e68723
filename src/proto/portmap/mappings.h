/*
 * The table of the embedded port mapper: which program is served at which
 * address.
 *
 * Invariants: a (program, version, netid) is in it at most once. A program that
 * this server provides is reserved: the table has no foreign mapping of any of
 * its versions. Foreign mappings are bounded, and those of unprivileged callers
 * to a part of that, so that a program started by root finds room. A mapping
 * has a fixed size.
 *
 * Lookups walk the table. It is short if it has only the server's own mappings;
 * at its bound a walk takes about a microsecond.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "proto/portmap/netid.h"

#define HF_MAPPINGS_MAX_FOREIGN 1024
#define HF_MAPPINGS_MAX_UNKNOWN 256 /* bound for mappings of unprivileged callers, among these */

/* Local callers are told apart by their source port, as in rpcbind. */
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
	struct hf_mapping *all; /* in the order of their registration */
	size_t n;
	size_t n_foreign;
	size_t n_unknown; /* those of HF_OWNER_UNKNOWN */
	size_t capacity;
	uint64_t n_refused;         /* beyond HF_MAPPINGS_MAX_FOREIGN */
	uint64_t n_refused_unknown; /* beyond HF_MAPPINGS_MAX_UNKNOWN */
};

/* Answers */
enum {
	HF_MAPPINGS_OK = 0,
	HF_MAPPINGS_E_TAKEN,     /* another program has it, at another address */
	HF_MAPPINGS_E_OURS,      /* it is one of the server's own programs */
	HF_MAPPINGS_E_NOT_YOURS, /* the superuser's mapping: not removed */
	HF_MAPPINGS_E_RESERVED,  /* only the superuser may register this port */
	HF_MAPPINGS_E_LIMIT,
};

void hf_mappings_init(struct hf_mappings *mappings);
void hf_mappings_deinit(struct hf_mappings *mappings);

/* The server's mappings come first: they are added before other programs can ask. Registering an existing
 * mapping at the same address succeeds. The superuser replaces a mapping that an unprivileged caller set. */
int hf_mappings_set(struct hf_mappings *mappings, const struct hf_mapping *mapping);

/* Removes the mappings of the @netids (HF_NETID_BIT). It is no error if there are none. */
int hf_mappings_unset(struct hf_mappings *mappings, uint32_t program, uint32_t version, unsigned int netids,
		      enum hf_mapping_owner owner);

const struct hf_mapping *hf_mappings_find(const struct hf_mappings *mappings, uint32_t program,
					  uint32_t version, enum hf_netid netid);
/* Finds that version, or, if it is missing, any other, as rpcbind does. So a client that asks for version 0
 * ("rpcinfo -T tcp HOST PROGRAM") or for a version that is too new finds the server, which then reports its
 * range of versions. */
const struct hf_mapping *hf_mappings_find_any_version(const struct hf_mappings *mappings, uint32_t program,
						      uint32_t version, enum hf_netid netid);
/* Ports of programs that root starts: those below 1024, and the port of NFS. */
bool hf_mapping_port_is_reserved(uint16_t port);
const char *hf_mapping_owner_name(enum hf_mapping_owner owner);
