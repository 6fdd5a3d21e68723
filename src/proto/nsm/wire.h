/* The messages of program 100024, as nsm.x has them. Decoded names point into the message. */
#pragma once

#include <stdint.h>

#include "base/bytes.h"
#include "rpc/xdr.h"

#define HF_NSM_MAX_NAME   1024
#define HF_NSM_PRIV       16
#define HF_NSM_MAX_STATUS (4 + HF_NSM_MAX_NAME + 4 + HF_NSM_PRIV) /* the longest message sent */

enum hf_nsm_proc {
	HF_NSM_NULL = 0,
	HF_NSM_STAT = 1,
	HF_NSM_MON = 2,
	HF_NSM_UNMON = 3,
	HF_NSM_UNMON_ALL = 4,
	HF_NSM_SIMU_CRASH = 5,
	HF_NSM_NOTIFY = 6,
};

enum hf_nsm_res {
	HF_NSM_SUCC = 0,
	HF_NSM_FAIL = 1,
};

/* my_id: the program to call back */
struct hf_nsm_my_id {
	struct hf_bytes my_name;
	uint32_t program;
	uint32_t version;
	uint32_t procedure;
};

/* mon; and mon_id, without priv */
struct hf_nsm_mon {
	struct hf_bytes mon_name;
	struct hf_nsm_my_id my_id;
	uint8_t priv[HF_NSM_PRIV];
};

/* stat_chge, and status with priv */
struct hf_nsm_status {
	struct hf_bytes mon_name;
	int32_t state;
	uint8_t priv[HF_NSM_PRIV];
};

/* Decoding; ask hf_xdr_in_is_ok() */
struct hf_bytes hf_nsm_get_name(struct hf_xdr_in *in);
struct hf_nsm_my_id hf_nsm_get_my_id(struct hf_xdr_in *in);
struct hf_nsm_mon hf_nsm_get_mon_id(struct hf_xdr_in *in);
struct hf_nsm_mon hf_nsm_get_mon(struct hf_xdr_in *in);
struct hf_nsm_status hf_nsm_get_stat_chge(struct hf_xdr_in *in);
struct hf_nsm_status hf_nsm_get_status(struct hf_xdr_in *in); /* for tests: the server only sends it */

/* Encoding */
void hf_nsm_put_stat_chge(struct hf_xdr_out *out, struct hf_bytes mon_name, int32_t state);
void hf_nsm_put_status(struct hf_xdr_out *out, struct hf_bytes mon_name, int32_t state,
		       const uint8_t priv[HF_NSM_PRIV]);
void hf_nsm_put_stat_res(struct hf_xdr_out *out, enum hf_nsm_res res, int32_t state);
