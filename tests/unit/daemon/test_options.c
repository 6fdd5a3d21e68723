/* Every key of the contract: its default, its good values, its bounds. The tables here repeat the contract,
 * so that a slip of the pen in options.c shows. */
#include "config_fixture.h"

static const struct {
	const char *name;
	const char *preset;
	bool is_live;
} keys[] = {
	{ "server.name", "\"\"", false },
	{ "server.listen", "[\"0.0.0.0\", \"::\"]", false },
	{ "server.port", "2049", false },
	{ "server.portmap", "auto", false },
	{ "server.portmap_port", "111", false },
	{ "server.state_dir", "\"/var/lib/holdfast\"", false },
	{ "server.user", "\"\"", false },
	{ "server.threads", "0", false },
	{ "server.manage_gids", "false", true },
	{ "exports.path", "\"/tmp\"", true },
	{ "exports.name", "\"/tmp\"", true },
	{ "exports.clients", "[\"private\"]", true },
	{ "exports.access", "rw", true },
	{ "exports.squash", "root", true },
	{ "exports.anon_uid", "65534", true },
	{ "exports.anon_gid", "65534", true },
	{ "exports.secure", "false", true },
	{ "exports.rules", "[]", true },
	{ "exports.local_locks", "auto", true },
	{ "exports.sync", "true", true },
	{ "exports.transport", "any", true },
	{ "exports.identities", "[]", true },
	{ "store.backend", "lmdb", false },
	{ "store.postgres", "\"\"", false },
	{ "store.lock_durability", "process", false },
	{ "recovery.window_seconds", "90", true },
	{ "recovery.nlm_grace_seconds", "-1", true },
	{ "recovery.smb_durable_seconds", "-1", true },
	{ "recovery.grace", "auto", false },
	{ "recovery.early_end", "true", true },
	{ "recovery.notify_timeout_ms", "5000", true },
	{ "recovery.notify_parallel", "1024", true },
	{ "recovery.notify_retry_seconds", "900", true },
	{ "recovery.max_clients", "10000", true },
	{ "recovery.max_clients_per_address", "0", true },
	{ "recovery.after_crash", "reclaim", false },
	{ "recovery.release_silent_seconds", "0", true },
	{ "nsm.allow_mon", "exports", true },
	{ "nsm.secure", "false", true },
	{ "cluster.service", "\"\"", false },
	{ "cluster.node", "\"\"", false },
	{ "cluster.lease_seconds", "3", false },
	{ "cluster.addresses", "[]", false },
	{ "cluster.fence", "\"\"", false },
	{ "cluster.automatic", "true", true },
	{ "tls.certificate", "\"\"", true },
	{ "tls.key", "\"\"", true },
	{ "tls.client_ca", "\"\"", true },
	{ "tls.grace_seconds", "60", true },
	{ "api.listen", "\"127.0.0.1:8049\"", false },
	{ "api.certificate", "\"\"", true },
	{ "api.key", "\"\"", true },
	{ "api.token_file", "\"\"", true },
	{ "api.view_token_file", "\"\"", true },
	{ "metrics.enabled", "true", false },
	{ "metrics.per_client", "false", true },
	{ "log.level", "info", true },
	{ "log.format", "auto", true },
	{ "log.slow_ms", "0", true },
	{ "log.audit", "\"\"", true },
};

static const struct {
	const char *name;
	int64_t min;
	int64_t max;
} numbers[] = {
	{ "server.port", 0, 65535 },
	{ "server.portmap_port", 0, 65535 },
	{ "server.threads", 0, 1000 },
	{ "exports.anon_uid", 0, 4294967294 },
	{ "exports.anon_gid", 0, 4294967294 },
	{ "recovery.window_seconds", 1, 86400 },
	{ "recovery.nlm_grace_seconds", -1, 86400 },
	{ "recovery.smb_durable_seconds", -1, 86400 },
	{ "recovery.notify_timeout_ms", 10, 600000 },
	{ "recovery.notify_parallel", 1, 65536 },
	{ "recovery.notify_retry_seconds", 0, 604800 },
	{ "recovery.max_clients", 1, 10000000 },
	{ "recovery.max_clients_per_address", 0, 10000000 },
	{ "recovery.release_silent_seconds", 0, 31536000 },
	{ "log.slow_ms", 0, 3600000 },
	{ "cluster.lease_seconds", 1, 3600 },
	{ "tls.grace_seconds", 0, 86400 },
};

