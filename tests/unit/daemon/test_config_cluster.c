/* The section "cluster": its keys, its mistakes, and the defaults that it changes elsewhere. */
#include "config_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include "daemon/setup.h"

#define STORE "store: {backend: postgres, postgres: host=db}\n" /* line 1 of a configuration that has it */

static void test_whole_section(void **state)
{
	struct hf_config *config = load_good(STORE "cluster:\n"
						   "  service: nfs.example.org\n"
						   "  node: a\n"
						   "  lease_seconds: 5\n"
						   "  addresses:\n"
						   "    - 192.0.2.10/24%eth0\n"
						   "    - 2001:db8::10/64%bond0.17\n"
						   "  fence: /bin/true --off  now\n"
						   "  automatic: false\n");
	const struct hf_config_service_address *address = config->cluster.addresses.items;

	assert_true(hf_config_has_cluster(config));
	assert_string_equal(config->cluster.service, "nfs.example.org");
	assert_string_equal(config->cluster.node, "a");
	assert_int_equal(config->cluster.lease_seconds, 5);
	assert_int_equal(config->cluster.addresses.n, 2);
	assert_string_equal(address[0].text, "192.0.2.10/24%eth0");
	assert_int_equal(address[0].address.addr.family, AF_INET);
	assert_int_equal(address[0].address.prefix, 24);
	assert_string_equal(address[0].address.interface, "eth0");
	assert_int_equal(address[1].address.addr.family, AF_INET6);
	assert_int_equal(address[1].address.prefix, 64);
	assert_string_equal(address[1].address.interface, "bond0.17");
	assert_string_equal(config->cluster.fence, "/bin/true --off  now");
	assert_false(config->cluster.automatic);
	hf_config_free(config);
}

static void test_printed_section_loads_again(void **state)
{
	struct hf_config *config = load_good(STORE "cluster: {service: nfs, node: a, addresses: "
						   "[192.0.2.10/24%eth0], fence: /bin/true -x}\n");
	char *text = print(config), *again;
	struct hf_config *second = load_good(text);

	again = print(second);
	assert_string_equal(text, again);
	assert_non_null(strstr(text, "  after_crash: continue\n"));
	assert_non_null(strstr(text, "  addresses: [\"192.0.2.10/24%eth0\"]\n"));
	free(text);
	free(again);
	hf_config_free(config);
	hf_config_free(second);
}

static void expect_wrong_address(const char *address, int answer)
{
	char text[256], message[512];

	snprintf(text, sizeof(text), STORE "cluster:\n  service: nfs\n  addresses:\n    - \"%s\"\n", address);
	snprintf(message, sizeof(message), "f.yaml:5: cluster.addresses contains '%s', which %s", address,
		 hf_service_address_explain(answer));
	expect_wrong(text, message);
}

static void test_wrong_addresses(void **state)
{
	expect_wrong_address("", HF_SERVICE_ADDRESS_E_FORM);
	expect_wrong_address("192.0.2.10/24", HF_SERVICE_ADDRESS_E_FORM);
	expect_wrong_address("nfs.example.org/24%eth0", HF_SERVICE_ADDRESS_E_ADDRESS);
	expect_wrong_address("0.0.0.0/8%eth0", HF_SERVICE_ADDRESS_E_ADDRESS);
	expect_wrong_address("192.0.2.10/33%eth0", HF_SERVICE_ADDRESS_E_PREFIX);
	expect_wrong_address("192.0.2.10/24%", HF_SERVICE_ADDRESS_E_INTERFACE);
	expect_wrong(STORE "cluster:\n  service: nfs\n  addresses: 192.0.2.10/24%eth0\n",
		     "f.yaml:4: cluster.addresses is a single value; give a list, like "
		     "[192.0.2.10/24%eth0]");
}

static void test_an_address_is_given_once(void **state)
{
	expect_wrong(STORE "cluster:\n  service: nfs\n  addresses:\n    - 192.0.2.10/24%eth0\n    - "
			   "192.0.2.10/16%eth1\n",
		     "f.yaml:6: cluster.addresses contains '192.0.2.10/16%eth1' beside '192.0.2.10/24%eth0'; "
		     "give each address once");
}

