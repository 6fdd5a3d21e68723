/*
 * What goes over the wire in program 100021 (nlm.x), both ways.
 *
 * Versions 1 and 3 have 32-bit ranges and fewer statuses; they are widened and
 * narrowed here and nowhere else, so that the logic exists once, for version 4.
 * Pure functions over bytes; a decoder's caller asks hf_xdr_in_is_ok() at the end.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "lock/range.h"
#include "rpc/xdr.h"

#define HF_NLM_PROGRAM 100021

#define HF_NLM_MAX_STRING 1024 /* LM_MAXSTRLEN */
#define HF_NLM_MAX_NETOBJ 1024 /* MAXNETOBJ_SZ */
#define HF_NLM_MAX_HANDLE 64   /* of NFSv3; a longer one is refused */
#define HF_NLM_COOKIE     8    /* bytes of those that the server makes: the oldest kernels take no more */

enum hf_nlm_proc {
	HF_NLM_NULL = 0,
	HF_NLM_TEST = 1,
	HF_NLM_LOCK = 2,
	HF_NLM_CANCEL = 3,
	HF_NLM_UNLOCK = 4,
	HF_NLM_GRANTED = 5,
	HF_NLM_TEST_MSG = 6,
	HF_NLM_LOCK_MSG = 7,
	HF_NLM_CANCEL_MSG = 8,
	HF_NLM_UNLOCK_MSG = 9,
	HF_NLM_GRANTED_MSG = 10,
	HF_NLM_TEST_RES = 11,
	HF_NLM_LOCK_RES = 12,
	HF_NLM_CANCEL_RES = 13,
	HF_NLM_UNLOCK_RES = 14,
	HF_NLM_GRANTED_RES = 15,
	HF_NLM_SM_NOTIFY = 16, /* private: the local statd's call-back */
	HF_NLM_SHARE = 20,
	HF_NLM_UNSHARE = 21,
	HF_NLM_NM_LOCK = 22,
	HF_NLM_FREE_ALL = 23,
};

enum hf_nlm_stat {
	HF_NLM_GRANTED_STAT = 0,
	HF_NLM_DENIED = 1,
	HF_NLM_DENIED_NOLOCKS = 2,
	HF_NLM_BLOCKED = 3,
	HF_NLM_DENIED_GRACE_PERIOD = 4,
	HF_NLM_DEADLCK = 5, /* from here on version 4 only */
	HF_NLM_ROFS = 6,
	HF_NLM_STALE_FH = 7,
	HF_NLM_FBIG = 8,
	HF_NLM_FAILED = 9,
};

/* Arguments: one struct for all procedures, each fills what it has. */
struct hf_nlm_args {
	struct hf_bytes cookie;
	bool block;
	bool exclusive;
	bool reclaim;
	int32_t state;
	struct hf_bytes caller;
	struct hf_bytes handle;
	struct hf_bytes oh;
	int32_t svid;
	uint64_t offset; /* as it was sent, and as GRANTED says it; see hf_nlm_range_of() */
	uint64_t len;
	uint32_t deny; /* none, read, write, both */
	uint32_t access;
};

/* The lock that is in the way of a TEST. */
struct hf_nlm_holder {
	bool exclusive;
	int32_t svid;
	struct hf_bytes oh;
	uint64_t offset;
	uint64_t len; /* 0: to the end */
};

struct hf_nlm_res {
	struct hf_bytes cookie;
	enum hf_nlm_stat stat;
};

/* The local statd's call-back, and SM_NOTIFY's sibling FREE_ALL (which has no priv). */
struct hf_nlm_notify {
	struct hf_bytes name;
	int32_t state;
};

/* Decoding */
void hf_nlm_get_test(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in);
void hf_nlm_get_lock(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in);
void hf_nlm_get_cancel(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in);
void hf_nlm_get_unlock(struct hf_nlm_args *args, uint32_t version, struct hf_xdr_in *in);
void hf_nlm_get_share(struct hf_nlm_args *args, struct hf_xdr_in *in);
void hf_nlm_get_res(struct hf_nlm_res *res, struct hf_xdr_in *in);
void hf_nlm_get_notify(struct hf_nlm_notify *notify, struct hf_xdr_in *in);
void hf_nlm_get_sm_notify(struct hf_nlm_notify *notify, struct hf_xdr_in *in);

/* The bytes that the arguments mean: 0, or FBIG. */
int hf_nlm_range_of(struct hf_range *rangep, uint32_t version, const struct hf_nlm_args *args);

/* Encoding; each fits in HF_NLM_MAX_RES bytes, the call in HF_NLM_MAX_CALL. */
#define HF_NLM_MAX_RES  (4 + HF_NLM_MAX_NETOBJ + 4 + 4 + 4 + 4 + HF_NLM_MAX_NETOBJ + 16)
#define HF_NLM_MAX_CALL (4 * 4 + 3 * (4 + HF_NLM_MAX_NETOBJ) + HF_NLM_MAX_STRING + 32)

void hf_nlm_put_res(struct hf_xdr_out *out, uint32_t version, struct hf_bytes cookie, enum hf_nlm_stat stat);
/* @holder only where it was denied. */
void hf_nlm_put_test_res(struct hf_xdr_out *out, uint32_t version, struct hf_bytes cookie,
			 enum hf_nlm_stat stat, const struct hf_nlm_holder *holder);
void hf_nlm_put_share_res(struct hf_xdr_out *out, uint32_t version, struct hf_bytes cookie,
			  enum hf_nlm_stat stat);
/* The arguments of GRANTED. */
void hf_nlm_put_granted(struct hf_xdr_out *out, uint32_t version, const struct hf_nlm_args *args);

const char *hf_nlm_stat_name(enum hf_nlm_stat stat); /* a constant */