static const struct {
	const char *name;
	const char *words[5];
	const char *expects;
} words[] = {
	{ "server.portmap", { "auto", "embedded", "system", "off" }, "auto, embedded, system or off" },
	{ "exports.access", { "rw", "ro" }, "rw or ro" },
	{ "exports.squash", { "none", "root", "all" }, "none, root or all" },
	{ "exports.local_locks", { "auto", "on", "off" }, "auto, on or off" },
	{ "store.backend", { "memory", "lmdb" }, "memory, lmdb or postgres" },
	{ "store.lock_durability", { "none", "process", "machine" }, "none, process or machine" },
	{ "recovery.grace", { "auto", "always", "never" }, "auto, always or never" },
	{ "recovery.after_crash", { "reclaim", "continue" }, "reclaim or continue" },
	{ "nsm.allow_mon", { "local", "exports", "any" }, "local, exports or any" },
	{ "log.level", { "error", "warn", "info", "debug" }, "error, warn, info or debug" },
	{ "log.format", { "auto", "text", "json" }, "auto, text or json" },
};

static const char *const bools[] = { "server.manage_gids", "recovery.early_end", "metrics.enabled",
				     "metrics.per_client", "exports.secure",     "nsm.secure",
				     "cluster.automatic" };

/* "server.port" and "5" as a file: the value is in line 2, or in line 3 for a key of an export. */
static unsigned int file_with(char *out, size_t size, const char *name, const char *value)
{
	const char *key = strchr(name, '.') + 1;

	if (strncmp(name, "exports.", 8) == 0) {
		snprintf(out, size, "exports:\n  - path: /tmp\n    %s: %s\n", key, value);
		return 3;
	}
	snprintf(out, size, "%.*s:\n  %s: %s\n", (int)(key - 1 - name), name, key, value);
	return 2;
}

static void expect_good_value(const char *name, const char *value, const char *printed)
{
	char text[256];
	struct hf_config *config;

	file_with(text, sizeof(text), name, value);
	config = load_good(text);
	assert_value(config, name, printed);
	hf_config_free(config);
	if (strncmp(name, "exports.", 8) == 0)
		return;
	snprintf(text, sizeof(text), "%s=%s", name, value);
	config = set_good(text);
	assert_value(config, name, printed);
	hf_config_free(config);
}

static void expect_wrong_value(const char *name, const char *value, const char *expects)
{
	char text[256], what[512], message[600];
	unsigned int line = file_with(text, sizeof(text), name, value);

	snprintf(what, sizeof(what), "%s is '%s'; give %s", name, value, expects);
	snprintf(message, sizeof(message), "f.yaml:%u: %s", line, what);
	expect_wrong(text, message);
	if (strncmp(name, "exports.", 8) == 0)
		return;
	snprintf(text, sizeof(text), "%s=%s", name, value);
	set_wrong(text, what);
}

static void test_table_is_the_contract(void **state)
{
	struct hf_config *config = load_good("exports:\n  - path: /tmp\n");
	char name[HF_OPTION_NAME_SIZE];

	assert_int_equal(hf_n_options, HF_ARRAY_SIZE(keys));
	for (size_t i = 0; i < hf_n_options; i++) {
		assert_string_equal(hf_option_name(&hf_options[i], name), keys[i].name);
		assert_value(config, name, keys[i].preset);
		assert_int_equal(hf_options[i].is_live, keys[i].is_live);
	}
	hf_config_free(config);
}

/* One sentence, and nothing that YAML comments or roff would choke on. */
static void test_every_option_has_help(void **state)
{
	for (size_t i = 0; i < hf_n_options; i++) {
		const char *help = hf_options[i].help;

		assert_true(strlen(help) > 10);
		assert_int_equal(help[strlen(help) - 1], '.');
		assert_null(strpbrk(help, "\n\t\\#"));
		assert_true(hf_option_is_section(hf_options[i].section));
	}
}

