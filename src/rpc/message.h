/*
 * ONC RPC v2 messages (RFC 5531): the headers of calls and replies, in both directions, and
 * nothing else. Pure functions over bytes.
 */
#pragma once

#include <stdint.h>

#include "rpc/xdr.h"

#define HF_RPC_MAX_AUTH  400 /* bytes of a credential or verifier body */
#define HF_RPC_MAX_GIDS  16
#define HF_RPC_MAX_NAME  255
#define HF_RPC_REPLY_LEN 24 /* the header of an accepted reply with success */

enum hf_rpc_flavor {
	HF_RPC_AUTH_NONE = 0,
	HF_RPC_AUTH_SYS = 1,
	HF_RPC_AUTH_TLS = 7, /* the caller asks for TLS (RFC 9289) */
};

enum hf_rpc_accept {
	HF_RPC_SUCCESS = 0,
	HF_RPC_PROG_UNAVAIL = 1,
	HF_RPC_PROG_MISMATCH = 2,
	HF_RPC_PROC_UNAVAIL = 3,
	HF_RPC_GARBAGE_ARGS = 4,
	HF_RPC_SYSTEM_ERR = 5,
};

enum hf_rpc_auth_stat {
	HF_RPC_AUTH_OK = 0,
	HF_RPC_AUTH_BADCRED = 1,      /* undecodable */
	HF_RPC_AUTH_REJECTEDCRED = 2, /* a flavour that the server does not support */
	HF_RPC_AUTH_BADVERF = 3,
	HF_RPC_AUTH_TOOWEAK = 5,
};

/* The caller's identity, as it states it. */
struct hf_rpc_cred {
	uint32_t flavor;
	uint32_t uid;
	uint32_t gid;
	uint32_t n_gids;
	uint32_t gids[HF_RPC_MAX_GIDS];
	struct hf_bytes machine; /* points into the message */
};

struct hf_rpc_header {
	uint32_t xid;
	uint32_t program;
	uint32_t version;
	uint32_t procedure;
	struct hf_rpc_cred cred;
};

/* What did a server receive? */
enum hf_rpc_parse {
	HF_RPC_CALL = 0,
	HF_RPC_ASKS_TLS,    /* a call with the credential AUTH_TLS */
	HF_RPC_NOT_A_CALL,  /* a reply, or too short for anything: there is no caller to answer */
	HF_RPC_BAD_VERSION, /* answer RPC_MISMATCH */
	HF_RPC_BAD_AUTH,    /* answer AUTH_ERROR with *statp */
	HF_RPC_BAD_HEADER,  /* a call, but its header ends early or breaks a limit */
};

/* Reads the header. @in then stands at the arguments. */
enum hf_rpc_parse hf_rpc_parse_call(struct hf_rpc_header *header, enum hf_rpc_auth_stat *statp,
				    struct hf_xdr_in *in);

/* Replies */
void hf_rpc_put_success(struct hf_xdr_out *out, uint32_t xid);
#define HF_RPC_STARTTLS_LEN (HF_RPC_REPLY_LEN + 8)
void hf_rpc_put_starttls(struct hf_xdr_out *out, uint32_t xid); /* success, and TLS may begin */
void hf_rpc_put_accept_error(struct hf_xdr_out *out, uint32_t xid, enum hf_rpc_accept stat);
void hf_rpc_put_prog_mismatch(struct hf_xdr_out *out, uint32_t xid, uint32_t low, uint32_t high);
void hf_rpc_put_rpc_mismatch(struct hf_xdr_out *out, uint32_t xid);
void hf_rpc_put_auth_error(struct hf_xdr_out *out, uint32_t xid, enum hf_rpc_auth_stat stat);

/* The client's side: what it sends and reads */
struct hf_rpc_outgoing {
	uint32_t xid;
	uint32_t program;
	uint32_t version;
	uint32_t procedure;
	bool auth_sys;       /* as uid 0 of @machine; else AUTH_NONE */
	const char *machine; /* NULL if auth_sys is false */
};

void hf_rpc_put_call(struct hf_xdr_out *out, const struct hf_rpc_outgoing *call);

/* Answers of hf_rpc_parse_reply() */
enum hf_rpc_reply {
	HF_RPC_REPLY_OK = 0,
	HF_RPC_REPLY_GARBAGE, /* not a valid reply */
	HF_RPC_REPLY_REFUSED, /* denied: RPC version or authentication */
	HF_RPC_REPLY_NO_PROG, /* PROG_UNAVAIL, PROG_MISMATCH */
	HF_RPC_REPLY_NO_PROC,
	HF_RPC_REPLY_NO_SENSE, /* GARBAGE_ARGS, SYSTEM_ERR */
};

bool hf_rpc_peek_reply_xid(uint32_t *xidp, struct hf_bytes message);
/* @in then stands at the results. */
enum hf_rpc_reply hf_rpc_parse_reply(struct hf_xdr_in *in);
