/*
 * How a LOCK came. It is remembered for each waiter, because its GRANTED must go back the same way, in the
 * same version and from the same address of this server. It fits into the waiter's user pointer: the server's
 * addresses are few, and each is stored once.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/bytes.h"

struct hf_rpc_call;

#define HF_NLM_MAX_LOCALS 1024 /* addresses of this server; beyond, the client's last one is taken */

struct hf_nlm_locals {
	struct hf_addr *all; /* their ports are 0 */
	size_t n;
};

struct hf_nlm_route {
	uint8_t version;
	bool is_tcp;
	bool is_msg;
	uint16_t local; /* its place in hf_nlm_locals, from 1; 0: not remembered */
	bool was_told;  /* an earlier run of the server may have told the client of the grant */
};

void hf_nlm_locals_deinit(struct hf_nlm_locals *locals);
struct hf_nlm_route hf_nlm_route_of(struct hf_nlm_locals *locals, const struct hf_rpc_call *call);
void *hf_nlm_route_pack(struct hf_nlm_route route);
struct hf_nlm_route hf_nlm_route_unpack(const void *user);
/* As the store has it: the bytes of the route, and the range as the client wrote it. */
#define HF_NLM_STORED_ROUTE 39
size_t hf_nlm_route_encode(const struct hf_nlm_locals *locals, struct hf_nlm_route route, uint64_t offset,
			   uint64_t len, uint8_t out[HF_NLM_STORED_ROUTE]);
bool hf_nlm_route_decode(struct hf_nlm_locals *locals, struct hf_bytes bytes, struct hf_nlm_route *routep,
			 uint64_t *offsetp, uint64_t *lenp);
/* NULL where it was not remembered. */
const struct hf_addr *hf_nlm_route_local(const struct hf_nlm_locals *locals, struct hf_nlm_route route);
