#include "../exports.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"

static const struct hf_client_rule any = { .text = "*", .kind = HF_CLIENT_ANY };
static const struct hf_export_rule for_all = {
	.clients = &any, .n_clients = 1, .anon_uid = 65534, .anon_gid = 65533
};

static const char *path_of(const char *name)
{
	static char paths[8][128];
	static unsigned int next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s%s", base, name);
	return path;
}

static struct hf_export_settings settings_of(const char *path, const char *name)
{
	return (struct hf_export_settings){ .path = path, .name = name, .rules = &for_all, .n_rules = 1 };
}

static void load(const struct hf_export_settings *settings, size_t n)
{
	size_t n_failed;

	assert_int_equal(hf_exports_load(exports, settings, n, &n_failed), 0);
	assert_int_equal(n_failed, 0);
}

static struct hf_addr addr_of(const char *text, uint16_t port)
{
	struct hf_addr addr;

	assert_true(hf_addr_parse(&addr, text));
	addr.port = port;
	return addr;
}

static int set_up(void **state)
{
	int r = open_exports();

	mkdir(path_of("/a"), 0755);
	mkdir(path_of("/a/b"), 0755);
	mkdir(path_of("/c"), 0755);
	return r;
}

static void expect_found(const char *path, const char *name, const char *rest)
{
	const char *found_rest = NULL;
	struct hf_export *export = hf_exports_find(exports, path, &found_rest);

	if (!name) {
		assert_null(export);
		return;
	}
	assert_non_null(export);
	assert_string_equal(export->settings.name, name);
	assert_string_equal(found_rest, rest);
	hf_export_unref(export);
}

static void test_find(void **state)
{
	struct hf_export_settings settings[] = {
		settings_of(path_of("/a"), "/data"),
		settings_of(path_of("/a/b"), "/data/inner"),
		settings_of(path_of("/c"), path_of("/c")),
	};

	load(settings, 3);
	expect_found("/data", "/data", "");
	expect_found("/data/", "/data", "");
	expect_found("/data/x/y", "/data", "x/y");
	expect_found("/data/inner", "/data/inner", "");
	expect_found("/data/inner/z", "/data/inner", "z");
	expect_found("/data/innermost", "/data", "innermost");
	expect_found(path_of("/a"), "/data", "");
	expect_found(path_of("/a/b/x"), "/data/inner", "x");
	expect_found(path_of("/c"), path_of("/c"), "");
	expect_found("/dat", NULL, NULL);
	expect_found("/database", NULL, NULL);
	expect_found("data", NULL, NULL);
	expect_found("", NULL, NULL);
	expect_found("/", NULL, NULL);
	settings[0] = settings_of(path_of("/a"), "/");
	load(settings, 1);
	expect_found("/", "/", "");
	expect_found("/x", "/", "x");
	expect_found("", NULL, NULL);
	expect_found("x", NULL, NULL);
}

static void test_admit(void **state)
{
	struct hf_client_rule rules[] = {
		{ .text = "192.0.2.0/24", .kind = HF_CLIENT_NETWORK },
		{ .text = "2001:db8::/32", .kind = HF_CLIENT_NETWORK },
	};
	struct hf_export_settings settings = settings_of(path_of("/a"), "/a");
	struct hf_export_rule rule;
	struct hf_export_list list = { 0 };
	struct hf_addr in, in6, out, local;

	in = addr_of("192.0.2.7", 1023);
	in6 = addr_of("2001:db8::9", 40000);
	out = addr_of("192.0.3.7", 1);
	local = addr_of("127.0.0.1", 5);
	assert_true(hf_network_parse(&rules[0].network, rules[0].text));
	assert_true(hf_network_parse(&rules[1].network, rules[1].text));
	settings.rules = &rule;
	rule = (struct hf_export_rule){ .clients = rules, .n_clients = 2 };
	load(&settings, 1);
	assert_int_equal(hf_exports_list(exports, &list), 0);
	assert_int_equal(hf_export_admit(list.items[0], &in, NULL), HF_ADMITTED);
	assert_int_equal(hf_export_admit(list.items[0], &in6, NULL), HF_ADMITTED);
	assert_int_equal(hf_export_admit(list.items[0], &out, NULL), HF_REFUSED_ADDRESS);
	assert_int_equal(hf_export_admit(list.items[0], &local, NULL), HF_REFUSED_ADDRESS);
	hf_export_list_clear(&list);

	rule.secure = true;
	load(&settings, 1);
	assert_int_equal(hf_exports_list(exports, &list), 0);
	assert_int_equal(hf_export_admit(list.items[0], &in, NULL), HF_ADMITTED);
	assert_int_equal(hf_export_admit(list.items[0], &in6, NULL), HF_REFUSED_PORT);
	in.port = 1024;
	assert_int_equal(hf_export_admit(list.items[0], &in, NULL), HF_REFUSED_PORT);
	hf_export_list_clear(&list);

	rules[0].kind = HF_CLIENT_PRIVATE;
	rule.secure = false;
	rule.n_clients = 1;
	load(&settings, 1);
	assert_int_equal(hf_exports_list(exports, &list), 0);
	assert_int_equal(hf_export_admit(list.items[0], &local, NULL), HF_ADMITTED);
	assert_int_equal(hf_export_admit(list.items[0], &in, NULL), HF_REFUSED_ADDRESS);
	hf_export_list_clear(&list);

	rule.n_clients = 0; /* no client is admitted */
	load(&settings, 1);
	assert_int_equal(hf_exports_list(exports, &list), 0);
	assert_int_equal(hf_export_admit(list.items[0], &local, NULL), HF_REFUSED_ADDRESS);
	hf_export_list_clear(&list);
}

