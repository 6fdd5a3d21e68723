/* Groups that are looked up, with a database of the test's own. */
#include "../exports.h"

#include <errno.h>
#include <fcntl.h>
#include <nss.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "export/groups.h"

#define LONG UINT64_C(60000000000)

enum {               /* users */
	MANY = 1000, /* in groups 2000 to 2099, and in group 0 */
	ROOTISH,     /* only in group 0 */
	STRANGER,    /* not in the database */
	BROKEN,      /* cannot be looked up */
	CROWDED,     /* in all groups that fit */
	SLOW,        /* the question waits, as for all users after it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool is_slow;

static void set_slow(bool slow)
{
	pthread_mutex_lock(&lock);
	is_slow = slow;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static int find(void *user, uint32_t uid, uint32_t *gids, size_t max, size_t *np)
{
	if (uid == STRANGER)
		return HF_GROUPS_NO_USER;
	if (uid == BROKEN)
		return -ENOENT;
	pthread_mutex_lock(&lock);
	while (uid >= SLOW && is_slow)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	*np = uid == ROOTISH ? 1 : uid == CROWDED ? max : 101;
	for (size_t i = 0; i < *np; i++)
		gids[i] = i ? (uint32_t)(1999 + i) : 0;
	return 0;
}

static const struct hf_group_source source = { .find = find };
static struct hf_groups *groups;

static int set_up(void **state)
{
	return hf_groups_new(&groups, &source);
}

static int tear_down(void **state)
{
	hf_groups_free(groups);
	return 0;
}

static const struct hf_group_list *list_of(uint32_t uid)
{
	const struct hf_group_list *list;

	hf_groups_wait(groups, uid, LONG);
	assert_int_equal(hf_groups_find(groups, uid, &list), 0);
	return list;
}

static void test_lists(void **state)
{
	const struct hf_group_list *list;
	uint64_t id;

	assert_int_equal(hf_groups_find(groups, MANY, &list), -EAGAIN);
	assert_null(list);
	list = list_of(MANY);
	assert_int_equal(list->n, 100); /* group 0 is not among them */
	assert_int_equal(list->gids[0], 2000);
	assert_int_equal(list->gids[99], 2099);
	id = list->id;
	assert_int_not_equal(id, 0);
	list = list_of(ROOTISH); /* this host knows the user: what the client says does not count */
	assert_int_equal(list->n, 0);
	assert_true(list->id != 0 && list->id != id);
	assert_true(list_of(MANY)->id == id);
	assert_int_equal(list_of(CROWDED)->n, HF_IDENTITY_MAX_LISTED - 1);
	list = list_of(STRANGER); /* nor for a user whom it does not know */
	assert_true(list && list->n == 0 && list->id != 0);
	assert_int_equal(hf_groups_find(groups, BROKEN, &list), -EAGAIN);
	hf_groups_wait(groups, BROKEN, 10 * HF_NS_PER_S);
	assert_int_equal(hf_groups_find(groups, BROKEN, &list), -EAGAIN); /* it failed */
}

/* Otherwise a flood of users would make those groups count that the client names. */
static void test_without_room_the_call_is_repeated(void **state)
{
	const struct hf_group_list *list;

	set_slow(true);
	for (uint32_t uid = SLOW; uid < SLOW + 300; uid++) {
		assert_int_equal(hf_groups_find(groups, uid, &list), -EAGAIN);
		assert_null(list);
	}
	set_slow(false);
	assert_int_equal(list_of(SLOW)->n, 100);
}

static int identify(const struct hf_export_rule *rule, uint32_t uid, bool may_wait,
		    struct hf_identity *identity)
{
	struct hf_identity given = { .uid = uid, .gid = 5, .n_gids = 2, .gids = { 6, 0 } };

	return hf_exports_identify(exports, rule, &given, may_wait, identity);
}

