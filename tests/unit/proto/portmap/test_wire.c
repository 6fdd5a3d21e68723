/* The server's codec against rpcgen's, both ways, and against nonsense. */
#include "test.h"

#include <netinet/in.h>
#include <string.h>

#include "proto/portmap/wire.h"

#include "portmap_oracle.h"

static struct hf_xdr_in in_of(const void *data, size_t len)
{
	struct hf_xdr_in in;

	hf_xdr_in_init(&in, data, len);
	return in;
}

static void test_mapping(void **state)
{
	struct hf_pmap ours = { 100021, 4, 6, 2049 };
	struct pm_mapping theirs = { 0 };
	uint8_t a[64], b[64];
	struct hf_xdr_out out;
	struct hf_xdr_in in;

	hf_xdr_out_init(&out, a, sizeof(a));
	hf_pmap_put(&out, &ours);
	assert_true(oracle_decode(a, (size_t)(out.p - a), (xdrproc_t)xdr_pm_mapping, &theirs));
	assert_int_equal(theirs.prog, 100021);
	assert_int_equal(theirs.vers, 4);
	assert_int_equal(theirs.prot, 6);
	assert_int_equal(theirs.port, 2049);

	theirs.port = 0xfffffffe;
	in = in_of(b, oracle_encode(b, sizeof(b), (xdrproc_t)xdr_pm_mapping, &theirs));
	ours = hf_pmap_get(&in);
	assert_true(hf_xdr_in_is_ok(&in));
	assert_int_equal(hf_xdr_in_left(&in), 0);
	assert_int_equal(ours.program, 100021);
	assert_int_equal(ours.port, 0xfffffffe);
}

static void test_rpcb(void **state)
{
	struct pm_rpcb theirs = { 100005, 3, oracle_text("tcp6"), oracle_text("::.8.1"),
				  oracle_text("superuser") };
	struct pm_rpcb back = { 0 };
	uint8_t a[256], b[256];
	size_t len = oracle_encode(a, sizeof(a), (xdrproc_t)xdr_pm_rpcb, &theirs);
	struct hf_xdr_in in = in_of(a, len);
	struct hf_rpcb ours = hf_rpcb_get(&in);
	struct hf_xdr_out out;

	assert_true(hf_xdr_in_is_ok(&in));
	assert_int_equal(hf_xdr_in_left(&in), 0);
	assert_int_equal(ours.program, 100005);
	assert_int_equal(ours.version, 3);
	assert_true(hf_bytes_equal(ours.netid, hf_bytes_of_str("tcp6")));
	assert_true(hf_bytes_equal(ours.uaddr, hf_bytes_of_str("::.8.1")));
	assert_true(hf_bytes_equal(ours.owner, hf_bytes_of_str("superuser")));

	hf_xdr_out_init(&out, b, sizeof(b));
	hf_rpcb_put(&out, &ours);
	assert_int_equal((size_t)(out.p - b), len);
	assert_memory_equal(a, b, len);
	assert_true(oracle_decode(b, len, (xdrproc_t)xdr_pm_rpcb, &back));
	assert_string_equal(back.r_addr, "::.8.1");
	oracle_free((xdrproc_t)xdr_pm_rpcb, &back);
}

/* Both codecs stop at the same bounds. */
static void test_rpcb_bounds(void **state)
{
	static const uint32_t bounds[] = { PM_MAX_NETID, PM_MAX_UADDR, PM_MAX_OWNER };

	for (int field = 0; field < 3; field++) {
		for (uint32_t extra = 0; extra < 2; extra++) {
			uint32_t lengths[3] = { 0 };
			struct pm_rpcb theirs = { 0 };
			uint8_t data[512];
			struct hf_xdr_out out;
			struct hf_xdr_in in;

			lengths[field] = bounds[field] + extra;
			hf_xdr_out_init(&out, data, sizeof(data));
			hf_xdr_put_u32(&out, 1);
			hf_xdr_put_u32(&out, 1);
			for (int i = 0; i < 3; i++) {
				char text[512];

				memset(text, 'x', sizeof(text));
				hf_xdr_put_opaque(&out, hf_bytes_of(text, lengths[i]));
			}
			in = in_of(data, (size_t)(out.p - data));
			hf_rpcb_get(&in);
			assert_int_equal(hf_xdr_in_is_ok(&in), !extra);
			assert_int_equal(oracle_decode(data, (size_t)(out.p - data), (xdrproc_t)xdr_pm_rpcb,
						       &theirs),
					 !extra);
			oracle_free((xdrproc_t)xdr_pm_rpcb, &theirs);
		}
	}
}

static void test_rpcb_cut_short(void **state)
{
	struct pm_rpcb theirs = { 1, 2, oracle_text("udp"), oracle_text("0.0.0.0.8.1"), oracle_text("me") };
	uint8_t data[256];
	size_t len = oracle_encode(data, sizeof(data), (xdrproc_t)xdr_pm_rpcb, &theirs);

	for (size_t n = 0; n < len; n++) {
		struct hf_xdr_in in = in_of(data, n);

		hf_rpcb_get(&in);
		assert_false(hf_xdr_in_is_ok(&in));
		in = in_of(data, n);
		hf_rpcb_get_any(&in);
		assert_false(hf_xdr_in_is_ok(&in));
	}
	/* a length of 2^32-1 */
	memset(data + 8, 0xff, 4);
	struct hf_xdr_in in = in_of(data, len);
	hf_rpcb_get_any(&in);
	assert_false(hf_xdr_in_is_ok(&in));
}

