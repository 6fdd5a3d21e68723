/* Clients by host name and by domain, with a resolver of the test's own. */
#include "../exports.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "export/client_names.h"

#define LONG UINT64_C(60000000000)

/* What the world says. An empty address: the question cannot be answered. */
static const struct {
	const char *name;
	const char *address;
} forward[] = {
	{ "alpha.example.org", "192.0.2.1" },
	{ "ALPHA.example.org", "192.0.2.1" },
	{ "two.example.org", "192.0.2.2" },
	{ "two.example.org", "2001:db8::2" },
	{ "ws1.lab.example.org", "192.0.2.3" },
	{ "liar.lab.example.org", "192.0.2.99" },
	{ "10.0.0.5", "10.0.0.5" },
	{ "broken.example.org", "" },
	{ "Deep.Sub.Lab.Example.Org", "::5" },
};
static const struct {
	const char *address;
	const char *name;
} reverse[] = {
	{ "192.0.2.3", "ws1.lab.example.org" },
	{ "192.0.2.4", "liar.lab.example.org" },
	{ "10.0.0.5", "10.0.0.5" },
	{ "::5", "Deep.Sub.Lab.Example.Org" },
	{ "192.0.2.6", "*.lab.example.org" },
};

static _Atomic unsigned int n_questions;

static int find_addresses(void *user, const char *name, struct hf_addr *addrs, size_t max, size_t *np)
{
	n_questions++;
	*np = 0;
	for (size_t i = 0; i < HF_ARRAY_SIZE(forward); i++) {
		if (strcmp(forward[i].name, name) != 0)
			continue;
		if (*forward[i].address == '\0')
			return -EAGAIN;
		assert_true(*np < max && hf_addr_parse(&addrs[(*np)++], forward[i].address));
	}
	return 0;
}

static int find_name(void *user, const struct hf_addr *addr, char name[HF_CLIENT_NAME_MAX + 1])
{
	struct hf_addr known;

	n_questions++;
	name[0] = '\0';
	for (size_t i = 0; i < HF_ARRAY_SIZE(reverse); i++)
		if (hf_addr_parse(&known, reverse[i].address) && hf_addr_same_host(&known, addr))
			strcpy(name, reverse[i].name);
	return 0;
}

static const struct hf_resolver resolver = { .find_addresses = find_addresses, .find_name = find_name };
static struct hf_client_names *names;

static int set_up(void **state)
{
	n_questions = 0;
	return hf_client_names_new(&names, &resolver);
}

static int tear_down(void **state)
{
	hf_client_names_free(names);
	return 0;
}

static struct hf_addr peer_of(const char *text)
{
	struct hf_addr peer;

	assert_true(hf_addr_parse(&peer, text));
	peer.port = 700;
	return peer;
}

static enum hf_named ask(const char *name, const char *address)
{
	struct hf_addr peer = peer_of(address);
	bool is_domain = hf_client_name_is_pattern(name);

	hf_client_names_wait(names, is_domain ? NULL : name, &peer, LONG);
	return is_domain ? hf_client_names_is_in_domain(names, name, &peer)
			 : hf_client_names_is_host(names, name, &peer);
}

static void test_hosts(void **state)
{
	struct hf_addr peer = peer_of("192.0.2.1");

	assert_int_equal(hf_client_names_is_host(names, "alpha.example.org", &peer), HF_NAMED_UNKNOWN);
	assert_int_equal(ask("alpha.example.org", "192.0.2.1"), HF_NAMED_YES);
	assert_int_equal(ask("alpha.example.org", "192.0.2.2"), HF_NAMED_NO);
	assert_int_equal(ask("two.example.org", "192.0.2.2"), HF_NAMED_YES);
	assert_int_equal(ask("two.example.org", "2001:db8::2"), HF_NAMED_YES);
	assert_int_equal(ask("none.example.org", "192.0.2.2"), HF_NAMED_NO);
	assert_int_equal(ask("broken.example.org", "192.0.2.2"), HF_NAMED_UNKNOWN);
	assert_int_equal(n_questions, 4);
}

static void test_domains(void **state)
{
	struct hf_addr peer = peer_of("192.0.2.3");

	assert_int_equal(hf_client_names_is_in_domain(names, "*.lab.example.org", &peer), HF_NAMED_UNKNOWN);
	assert_int_equal(ask("*.lab.example.org", "192.0.2.3"), HF_NAMED_YES);
	assert_int_equal(ask("ws?.lab.example.org", "192.0.2.3"), HF_NAMED_YES);
	assert_int_equal(ask("ws[2-9].lab.example.org", "192.0.2.3"), HF_NAMED_NO);
	assert_int_equal(ask("*.other.example.org", "192.0.2.3"), HF_NAMED_NO);
	assert_int_equal(ask("*.lab.example.org", "::5"),
			 HF_NAMED_YES); /* * has dots in it, and case is nothing */
	assert_int_equal(ask("*.lab.example.org", "192.0.2.4"),
			 HF_NAMED_NO); /* the name has another address */
	assert_int_equal(ask("*.lab.example.org", "192.0.2.6"), HF_NAMED_NO);
	assert_int_equal(ask("*.lab.example.org", "192.0.2.7"), HF_NAMED_NO); /* it has no name */
	assert_int_equal(ask("*.0.5", "10.0.0.5"), HF_NAMED_NO);              /* an address is no name */
}