static void test_names(void **state)
{
	expect_wrong(STORE "cluster:\n  service: two words\n",
		     "f.yaml:3: cluster.service is 'two words', which is not a host name; give letters, "
		     "digits, '.' and '-', like nfs1.example.org");
	expect_wrong(STORE "cluster:\n  service: nfs\n  node: \"a\\tb\"\n",
		     "f.yaml:4: cluster.node is 'a\\x09b', which contains a control character; give "
		     "printable UTF-8");
	expect_wrong(STORE "cluster:\n  service: nfs\n  node: --all\n",
		     "f.yaml:4: cluster.node is '--all', which is not a host name; give letters, digits, "
		     "'.' and '-', like nfs1.example.org");
}

/* The nodes share a database. */
static void test_needs_postgres(void **state)
{
	static const char *const stores[] = { "", "store: {backend: lmdb}\n", "store: {backend: memory}\n" };
	char text[128];

	for (size_t i = 0; i < HF_ARRAY_SIZE(stores); i++) {
		snprintf(text, sizeof(text), "cluster:\n  service: nfs\n%s", stores[i]);
		expect_wrong(text,
			     "f.yaml:2: cluster.service is set, but store.backend is not postgres: the nodes "
			     "of a cluster share a database; give store.backend: postgres, or no "
			     "cluster.service");
	}
	set_wrong("cluster.service=nfs",
		  "cluster.service is set, but store.backend is not postgres: the nodes of a cluster share a "
		  "database; give store.backend: postgres, or no cluster.service");
}

static void test_keys_need_a_service(void **state)
{
	expect_wrong(STORE "cluster:\n  addresses: [192.0.2.10/24%eth0]\n",
		     "f.yaml:3: cluster.addresses is set, but cluster.service is empty: there is no cluster; "
		     "give cluster.service a name, the same on all nodes");
	expect_wrong(STORE "cluster:\n  fence: /bin/true\n",
		     "f.yaml:3: cluster.fence is set, but cluster.service is empty: there is no cluster; "
		     "give cluster.service a name, the same on all nodes");
	/* What --print-config prints of the other keys does nothing. */
	hf_config_free(load_good("cluster: {node: a, lease_seconds: 9, automatic: false}\n"));
}

static void test_addresses_must_be_listened_on(void **state)
{
	static const char wrong[] =
		"server:\n  listen: [%s]\n" STORE "cluster:\n  service: nfs\n  addresses: [%s]\n";
	char text[512];

	snprintf(text, sizeof(text), wrong, "192.0.2.11, \"::\"", "192.0.2.10/24%eth0");
	expect_wrong(
		text,
		"f.yaml:6: cluster.addresses contains '192.0.2.10/24%eth0', and server.listen has neither "
		"this address nor '0.0.0.0': no client could reach the service there; add one of them "
		"to server.listen");
	snprintf(text, sizeof(text), wrong, "0.0.0.0", "192.0.2.10/24%eth0, \"2001:db8::10/64%eth0\"");
	expect_wrong(
		text,
		"f.yaml:6: cluster.addresses contains '2001:db8::10/64%eth0', and server.listen has neither "
		"this address nor '::': no client could reach the service there; add one of them to "
		"server.listen");
	snprintf(text, sizeof(text), wrong, "192.0.2.10, \"2001:db8::10\"",
		 "192.0.2.10/24%eth0, \"2001:db8::10/64%eth0\"");
	hf_config_free(load_good(text));
}