/* Where groups are looked up, the client's do not count. */
static void test_identities(void **state)
{
	struct hf_exports_options options = { .state_dir = base,
					      .max_open_fds = 64,
					      .group_source = &source };
	struct hf_export_rule rule = { .squash = HF_SQUASH_ROOT, .anon_uid = 65534, .anon_gid = 65533 };
	struct hf_identity who;

	strcpy(base, "/tmp/hf-exports-XXXXXX");
	assert_non_null(mkdtemp(base));
	assert_int_equal(hf_loop_new(&loop), 0);
	options.loop = loop;
	assert_int_equal(hf_exports_new(&exports, &options), 0);

	assert_int_equal(identify(&rule, MANY, false, &who), -EAGAIN);
	assert_int_equal(identify(&rule, MANY, true, &who), 0);
	assert_true(who.uid == MANY && who.gid == 5 && who.n_gids == 0 && who.list->n == 100);
	assert_true(who.list_id == who.list->id);
	assert_int_equal(identify(&rule, STRANGER, true, &who), 0);
	assert_true(who.uid == STRANGER && who.gid == 5 && who.n_gids == 0);
	assert_true(who.list->n == 0 && who.list_id == who.list->id);
	for (int i = 0; i < 2; i++) /* a client's word does not replace the answer of the database */
		assert_int_equal(identify(&rule, BROKEN, i, &who), -EAGAIN);
	assert_int_equal(identify(&rule, 0, false, &who), 0); /* squashed: nothing is looked up */
	assert_true(who.uid == 65534 && !who.list && who.n_gids == 0);
	rule.squash = HF_SQUASH_ALL;
	assert_int_equal(identify(&rule, SLOW, false, &who), 0);
	assert_true(who.uid == 65534 && !who.list);
	rule.squash = HF_SQUASH_NONE;
	assert_int_equal(identify(&rule, 0, false, &who), 0);
	assert_true(who.uid == 0 && !who.list && who.n_gids == 2);
	assert_int_equal(hf_exports_identify(exports, &rule, NULL, false, &who), 0);
	assert_true(who.uid == 65534 && !who.list);

	set_slow(true);
	assert_int_equal(identify(&rule, SLOW, false, &who), -EAGAIN);
	set_slow(false);
	assert_int_equal(identify(&rule, SLOW, true, &who), 0);
	assert_non_null(who.list);
	close_exports(NULL);
}

/* The host's own database */

#define WALT   5002 /* of the directory service in tests/nss */
#define NO_UID 4000000123

/* What the directory service says from now on, in lines; NULL: what it has. */
static void let_directory_say(const char *lines)
{
	const char *path = getenv("HF_TEST_NSS");
	FILE *file;

	unlink(path);
	if (!lines)
		return;
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(lines, file);
	fclose(file);
}

static int open_directory(void **state)
{
	char path[] = "/tmp/hf-groups-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	setenv("HF_TEST_NSS", path, 1);
	let_directory_say(NULL);
	return 0;
}

static int close_directory(void **state)
{
	let_directory_say(NULL);
	return 0;
}

/* Which services are asked, as in nsswitch.conf; for this process. */
static void ask_services(const char *services)
{
	assert_int_equal(__nss_configure_lookup("passwd", services), 0);
	assert_int_equal(__nss_configure_lookup("group", services), 0);
}

static int find_system(uint32_t uid, size_t max, uint32_t *gids, size_t *np)
{
	*np = 0;
	return hf_system_groups.find(NULL, uid, gids, max, np);
}

static int ask_system(uint32_t uid)
{
	uint32_t gids[HF_IDENTITY_MAX_LISTED];
	size_t n;

	return find_system(uid, HF_IDENTITY_MAX_LISTED, gids, &n);
}

/* As the host has it: root is in it, and this number hardly is. */
static void test_system(void **state)
{
	uint32_t gids[HF_IDENTITY_MAX_LISTED];
	size_t n;

	assert_int_equal(find_system(0, HF_IDENTITY_MAX_LISTED, gids, &n), 0);
	assert_true(n >= 1 && gids[0] == 0);
	assert_int_equal(ask_system(NO_UID), HF_GROUPS_NO_USER);
}