static void test_valid_names(void **state)
{
	static const char *const good[] = { "a",           "host.example.org", "h-1.example.org",
					    "under_score", "*.example.org",    "ws[1-3].example.org",
					    "a?.b.c",      "3com.example.org", "x.y1" };
	static const char *const bad[] = { "",    "*",      "*.",    "a*",        "10.0.0",   "10.0.*",
					   "*.1", ".a",     "a.",    "a..b",      "-a",       "a b",
					   "a/b", "a]",     "1",     "a.1",       "@a",       "a\\b",
					   "ws*", "*.[ab]", "*.or?", "gss/krb5i", "h\xc3\xa4" };
	char longest[HF_CLIENT_NAME_MAX + 2];

	for (size_t i = 0; i < HF_ARRAY_SIZE(good); i++)
		if (!hf_client_name_is_valid(good[i]))
			fail_msg("%s is refused", good[i]);
	for (size_t i = 0; i < HF_ARRAY_SIZE(bad); i++)
		if (hf_client_name_is_valid(bad[i]))
			fail_msg("%s is accepted", bad[i]);
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_false(hf_client_name_is_valid(longest));
	longest[HF_CLIENT_NAME_MAX] = '\0';
	assert_true(hf_client_name_is_valid(longest));
}

/* A rule whose names are not known hides those after it; an address that it has makes its names needless. */
static void test_rules(void **state)
{
	struct hf_client_rule first[] = { { .text = "192.0.2.9", .kind = HF_CLIENT_NETWORK },
					  { .text = "broken.example.org", .kind = HF_CLIENT_HOST } };
	struct hf_client_rule domain = { .text = "*.lab.example.org", .kind = HF_CLIENT_DOMAIN };
	struct hf_client_rule any = { .text = "any", .kind = HF_CLIENT_ANY };
	struct hf_export_rule rules[] = { { .clients = first, .n_clients = 2 },
					  { .clients = &any, .n_clients = 1 } };
	struct hf_exports_options options = { .state_dir = base, .max_open_fds = 64, .resolver = &resolver };
	struct hf_export_settings settings = { .path = base, .name = "/a", .rules = rules, .n_rules = 2 };
	struct hf_addr near = peer_of("192.0.2.9"), far = peer_of("192.0.2.3");
	const struct hf_export_rule *rule;
	struct hf_export_list list = { 0 };
	size_t n_failed;

	assert_true(hf_network_parse(&first[0].network, first[0].text));
	strcpy(base, "/tmp/hf-exports-XXXXXX");
	assert_non_null(mkdtemp(base));
	assert_int_equal(hf_loop_new(&loop), 0);
	options.loop = loop;
	assert_int_equal(hf_exports_new(&exports, &options), 0);
	assert_int_equal(hf_exports_load(exports, &settings, 1, &n_failed), 0);
	assert_int_equal(hf_exports_list(exports, &list), 0);
	assert_int_equal(hf_export_admit(list.items[0], &near, &rule), HF_ADMITTED);
	assert_ptr_equal(rule, &list.items[0]->settings.rules[0]);
	assert_int_equal(hf_export_admit(list.items[0], &far, &rule), HF_REFUSED_UNKNOWN);
	assert_null(rule);
	assert_int_equal(hf_exports_admit_patiently(exports, list.items[0], &far), HF_REFUSED_UNKNOWN);
	hf_export_list_clear(&list);
	rules[0] = (struct hf_export_rule){ .clients = &domain, .n_clients = 1 };
	settings.n_rules = 1;
	assert_int_equal(hf_exports_load(exports, &settings, 1, &n_failed), 0);
	assert_int_equal(hf_exports_list(exports, &list), 0);
	assert_int_equal(hf_export_admit(list.items[0], &far, NULL), HF_REFUSED_UNKNOWN);
	assert_int_equal(hf_exports_admit_patiently(exports, list.items[0], &far), HF_ADMITTED);
	assert_int_equal(hf_exports_admit_patiently(exports, list.items[0], &near), HF_REFUSED_ADDRESS);
	hf_export_list_clear(&list);
	close_exports(NULL);
}

static void *ask_twice(void *arg)
{
	struct hf_addr addrs[4];
	size_t n = 0;

	for (int i = 0; i < 2; i++)
		(void)hf_system_resolver.find_addresses(NULL, "localhost", addrs, HF_ARRAY_SIZE(addrs), &n);
	return NULL;
}

/* A resolver that has asked nothing yet takes descriptor 0 for a socket of its own. */
static void test_the_systems_resolver_closes_only_its_own(void **state)
{
	pthread_t thread;
	int fd = fcntl(0, F_GETFD) < 0 ? open("/dev/null", O_RDONLY) : 0;

	assert_int_equal(fd, 0);
	assert_int_equal(pthread_create(&thread, NULL, ask_twice, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(fcntl(0, F_GETFD) >= 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_hosts, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_domains, set_up, tear_down),
		cmocka_unit_test(test_valid_names),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_the_systems_resolver_closes_only_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