static void test_netbuf(void **state)
{
	static const char *const texts[] = { "192.0.2.7:2049", "[2001:db8::7]:111" };

	for (size_t i = 0; i < 2; i++) {
		struct hf_addr addr, back;
		struct pm_netbuf theirs = { 0 };
		uint8_t data[256];
		struct hf_xdr_out out;
		struct hf_xdr_in in;

		assert_true(hf_addr_parse_with_port(&addr, texts[i]));
		hf_xdr_out_init(&out, data, sizeof(data));
		hf_netbuf_put(&out, &addr);
		assert_true(oracle_decode(data, (size_t)(out.p - data), (xdrproc_t)xdr_pm_netbuf, &theirs));
		assert_int_equal(theirs.buf.buf_len,
				 i ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
		assert_int_equal(theirs.maxlen, theirs.buf.buf_len);
		in = in_of(data, oracle_encode(data, sizeof(data), (xdrproc_t)xdr_pm_netbuf, &theirs));
		assert_true(hf_netbuf_get(&back, &in));
		assert_true(hf_addr_equal(&addr, &back));
		oracle_free((xdrproc_t)xdr_pm_netbuf, &theirs);
	}
}

static void test_netbuf_nonsense(void **state)
{
	uint8_t data[300] = { 0 };
	struct hf_addr addr;
	struct hf_xdr_out out;
	struct hf_xdr_in in;
	uint16_t family = AF_INET6;

	/* too short for its family, no family, empty, over the bound */
	for (uint32_t len = 0; len <= 129; len++) {
		uint8_t body[160] = { 0 };

		memcpy(body, &family, 2);
		hf_xdr_out_init(&out, data, sizeof(data));
		hf_xdr_put_u32(&out, 0xffffffff);
		hf_xdr_put_opaque(&out, hf_bytes_of(body, len));
		in = in_of(data, (size_t)(out.p - data));
		assert_int_equal(hf_netbuf_get(&addr, &in), len >= sizeof(struct sockaddr_in6) && len <= 128);
		assert_int_equal(hf_xdr_in_is_ok(&in), len <= 128);
	}
	memset(data, 0xff, 8);
	in = in_of(data, 8);
	assert_false(hf_netbuf_get(&addr, &in));
	assert_false(hf_xdr_in_is_ok(&in));
}

static void test_entry(void **state)
{
	struct pm_entry theirs = { 0 };
	uint8_t data[256];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, data, sizeof(data));
	hf_entry_put(&out, "192.0.2.7.8.1", HF_NETID_TCP);
	assert_true(oracle_decode(data, (size_t)(out.p - data), (xdrproc_t)xdr_pm_entry, &theirs));
	assert_string_equal(theirs.r_maddr, "192.0.2.7.8.1");
	assert_string_equal(theirs.r_nc_netid, "tcp");
	assert_int_equal(theirs.r_nc_semantics, 3);
	assert_string_equal(theirs.r_nc_protofmly, "inet");
	assert_string_equal(theirs.r_nc_proto, "tcp");
	oracle_free((xdrproc_t)xdr_pm_entry, &theirs);
}

static void test_netids(void **state)
{
	struct hf_addr addr;

	for (int i = 0; i < HF_N_NETIDS; i++) {
		const struct hf_netid_info *info = hf_netid_info((enum hf_netid)i);

		assert_int_equal(hf_netid_parse(hf_bytes_of_str(info->name)), i);
		assert_int_equal(hf_netid_of(info->family, info->protocol), i);
	}
	assert_int_equal(hf_netid_parse(hf_bytes_of_str("")), HF_N_NETIDS);
	assert_int_equal(hf_netid_parse(hf_bytes_of_str("tcp7")), HF_N_NETIDS);
	assert_int_equal(hf_netid_parse(hf_bytes_of_str("tc")), HF_N_NETIDS);
	assert_int_equal(hf_netid_of(AF_INET, 1), HF_N_NETIDS);

	assert_true(hf_netid_parse_uaddr(&addr, HF_NETID_TCP, hf_bytes_of_str("192.0.2.1.8.1")));
	assert_int_equal(addr.port, 2049);
	assert_false(hf_netid_parse_uaddr(&addr, HF_NETID_TCP6, hf_bytes_of_str("192.0.2.1.8.1")));
	assert_false(hf_netid_parse_uaddr(&addr, HF_NETID_UDP, hf_bytes_of_str("::1.8.1")));
	assert_false(hf_netid_parse_uaddr(&addr, HF_NETID_UDP, hf_bytes_of_str("1.2.3.4")));
	assert_false(hf_netid_parse_uaddr(&addr, HF_NETID_UDP, hf_bytes_of_str("")));
	assert_false(hf_netid_parse_uaddr(&addr, HF_NETID_UDP, hf_bytes_of_str("1.2.3.4.5.256")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mapping),     cmocka_unit_test(test_rpcb),
		cmocka_unit_test(test_rpcb_bounds), cmocka_unit_test(test_rpcb_cut_short),
		cmocka_unit_test(test_netbuf),      cmocka_unit_test(test_netbuf_nonsense),
		cmocka_unit_test(test_entry),       cmocka_unit_test(test_netids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