static struct hf_client_rule client_of(const char *text)
{
	struct hf_client_rule client = { .text = text, .kind = HF_CLIENT_NETWORK };

	assert_true(hf_network_parse(&client.network, text));
	return client;
}

/* The first rule that has the client applies, also if a later one is more specific. */
static void test_rules(void **state)
{
	struct hf_client_rule one[] = { client_of("192.0.2.7"), client_of("192.0.2.8") };
	struct hf_client_rule net = client_of("192.0.2.0/24"), inside = client_of("192.0.2.9");
	struct hf_export_rule rules[] = {
		{ .clients = one, .n_clients = 2, .squash = HF_SQUASH_NONE },
		{ .clients = &net, .n_clients = 1, .read_only = true, .secure = true },
		{ .clients = &inside, .n_clients = 1 },
	};
	static const struct {
		const char *peer;
		int answer, rule;
	} cases[] = {
		{ "192.0.2.7", HF_ADMITTED, 0 },         { "192.0.2.8", HF_ADMITTED, 0 },
		{ "192.0.2.9", HF_REFUSED_PORT, 1 },     { "192.0.2.10", HF_REFUSED_PORT, 1 },
		{ "192.0.3.1", HF_REFUSED_ADDRESS, -1 },
	};
	struct hf_export_settings settings = settings_of(path_of("/a"), "/a");
	struct hf_export_list list = { 0 };

	settings.rules = rules;
	settings.n_rules = HF_ARRAY_SIZE(rules);
	load(&settings, 1);
	assert_int_equal(hf_exports_list(exports, &list), 0);
	for (size_t i = 0; i < HF_ARRAY_SIZE(cases); i++) {
		struct hf_addr peer = addr_of(cases[i].peer, 4000);
		const struct hf_export_rule *rule;

		assert_int_equal(hf_export_admit(list.items[0], &peer, &rule), cases[i].answer);
		if (cases[i].rule < 0)
			assert_null(rule);
		else
			assert_ptr_equal(rule, &list.items[0]->settings.rules[cases[i].rule]);
	}
	hf_export_list_clear(&list);
}

static void expect_squashed(enum hf_squash squash, uint32_t uid, uint32_t gid, uint32_t expected_uid,
			    uint32_t expected_gid, uint32_t expected_n)
{
	struct hf_export_rule rule = { .squash = squash, .anon_uid = 65534, .anon_gid = 65533 };
	struct hf_identity given = { .uid = uid, .gid = gid, .n_gids = 2, .gids = { 0, 7 } }, identity;

	hf_export_squash(&rule, &given, &identity);
	assert_int_equal(identity.uid, expected_uid);
	assert_int_equal(identity.gid, expected_gid);
	assert_int_equal(identity.n_gids, expected_n);
	if (expected_n)
		assert_int_equal(identity.gids[0], squash == HF_SQUASH_NONE ? 0 : 65533);
	hf_export_squash(&rule, NULL, &identity);
	assert_int_equal(identity.uid, 65534);
	assert_int_equal(identity.n_gids, 0);
}

static void test_squash(void **state)
{
	expect_squashed(HF_SQUASH_NONE, 0, 0, 0, 0, 2);
	expect_squashed(HF_SQUASH_NONE, 5, 6, 5, 6, 2);
	expect_squashed(HF_SQUASH_ROOT, 0, 6, 65534, 65533, 0);
	expect_squashed(HF_SQUASH_ROOT, 5, 6, 5, 6, 2);
	expect_squashed(HF_SQUASH_ROOT, 5, 0, 5, 65533, 2);
	expect_squashed(HF_SQUASH_ALL, 5, 6, 65534, 65533, 0);
	expect_squashed(HF_SQUASH_ALL, 0, 0, 65534, 65533, 0);
}

static void make_handle(const struct hf_export *export, struct hf_handle *handle)
{
	hf_exports_make_handle(exports, export, &export->volume->root_id, handle);
}

