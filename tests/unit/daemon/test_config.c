#include "config_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/holdfast-test-config-XXXXXX"; /* has data/, more/, a:b/ and the file "file" */

static int set_up(void **state)
{
	assert_non_null(mkdtemp(directory));
	assert_int_equal(chdir(directory), 0);
	assert_int_equal(mkdir("data", 0700) | mkdir("more", 0700) | mkdir("a:b", 0700), 0);
	fclose(fopen("file", "w"));
	return 0;
}

static int tear_down(void **state)
{
	unlink("file");
	unlink("f.yaml");
	rmdir("data");
	rmdir("more");
	rmdir("a:b");
	assert_int_equal(chdir("/"), 0);
	return rmdir(directory);
}

static void write_file(const char *name, const char *text)
{
	FILE *file = fopen(name, "w");

	fputs(text, file);
	fclose(file);
}

/* Texts */

static void test_nothing_means_defaults(void **state)
{
	static const char *const texts[] = {
		"",    "\n\n",         "# only\n# comments\n",        "---\n", "--- # x\n...\n",
		"~\n", "\xef\xbb\xbf", "server:\nexports:\nlog: ~\n", "{}",    "server: {}\nexports: []\n"
	};
	struct hf_config *defaults = load_good("");
	char *expected = print(defaults);

	for (size_t i = 0; i < HF_ARRAY_SIZE(texts); i++) {
		struct hf_config *config = load_good(texts[i]);
		char *text = print(config);

		assert_string_equal(text, expected);
		free(text);
		hf_config_free(config);
	}
	free(expected);
	hf_config_free(defaults);
}

static void test_whole_file(void **state)
{
	struct hf_config *config =
		load_good("server:\n"
			  "  name: nfs1\n"
			  "  port: 0\n"
			  "  portmap: off\n"
			  "exports:\n"
			  "  - path: /tmp\n"
			  "    name: /data\n"
			  "    clients: &lan [10.0.0.0/8]\n"
			  "    access: ro\n"
			  "    squash: all\n"
			  "    anon_uid: 99\n"
			  "    secure: true\n"
			  "    local_locks: off\n"
			  "    sync: false\n"
			  "  - { path: /usr, clients: *lan }\n"
			  "store: { backend: postgres, postgres: 'host=db dbname=\"x\"' }\n"
			  "log: { level: debug, format: json }\n");
	const struct hf_config_export *export = config->exports.items;

	assert_string_equal(config->server.name, "nfs1");
	assert_int_equal(config->server.port, 0);
	assert_int_equal(config->server.portmap, HF_CONFIG_PORTMAP_OFF);
	assert_int_equal(config->exports.n, 2);
	assert_string_equal(export[0].path, "/tmp");
	assert_string_equal(export[0].name, "/data");
	assert_int_equal(export[0].access, HF_CONFIG_ACCESS_RO);
	assert_int_equal(export[0].squash, HF_CONFIG_SQUASH_ALL);
	assert_int_equal(export[0].anon_uid, 99);
	assert_true(export[0].secure);
	assert_int_equal(export[0].local_locks, HF_CONFIG_LOCAL_LOCKS_OFF);
	assert_false(export[0].sync);
	assert_true(export[1].sync);
	assert_string_equal(export[1].name, "/usr");
	assert_string_equal(export[1].clients.items[0].text, "10.0.0.0/8");
	assert_int_equal(export[1].squash, HF_CONFIG_SQUASH_ROOT);
	assert_string_equal(config->store.postgres, "host=db dbname=\"x\"");
	assert_int_equal(config->log.level, HF_LOG_DEBUG);
	assert_int_equal(config->log.format, HF_LOG_JSON);
	hf_config_free(config);
}

static void test_rules(void **state)
{
	struct hf_config *config = load_good("exports:\n"
					     "  - path: /tmp\n"
					     "    access: ro\n"
					     "    rules:\n"
					     "      - clients: [192.0.2.7, private]\n"
					     "        access: rw\n"
					     "        anon_gid: 7\n"
					     "      - {clients: [any], secure: false, squash: none}\n"
					     "    secure: true\n"
					     "    anon_uid: 99\n"
					     "  - {path: /usr, clients: [any], rules: []}\n");
	const struct hf_config_export *export = config->exports.items;
	const struct hf_config_rule *rule = export[0].rules.items;
	struct hf_config *again;
	char *text;

	assert_int_equal(export[0].rules.n, 2);
	assert_int_equal(rule[0].clients.n, 2);
	assert_string_equal(rule[0].clients.items[0].text, "192.0.2.7");
	assert_int_equal(rule[0].access, HF_CONFIG_ACCESS_RW);
	assert_int_equal(rule[0].squash, HF_CONFIG_SQUASH_ROOT);
	assert_true(rule[0].secure); /* what a rule does not have is as in its export, wherever that has it */
	assert_int_equal(rule[0].anon_uid, 99);
	assert_int_equal(rule[0].anon_gid, 7);
	assert_int_equal(rule[1].clients.items[0].kind, HF_CONFIG_CLIENT_ANY);
	assert_int_equal(rule[1].access, HF_CONFIG_ACCESS_RO);
	assert_int_equal(rule[1].squash, HF_CONFIG_SQUASH_NONE);
	assert_false(rule[1].secure);
	assert_int_equal(export[1].rules.n, 0);
	text = print(config);
	again = load_good(text);
	assert_true(hf_config_value_equal(&export[0].rules, &again->exports.items[0].rules,
					  hf_option_find("exports", "rules")));
	again->exports.items[0].rules.items[1].anon_uid = 5;
	assert_false(hf_config_value_equal(&export[0].rules, &again->exports.items[0].rules,
					   hf_option_find("exports", "rules")));
	free(text);
	hf_config_free(again);
	hf_config_free(config);
}

