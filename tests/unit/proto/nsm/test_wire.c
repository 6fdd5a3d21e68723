/* The server's codec against rpcgen's, both ways, and against messages that end too soon. */
#include "test.h"

#include <string.h>

#include "base/macros.h"
#include "proto/nsm/wire.h"

#include "nsm_oracle.h"

#define BUFFER 8192

static const char *const names[] = { "a", "ab", "abc", "abcd", "server.example.org", "10.98.0.1" };
static const int32_t states[] = { 0, 1, 3, -1, INT32_MAX, INT32_MIN };
static const char priv_bytes[17] = "0123456789abcdef";

static void assert_name(struct hf_bytes bytes, const char *name)
{
	assert_int_equal(bytes.len, strlen(name));
	assert_memory_equal(bytes.data, name, bytes.len);
}

static struct mon sample_mon(size_t i)
{
	struct mon sample = {
		.mon_id = { .mon_name = oracle_text(names[i]),
			    .my_id = { oracle_text(names[HF_ARRAY_SIZE(names) - 1 - i]), 100021 + (int)i, 3,
				       16 } },
	};

	memcpy(sample.priv, priv_bytes, sizeof(sample.priv));
	return sample;
}

static void check_mon(const struct hf_nsm_mon *ours, const struct mon *theirs)
{
	assert_name(ours->mon_name, theirs->mon_id.mon_name);
	assert_name(ours->my_id.my_name, theirs->mon_id.my_id.my_name);
	assert_int_equal(ours->my_id.program, theirs->mon_id.my_id.my_prog);
	assert_int_equal(ours->my_id.version, theirs->mon_id.my_id.my_vers);
	assert_int_equal(ours->my_id.procedure, theirs->mon_id.my_id.my_proc);
}

static void test_mon(void **state)
{
	uint8_t buffer[BUFFER], other[BUFFER];
	struct hf_xdr_in in;

	for (size_t i = 0; i < HF_ARRAY_SIZE(names); i++) {
		struct mon theirs = sample_mon(i);
		size_t len = oracle_encode(buffer, sizeof(buffer), (xdrproc_t)xdr_mon, &theirs);
		struct hf_nsm_mon ours;

		hf_xdr_in_init(&in, buffer, len);
		ours = hf_nsm_get_mon(&in);
		assert_true(hf_xdr_in_is_ok(&in) && hf_xdr_in_left(&in) == 0);
		check_mon(&ours, &theirs);
		assert_memory_equal(ours.priv, priv_bytes, sizeof(ours.priv));
		for (size_t cut = 0; cut < len; cut++) {
			hf_xdr_in_init(&in, buffer, cut);
			hf_nsm_get_mon(&in);
			assert_false(hf_xdr_in_is_ok(&in));
		}
		len = oracle_encode(buffer, sizeof(buffer), (xdrproc_t)xdr_mon_id, &theirs.mon_id);
		hf_xdr_in_init(&in, buffer, len);
		ours = hf_nsm_get_mon_id(&in);
		assert_true(hf_xdr_in_is_ok(&in) && hf_xdr_in_left(&in) == 0);
		check_mon(&ours, &theirs);
		len = oracle_encode(other, sizeof(other), (xdrproc_t)xdr_my_id, &theirs.mon_id.my_id);
		hf_xdr_in_init(&in, other, len);
		ours.my_id = hf_nsm_get_my_id(&in);
		assert_true(hf_xdr_in_is_ok(&in) && hf_xdr_in_left(&in) == 0);
		check_mon(&ours, &theirs);
	}
}

static void test_names(void **state)
{
	static char longest[1026];
	uint8_t buffer[BUFFER];
	struct hf_xdr_in in;
	struct hf_xdr_out out;

	memset(longest, 'x', sizeof(longest) - 1);
	for (uint32_t len = 1023; len <= 1025; len++) {
		hf_xdr_out_init(&out, buffer, sizeof(buffer));
		hf_xdr_put_opaque(&out, hf_bytes_of(longest, len));
		hf_xdr_in_init(&in, buffer, (size_t)(out.p - buffer));
		hf_nsm_get_name(&in);
		assert_int_equal(hf_xdr_in_is_ok(&in), len <= 1024);
	}
	hf_xdr_out_init(&out, buffer, sizeof(buffer));
	hf_xdr_put_opaque(&out, hf_bytes_of("a\0b", 3));
	hf_xdr_in_init(&in, buffer, 8);
	hf_nsm_get_name(&in);
	assert_false(hf_xdr_in_is_ok(&in));
}

static void test_status(void **state)
{
	uint8_t buffer[HF_NSM_MAX_STATUS];
	struct hf_xdr_out out;
	struct hf_xdr_in in;

	for (size_t i = 0; i < HF_ARRAY_SIZE(names); i++) {
		struct status theirs = { 0 };
		struct stat_chge change = { 0 };
		struct hf_nsm_status ours;

		hf_xdr_out_init(&out, buffer, sizeof(buffer));
		hf_nsm_put_status(&out, hf_bytes_of_str(names[i]), states[i], (const uint8_t *)priv_bytes);
		assert_true(oracle_decode(buffer, (size_t)(out.p - buffer), (xdrproc_t)xdr_status, &theirs));
		assert_string_equal(theirs.mon_name, names[i]);
		assert_int_equal(theirs.state, states[i]);
		assert_memory_equal(theirs.priv, priv_bytes, 16);
		hf_xdr_in_init(&in, buffer, (size_t)(out.p - buffer));
		ours = hf_nsm_get_status(&in);
		assert_true(hf_xdr_in_is_ok(&in) && hf_xdr_in_left(&in) == 0);
		assert_int_equal(ours.state, states[i]);
		assert_memory_equal(ours.priv, priv_bytes, 16);
		oracle_free((xdrproc_t)xdr_status, &theirs);

		hf_xdr_out_init(&out, buffer, sizeof(buffer));
		hf_nsm_put_stat_chge(&out, hf_bytes_of_str(names[i]), states[i]);
		assert_true(
			oracle_decode(buffer, (size_t)(out.p - buffer), (xdrproc_t)xdr_stat_chge, &change));
		assert_string_equal(change.mon_name, names[i]);
		assert_int_equal(change.state, states[i]);
		hf_xdr_in_init(&in, buffer, (size_t)(out.p - buffer));
		ours = hf_nsm_get_stat_chge(&in);
		assert_true(hf_xdr_in_is_ok(&in) && hf_xdr_in_left(&in) == 0);
		assert_name(ours.mon_name, names[i]);
		oracle_free((xdrproc_t)xdr_stat_chge, &change);
	}
}

static void test_results(void **state)
{
	uint8_t buffer[16];
	struct hf_xdr_out out;

	for (size_t i = 0; i < HF_ARRAY_SIZE(states); i++) {
		struct sm_stat_res theirs = { 0 };

		hf_xdr_out_init(&out, buffer, sizeof(buffer));
		hf_nsm_put_stat_res(&out, i % 2 ? HF_NSM_FAIL : HF_NSM_SUCC, states[i]);
		assert_true(
			oracle_decode(buffer, (size_t)(out.p - buffer), (xdrproc_t)xdr_sm_stat_res, &theirs));
		assert_int_equal(theirs.res_stat, i % 2 ? STAT_FAIL : STAT_SUCC);
		assert_int_equal(theirs.state, states[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mon),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_status),
		cmocka_unit_test(test_results),
	};

	return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
