#include "../../test.h"

#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/macros.h"
#include "proto/nfs3/wire.h"

static void test_every_error_has_a_status(void **state)
{
	static const struct {
		int error;
		enum nfsstat3 stat;
	} known[] = {
		{ 0, NFS3_OK },
		{ EPERM, NFS3ERR_PERM },
		{ ENOENT, NFS3ERR_NOENT },
		{ EACCES, NFS3ERR_ACCES },
		{ EEXIST, NFS3ERR_EXIST },
		{ EXDEV, NFS3ERR_XDEV },
		{ ENOTDIR, NFS3ERR_NOTDIR },
		{ EISDIR, NFS3ERR_ISDIR },
		{ EINVAL, NFS3ERR_INVAL },
		{ EFBIG, NFS3ERR_FBIG },
		{ ENOSPC, NFS3ERR_NOSPC },
		{ EROFS, NFS3ERR_ROFS },
		{ EMLINK, NFS3ERR_MLINK },
		{ ENAMETOOLONG, NFS3ERR_NAMETOOLONG },
		{ ENOTEMPTY, NFS3ERR_NOTEMPTY },
		{ EDQUOT, NFS3ERR_DQUOT },
		{ ESTALE, NFS3ERR_STALE },
		{ EOPNOTSUPP, NFS3ERR_NOTSUPP },
		{ ENOMEM, NFS3ERR_JUKEBOX },
		{ EMFILE, NFS3ERR_JUKEBOX },
		{ EIO, NFS3ERR_IO },
		{ EBADF, NFS3ERR_IO },
		{ EUCLEAN, NFS3ERR_IO },
	};

	for (size_t i = 0; i < HF_ARRAY_SIZE(known); i++)
		assert_int_equal(hf_nfsstat3_of(-known[i].error), known[i].stat);
	for (int error = 0; error < 200; error++)
		assert_string_not_equal(hf_nfsstat3_name(hf_nfsstat3_of(-error)), "unknown");
}

static void test_fattr(void **state)
{
	struct hf_volume volume = { .root_stat.st_dev = 5 };
	struct hf_export export = { .id = 0x1122334455667788, .volume = &volume };
	struct stat st = { .st_mode = S_IFCHR | 04755,
			   .st_nlink = 3,
			   .st_uid = 1,
			   .st_gid = 2,
			   .st_size = 5000000000,
			   .st_blocks = 16,
			   .st_ino = 99,
			   .st_dev = 5,
			   .st_rdev = makedev(4, 70000) };
	uint8_t bytes[HF_FATTR3_LEN];
	struct hf_xdr_out out;
	struct hf_xdr_in in;

	st.st_atim = (struct timespec){ -5, 7 };                            /* before 1970 */
	st.st_mtim = (struct timespec){ (time_t)UINT32_MAX + 5, 8 };        /* after 2106 */
	st.st_ctim = (struct timespec){ (time_t)INT32_MAX + 5, 999999999 }; /* after 2038 */
	hf_xdr_out_init(&out, bytes, sizeof(bytes));
	hf_nfs3_put_fattr(&out, &export, &st);
	assert_true(hf_xdr_out_is_ok(&out));
	assert_int_equal(hf_xdr_out_left(&out), 0);
	hf_xdr_in_init(&in, bytes, sizeof(bytes));
	assert_int_equal(hf_xdr_get_u32(&in), NF3CHR);
	assert_int_equal(hf_xdr_get_u32(&in), 04755);
	assert_int_equal(hf_xdr_get_u32(&in), 3);
	assert_int_equal(hf_xdr_get_u32(&in), 1);
	assert_int_equal(hf_xdr_get_u32(&in), 2);
	assert_int_equal(hf_xdr_get_u64(&in), 5000000000);
	assert_int_equal(hf_xdr_get_u64(&in), 16 * 512);
	assert_int_equal(hf_xdr_get_u32(&in), 4);
	assert_int_equal(hf_xdr_get_u32(&in), 70000);
	assert_int_equal(hf_xdr_get_u64(&in), export.id);
	assert_int_equal(hf_xdr_get_u64(&in), 99);
	assert_int_equal(hf_xdr_get_u32(&in), 0);
	assert_int_equal(hf_xdr_get_u32(&in), 7);
	assert_int_equal(hf_xdr_get_u32(&in), UINT32_MAX);
	assert_int_equal(hf_xdr_get_u32(&in), 8);
	assert_int_equal(hf_xdr_get_u32(&in), (uint32_t)INT32_MAX + 5);
	assert_int_equal(hf_xdr_get_u32(&in), 999999999);
}

static bool get_sattr(const uint32_t *words, size_t n, struct hf_setattr *set)
{
	uint32_t wire[32];
	struct hf_xdr_in in;
	bool ok;

	for (size_t i = 0; i < n; i++)
		wire[i] = htobe32(words[i]);
	hf_xdr_in_init(&in, wire, n * 4);
	ok = hf_nfs3_get_sattr(&in, set);
	assert_true(hf_xdr_in_is_ok(&in));
	assert_int_equal(hf_xdr_in_left(&in), 0);
	return ok;
}

static void test_sattr(void **state)
{
	static const uint32_t none[] = { 0, 0, 0, 0, 0, 0 };
	static const uint32_t all[] = { 1, 0755, 1, 10, 1, 20, 1, 1, 2, 2, 100, 5, 1 };
	static const uint32_t bad_how[] = { 0, 0, 0, 0, 3, 0 };
	static const uint32_t bad_time[] = { 0, 0, 0, 0, 0, 2, 1, 1000000000 };
	struct hf_setattr set;

	assert_true(get_sattr(none, HF_ARRAY_SIZE(none), &set));
	assert_false(set.set_mode || set.set_uid || set.set_gid || set.set_size);
	assert_int_equal(set.atime.tv_nsec, UTIME_OMIT);
	assert_true(get_sattr(all, HF_ARRAY_SIZE(all), &set));
	assert_true(set.set_mode && set.set_uid && set.set_gid && set.set_size);
	assert_int_equal(set.size, (UINT64_C(1) << 32) + 2);
	assert_int_equal(set.atime.tv_sec, 100);
	assert_int_equal(set.mtime.tv_nsec, UTIME_NOW);
	assert_false(get_sattr(bad_how, HF_ARRAY_SIZE(bad_how), &set));
	assert_false(get_sattr(bad_time, HF_ARRAY_SIZE(bad_time), &set));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_error_has_a_status),
		cmocka_unit_test(test_fattr),
		cmocka_unit_test(test_sattr),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