static void test_wrong_rules(void **state)
{
	expect_wrong("exports:\n- path: /tmp\n  rules: 5\n",
		     "f.yaml:3: exports.rules is a single value; give a list of rules, like "
		     "[{clients: [192.0.2.7]}, {clients: [private], access: ro}]");
	expect_wrong("exports:\n- path: /tmp\n  rules:\n  - any\n",
		     "f.yaml:4: a rule of an export is a single value; start it with '- clients: [...]'");
	expect_wrong("exports:\n- path: /tmp\n  rules:\n  - access: ro\n",
		     "f.yaml:4: a rule without clients; give it some, like 'clients: [192.0.2.0/24]'");
	expect_wrong(
		"exports:\n- path: /tmp\n  rules:\n  - clients: [any]\n    sync: false\n",
		"f.yaml:5: exports.sync is the same for all clients of an export; move it from the rule to "
		"the export");
	expect_wrong("exports:\n- path: /tmp\n  rules:\n  - clients: [any]\n    acces: ro\n",
		     "f.yaml:5: unknown key exports.acces; did you mean exports.access?");
	expect_wrong("exports:\n- path: /tmp\n  rules:\n  - clients: []\n",
		     "f.yaml:4: exports.clients is an empty list; give a list, like [private] or "
		     "[192.0.2.7, 10.0.0.0/8]");
	expect_wrong(
		"exports:\n- path: /tmp\n  rules: [{clients: [any]}]\n  clients: [any]\n",
		"f.yaml:4: exports.clients is given, and exports.rules, too; put these clients into a rule");
}

static void test_crlf_and_bom(void **state)
{
	struct hf_config *config = load_good("\xef\xbb\xbfserver:\r\n  port: 5\r\n  name: x\r\n");

	assert_int_equal(config->server.port, 5);
	assert_string_equal(config->server.name, "x");
	hf_config_free(config);
	expect_wrong("server:\r\n  port: 5\r\n  prt: 5\r\n",
		     "f.yaml:3: unknown key server.prt; did you mean server.port?");
	expect_wrong("\xef\xbb\xbfprt: 5\n", "f.yaml:1: unknown key prt; the keys are server, exports, "
					     "store, recovery, nsm, cluster, tls, api, metrics and log");
}

/* Errors, each word of them: these are what an operator reads. */

static void test_unknown_keys(void **state)
{
	expect_wrong("server:\n  name: x\n  prot: 1\n",
		     "f.yaml:3: unknown key server.prot; did you mean server.port?");
	expect_wrong("server:\n  grace: never\n",
		     "f.yaml:2: unknown key server.grace; did you mean recovery.grace?");
	expect_wrong("nsm:\n  colour: red\n",
		     "f.yaml:2: unknown key nsm.colour; the keys of nsm are allow_mon, secure");
	expect_wrong("\nsever:\n  port: 1\n", "f.yaml:2: unknown key sever; did you mean server?");
	expect_wrong("port: 1\n",
		     "f.yaml:1: unknown key port; write 'server:', and '  port: ...' on a line below it");
	expect_wrong("log.level: info\n",
		     "f.yaml:1: unknown key log.level; write 'log:', and '  level: ...' on a line below it");
	expect_wrong("export:\n- path: /tmp\n", "f.yaml:1: unknown key export; did you mean exports?");
	expect_wrong("exports:\n- path: /tmp\n  acces: ro\n",
		     "f.yaml:3: unknown key exports.acces; did you mean exports.access?");
	expect_wrong("exports:\n- path: /tmp\n- &x\n  path: /usr\n  <<: *x\n",
		     "f.yaml:5: the alias '*x' is inside the value that it refers to; write the value out");
	expect_wrong("? [a, b]\n: 1\n", "f.yaml:1: a list where a key should be; write 'key: value'");
	expect_wrong("server: {\"\": 1}\n", "f.yaml:1: unknown key server.; the keys of server are name, "
					    "listen, port, portmap, portmap_port, "
					    "state_dir, user, threads, manage_gids");
}

static void test_duplicates(void **state)
{
	expect_wrong("server:\n  port: 1\n  name: x\n  port: 1\n",
		     "f.yaml:4: server.port is given twice, first in line 2; remove one");
	expect_wrong("server:\n  port: 1\nlog:\n  level: info\nserver:\n  name: x\n",
		     "f.yaml:5: server is given twice, first in line 1; merge the two");
	expect_wrong("exports:\n- path: /tmp\n  access: ro\n  path: /usr\n",
		     "f.yaml:4: exports.path is given twice, first in line 2; remove one");
	expect_wrong("exports: []\nexports: []\n",
		     "f.yaml:2: exports is given twice, first in line 1; merge the two");
}

