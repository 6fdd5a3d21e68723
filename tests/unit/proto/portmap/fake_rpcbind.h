/* An RPC client (for rpc/client.c) whose peer is the server's rpcbind, called by hand, with faults. */
#pragma once

#include "proto/portmap/rpcbind.h"
#include "rpc/client.h"

#include "fake_call.h"

struct hf_rpc_client {
	struct hf_loop *loop;
	struct hf_rpcbind rpcbind;
	uint64_t delay; /* of every answer, ns */
	bool on_ipv4;
	bool on_ipv6;
	bool is_silent;        /* never answers */
	bool is_dump_too_long; /* for a client */
	bool cannot_begin;     /* a call */
	uint32_t newest;       /* version that it speaks */
	uint16_t alive;        /* the port of a server that answers pings */
	const char *from;      /* the registrar's address as it sees it */
	unsigned int fails_at; /* the n-th call, from 1, is refused; 0: none */
	unsigned int n_calls;  /* to rpcbind */
	unsigned int n_sets;
	unsigned int n_unsets;
	unsigned int n_dumps;
	unsigned int n_pings;
	unsigned int n_in_flight;
};

void fake_rpcbind_init(struct hf_rpc_client *client, struct hf_loop *loop);
void fake_rpcbind_forget(struct hf_rpc_client *client); /* as if started again */
void fake_rpcbind_deinit(struct hf_rpc_client *client);
