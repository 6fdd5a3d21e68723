#include "rpc/xdr.h"

struct hf_bytes hf_xdr_get_string(struct hf_xdr_in *in, uint32_t max)
{
	struct hf_bytes text = hf_xdr_get_opaque(in, max);

	if (text.len && memchr(text.data, '\0', text.len)) {
		hf_xdr_in_fail(in);
		return (struct hf_bytes){ 0 };
	}
	return text;
}
