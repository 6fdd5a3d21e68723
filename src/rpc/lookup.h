/*
 * Which port is a program at? Asked of the peer's own rpcbind, for the client's
 * calls; the answers are remembered for a while.
 *
 * IPv4: GETPORT of portmap version 2, by UDP and, where that is not answered
 * soon, by TCP as well; the first answer counts. Where version 2 is refused,
 * GETADDR of rpcbind 4, then 3. IPv6: GETADDR of 4, then 3.
 *
 * GETADDR is only ever asked over the transport that the port is wanted for:
 * rpcbind ignores the netid in the question and answers for the transport that
 * the question came by (RFC 1833, 2.2.1; so do all implementations).
 *
 * Of the universal address that GETADDR answers only the port is used: nobody can
 * make us call another host.
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
	/* 1: rpcbind is asked now, whatever is remembered. Such a look-up serves no other call and adds
	 * nothing to the memory: a call that is not fresh goes as if it had not been there. */
	uint32_t is_fresh;
};

/* Embedded in the call that wants to know. */
struct hf_lookup_waiter {
	struct hf_link link;
	struct hf_lookup *lookup; /* NULL: not waiting */
	/* @result OK: @port, 0 where the program is not registered. Else why there is no answer. */
	void (*fn)(struct hf_lookup_waiter *waiter, const struct hf_rpc_result *result, uint16_t port);
};

/* Answers of hf_lookup_port() */
enum {
	HF_LOOKUP_KNOWN = 0,
	HF_LOOKUP_ASKED, /* the waiter's function will be called, unless it leaves */
};

/* @patience_ns: the time there is for all of it. */
int hf_lookup_port(struct hf_rpc_client *client, struct hf_lookup_waiter *waiter,
		   const struct hf_lookup_key *key, uint64_t patience_ns, uint16_t *portp);
void hf_lookup_leave(struct hf_lookup_waiter *waiter);
/* Leaves for want of time: what is known about why there was no answer. */
struct hf_rpc_result hf_lookup_give_up(struct hf_lookup_waiter *waiter);
void hf_lookup_deinit(struct hf_rpc_client *client); /* nobody waits any more */

/* The memory: lookup_cache.c */
bool hf_lookup_recall(struct hf_rpc_client *client, const struct hf_lookup_key *key, uint16_t *portp);
void hf_lookup_remember(struct hf_rpc_client *client, const struct hf_lookup_key *key, uint16_t port);
void hf_lookup_forget(struct hf_rpc_client *client, const struct hf_lookup_key *key);
/* A fresh look-up has named @port (0: none): another one that is remembered is out of date. */
void hf_lookup_compare(struct hf_rpc_client *client, const struct hf_lookup_key *key, uint16_t port);
void hf_lookup_cache_deinit(struct hf_rpc_client *client);

/* The wire: lookup_wire.c */
#define HF_LOOKUP_PMAP        2u
#define HF_LOOKUP_MAX_MESSAGE 192

/* The call for rpcbind @version, with the mark's room before it; its length. */
uint32_t hf_lookup_put_question(uint8_t message[static HF_LOOKUP_MAX_MESSAGE], uint32_t version,
				const struct hf_lookup_key *key, uint16_t rpcbind_port);
bool hf_lookup_get_answer(struct hf_xdr_in *in, uint32_t version, uint16_t *portp);