static void test_numbers_have_bounds(void **state)
{
	char value[32], expects[128];

	for (size_t i = 0; i < HF_ARRAY_SIZE(numbers); i++) {
		snprintf(expects, sizeof(expects), "a whole number from %lld to %lld",
			 (long long)numbers[i].min, (long long)numbers[i].max);
		for (int delta = 0; delta <= 1; delta++) {
			snprintf(value, sizeof(value), "%lld", (long long)numbers[i].min + delta);
			expect_good_value(numbers[i].name, value, value);
			snprintf(value, sizeof(value), "%lld", (long long)numbers[i].max - delta);
			expect_good_value(numbers[i].name, value, value);
		}
		snprintf(value, sizeof(value), "%lld", (long long)numbers[i].min - 1);
		expect_wrong_value(numbers[i].name, value, expects);
		snprintf(value, sizeof(value), "%lld", (long long)numbers[i].max + 1);
		expect_wrong_value(numbers[i].name, value, expects);
	}
}

static void test_numbers_are_decimal(void **state)
{
	static const char *const values[] = { "abc",   "0x10", "010", "-0",  "+5",
					      "1_000", "1.5",  "1e3", "5 s", "9223372036854775808",
					      "--1",   "true", "5,6" };

	for (size_t i = 0; i < HF_ARRAY_SIZE(values); i++)
		expect_wrong_value("server.port", values[i], "a whole number from 0 to 65535");
}

static void test_words_are_of_their_list(void **state)
{
	for (size_t i = 0; i < HF_ARRAY_SIZE(words); i++) {
		for (size_t j = 0; words[i].words[j]; j++) {
			const char *word = words[i].words[j];
			bool is_bool = strcmp(word, "on") == 0 || strcmp(word, "off") == 0;
			char printed[32];

			snprintf(printed, sizeof(printed), is_bool ? "\"%s\"" : "%s", word);
			expect_good_value(words[i].name, word, printed);
		}
		expect_wrong_value(words[i].name, "nonsensical", words[i].expects);
		expect_wrong_value(words[i].name, "0", words[i].expects);
		expect_wrong_value(words[i].name, "NONSENSE", words[i].expects);
	}
}

static void test_bools(void **state)
{
	static const char *const yes[] = { "true", "True", "TRUE", "yes", "on" };
	static const char *const no[] = { "false", "False", "no", "off", "OFF" };

	for (size_t i = 0; i < HF_ARRAY_SIZE(bools); i++) {
		for (size_t j = 0; j < HF_ARRAY_SIZE(yes); j++) {
			expect_good_value(bools[i], yes[j], "true");
			expect_good_value(bools[i], no[j], "false");
		}
		expect_wrong_value(bools[i], "1", "true or false");
		expect_wrong_value(bools[i], "maybe", "true or false");
		expect_wrong_value(bools[i], "y", "true or false");
	}
}

static void test_texts(void **state)
{
	expect_good_value("server.name", "nfs1.example.org", "\"nfs1.example.org\"");
	expect_good_value("server.name", "42", "\"42\"");
	expect_good_value("server.state_dir", "/srv//state/", "\"/srv/state\"");
	expect_good_value("server.user", "root", "\"root\"");
	expect_good_value("store.postgres", "host=db dbname=holdfast", "\"host=db dbname=holdfast\"");
	expect_good_value("api.token_file", "/run/token", "\"/run/token\"");
	expect_good_value("exports.name", "/data/", "\"/data\"");
	expect_good_value("exports.name", "/", "\"/\"");
	expect_wrong("server: {state_dir: lib}",
		     "f.yaml:1: server.state_dir is 'lib'; give a path that starts with '/'");
	expect_wrong("server: {state_dir: \"\"}",
		     "f.yaml:1: server.state_dir is empty; give an absolute path");
	expect_wrong("server: {state_dir: }", "f.yaml:1: server.state_dir is empty; give an absolute path");
	expect_wrong("server: {state_dir: /a/../b}",
		     "f.yaml:1: server.state_dir is '/a/../b'; give the path without '.' and '..' parts");
	set_wrong("server.state_dir=", "server.state_dir is empty; give an absolute path");
	set_wrong("server.name=two words", "server.name is 'two words', which is not a host name; give "
					   "letters, digits, '.' and '-', like nfs1.example.org");
	set_wrong("server.name=-x", "server.name is '-x', which is not a host name; give letters, digits, "
				    "'.' and '-', like nfs1.example.org");
	expect_wrong("exports:\n- path: /tmp\n  name: data\n",
		     "f.yaml:3: exports.name is 'data'; give a path that starts with '/'");
}