static void test_fence(void **state)
{
	char path[] = "/tmp/holdfast-test-fence-XXXXXX", text[256];
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	expect_wrong(STORE "cluster:\n  service: nfs\n  fence: fence-node\n",
		     "f.yaml:4: cluster.fence is 'fence-node'; give a program by its absolute path, with its "
		     "arguments behind it, or nothing");
	expect_wrong(
		STORE "cluster:\n  service: nfs\n  fence: /nonexistent/fence -a\n",
		"f.yaml:4: cluster.fence names a program that cannot be found: No such file or directory");
	expect_wrong(
		STORE "cluster:\n  service: nfs\n  fence: /bin/true $NODE\n",
		"f.yaml:4: cluster.fence is executed without a shell, so quotes and other signs of a shell "
		"have no meaning in it; put them into a script and name that");
	snprintf(text, sizeof(text), STORE "cluster:\n  service: nfs\n  fence: %s now\n", path);
	assert_int_equal(chmod(path, 0600), 0);
	expect_wrong(text, "f.yaml:4: cluster.fence names a file that cannot be executed");
	assert_int_equal(chmod(path, 0700), 0);
	hf_config_free(load_good(text));
	unlink(path);
}

static enum hf_config_after_crash after_crash_of(const char *text)
{
	struct hf_config *config = load_good(text);
	enum hf_config_after_crash after_crash = config->recovery.after_crash;

	hf_config_free(config);
	return after_crash;
}

static void test_a_cluster_continues(void **state)
{
	assert_int_equal(after_crash_of(STORE), HF_CONFIG_AFTER_CRASH_RECLAIM);
	assert_int_equal(after_crash_of(STORE "cluster: {service: nfs}\n"), HF_CONFIG_AFTER_CRASH_CONTINUE);
	assert_int_equal(after_crash_of(STORE "cluster: {service: nfs}\nrecovery: {after_crash: reclaim}\n"),
			 HF_CONFIG_AFTER_CRASH_RECLAIM);
	expect_wrong(STORE "cluster: {service: nfs}\nrecovery:\n  grace: always\n",
		     "f.yaml:4: recovery.after_crash is continue (the default in a cluster), and "
		     "recovery.grace is always: a server that continues has no grace period; change one of "
		     "them");
	hf_config_free(load_good(
		STORE "cluster: {service: nfs}\nrecovery: {grace: always, after_crash: reclaim}\n"));
}

/* The kernel of one node does not know the locks of another, whatever a restart does. */
static void test_no_local_locks(void **state)
{
	static const char *const rules[] = { "reclaim", "continue" };
	struct hf_config *config;
	char text[256];

	for (size_t i = 0; i < HF_ARRAY_SIZE(rules); i++) {
		snprintf(text, sizeof(text),
			 STORE "recovery: {after_crash: %s}\ncluster: {service: nfs}\nexports:\n- path: "
			       "/tmp\n",
			 rules[i]);
		config = load_good(text);
		assert_int_equal(config->exports.items[0].local_locks, HF_CONFIG_LOCAL_LOCKS_OFF);
		hf_config_free(config);
		strcat(text, "  local_locks: on\n");
		expect_wrong(text,
			     "f.yaml:6: exports.local_locks is on, and cluster.service is set: the kernel of "
			     "one node does not know the locks of another; change one of them");
	}
}

static void expect_names(const char *text, const char *server, const char *node)
{
	struct hf_config *config = load_good(text);
	char name[HF_SETUP_NAME];

	assert_string_equal(hf_setup_server_name(config, name), server);
	assert_string_equal(hf_setup_node_name(config, name), node);
	hf_config_free(config);
}

static void test_the_server_is_named_after_the_service(void **state)
{
	char host[HF_SETUP_NAME];

	assert_int_equal(gethostname(host, sizeof(host)), 0);
	expect_names(STORE, host, host);
	expect_names(STORE "cluster: {service: nfs}\n", "nfs", host);
	expect_names(STORE "cluster: {service: nfs, node: a}\nserver: {name: files}\n", "files", "a");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_section),
		cmocka_unit_test(test_printed_section_loads_again),
		cmocka_unit_test(test_wrong_addresses),
		cmocka_unit_test(test_an_address_is_given_once),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_needs_postgres),
		cmocka_unit_test(test_keys_need_a_service),
		cmocka_unit_test(test_addresses_must_be_listened_on),
		cmocka_unit_test(test_fence),
		cmocka_unit_test(test_a_cluster_continues),
		cmocka_unit_test(test_no_local_locks),
		cmocka_unit_test(test_the_server_is_named_after_the_service),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