static void test_wrong_types(void **state)
{
	expect_wrong("server: 5\n",
		     "f.yaml:1: server is a single value; give its keys, indented, on lines below it");
	expect_wrong("server:\n- port: 5\n",
		     "f.yaml:2: server is a list; give its keys, indented, on lines below it");
	expect_wrong("server:\n  port: [5]\n",
		     "f.yaml:2: server.port is a list; give a whole number from 0 to 65535");
	expect_wrong("server:\n  port:\n    a: 5\n",
		     "f.yaml:3: server.port is a mapping; give a whole number from 0 to 65535");
	expect_wrong("server:\n  port: \"5\"\n", "f.yaml:2: server.port is a text in quotes; give a whole "
						 "number from 0 to 65535, without quotes");
	expect_wrong("metrics:\n  enabled: 'true'\n",
		     "f.yaml:2: metrics.enabled is a text in quotes; give true or false, without quotes");
	expect_wrong("server:\n  port:\n  name: x\n",
		     "f.yaml:2: server.port has no value; give a whole number from 0 to 65535");
	expect_wrong("server:\n  listen: [[a]]\n", "f.yaml:2: server.listen contains a list; give a list of "
						   "addresses, like [\"0.0.0.0\", \"::\"]");
	expect_wrong(
		"exports:\n  path: /tmp\n",
		"f.yaml:2: exports is a mapping; give a list, each entry starting with '- path: /srv/data'");
	expect_wrong("exports:\n- /tmp\n",
		     "f.yaml:2: an export is a single value; start it with '- path: /srv/data'");
	expect_wrong("exports:\n-\n", "f.yaml:2: an export is empty; start it with '- path: /srv/data'");
	expect_wrong("- server\n",
		     "f.yaml:1: a list where a section should be; write 'server:', 'exports:', ...");
	expect_wrong("holdfast\n",
		     "f.yaml:1: a single value where a section should be; write 'server:', 'exports:', ...");
}

static void test_misspelt_words(void **state)
{
	expect_wrong("server: {portmap: atuo}\n", "f.yaml:1: server.portmap is 'atuo'; give auto, embedded, "
						  "system or off (did you mean auto?)");
	expect_wrong("log:\n  level: warning\n",
		     "f.yaml:2: log.level is 'warning'; give error, warn, info or debug");
	expect_wrong("store:\n  backend: postgre\n", "f.yaml:2: store.backend is 'postgre'; give memory, "
						     "lmdb or postgres (did you mean postgres?)");
	expect_wrong("exports:\n- path: /tmp\n  access: wr\n",
		     "f.yaml:3: exports.access is 'wr'; give rw or ro (did you mean rw?)");
	set_wrong("recovery.grace=Never",
		  "recovery.grace is 'Never'; give auto, always or never (did you mean never?)");
	expect_wrong(
		"exports:\n- path: /tmp\n  local_locks: on\nrecovery:\n  after_crash: continue\n",
		"f.yaml:3: exports.local_locks is on, and recovery.after_crash is continue: local processes "
		"get the locks of a server that dies; change one of them");
	expect_wrong(
		"recovery:\n  grace: always\n  after_crash: continue\n",
		"f.yaml:3: recovery.after_crash is continue, and recovery.grace is always: a server that "
		"continues has no grace period; change one of them");
	expect_wrong(
		"metrics:\n  enabled: false\n  per_client: true\n",
		"f.yaml:3: metrics.per_client is true, and metrics.enabled is false: nothing is counted; "
		"change one of them");
}

static void test_not_yaml(void **state)
{
	expect_wrong("server:\n\tport: 5\n", "f.yaml:2: a tab at the start of the line; indent with blanks");
	expect_wrong("exports:\n  -\tpath: /tmp\n",
		     "f.yaml:2: a tab at the start of the line; indent with blanks");
	expect_wrong("server:\n  listen: [::, 0.0.0.0]\n",
		     "f.yaml:2: no value where there should be one; one that starts with ':' needs quotes, "
		     "like \"::\"");
	expect_wrong(
		"exports:\n- path: /tmp\n  clients: [*]\n",
		"f.yaml:3: a '*' or '&' with no name behind it; put the value in quotes (for all clients "
		"write any)");
	expect_wrong("server:\n  listen: [a\nlog:\n", "f.yaml:2: a list that is not closed; end it with ']'");
	expect_wrong("server: {a: b\nlog\n", "f.yaml:1: a mapping that is not closed; end it with '}'");
	expect_wrong("server:\n  name: \"x\n  port: 5\n",
		     "f.yaml:2: a quote that is not closed; end the text with the same quote");
	expect_wrong("server:\n    port: 5\n   name: x\n",
		     "f.yaml:3: a line that does not line up; indent all keys of a section alike");
	expect_wrong("server: a: b\n",
		     "f.yaml:1: a ':' in a place where no key can be; check the indent, or put the value "
		     "in quotes");
	expect_wrong("server:\n  name: @x\n",
		     "f.yaml:2: a character that no value can start with; put the value in quotes");
	expect_wrong("server:\n  name: x\n---\nserver:\n  name: y\n",
		     "f.yaml:3: a second document; put everything into one, without '---' between");
	expect_wrong("server: !!python/object {}\n", "f.yaml:1: the tag 'tag:yaml.org,2002:python/object' "
						     "is not supported; give the value without it");
	expect_wrong("server:\n  name: *nfs\n",
		     "f.yaml:2: the alias '*nfs' is not defined yet; set '&nfs' before it, or put "
		     "a value that starts with '*' in quotes");
}