static void test_directory(void **state)
{
	uint32_t gids[HF_IDENTITY_MAX_LISTED];
	size_t n;

	ask_services("files hftest");
	assert_int_equal(find_system(WALT, HF_IDENTITY_MAX_LISTED, gids, &n), 0);
	assert_true(n == 2 && gids[0] == WALT && gids[1] == 6100);
	assert_int_equal(find_system(WALT, 1, gids, &n), 0);
	assert_true(n == 1 && gids[0] == WALT); /* of more than fit, the first */
	assert_int_equal(ask_system(NO_UID), HF_GROUPS_NO_USER);
}

/* No error of a service that is away says that there is no such user. */
static void test_directory_is_away(void **state)
{
	static const struct {
		const char *says;
		int answer;
	} cases[] = {
		{ "passwd -1 2\n", -ENOENT }, /* UNAVAIL, as of libnss-ldapd and libnss-sss without their
						 daemons */
		{ "passwd -1 3\n", -ESRCH },   { "passwd -1 9\n", -EBADF },
		{ "passwd -1 1\n", -EPERM },   { "passwd -1 111\n", -ECONNREFUSED },
		{ "passwd -1 -1\n", -EIO },    { "passwd -2 11\n", -EAGAIN }, /* TRYAGAIN */
		{ "passwd -2 2\n", -ENOENT },  { "passwd -2 -1\n", -EIO },
		{ "passwd -2 34\n", -ERANGE }, /* no buffer is large enough */
	};

	ask_services("files hftest");
	for (size_t i = 0; i < HF_ARRAY_SIZE(cases); i++) {
		let_directory_say(cases[i].says);
		assert_int_equal(ask_system(NO_UID), cases[i].answer);
		assert_int_equal(ask_system(WALT), cases[i].answer);
		assert_int_equal(ask_system(0), 0); /* /etc/passwd has it */
	}
	let_directory_say("passwd 0 2\n"); /* NOTFOUND, whatever errno says */
	assert_int_equal(ask_system(NO_UID), HF_GROUPS_NO_USER);
	ask_services("hf_no_such_service");
	assert_int_equal(ask_system(0), -EIO);
}

/* getgrouplist() says nothing of it: a list would lack groups. */
static void test_directory_is_away_for_groups(void **state)
{
	ask_services("files hftest");
	let_directory_say("groups -1 2\ngroup -1 2\n");
	assert_int_equal(ask_system(WALT), -ENOENT);
	assert_int_equal(ask_system(0), -ENOENT);
	let_directory_say("groups -2 11\ngroup -2 11\n");
	assert_int_equal(ask_system(WALT), -EAGAIN);
	let_directory_say(NULL);
	assert_int_equal(ask_system(WALT), 0);
}

/* nsswitch.conf(5) can end the search at a service that is away; otherwise the next one counts. */
static void test_directory_is_not_the_last_service(void **state)
{
	ask_services("hftest [UNAVAIL=return TRYAGAIN=return] files");
	assert_int_equal(ask_system(NO_UID), HF_GROUPS_NO_USER);
	let_directory_say("passwd -1 2\n");
	assert_int_equal(ask_system(NO_UID), -ENOENT);
	assert_int_equal(ask_system(0), -ENOENT);
	ask_services("hftest files");
	assert_int_equal(ask_system(NO_UID), HF_GROUPS_NO_USER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_lists, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_without_room_the_call_is_repeated, set_up, tear_down),
		cmocka_unit_test(test_identities),
		cmocka_unit_test_setup_teardown(test_system, open_directory, close_directory),
		cmocka_unit_test_setup_teardown(test_directory, open_directory, close_directory),
		cmocka_unit_test_setup_teardown(test_directory_is_away, open_directory, close_directory),
		cmocka_unit_test_setup_teardown(test_directory_is_away_for_groups, open_directory,
						close_directory),
		cmocka_unit_test_setup_teardown(test_directory_is_not_the_last_service, open_directory,
						close_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
