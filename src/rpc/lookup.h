/*
 * Which port has a program? The client asks the peer's rpcbind, and caches the answer for a
 * while.
 *
 * IPv4: GETPORT of portmap version 2, by UDP and, if there is no answer soon, by TCP as well.
 * The first answer counts. If version 2 is refused, GETADDR of rpcbind 4, then 3. IPv6:
 * GETADDR of 4, then 3.
 *
 * GETADDR is asked only over the transport that the port is for: rpcbind ignores the netid in
 * the question, and answers for the transport that the question came by (RFC 1833, 2.2.1; so
 * do all implementations).
 *
 * Of the universal address in the answer to GETADDR only the port is used, so an answer cannot
 * make the server call another host.
 */
#pragma once

#include "rpc/client_internal.h"

struct hf_lookup;

struct hf_lookup_key {
	struct hf_addr remote; /* port 0 */
	struct hf_addr local;  /* port 0; the question leaves from here, too */
	uint32_t program;
	uint32_t version;
	uint32_t transport; /* enum hf_rpc_transport; a word, so that there is no padding to hash */
	/* 1: asks rpcbind now, even if the port is cached. Such a look-up serves no other call and does not
	 * fill the cache. */
	uint32_t is_fresh;
};

/* Embedded in the call that needs the port. */
struct hf_lookup_waiter {
	struct hf_link link;
	struct hf_lookup *lookup; /* NULL: it does not wait */
	/* @result OK: @port, 0 if the program is not registered. Otherwise why there is no answer. */
	void (*fn)(struct hf_lookup_waiter *waiter, const struct hf_rpc_result *result, uint16_t port);
};

/* Answers of hf_lookup_port() */
enum {
	HF_LOOKUP_KNOWN = 0,
	HF_LOOKUP_ASKED, /* the waiter's function will be called, unless it leaves */
};

/* @patience_ns: the time for the whole look-up. */
int hf_lookup_port(struct hf_rpc_client *client, struct hf_lookup_waiter *waiter,
		   const struct hf_lookup_key *key, uint64_t patience_ns, uint16_t *portp);
void hf_lookup_leave(struct hf_lookup_waiter *waiter);
/* The waiter leaves because its time is over. Returns why there was no answer, as far as known. */
struct hf_rpc_result hf_lookup_give_up(struct hf_lookup_waiter *waiter);
void hf_lookup_deinit(struct hf_rpc_client *client); /* when no waiter is left */

/* The cache: lookup_cache.c */
bool hf_lookup_recall(struct hf_rpc_client *client, const struct hf_lookup_key *key, uint16_t *portp);
void hf_lookup_remember(struct hf_rpc_client *client, const struct hf_lookup_key *key, uint16_t port);
void hf_lookup_forget(struct hf_rpc_client *client, const struct hf_lookup_key *key);
/* A fresh look-up has found @port (0: none). A cached port that differs is out of date. */
void hf_lookup_compare(struct hf_rpc_client *client, const struct hf_lookup_key *key, uint16_t port);
void hf_lookup_cache_deinit(struct hf_rpc_client *client);

/* The wire: lookup_wire.c */
#define HF_LOOKUP_PMAP        2u
#define HF_LOOKUP_MAX_MESSAGE 192

/* The call for rpcbind @version, after room for the mark; returns its length. */
uint32_t hf_lookup_put_question(uint8_t message[static HF_LOOKUP_MAX_MESSAGE], uint32_t version,
				const struct hf_lookup_key *key, uint16_t rpcbind_port);
bool hf_lookup_get_answer(struct hf_xdr_in *in, uint32_t version, uint16_t *portp);
