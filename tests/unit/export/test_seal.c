#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "export/seal.h"
#include "loop/loop.h"

/* The vectors of the authors' own implementation: key 00..0f, message 00..len-1. */
static void test_vectors(void **state)
{
	static const struct {
		size_t len;
		uint64_t tag;
	} vectors[] = {
		{ 0, 0x726fdb47dd0e0e31 }, { 1, 0x74f839c593dc67fd },  { 7, 0xab0200f58b01d137 },
		{ 8, 0x93f5f5799a932462 }, { 15, 0xa129ca6149be45e5 }, { 63, 0x958a324ceb064572 },
	};
	struct hf_seal_key key;
	uint8_t message[64];

	for (size_t i = 0; i < sizeof(message); i++)
		message[i] = (uint8_t)i;
	memcpy(key.bytes, message, sizeof(key.bytes));
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
		assert_int_equal(hf_seal(&key, message, vectors[i].len), vectors[i].tag);
}

/* It tells each bit of the key, and stays what it is from release to release: stores remember it. */
static void test_print_of_a_key(void **state)
{
	struct hf_seal_key key;
	uint64_t print;

	for (size_t i = 0; i < sizeof(key.bytes); i++)
		key.bytes[i] = (uint8_t)i;
	print = hf_seal_key_print(&key);
	assert_int_equal(print, 0x53edcccaac0dfbde);
	for (size_t i = 0; i < 8 * sizeof(key.bytes); i++) {
		struct hf_seal_key other = key;

		other.bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_int_not_equal(hf_seal_key_print(&other), print);
		assert_int_not_equal(hf_seal_key_print(&other), 0);
	}
}

static void test_key_file(void **state)
{
	char dir[] = "/tmp/hf-seal-XXXXXX", file[64];
	struct hf_seal_key first, second;
	struct hf_loop *loop;
	struct stat st;
	FILE *out;

	assert_int_equal(hf_loop_new(&loop), 0);
	assert_non_null(mkdtemp(dir));
	snprintf(file, sizeof(file), "%s/handle.key", dir);
	assert_int_equal(hf_seal_key_load(&first, dir, loop), 0);
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(st.st_size, 16);
	assert_int_equal(hf_seal_key_load(&second, dir, loop), 0);
	assert_memory_equal(&first, &second, sizeof(first));

	/* Never replaced by another: that would cut all clients off. */
	out = fopen(file, "w");
	fputs("this is no key at all", out);
	fclose(out);
	assert_int_equal(hf_seal_key_load(&second, dir, loop), -EBADMSG);
	unlink(file);
	assert_int_equal(hf_seal_key_load(&second, dir, loop), 0);
	assert_memory_not_equal(&first, &second, sizeof(first));
	assert_int_equal(hf_seal_key_load(&second, "/nonexistent", loop), -ENOENT);
	unlink(file);
	rmdir(dir);
	hf_loop_free(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_print_of_a_key),
		cmocka_unit_test(test_key_file),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
