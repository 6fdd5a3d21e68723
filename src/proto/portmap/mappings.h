/*
 * Who serves what where: the table behind the embedded port mapper.
 *
 * Invariants: a (program, version, netid) is in it at most once. A program that
 * we serve ourselves is ours alone: nobody else's mapping of any of its versions
 * is in it. Mappings of others are bounded in number; their parts have a fixed
 * size.
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

/* As rpcbind tells local callers apart: by their source port. */
enum hf_mapping_owner {
	HF_OWNER_US,
	HF_OWNER_SUPERUSER, /* called from a port below 1024 */
	HF_OWNER_UNKNOWN,
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
	size_t capacity;
};

/* Answers */
enum {
	HF_MAPPINGS_OK = 0,
	HF_MAPPINGS_E_TAKEN,     /* somebody else has it, at another address */
	HF_MAPPINGS_E_OURS,      /* a program of our own */
	HF_MAPPINGS_E_NOT_YOURS, /* somebody else's: not removed */
	HF_MAPPINGS_E_LIMIT,
};

void hf_mappings_init(struct hf_mappings *mappings);
void hf_mappings_deinit(struct hf_mappings *mappings);

/* Ours come first: they are added before others can ask. The owner decides whose it is. What is there
 * already, at the same address, is fine. */
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
const char *hf_mapping_owner_name(enum hf_mapping_owner owner);
