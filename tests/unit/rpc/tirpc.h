/*
 * libtirpc's idea of a message, to compare the server's with. In a file of its
 * own: its headers are named as the server's are.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tirpc_call {
	uint32_t xid;
	uint32_t program;
	uint32_t version;
	uint32_t procedure;
	bool is_sys; /* else AUTH_NONE */
	uint32_t uid;
	uint32_t gid;
	uint32_t n_gids;
	uint32_t gids[16];
	char name[256];
};

struct tirpc_reply {
	uint32_t xid;
	bool is_denied;
	uint32_t stat; /* accept_stat, or reject_stat */
	uint32_t low;
	uint32_t high;
	uint32_t why;
	uint32_t verifier_len;
};

/* All return the message's length, 0 where libtirpc does not like it. */
size_t tirpc_encode_call(void *data, size_t room, const struct tirpc_call *call);
size_t tirpc_decode_call(struct tirpc_call *call, void *data, size_t len);
size_t tirpc_encode_reply(void *data, size_t room, const struct tirpc_reply *reply);
size_t tirpc_decode_reply(struct tirpc_reply *reply, void *data, size_t len);
