/*
 * A call that is being served, as its handler sees it.
 *
 * A handler reads the arguments, then ends the call in exactly one way: with
 * hf_rpc_reply_begin() … hf_rpc_reply_end(), with one of the errors, or with
 * hf_rpc_call_drop(). If it cannot do so before it returns, it says
 * hf_rpc_call_keep() first, and the call, its arguments included, stays until it
 * is ended. A call outlives its connection; the reply then goes nowhere.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "rpc/message.h"
#include "rpc/xdr.h"

struct hf_loop;
struct hf_rpc_call;

enum hf_rpc_transport {
	HF_RPC_UDP,
	HF_RPC_TCP,
};

/* Questions */
const struct hf_rpc_header *hf_rpc_call_header(const struct hf_rpc_call *call);
const struct hf_rpc_cred *hf_rpc_call_cred(const struct hf_rpc_call *call);
const struct hf_addr *hf_rpc_call_peer(const struct hf_rpc_call *call);  /* who called */
const struct hf_addr *hf_rpc_call_local(const struct hf_rpc_call *call); /* which address of ours */
enum hf_rpc_transport hf_rpc_call_transport(const struct hf_rpc_call *call);
struct hf_bytes hf_rpc_call_message(const struct hf_rpc_call *call); /* as it came, header and all */
struct hf_loop *hf_rpc_call_loop(const struct hf_rpc_call *call);    /* the one it is served on */
/* On that loop: has its turn served so much that a long reply should be made by a worker? */
bool hf_rpc_call_is_late(const struct hf_rpc_call *call);
/* To whom its work is charged: the peer; with port 0 where the call is a datagram, whose source is not
 * proven. */
struct hf_addr hf_rpc_call_payer(const struct hf_rpc_call *call);
/* The connection that it came by, as a number that no other one of this server has or had; 0: a datagram. For
 * programs that are served at home. */
uint64_t hf_rpc_call_link(struct hf_rpc_call *call);

/* Arguments; to be asked hf_xdr_in_is_ok() when all is read */
struct hf_xdr_in *hf_rpc_call_args(struct hf_rpc_call *call);
void hf_rpc_call_rewind(struct hf_rpc_call *call); /* they begin anew */

/* Staying: afterwards views of the arguments that were taken before are void; read them again from the
 * start. -ENOMEM: the call was ended with SYSTEM_ERR. */
int hf_rpc_call_keep(struct hf_rpc_call *call);
/* For how long it has been kept, in ns; 0: it has not been. */
uint64_t hf_rpc_call_age(const struct hf_rpc_call *call);
/* Room in a kept call for what its handler must remember until it is ended; nobody clears it. */
#define HF_RPC_CALL_ROOM 96
void *hf_rpc_call_room(struct hf_rpc_call *call);
/* A kept call whose reply will be this long: it counts among what its caller makes us hold. Once at most. */
void hf_rpc_call_expect(struct hf_rpc_call *call, size_t reply_len);

/* Ending. Results of at most @max bytes; more is a bug that answers SYSTEM_ERR, as does want of memory. */
struct hf_xdr_out *hf_rpc_reply_begin(struct hf_rpc_call *call, size_t max);
void hf_rpc_reply_end(struct hf_rpc_call *call);
/* Takes the beginning back: the call is to be ended otherwise, or later. */
void hf_rpc_reply_cancel(struct hf_rpc_call *call);
/* The same for a kept call, for another thread than the loop's: that may fill in the results, or take the
 * beginning back; the end belongs to the loop again. The bytes are sent from where they are put. */
struct hf_xdr_out *hf_rpc_reply_begin_apart(struct hf_rpc_call *call, size_t max);
void hf_rpc_reply_void(struct hf_rpc_call *call);    /* success, no results */
void hf_rpc_reply_garbage(struct hf_rpc_call *call); /* the arguments made no sense */
void hf_rpc_reply_error(struct hf_rpc_call *call, enum hf_rpc_accept stat);
void hf_rpc_reply_auth_error(struct hf_rpc_call *call, enum hf_rpc_auth_stat stat);
void hf_rpc_call_drop(struct hf_rpc_call *call); /* no answer at all */

/* Counting: how it ended, before it is ended, and how much data a file gave or took. @result is a constant;
 * unsaid it is "OK". */
bool hf_rpc_call_is_measured(const struct hf_rpc_call *call); /* else nobody wants to know */
void hf_rpc_call_note(struct hf_rpc_call *call, const char *result);
void hf_rpc_call_note_data(struct hf_rpc_call *call, size_t n_read, size_t n_written);
