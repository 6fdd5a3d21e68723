#include "proto/nsm/wire.h"

#include <string.h>

struct hf_bytes hf_nsm_get_name(struct hf_xdr_in *in)
{
	return hf_xdr_get_string(in, HF_NSM_MAX_NAME);
}

struct hf_nsm_my_id hf_nsm_get_my_id(struct hf_xdr_in *in)
{
	struct hf_nsm_my_id my_id = { .my_name = hf_nsm_get_name(in) };

	my_id.program = hf_xdr_get_u32(in);
	my_id.version = hf_xdr_get_u32(in);
	my_id.procedure = hf_xdr_get_u32(in);
	return my_id;
}

struct hf_nsm_mon hf_nsm_get_mon_id(struct hf_xdr_in *in)
{
	struct hf_nsm_mon mon = { .mon_name = hf_nsm_get_name(in) };

	mon.my_id = hf_nsm_get_my_id(in);
	return mon;
}

static void get_priv(struct hf_xdr_in *in, uint8_t priv[HF_NSM_PRIV])
{
	struct hf_bytes bytes = hf_xdr_get_fixed(in, HF_NSM_PRIV);

	if (bytes.len)
		memcpy(priv, bytes.data, HF_NSM_PRIV);
}

struct hf_nsm_mon hf_nsm_get_mon(struct hf_xdr_in *in)
{
	struct hf_nsm_mon mon = hf_nsm_get_mon_id(in);

	get_priv(in, mon.priv);
	return mon;
}

struct hf_nsm_status hf_nsm_get_stat_chge(struct hf_xdr_in *in)
{
	struct hf_nsm_status status = { .mon_name = hf_nsm_get_name(in) };

	status.state = hf_xdr_get_i32(in);
	return status;
}

struct hf_nsm_status hf_nsm_get_status(struct hf_xdr_in *in)
{
	struct hf_nsm_status status = hf_nsm_get_stat_chge(in);

	get_priv(in, status.priv);
	return status;
}

void hf_nsm_put_stat_chge(struct hf_xdr_out *out, struct hf_bytes mon_name, int32_t state)
{
	hf_xdr_put_opaque(out, mon_name);
	hf_xdr_put_i32(out, state);
}

void hf_nsm_put_status(struct hf_xdr_out *out, struct hf_bytes mon_name, int32_t state,
		       const uint8_t priv[HF_NSM_PRIV])
{
	hf_nsm_put_stat_chge(out, mon_name, state);
	hf_xdr_put_fixed(out, priv, HF_NSM_PRIV);
}

void hf_nsm_put_stat_res(struct hf_xdr_out *out, enum hf_nsm_res res, int32_t state)
{
	hf_xdr_put_u32(out, res);
	hf_xdr_put_i32(out, state);
}