static void test_text_length(void **state)
{
	char name[256 + 16] = "server.name=";

	memset(name + 12, 'x', 255);
	hf_config_free(set_good(name));
	memset(name + 12, 'x', 256);
	set_wrong(name, "server.name is 256 bytes long; give at most 255");
}

static void test_endpoint(void **state)
{
	static const char *const wrong[] = { "8049",      ":8049",           "*:8049",
					     "127.0.0.1", "127.0.0.1:65536", "::1:8049",
					     "host:80",   "unix:",           "unix:run/socket",
					     "unix:/",    "[::1]8049",       "http://127.0.0.1:8049/" };
	static const char *const good[] = { "",
					    "0.0.0.0:80",
					    "127.0.0.1:0",
					    "[::1]:8049",
					    "localhost:1",
					    "[::]:0",
					    "unix:/run/holdfast.sock" };
	char text[200], message[300];

	for (size_t i = 0; i < HF_ARRAY_SIZE(wrong); i++) {
		snprintf(text, sizeof(text), "api.listen=%s", wrong[i]);
		snprintf(message, sizeof(message),
			 "api.listen is '%s'; give an address with its port, like 127.0.0.1:8049 or "
			 "[::1]:8049, unix:/path of at most 107 bytes, or nothing",
			 wrong[i]);
		set_wrong(text, message);
	}
	for (size_t i = 0; i < HF_ARRAY_SIZE(good); i++) {
		snprintf(text, sizeof(text), "api.listen=%s", good[i]);
		hf_config_free(set_good(text));
	}
	memset(text, 'x', sizeof(text));
	memcpy(text, "api.listen=unix:/", 17);
	text[16 + 107] = '\0'; /* as long as a socket's path may be */
	hf_config_free(set_good(text));
}

static void test_addresses(void **state)
{
	expect_good_value("server.listen", "[192.0.2.1]", "[\"192.0.2.1\"]");
	expect_good_value("server.listen", "[\"::1\", \"127.0.0.1\"]", "[\"::1\", \"127.0.0.1\"]");
	set_wrong("server.listen=",
		  "server.listen is an empty list; give a list of addresses, like [\"0.0.0.0\", \"::\"]");
	set_wrong("server.listen=1.2.3.4,",
		  "server.listen contains '', which is not an address of this host; "
		  "give addresses without port, like 0.0.0.0 or ::1");
	set_wrong("server.listen=::,0:0::0", "server.listen contains '0:0::0' twice; give each address once");
	set_wrong("server.listen=0.0.0.0,192.0.2.1",
		  "server.listen contains '192.0.2.1' beside '0.0.0.0', one of which means all; give either");
	set_wrong("server.listen=::1,::",
		  "server.listen contains '::' beside '::1', one of which means all; give either");
	hf_config_free(set_good("server.listen=0.0.0.0,::1"));
	expect_wrong(
		"server:\n  listen:\n    - 0.0.0.0\n    - nfs1:2049\n",
		"f.yaml:4: server.listen contains 'nfs1:2049', which is not an address of this host; give "
		"addresses without port, like 0.0.0.0 or ::1");
	expect_wrong("server:\n  listen: 0.0.0.0\n",
		     "f.yaml:2: server.listen is a single value; give a list of addresses, like "
		     "[\"0.0.0.0\", \"::\"]");
	expect_wrong("server:\n  listen:\n",
		     "f.yaml:2: server.listen has no value; give a list of addresses, like "
		     "[\"0.0.0.0\", \"::\"]");
}