static void test_handles(void **state)
{
	struct hf_export_settings settings[] = { settings_of(path_of("/a"), "/a"),
						 settings_of(path_of("/c"), "/c") };
	struct hf_export_settings reversed[] = { settings[1], settings[0] };
	struct hf_export_list list = { 0 };
	struct hf_handle a, again;
	struct hf_export *export = NULL;
	struct hf_file *file = NULL;

	load(settings, 2);
	assert_int_equal(hf_exports_list(exports, &list), 0);
	make_handle(list.items[0], &a);
	assert_in_range(a.len, 28, HF_HANDLE_MAX);
	hf_export_list_clear(&list);
	assert_int_equal(hf_exports_resolve(exports, hf_bytes_of(a.bytes, a.len), false, &export, &file), 0);
	assert_string_equal(export->settings.name, "/a");
	assert_true(S_ISDIR(file->type));
	hf_file_unref(file);
	hf_export_unref(export);

	load(reversed, 2);
	assert_int_equal(hf_exports_list(exports, &list), 0);
	make_handle(list.items[1], &again);
	assert_int_equal(a.len, again.len);
	assert_memory_equal(a.bytes, again.bytes, a.len);
	hf_export_list_clear(&list);

	for (unsigned int bit = 0; bit < a.len * 8u; bit++) {
		a.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(hf_exports_resolve(exports, hf_bytes_of(a.bytes, a.len), false, &export,
						    &file),
				 HF_HANDLE_BAD);
		a.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	for (uint32_t len = 0; len <= HF_HANDLE_MAX; len++)
		if (len != a.len)
			assert_int_equal(hf_exports_resolve(exports, hf_bytes_of(a.bytes, len), false,
							    &export, &file),
					 HF_HANDLE_BAD);
	load(reversed, 1);
	assert_int_equal(hf_exports_resolve(exports, hf_bytes_of(a.bytes, a.len), false, &export, &file),
			 HF_HANDLE_STALE);
}

static void handle_of(const char *name, struct hf_handle *handle)
{
	struct hf_export_list list = { 0 };
	struct hf_file *file;
	struct stat st;
	int fd;

	assert_int_equal(hf_exports_list(exports, &list), 0);
	fd = openat(list.items[0]->volume->root, name, O_PATH | O_NOFOLLOW);
	assert_true(fd >= 0);
	assert_int_equal(hf_files_take(hf_exports_files(exports), list.items[0]->volume, fd, false, &file,
				       &st),
			 0);
	hf_exports_make_handle(exports, list.items[0], &file->id, handle);
	hf_file_unref(file);
	hf_export_list_clear(&list);
}

static int check(const struct hf_handle *handle, uint32_t uid, bool want_write)
{
	struct hf_identity who = { .uid = uid, .gid = uid };
	struct hf_addr peer = addr_of("127.0.0.1", 1000);

	return hf_export_check_handle(exports, hf_bytes_of(handle->bytes, handle->len), &peer, &who,
				      want_write, NULL, NULL);
}

static void test_check_for_locks(void **state)
{
	struct hf_export_settings settings = settings_of(path_of("/a"), "/a");
	struct hf_export_rule rule = for_all;
	struct hf_handle file, dir;

	if (geteuid() != 0)
		skip();
	settings.rules = &rule;
	load(&settings, 1);
	close(open(path_of("/a/f"), O_CREAT | O_WRONLY, 0644));
	assert_int_equal(chown(path_of("/a/f"), 1000, 1000), 0);
	assert_int_equal(chmod(path_of("/a/f"), 0640), 0);
	handle_of("f", &file);
	handle_of("b", &dir);
	assert_int_equal(check(&file, 1000, true), HF_CHECK_OK);
	assert_int_equal(check(&file, 2000, false), HF_CHECK_ACCESS);
	assert_int_equal(check(&file, 2000, true), HF_CHECK_ACCESS);
	assert_int_equal(chmod(path_of("/a/f"), 0644), 0);
	assert_int_equal(check(&file, 2000, false), HF_CHECK_OK);
	assert_int_equal(check(&file, 2000, true), HF_CHECK_ACCESS);
	assert_int_equal(check(&dir, 1000, false), HF_CHECK_NOT_REGULAR);
	rule.read_only = true;
	load(&settings, 1);
	assert_int_equal(check(&file, 1000, true), HF_CHECK_READ_ONLY);
	assert_int_equal(check(&file, 1000, false), HF_CHECK_OK);
	rule.n_clients = 0;
	load(&settings, 1);
	assert_int_equal(check(&file, 1000, false), HF_CHECK_ACCESS);
	rule.n_clients = 1;
	load(&settings, 1);
	unlink(path_of("/a/f"));
	assert_int_equal(check(&file, 1000, false), HF_CHECK_STALE);
}

static void test_load_leaves_out_what_is_not_there(void **state)
{
	struct hf_export_settings settings[] = { settings_of(path_of("/none"), "/none"),
						 settings_of(path_of("/c"), "/c") };
	size_t n_failed;

	assert_int_equal(hf_exports_load(exports, settings, 2, &n_failed), 0);
	assert_int_equal(n_failed, 1);
	expect_found("/none", NULL, NULL);
	expect_found("/c", "/c", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_find, set_up, close_exports),
		cmocka_unit_test_setup_teardown(test_admit, set_up, close_exports),
		cmocka_unit_test_setup_teardown(test_rules, set_up, close_exports),
		cmocka_unit_test(test_squash),
		cmocka_unit_test_setup_teardown(test_handles, set_up, close_exports),
		cmocka_unit_test_setup_teardown(test_check_for_locks, set_up, close_exports),
		cmocka_unit_test_setup_teardown(test_load_leaves_out_what_is_not_there, set_up,
						close_exports),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
