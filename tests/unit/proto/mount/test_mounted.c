#include "../../test.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/mount/mounted.h"

static struct hf_addr host(unsigned int n)
{
	return (struct hf_addr){ .family = AF_INET,
				 .port = (uint16_t)n,
				 .ip = { 10, (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n } };
}

static void test_once_and_in_order(void **state)
{
	struct hf_addr a = host(1), b = host(2);
	struct hf_mount mount;

	hf_mount_init(&mount, NULL, NULL);
	hf_mounted_add(&mount, &a, "/x");
	hf_mounted_add(&mount, &a, "/y");
	hf_mounted_add(&mount, &b, "/x");
	a.port = 99; /* another connection of the same host */
	hf_mounted_add(&mount, &a, "/x");
	assert_int_equal(mount.n_mounted, 3);
	hf_mounted_remove(&mount, &a, "/none");
	assert_int_equal(mount.n_mounted, 3);
	hf_mounted_remove(&mount, &a, "/x");
	assert_int_equal(mount.n_mounted, 2);
	hf_mounted_remove(&mount, &a, NULL);
	assert_int_equal(mount.n_mounted, 1);
	hf_mount_deinit(&mount);
}

static void test_bounded(void **state)
{
	static uint8_t room[1 << 21];
	struct hf_mount mount;
	struct hf_xdr_out out;
	struct hf_addr a;

	hf_mount_init(&mount, NULL, NULL);
	for (unsigned int i = 0; i < HF_MOUNT_MAX_ENTRIES + 10; i++) {
		a = host(i);
		hf_mounted_add(&mount, &a, "/somewhere");
	}
	assert_int_equal(mount.n_mounted, HF_MOUNT_MAX_ENTRIES);
	assert_true(hf_mounted_room(&mount) <= sizeof(room));
	for (size_t len = 4; len < 5000; len += 7) {
		hf_xdr_out_init(&out, room, len);
		hf_mounted_put(&mount, &out); /* what does not fit is left out */
		assert_true(hf_xdr_out_is_ok(&out));
	}
	hf_xdr_out_init(&out, room, hf_mounted_room(&mount));
	hf_mounted_put(&mount, &out);
	assert_true(hf_xdr_out_is_ok(&out));
	hf_mount_deinit(&mount);
}

static void add_many(struct hf_mount *mount, const struct hf_addr *a, unsigned int n)
{
	char path[32];

	for (unsigned int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/dir%u", i);
		hf_mounted_add(mount, a, path);
	}
}

static bool is_shown(struct hf_mount *mount, const char *path)
{
	static uint8_t room[1 << 21];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, room, sizeof(room));
	assert_int_equal(hf_mounted_put(mount, &out), mount->n_mounted);
	return memmem(room, (size_t)(out.p - room), path, strlen(path)) != NULL;
}

static void test_bounded_for_a_host(void **state)
{
	struct hf_addr a = host(1), b = host(2);
	struct hf_mount mount;

	hf_mount_init(&mount, NULL, NULL);
	hf_mounted_add(&mount, &b, "/other");
	add_many(&mount, &a, HF_MOUNT_MAX_PER_HOST + 36);
	assert_int_equal(mount.n_mounted, 1 + HF_MOUNT_MAX_PER_HOST);
	assert_true(is_shown(&mount, "/other"));
	assert_false(is_shown(&mount, "/dir35")); /* the oldest went */
	assert_true(is_shown(&mount, "/dir36"));
	assert_true(is_shown(&mount, "/dir99"));
	hf_mounted_remove(&mount, &a, NULL);
	assert_int_equal(mount.n_mounted, 1);
	assert_true(is_shown(&mount, "/other"));
	hf_mounted_remove(&mount, &b, "/other");
	assert_int_equal(mount.n_mounted, 0);
	assert_int_equal(hf_mounted_room(&mount), 4);
	hf_mount_deinit(&mount);
}

/* The first of all stays, however many hosts fill the list with more than it has. */
static void test_those_with_the_most_make_room(void **state)
{
	struct hf_addr a = host(1), b;
	struct hf_mount mount;

	hf_mount_init(&mount, NULL, NULL);
	hf_mounted_add(&mount, &a, "/first");
	for (unsigned int i = 0; i < 2 * HF_MOUNT_MAX_ENTRIES / HF_MOUNT_MAX_PER_HOST; i++) {
		b = host(2 + i);
		add_many(&mount, &b, HF_MOUNT_MAX_PER_HOST);
	}
	assert_int_equal(mount.n_mounted, HF_MOUNT_MAX_ENTRIES);
	assert_true(is_shown(&mount, "/first"));
	hf_mount_deinit(&mount);
}

static double cpu_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A call costs what its own host has mounted: a walk over all would take 100 us each time. */
static void test_a_call_walks_no_other_host(void **state)
{
	struct hf_addr stranger = host(1 << 20), a;
	struct hf_mount mount;
	double begun;

	hf_mount_init(&mount, NULL, NULL);
	for (unsigned int i = 0; i < HF_MOUNT_MAX_ENTRIES; i++) {
		a = host(i);
		hf_mounted_add(&mount, &a, "/somewhere");
	}
	begun = cpu_seconds();
	for (int i = 0; i < 100000; i++)
		hf_mounted_remove(&mount, &stranger, NULL);
	assert_true(cpu_seconds() - begun < 2);
	assert_int_equal(mount.n_mounted, HF_MOUNT_MAX_ENTRIES);
	hf_mount_deinit(&mount);
}

static void test_tidy(void **state)
{
	static const struct {
		const char *from;
		const char *to;
	} paths[] = { { "/", "/" }, { "///", "/" }, { "/a/", "/a" }, { "//a///b//", "/a/b" },
		      { "", "" },   { "a/", "a" } };
	char text[32];

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		strcpy(text, paths[i].from);
		hf_mount_tidy(text);
		assert_string_equal(text, paths[i].to);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_once_and_in_order),
		cmocka_unit_test(test_bounded),
		cmocka_unit_test(test_bounded_for_a_host),
		cmocka_unit_test(test_those_with_the_most_make_room),
		cmocka_unit_test(test_a_call_walks_no_other_host),
		cmocka_unit_test(test_tidy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