static void test_bytes_that_are_no_text(void **state)
{
	char error[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config = NULL;

	expect_wrong("# x\nserver:\n  name: caf\xe9\n  port: 5\n",
		     "f.yaml:3: the byte 0xe9 is not UTF-8; save the file as UTF-8");
	expect_wrong("server:\n  name: caf\xc3",
		     "f.yaml:2: the byte 0xc3 is not UTF-8; save the file as UTF-8");
	expect_wrong("server:\n  name: a\001b\n", "f.yaml:2: the control character 0x01; remove it");
	expect_wrong("server:\n  name: \"a\\nb\"\n", "f.yaml:2: server.name is 'a\\x0ab', which contains a "
						     "control character; give printable UTF-8");
	expect_wrong("server:\n  user: \"\\e[31m\"\n",
		     "f.yaml:2: server.user is '\\x1b[31m', which contains a "
		     "control character; give printable UTF-8");
	expect_wrong("\"\\e[31m\\n\": 1\n",
		     "f.yaml:1: unknown key \\x1b[31m\\x0a; the keys are server, exports, store, "
		     "recovery, nsm, cluster, tls, api, metrics and log");
	expect_wrong("server:\n  name: \"a\\0b\"\n", "f.yaml:2: a NUL character in a value; remove it");
	assert_int_equal(load_bytes(&config, "\xff\xfes\0e\0", 6, error), HF_CONFIG_E_WRONG);
	assert_string_equal(error, "f.yaml:1: the byte 0xff is not UTF-8; save the file as UTF-8");
	assert_int_equal(load_bytes(&config, "server:\0", 8, error), HF_CONFIG_E_WRONG);
	assert_string_equal(error, "f.yaml:1: the control character 0x00; remove it");
}

static void test_binary_garbage(void **state)
{
	char error[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config = NULL;
	unsigned char bytes[4096];
	uint32_t random = 1;

	for (int round = 0; round < 200; round++) {
		for (size_t i = 0; i < sizeof(bytes); i++) {
			random = random * 1664525 + 1013904223;
			bytes[i] = (unsigned char)(random >> 24);
		}
		assert_int_equal(load_bytes(&config, bytes, sizeof(bytes), error), HF_CONFIG_E_WRONG);
		assert_int_equal(strncmp(error, "f.yaml:", 7), 0);
	}
}

/* Limits */

static char *repeat(const char *head, const char *text, size_t n)
{
	size_t len = strlen(text), n_head = strlen(head);
	char *all = malloc(n_head + n * len + 1);

	memcpy(all, head, n_head);
	for (size_t i = 0; i < n; i++)
		memcpy(all + n_head + i * len, text, len);
	all[n_head + n * len] = '\0';
	return all;
}

static void expect_wrong_repeat(const char *head, const char *text, size_t n, const char *message)
{
	char *all = repeat(head, text, n);

	expect_wrong(all, message);
	free(all);
}

static void test_size(void **state)
{
	char *text = repeat("", "# 34567\n", 131072); /* exactly 1 MiB */

	hf_config_free(load_good(text));
	free(text);
	expect_wrong_repeat("", "# 34567\n", 131073,
			    "f.yaml:131073: here the file passes 1 MiB; give a smaller one");
	expect_wrong_repeat("", "# 34567\n", 262144,
			    "f.yaml:131073: here the file passes 1 MiB; give a smaller one");
	expect_wrong_repeat("log:\n", "- a\n", 100000,
			    "f.yaml:49999: more than 50000 values; a configuration has far "
			    "fewer");
}

static void test_nesting(void **state)
{
	expect_wrong_repeat("", "[", 500000, "f.yaml:1: nested more than 16 deep; no option is");
	expect_wrong_repeat("", "{a: ", 200000, "f.yaml:1: nested more than 16 deep; no option is");
	expect_wrong_repeat("", "- ", 200000, "f.yaml:1: nested more than 16 deep; no option is");
	expect_wrong_repeat("a:\n", "? ", 200000, "f.yaml:2: nested more than 16 deep; no option is");
}

static void test_many_exports(void **state)
{
	char *text = malloc(200000), error[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config = NULL;
	size_t used = (size_t)sprintf(text, "exports:\n");

	for (int i = 0; i < HF_CONFIG_MAX_EXPORTS; i++)
		used += (size_t)sprintf(text + used, "- {path: /tmp, name: /e%d}\n", i);
	assert_int_equal(load_bytes(&config, text, used, error), 0);
	assert_int_equal(config->exports.n, HF_CONFIG_MAX_EXPORTS);
	hf_config_free(config);
	used += (size_t)sprintf(text + used, "- {path: /tmp, name: /x}\n");
	expect_wrong(text, "f.yaml:1002: more than 1000 exports; export a directory above them");
	free(text);
	expect_wrong_repeat("exports:\n- path: /tmp\n  clients:\n", "  - any\n", 257,
			    "f.yaml:260: exports.clients has more than 256 entries; give at most that");
}

/* A thousand laughs: each alias is a reference, and what holds them is no option. */
static void test_alias_bombs(void **state)
{
	expect_wrong("a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b]\n",
		     "f.yaml:1: unknown key a; the keys are server, exports, store, recovery, nsm, cluster, "
		     "tls, api, "
		     "metrics and log");
	expect_wrong("exports: &a [*a]\n",
		     "f.yaml:1: the alias '*a' is inside the value that it refers to; write the value out");
	expect_wrong("exports:\n- &e {path: /tmp, name: /e}\n- *e\n- *e\n",
		     "f.yaml:2: exports.name '/e' is the name of the export of f.yaml:2 already; give each "
		     "its own");
	expect_wrong_repeat("log: [\n", "&a x,\n", 1000,
			    "f.yaml:66: more than 64 anchors; write some values out");
}

/* Values against each other and against this host */

static void test_exports(void **state)
{
	expect_wrong("exports:\n- access: ro\n",
		     "f.yaml:2: an export without a path; give it one, like 'path: /srv/data'");
	expect_wrong("exports:\n- path: \"\"\n", "f.yaml:2: exports.path is empty; give an absolute path");
	expect_wrong("exports:\n- path: data\n",
		     "f.yaml:2: exports.path is 'data'; give a path that starts with '/'");
	expect_wrong(
		"exports:\n- access: ro\n  path: /no/such\n",
		"f.yaml:3: exports.path '/no/such' does not exist; make it, or give a directory that does");
	expect_wrong("exports:\n- path: /etc/passwd\n",
		     "f.yaml:2: exports.path '/etc/passwd' is not a directory; give one");
	expect_wrong("exports:\n- path: /etc/passwd/x\n",
		     "f.yaml:2: exports.path '/etc/passwd/x' cannot be reached (Not a directory); give a "
		     "directory that can");
	expect_wrong("exports:\n- path: /tmp\n- path: /tmp/\n",
		     "f.yaml:3: exports.name '/tmp' is the name of the export of f.yaml:2 already; give each "
		     "its own");
	expect_wrong("exports:\n- path: /tmp\n  name: /a\n- path: /usr\n  name: /a/\n",
		     "f.yaml:5: exports.name '/a' is the name of the export of f.yaml:3 already; give each "
		     "its own");
	expect_wrong("exports:\n- path: /tmp\n  name: /usr\n- path: /usr\n  name: /x\n",
		     "f.yaml:3: exports.name '/usr' is the path of the export of f.yaml:4 already; give each "
		     "its own");
	/* Inside each other, and one directory under two names: both are fine. */
	hf_config_free(load_good("exports:\n- path: /\n- path: /usr\n- path: /usr/bin\n"));
	hf_config_free(load_good("exports:\n- path: /tmp\n- path: /tmp\n  name: /t\n"));
}

static void test_pure_asks_no_host(void **state)
{
	static const char text[] = "exports:\n- path: /no/such\nserver: {user: no-such-user}\n"
				   "recovery: {after_crash: continue}\n";
	char error[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config = NULL;

	assert_int_equal(hf_config_load_text(&config, "f", text, sizeof(text) - 1, HF_CONFIG_PURE, error,
					     sizeof(error)),
			 0);
	assert_int_equal(config->exports.items[0].local_locks, HF_CONFIG_LOCAL_LOCKS_OFF);
	hf_config_free(config);
}

static void test_together(void **state)
{
	expect_wrong("store:\n  postgres: ''\n  backend: postgres\n",
		     "f.yaml:3: store.backend is postgres, but store.postgres is empty; give a connection "
		     "string, like "
		     "host=db dbname=holdfast");
	set_wrong("store.backend=postgres",
		  "store.backend is postgres, but store.postgres is empty; give a connection "
		  "string, like host=db dbname=holdfast");
	expect_wrong("store:\n  postgres: host=db prot=5432\n",
		     "f.yaml:2: store.postgres is a connection string that libpq cannot read ('prot' is not "
		     "an option); give one like host=db dbname=holdfast");
	expect_wrong("store:\n  postgres: password=very secret\n",
		     "f.yaml:2: store.postgres is a connection string that libpq cannot read; give one like "
		     "host=db dbname=holdfast");
	expect_wrong("store:\n  postgres: 'postgres://me:secret@[::1/locks'\n",
		     "f.yaml:2: store.postgres is a connection string that libpq cannot read; give one like "
		     "host=db dbname=holdfast");
	hf_config_free(set_good("store.postgres=locks"));
	hf_config_free(set_good("store.postgres=postgresql://me:secret@db/locks?connect_timeout=3"));
	expect_wrong("server:\n  user: no-such-user\n",
		     "f.yaml:2: server.user 'no-such-user' is not a user of this host; give one that 'getent "
		     "passwd' lists, or \"\"");
	set_wrong("server.user=no-such-user",
		  "server.user 'no-such-user' is not a user of this host; give one "
		  "that 'getent passwd' lists, or \"\"");
	set_wrong("server.state_dir=/etc/passwd", "server.state_dir '/etc/passwd' is not a directory; give "
						  "one, or a path where one can be made");
}

/* Two parts of the server cannot have one port, where they meet. */
static void test_ports(void **state)
{
	expect_wrong("server:\n  port: 111\n",
		     "f.yaml:2: server.port and server.portmap_port are both at port 111; give each a port "
		     "of its own");
	expect_wrong("server:\n  portmap_port: 2050\n  port: 2050\n",
		     "f.yaml:2: server.port and server.portmap_port are both at port 2050; give each a port "
		     "of its own");
	expect_wrong("server: {port: 111}\napi:\n  listen: 127.0.0.1:111\n",
		     "f.yaml:1: server.port and server.portmap_port are both at port 111; give each a port "
		     "of its own");
	set_wrong("server.port=8049",
		  "server.port and api.listen are both at port 8049; give each a port of its own");
	set_wrong("api.listen=[::1]:2049",
		  "server.port and api.listen are both at port 2049; give each a port of its own");
	set_wrong("api.listen=0.0.0.0:111",
		  "server.portmap_port and api.listen are both at port 111; give each a port of its own");
	expect_wrong("server:\n  portmap: system\n  portmap_port: 0\n",
		     "f.yaml:3: server.portmap_port is 0, and server.portmap is system; give the port of the "
		     "system's rpcbind, 111");
	hf_config_free(load_good("server: {portmap: off, port: 111}\n"));
	hf_config_free(load_good("server: {portmap: system, portmap_port: 2049}\n"));
	hf_config_free(load_good("server: {port: 0, portmap_port: 0}\napi: {listen: '127.0.0.1:0'}\n"));
	hf_config_free(load_good("server: {listen: [192.0.2.1]}\napi: {listen: '192.0.2.2:2049'}\n"));
	hf_config_free(load_good("server: {listen: ['::']}\napi: {listen: '192.0.2.2:2049'}\n"));
	hf_config_free(set_good("api.listen=unix:/run/2049"));
}

/* The command line */

static void test_set(void **state)
{
	struct hf_config *config = set_good("store.postgres=host=db password=a=b");

	assert_string_equal(config->store.postgres, "host=db password=a=b");
	hf_config_free(config);
	config = set_good("server.listen=192.0.2.1, ::1");
	assert_int_equal(config->server.listen.n, 2);
	assert_string_equal(config->server.listen.items[1].text, "::1");
	hf_config_free(config);
	set_wrong("server.port", "there is no '='; write --set KEY=VALUE, like --set server.port=2049");
	set_wrong("=5", "unknown key ; holdfastd --print-config lists them all");
	set_wrong("server.prot=5", "unknown key server.prot; did you mean server.port?");
	set_wrong("port=5", "unknown key port; did you mean server.port?");
	set_wrong("nothing.like.it=5",
		  "unknown key nothing.like.it; holdfastd --print-config lists them all");
	set_wrong("server=5", "server is a section; name a key of it, as in server.KEY");
	set_wrong("exports=/tmp", "exports is a list; use --export DIR[:NAME]");
	set_wrong("exports.access=ro",
		  "exports.access belongs to each export; use --export DIR[:NAME], or a file");
	set_wrong("server.port=", "server.port is empty; give a whole number from 0 to 65535");
	set_wrong("server.port= 5", "server.port is ' 5'; give a whole number from 0 to 65535");
}

static void test_set_takes_paths_from_here(void **state)
{
	char expected[64];
	struct hf_config *config = set_good("server.state_dir=./state");

	snprintf(expected, sizeof(expected), "%s/state", directory);
	assert_string_equal(config->server.state_dir, expected);
	hf_config_free(config);
}

static void test_set_cannot_forge_a_line(void **state)
{
	char error[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config;

	assert_int_equal(load_argument(&config, "--set", "server.name=a\nb\033[31m\xff", error),
			 HF_CONFIG_E_WRONG);
	assert_string_equal(
		error,
		"--set server.name=a\\x0ab\\x1b[31m\\xff: server.name is 'a\\x0ab\\x1b[31m\\xff', which "
		"contains a control character; give printable UTF-8");
}

static void export_wrong(const char *argument, const char *format)
{
	char error[HF_CONFIG_ERROR_SIZE], expected[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config;

	assert_int_equal(load_argument(&config, "--export", argument, error), HF_CONFIG_E_WRONG);
	snprintf(expected, sizeof(expected), "--export %s: %s", argument, format);
	assert_string_equal(error, expected);
}

static void export_good(const char *argument, const char *path, const char *name)
{
	char error[HF_CONFIG_ERROR_SIZE], expected[128];
	struct hf_config *config;

	if (load_argument(&config, "--export", argument, error))
		fail_msg("%s", error);
	assert_int_equal(config->exports.n, 1);
	snprintf(expected, sizeof(expected), "%s%s", *path == '/' ? "" : directory, path);
	assert_string_equal(config->exports.items[0].path, *path == '/' ? path : expected);
	assert_string_equal(config->exports.items[0].name, *name ? name : config->exports.items[0].path);
	assert_int_equal(config->exports.items[0].clients.items[0].kind, HF_CONFIG_CLIENT_PRIVATE);
	hf_config_free(config);
}

static void test_export(void **state)
{
	char here[64];

	export_good("/tmp", "/tmp", "");
	export_good("/tmp/", "/tmp", "");
	export_good("/tmp:/data", "/tmp", "/data");
	export_good("/tmp:", "/tmp", "");
	snprintf(here, sizeof(here), "%s/data", directory);
	export_good("data", here, "");
	export_good("./data:/x", here, "/x");
	snprintf(here, sizeof(here), "%s/a:b", directory);
	export_good("a:b", here, "");
	export_good("a:b:/c", here, "/c");
	export_good(".", directory, "");
	export_wrong("/no/such",
		     "exports.path '/no/such' does not exist; make it, or give a directory that does");
	export_wrong("/etc/passwd", "exports.path '/etc/passwd' is not a directory; give one");
	export_wrong("/tmp:data", "exports.name is 'data'; give a path that starts with '/'");
	export_wrong("a:b:c", "exports.name is 'c'; give a path that starts with '/'");
	export_wrong(":/data", "exports.path is empty; give an absolute path");
}

static void test_file_then_set_then_export(void **state)
{
	const char *sets[] = { "server.port=7", "server.port=8" }, *exports[] = { "/usr:/u", "/tmp" };
	struct hf_args args = { "f.yaml", sets, 2, exports, 2 };
	char error[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config = NULL;

	write_file("f.yaml", "server: {port: 6, threads: 3}\nexports:\n- path: /\n");
	assert_int_equal(hf_config_load(&config, &args, error, sizeof(error)), 0);
	assert_int_equal(config->server.port, 8);
	assert_int_equal(config->server.threads, 3);
	assert_int_equal(config->exports.n, 3);
	assert_string_equal(config->exports.items[1].name, "/u");
	hf_config_free(config);
	config = NULL;

	write_file("f.yaml", "exports:\n- path: /tmp\n");
	assert_int_equal(hf_config_load(&config, &args, error, sizeof(error)), HF_CONFIG_E_WRONG);
	assert_string_equal(
		error,
		"--export /tmp: exports.name '/tmp' is the name of the export of f.yaml:2 already; give "
		"each its own");
	/* What --set heals is healed, but a wrong line stays wrong. */
	args.n_exports = 0;
	write_file("f.yaml", "server: {port: 70000}\n");
	assert_int_equal(hf_config_load(&config, &args, error, sizeof(error)), HF_CONFIG_E_WRONG);
	assert_string_equal(error, "f.yaml:1: server.port is '70000'; give a whole number from 0 to 65535");
	assert_null(config);
}

static void test_file_that_cannot_be_read(void **state)
{
	struct hf_args args = { .config_file = "no-such.yaml" };
	char error[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config = NULL;

	assert_int_equal(hf_config_load(&config, &args, error, sizeof(error)), HF_CONFIG_E_WRONG);
	assert_string_equal(
		error, "no-such.yaml: cannot be read (No such file or directory); give a YAML file, or no "
		       "--config for the defaults");
	args.config_file = "data";
	assert_int_equal(hf_config_load(&config, &args, error, sizeof(error)), HF_CONFIG_E_WRONG);
	assert_string_equal(error,
			    "data: cannot be read (Is a directory); give a YAML file, or no --config for the "
			    "defaults");
}

static void test_error_that_does_not_fit_is_cut(void **state)
{
	char error[24];
	struct hf_config *config = NULL;

	assert_int_equal(hf_config_load_text(&config, "f.yaml", "port: 5", 7, 0, error, sizeof(error)),
			 HF_CONFIG_E_WRONG);
	assert_string_equal(error, "f.yaml:1: unknown key p");
}

/* Printing and reloading */

static void test_print_loads_again(void **state)
{
	struct hf_config *config = load_good(
		"server: {name: nfs1, listen: ['::1'], portmap: off, user: root, state_dir: '/a \\b\"c #d: "
		"é'}\n"
		"exports:\n"
		"- {path: /tmp, clients: [any, 10.1.2.3/8], local_locks: on, anon_uid: 4294967294}\n"
		"- {path: /usr, name: \"/u: - # 'x' \\\"y\\\"\", access: ro, squash: none, secure: yes}\n"
		"store: {postgres: \"host=db user='*&!%@`'\", lock_durability: machine}\n"
		"recovery: {early_end: no, grace: never}\n"
		"api: {listen: ''}\n");
	char *first = print(config), *second;
	struct hf_config *again = load_good(first);

	second = print(again);
	assert_string_equal(first, second);
	for (size_t i = 0; i < hf_n_options; i++) {
		const struct hf_option *option = &hf_options[i];
		const void *a = hf_option_is_per_export(option) ? (void *)&config->exports.items[1] : config;
		const void *b = hf_option_is_per_export(option) ? (void *)&again->exports.items[1] : again;

		assert_true(hf_config_value_equal(hf_config_field_const(a, option),
						  hf_config_field_const(b, option), option));
	}
	assert_string_equal(again->server.state_dir, "/a \\b\"c #d: é");
	assert_string_equal(again->exports.items[1].name, "/u: - # 'x' \"y\"");
	free(first);
	free(second);
	hf_config_free(config);
	hf_config_free(again);
}

static void test_print_hides_passwords(void **state)
{
	struct hf_config *config = load_good("store: {postgres: 'host=db password=hunter2 dbname=locks'}\n");
	char *text = print(config);

	assert_null(strstr(text, "hunter2"));
	assert_non_null(strstr(text, "postgres: \"host=db password=*** dbname=locks\""));
	assert_non_null(strstr(text, "  # The password is hidden;"));
	assert_string_equal(config->store.postgres, "host=db password=hunter2 dbname=locks");
	free(text);
	hf_config_free(config);
}

/* An operator who does what the comment below "exports: []" says has a first export. */
static void test_print_leads_to_an_export(void **state)
{
	struct hf_config *config = load_good("");
	char *text = print(config), *edited = calloc(1, strlen(text) + 100), *list;

	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		list = strstr(line, "exports: []");
		if (list)
			list[strlen("exports:")] = '\0';
		else if (strcmp(line, "  # - path: /srv/data") == 0)
			strcpy(line, "   - path: /tmp");
		else if (strncmp(line, "  #   ", 6) == 0)
			memmove(line + 2, line + 3, strlen(line + 2));
		strcat(strcat(edited, line), "\n");
	}
	hf_config_free(config);
	config = load_good(edited);
	assert_int_equal(config->exports.n, 1);
	assert_string_equal(config->exports.items[0].path, "/tmp");
	assert_value(config, "exports.clients", "[\"private\"]");
	hf_config_free(config);
	free(edited);
	free(text);
}

static void test_print_shows_every_key(void **state)
{
	struct hf_config *config = load_good("");
	char *text = print(config), line[128];

	for (size_t i = 0; i < hf_n_options; i++) {
		snprintf(line, sizeof(line), " %s: ", hf_options[i].key);
		assert_non_null(strstr(text, line));
	}
	for (char *p = strtok(text, "\n"); p; p = strtok(NULL, "\n"))
		assert_true(strlen(p) <= 100);
	free(text);
	hf_config_free(config);
}

static void test_fixed_changes(void **state)
{
	struct hf_config *old = load_good("exports:\n- path: /tmp\n");
	struct hf_config *same = load_good("exports:\n- path: /usr\nlog: {level: debug}\n");
	struct hf_config *new = load_good("server: {port: 5, listen: ['::']}\nmetrics: {enabled: false}\n");
	char names[128];

	assert_int_equal(hf_config_list_fixed_changes(names, sizeof(names), old, same), 0);
	assert_string_equal(names, "");
	assert_int_equal(hf_config_list_fixed_changes(names, sizeof(names), old, new), 3);
	assert_string_equal(names, "server.listen,server.port,metrics.enabled");
	assert_int_equal(hf_config_list_fixed_changes(names, 16, old, new), 3);
	assert_string_equal(names, "server.listen,s");
	hf_config_free(old);
	hf_config_free(same);
	hf_config_free(new);
}

/* What the configuration owns, and what waits for the next start, stays. */
static void test_live_values(void **state)
{
	struct hf_config *config = load_good("exports:\n- path: /tmp\n");
	struct hf_config *reloaded = load_good(
		"exports:\n- path: /usr\n"
		"recovery: {max_clients: 7, notify_timeout_ms: 70, window_seconds: 7, grace: always}\n"
		"nsm: {allow_mon: any, secure: true}\ntls: {grace_seconds: 7}\n"
		"log: {level: debug, format: json}\nmetrics: {per_client: true}\n");

	hf_config_take_live(config, reloaded);
	assert_int_equal(config->recovery.max_clients, 7);
	assert_int_equal(config->recovery.notify_timeout_ms, 70);
	assert_int_equal(config->nsm.allow_mon, HF_CONFIG_ALLOW_MON_ANY);
	assert_true(config->nsm.secure);
	assert_int_equal(config->tls.grace_seconds, 7);
	assert_int_equal(config->log.level, HF_LOG_DEBUG);
	assert_true(config->metrics.per_client);
	assert_int_equal(config->recovery.window_seconds, 7);
	assert_int_equal(config->recovery.grace, HF_CONFIG_GRACE_AUTO);
	assert_int_equal(config->log.format, HF_LOG_JSON);
	assert_string_equal(config->exports.items[0].path, "/tmp");
	hf_config_free(config);
	hf_config_free(reloaded);
}

static void test_free_of_nothing(void **state)
{
	hf_config_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_means_defaults),
		cmocka_unit_test(test_whole_file),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_wrong_rules),
		cmocka_unit_test(test_crlf_and_bom),
		cmocka_unit_test(test_unknown_keys),
		cmocka_unit_test(test_duplicates),
		cmocka_unit_test(test_wrong_types),
		cmocka_unit_test(test_misspelt_words),
		cmocka_unit_test(test_not_yaml),
		cmocka_unit_test(test_bytes_that_are_no_text),
		cmocka_unit_test(test_binary_garbage),
		cmocka_unit_test(test_size),
		cmocka_unit_test(test_nesting),
		cmocka_unit_test(test_many_exports),
		cmocka_unit_test(test_alias_bombs),
		cmocka_unit_test(test_exports),
		cmocka_unit_test(test_pure_asks_no_host),
		cmocka_unit_test(test_together),
		cmocka_unit_test(test_ports),
		cmocka_unit_test(test_set),
		cmocka_unit_test(test_set_takes_paths_from_here),
		cmocka_unit_test(test_set_cannot_forge_a_line),
		cmocka_unit_test(test_export),
		cmocka_unit_test(test_file_then_set_then_export),
		cmocka_unit_test(test_file_that_cannot_be_read),
		cmocka_unit_test(test_error_that_does_not_fit_is_cut),
		cmocka_unit_test(test_print_loads_again),
		cmocka_unit_test(test_print_hides_passwords),
		cmocka_unit_test(test_print_leads_to_an_export),
		cmocka_unit_test(test_print_shows_every_key),
		cmocka_unit_test(test_fixed_changes),
		cmocka_unit_test(test_live_values),
		cmocka_unit_test(test_free_of_nothing),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