static void test_clients(void **state)
{
	struct hf_config *config = load_good("exports:\n- path: /tmp\n  clients: [private, 10.0.0.0/8, any, "
					     "\"2001:db8::/32\", 192.0.2.7, ws1, \"*.lab.example.org\"]\n");
	const struct hf_config_clients *clients = &config->exports.items[0].clients;

	assert_int_equal(clients->n, 7);
	assert_int_equal(clients->items[0].kind, HF_CONFIG_CLIENT_PRIVATE);
	assert_int_equal(clients->items[1].kind, HF_CONFIG_CLIENT_NETWORK);
	assert_int_equal(clients->items[1].network.bits, 8);
	assert_string_equal(clients->items[1].text, "10.0.0.0/8");
	assert_int_equal(clients->items[2].kind, HF_CONFIG_CLIENT_ANY);
	assert_int_equal(clients->items[3].network.bits, 32);
	assert_int_equal(clients->items[4].network.bits, 32);
	assert_int_equal(clients->items[5].kind, HF_CONFIG_CLIENT_HOST);
	assert_int_equal(clients->items[6].kind, HF_CONFIG_CLIENT_DOMAIN);
	hf_config_free(config);
}

/* A host may have a name that is one letter from any or private. */
static void test_hosts_near_words(void **state)
{
	struct hf_config *config =
		load_good("exports:\n- path: /tmp\n  clients: [amy, many, an, pirate, privat]\n");
	const struct hf_config_clients *clients = &config->exports.items[0].clients;

	assert_int_equal(clients->n, 5);
	for (size_t i = 0; i < clients->n; i++)
		assert_int_equal(clients->items[i].kind, HF_CONFIG_CLIENT_HOST);
	hf_config_free(config);
}

static void test_wrong_clients(void **state)
{
	static const struct {
		const char *client;
		const char *guess;
	} cases[] = {
		{ "Private", " (did you mean private?)" },
		{ "private,", " (did you mean private?)" },
		{ "*", " (did you mean any?)" },
		{ "ANY", " (did you mean any?)" },
		{ "10.0.0.0/33", "" },
		{ "10.0.0", "" },
		{ "10.0.*", "" },
		{ "ws*", "" },
		{ "host name", "" },
	};
	char text[128], message[512];

	for (size_t i = 0; i < HF_ARRAY_SIZE(cases); i++) {
		snprintf(text, sizeof(text), "exports:\n- path: /tmp\n  clients:\n  - any\n  - \"%s\"\n",
			 cases[i].client);
		snprintf(message, sizeof(message),
			 "f.yaml:5: exports.clients contains '%s'; give addresses, networks like 10.0.0.0/8, "
			 "host names, domains like *.example.org, private or any%s",
			 cases[i].client, cases[i].guess);
		expect_wrong(text, message);
	}
	expect_wrong("exports:\n- path: /tmp\n  clients: [any, \"@staff\"]\n",
		     "f.yaml:3: exports.clients contains '@staff', and netgroups are not supported; list the "
		     "hosts "
		     "that 'getent netgroup staff' shows, or a network or domain that they are in");
	expect_wrong("exports:\n- path: /tmp\n  clients: []\n",
		     "f.yaml:3: exports.clients is an empty list; give a list, like [private] or [192.0.2.7, "
		     "10.0.0.0/8]");
	expect_wrong("exports:\n- path: /tmp\n  clients: any\n",
		     "f.yaml:3: exports.clients is a single value; give a list, like [private] or "
		     "[192.0.2.7, 10.0.0.0/8]");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table_is_the_contract),
		cmocka_unit_test(test_every_option_has_help),
		cmocka_unit_test(test_numbers_have_bounds),
		cmocka_unit_test(test_numbers_are_decimal),
		cmocka_unit_test(test_words_are_of_their_list),
		cmocka_unit_test(test_bools),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_text_length),
		cmocka_unit_test(test_endpoint),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_clients),
		cmocka_unit_test(test_hosts_near_words),
		cmocka_unit_test(test_wrong_clients),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
