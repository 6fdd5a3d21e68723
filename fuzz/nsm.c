/* Any bytes as arguments of each procedure: what decodes is in bounds, and encodes to the same bytes again.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/nsm/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool truth)
{
	if (!truth)
		abort();
}

static void must_be_inside(struct hf_bytes bytes, const uint8_t *data, size_t size)
{
	must(bytes.len <= HF_NSM_MAX_NAME);
	must(bytes.len == 0 || (bytes.data >= data && bytes.data + bytes.len <= data + size));
	must(bytes.len == 0 || !memchr(bytes.data, 0, bytes.len));
}

static void check_mon(const uint8_t *data, size_t size)
{
	struct hf_xdr_in in;
	struct hf_nsm_mon mon;

	hf_xdr_in_init(&in, data, size);
	mon = hf_nsm_get_mon(&in);
	if (!hf_xdr_in_is_ok(&in))
		return;
	must_be_inside(mon.mon_name, data, size);
	must_be_inside(mon.my_id.my_name, data, size);
	must(hf_nsm_names_match(mon.mon_name, mon.mon_name));
	must(hf_nsm_names_match(mon.mon_name, mon.my_id.my_name) ==
	     hf_nsm_names_match(mon.my_id.my_name, mon.mon_name));
}

static void check_status(const uint8_t *data, size_t size)
{
	uint8_t again[HF_NSM_MAX_STATUS];
	struct hf_nsm_status status, second;
	struct hf_xdr_out out;
	struct hf_xdr_in in;

	hf_xdr_in_init(&in, data, size);
	status = hf_nsm_get_status(&in);
	if (!hf_xdr_in_is_ok(&in))
		return;
	must_be_inside(status.mon_name, data, size);
	hf_xdr_out_init(&out, again, sizeof(again));
	hf_nsm_put_status(&out, status.mon_name, status.state, status.priv);
	must(hf_xdr_out_is_ok(&out));
	hf_xdr_in_init(&in, again, (size_t)(out.p - again));
	second = hf_nsm_get_status(&in);
	must(hf_xdr_in_is_ok(&in) && hf_xdr_in_left(&in) == 0);
	must(hf_bytes_equal(status.mon_name, second.mon_name) && status.state == second.state);
	must(memcmp(status.priv, second.priv, sizeof(status.priv)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_mon(data, size);
	check_status(data, size);
	return 0;
}
