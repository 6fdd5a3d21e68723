/*
 * A call that is being served, as its handler sees it.
 *
 * A handler reads the arguments, then ends the call in exactly one way: with
 * hf_rpc_reply_begin() … hf_rpc_reply_end(), with one of the errors, or with
 * hf_rpc_call_drop(). If it cannot do so before it returns, it suspends the call with
 * hf_rpc_call_suspend(). The call and its arguments then stay until it is ended. A call may
 * outlive its connection; its reply is then discarded.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "rpc/message.h"
#include "rpc/xdr.h"

struct hf_audit_line;
struct hf_loop;
struct hf_rpc_call;
struct hf_tls_peer;

enum hf_rpc_transport {
	HF_RPC_UDP,
	HF_RPC_TCP,
};

const struct hf_rpc_header *hf_rpc_call_header(const struct hf_rpc_call *call);
const struct hf_rpc_cred *hf_rpc_call_cred(const struct hf_rpc_call *call);
const struct hf_addr *hf_rpc_call_peer(const struct hf_rpc_call *call);  /* the caller's address */
const struct hf_addr *hf_rpc_call_local(const struct hf_rpc_call *call); /* the server's address */
enum hf_rpc_transport hf_rpc_call_transport(const struct hf_rpc_call *call);
struct hf_bytes hf_rpc_call_message(const struct hf_rpc_call *call); /* as it came, with its header */
struct hf_loop *hf_rpc_call_loop(const struct hf_rpc_call *call);    /* the loop that serves it */
size_t hf_rpc_call_lane(const struct hf_rpc_call *call);             /* the number of its lane; home is 0 */
/* On that loop: has this turn served so much that a worker should make a long reply? */
bool hf_rpc_call_is_late(const struct hf_rpc_call *call);
/* The address to charge for its work: the peer's; with port 0 for a datagram, whose source is not proven. */
struct hf_addr hf_rpc_call_payer(const struct hf_rpc_call *call);
/* A number for the connection that it came over, which no other connection of this server has or had; 0: a
 * datagram. For programs that are served at home. */
uint64_t hf_rpc_call_link(struct hf_rpc_call *call);

/* The other end of the TLS session that it came over; NULL: it came in the clear. Any thread may ask while
 * the call is under way. */
const struct hf_tls_peer *hf_rpc_call_tls(const struct hf_rpc_call *call);

/* How the caller is known, to compare calls: 0 in the clear; a number for each set of names that a
 * client's certificate has; another one for clients with TLS and without a certificate. */
uint64_t hf_rpc_call_channel(const struct hf_rpc_call *call);

/* Begins a line of the audit log that is about the call: the time and @op, a constant, then the caller:
 * "client", and "uid" and "gid" if it names a user. */
void hf_rpc_call_audit(struct hf_audit_line *line, const char *op, const struct hf_rpc_call *call);

/* Arguments. Ask hf_xdr_in_is_ok() when all are read. */
struct hf_xdr_in *hf_rpc_call_args(struct hf_rpc_call *call);
void hf_rpc_call_rewind(struct hf_rpc_call *call); /* reads the arguments from the start again */

/* Suspends the call. Views of the arguments become invalid: read them again from the start. -ENOMEM: the call
 * was ended with SYSTEM_ERR. */
int hf_rpc_call_suspend(struct hf_rpc_call *call);
/* How long it has been suspended, in ns; 0: it is not. */
uint64_t hf_rpc_call_age(const struct hf_rpc_call *call);
/* Room in a suspended call for what its handler must remember. It is not cleared. */
#define HF_RPC_CALL_ROOM 96
void *hf_rpc_call_room(struct hf_rpc_call *call);
/* A suspended call will have a reply of this length: it counts as memory of its caller. At most once. */
void hf_rpc_call_expect(struct hf_rpc_call *call, size_t reply_len);

/* Serving the call took as much work as @n_units other short calls: its connection is served less in this
 * turn of the loop. */
void hf_rpc_call_spend(struct hf_rpc_call *call, uint32_t n_units);

/* Ending. The results have at most @max bytes. More is a bug, and answers SYSTEM_ERR, as does a lack of
 * memory. */
struct hf_xdr_out *hf_rpc_reply_begin(struct hf_rpc_call *call, size_t max);
void hf_rpc_reply_end(struct hf_rpc_call *call);
/* Undoes the beginning: the call will be ended otherwise, or later. */
void hf_rpc_reply_cancel(struct hf_rpc_call *call);
/* The same for a suspended call, for a thread other than the loop's. That thread may fill in the results or
 * undo the beginning. The loop's thread ends the call. The bytes are sent from where they are put. */
struct hf_xdr_out *hf_rpc_reply_begin_apart(struct hf_rpc_call *call, size_t max);
void hf_rpc_reply_void(struct hf_rpc_call *call);            /* success, no results */
HF_COLD void hf_rpc_reply_garbage(struct hf_rpc_call *call); /* the arguments cannot be decoded */
HF_COLD void hf_rpc_reply_error(struct hf_rpc_call *call, enum hf_rpc_accept stat);
HF_COLD void hf_rpc_reply_auth_error(struct hf_rpc_call *call, enum hf_rpc_auth_stat stat);
void hf_rpc_call_drop(struct hf_rpc_call *call); /* no reply at all */

/* The reply to the call is not cached: a repeat of it is served anew. */
void hf_rpc_call_uncache(struct hf_rpc_call *call);

/* Counting: how the call ended, said before it ends, and how much data a file gave or took. @result is a
 * constant; the default is "OK". */
bool hf_rpc_call_is_measured(const struct hf_rpc_call *call); /* false: calls are not measured */
void hf_rpc_call_note(struct hf_rpc_call *call, const char *result);
void hf_rpc_call_note_data(struct hf_rpc_call *call, size_t n_read, size_t n_written);
