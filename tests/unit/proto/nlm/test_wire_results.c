/* What the server says in answers, read by rpcgen's codec. */
#include "test.h"

#include "base/macros.h"
#include "proto/nlm/wire.h"

#include "nlm_oracle.h"

static const uint32_t versions[] = { 1, 3, 4 };

static uint8_t filler[2048]; /* of handles, owners and long cookies */

static int setup(void **state)
{
	for (size_t i = 0; i < sizeof(filler); i++)
		filler[i] = (uint8_t)(i * 7 + 1);
	return 0;
}

/* The old versions have no word for half of them. */
static const uint32_t narrowed[] = {
	[HF_NLM_GRANTED_STAT] = NLM4_GRANTED,
	[HF_NLM_DENIED] = NLM4_DENIED,
	[HF_NLM_DENIED_NOLOCKS] = NLM4_DENIED_NOLOCKS,
	[HF_NLM_BLOCKED] = NLM4_BLOCKED,
	[HF_NLM_DENIED_GRACE_PERIOD] = NLM4_DENIED_GRACE_PERIOD,
	[HF_NLM_DEADLCK] = NLM4_DENIED,
	[HF_NLM_ROFS] = NLM4_DENIED_NOLOCKS,
	[HF_NLM_STALE_FH] = NLM4_DENIED_NOLOCKS,
	[HF_NLM_FBIG] = NLM4_DENIED_NOLOCKS,
	[HF_NLM_FAILED] = NLM4_DENIED_NOLOCKS,
};

static uint32_t expected_stat(uint32_t version, uint32_t stat)
{
	return version == 4 ? stat : narrowed[stat];
}

static void test_res(void **state)
{
	for (size_t v = 0; v < HF_ARRAY_SIZE(versions); v++) {
		for (uint32_t stat = 0; stat < HF_ARRAY_SIZE(narrowed); stat++) {
			uint32_t cookie_len = stat == 3 ? 0 : stat == 4 ? HF_NLM_MAX_NETOBJ : 4 + stat;
			uint8_t data[HF_NLM_MAX_RES];
			struct nlm_shareres share = { 0 };
			struct nlm_res res = { 0 };
			struct hf_xdr_out out;

			hf_xdr_out_init(&out, data, sizeof(data));
			hf_nlm_put_res(&out, versions[v], hf_bytes_of(filler, cookie_len),
				       (enum hf_nlm_stat)stat);
			assert_true(
				oracle_decode(data, (size_t)(out.p - data), (xdrproc_t)xdr_nlm_res, &res));
			assert_int_equal(res.cookie.nlm_netobj_len, cookie_len);
			assert_memory_equal(res.cookie.nlm_netobj_val, filler, cookie_len);
			assert_int_equal(res.stat, expected_stat(versions[v], stat));
			oracle_free((xdrproc_t)xdr_nlm_res, &res);

			hf_xdr_out_init(&out, data, sizeof(data));
			hf_nlm_put_share_res(&out, versions[v], hf_bytes_of(filler, cookie_len),
					     (enum hf_nlm_stat)stat);
			assert_true(oracle_decode(data, (size_t)(out.p - data), (xdrproc_t)xdr_nlm_shareres,
						  &share));
			assert_int_equal(share.stat, expected_stat(versions[v], stat));
			assert_int_equal(share.sequence, 0);
			oracle_free((xdrproc_t)xdr_nlm_shareres, &share);
		}
	}
}

/* A status that becomes DENIED in an older version has a holder, else the client could not decode it. */
static void test_test_res_of_every_status(void **state)
{
	const struct hf_nlm_holder holder = { .svid = 1 };

	for (size_t v = 0; v < HF_ARRAY_SIZE(versions); v++) {
		for (uint32_t stat = 0; stat < HF_ARRAY_SIZE(narrowed); stat++) {
			struct nlm4_testres theirs = { 0 };
			struct nlm_testres old = { 0 };
			uint8_t data[HF_NLM_MAX_RES];
			struct hf_xdr_out out;
			size_t len;

			hf_xdr_out_init(&out, data, sizeof(data));
			hf_nlm_put_test_res(&out, versions[v], hf_bytes_of_str("c"), (enum hf_nlm_stat)stat,
					    &holder);
			len = (size_t)(out.p - data);
			if (versions[v] == 4)
				assert_true(oracle_decode(data, len, (xdrproc_t)xdr_nlm4_testres, &theirs));
			else
				assert_true(oracle_decode(data, len, (xdrproc_t)xdr_nlm_testres, &old));
			oracle_free((xdrproc_t)xdr_nlm4_testres, &theirs);
			oracle_free((xdrproc_t)xdr_nlm_testres, &old);
		}
	}
}

static void test_holder(void **state)
{
	static const struct {
		uint64_t offset, len;
		uint32_t old_offset, old_len;
	} rows[] = {
		{ 0, 0, 0, 0 },
		{ 10, 5, 10, 5 },
		{ 0, INT32_MAX, 0, INT32_MAX },
		{ INT32_MAX, 1, INT32_MAX, 1 },
		{ INT32_MAX, 2, INT32_MAX, 0 },
		{ 5, (uint64_t)1 << 40, 5, 0 },
		{ (uint64_t)1 << 40, 0, INT32_MAX, 0 },
		{ HF_RANGE_EOF, 1, INT32_MAX, 1 },
	};

	for (size_t i = 0; i < HF_ARRAY_SIZE(rows); i++) {
		const struct hf_nlm_holder holder = { .exclusive = i % 2,
						      .svid = -7,
						      .oh = hf_bytes_of(filler, HF_NLM_MAX_NETOBJ),
						      .offset = rows[i].offset,
						      .len = rows[i].len };
		struct hf_bytes cookie = hf_bytes_of(filler, HF_NLM_MAX_NETOBJ);
		struct nlm4_testres theirs = { 0 };
		struct nlm_testres old = { 0 };
		uint8_t data[HF_NLM_MAX_RES];
		struct hf_xdr_out out;

		hf_xdr_out_init(&out, data, sizeof(data));
		hf_nlm_put_test_res(&out, 4, cookie, HF_NLM_DENIED, &holder);
		assert_true(hf_xdr_out_is_ok(&out));
		assert_true(
			oracle_decode(data, (size_t)(out.p - data), (xdrproc_t)xdr_nlm4_testres, &theirs));
		assert_int_equal(theirs.stat.nlm4_testrply_u.holder.exclusive, i % 2);
		assert_int_equal(theirs.stat.nlm4_testrply_u.holder.svid, -7);
		assert_int_equal(theirs.stat.nlm4_testrply_u.holder.oh.nlm_netobj_len, HF_NLM_MAX_NETOBJ);
		assert_int_equal(theirs.stat.nlm4_testrply_u.holder.l_offset, rows[i].offset);
		assert_int_equal(theirs.stat.nlm4_testrply_u.holder.l_len, rows[i].len);
		oracle_free((xdrproc_t)xdr_nlm4_testres, &theirs);

		hf_xdr_out_init(&out, data, sizeof(data));
		hf_nlm_put_test_res(&out, 1, cookie, HF_NLM_DENIED, &holder);
		assert_true(oracle_decode(data, (size_t)(out.p - data), (xdrproc_t)xdr_nlm_testres, &old));
		assert_int_equal(old.stat.nlm_testrply_u.holder.l_offset, rows[i].old_offset);
		assert_int_equal(old.stat.nlm_testrply_u.holder.l_len, rows[i].old_len);
		oracle_free((xdrproc_t)xdr_nlm_testres, &old);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_res),
		cmocka_unit_test(test_test_res_of_every_status),
		cmocka_unit_test(test_holder),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
