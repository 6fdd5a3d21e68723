/* Ready-made calls of NLM v4, and where in them the things are that differ from one to the next. */
#pragma once

#include "load.h"
#include "nlm_peer.h"

#define NLM             100021
#define NLM_TEST        1
#define NLM_LOCK        2
#define NLM_UNLOCK      4
#define NLM_CALLER_LEN  5        /* of the caller's name */
#define NLM_STAT_OFFSET (24 + 8) /* in the reply: its header, a cookie of 4 bytes */

struct nlm_call {
	struct load_message message;
	size_t caller_at;
	size_t handle_at;
	size_t svid_at;
	size_t offset_at;
};

/* By user 1000: an exclusive lock of caller "bench" that does not wait, @len bytes long. */
void nlm_call_make(struct nlm_call *call, uint32_t procedure, const struct peer_handle *handle, uint32_t len);
const struct load_message *nlm_call_fill(struct nlm_call *call, const struct peer_handle *handle,
					 uint32_t svid, uint32_t offset);
/* @caller has NLM_CALLER_LEN bytes. */
void nlm_call_name(struct nlm_call *call, const char *caller);
