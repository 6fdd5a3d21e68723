/*
 * Reloads that fail half way: all of the old exports stay, with all that others
 * know of them, and it is said; or all of the new ones are there.
 *
 * Memory fails in the reload alone.
 */
#include "../memory.h"
#include "../said.h"
#include "reload_bed.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "export/local.h"
#include "loop/work.h"

#define OLD_STAYS "the old"
#define LOADED    "configuration loaded again"

static bool submit_fails;
static rlim_t n_descriptors;  /* and no more, while it is reloaded; 0: as ever */
static const char *to_vanish; /* when the configuration has been read, and is right */

/* The reload */

int __real_hf_config_load(struct hf_config **configp, const struct hf_args *args, char *error, size_t size);
int __wrap_hf_config_load(struct hf_config **configp, const struct hf_args *args, char *error, size_t size);
int __wrap_hf_config_load(struct hf_config **configp, const struct hf_args *args, char *error, size_t size)
{
	int r;

	memory_may_fail = true;
	r = __real_hf_config_load(configp, args, error, size);
	memory_may_fail = false;
	if (to_vanish)
		rmdir(to_vanish);
	return r;
}

int __real_hf_file_service_prepare(struct hf_file_service *service, const struct hf_config *config,
				   struct hf_export_list *listp, size_t *n_failedp);
int __wrap_hf_file_service_prepare(struct hf_file_service *service, const struct hf_config *config,
				   struct hf_export_list *listp, size_t *n_failedp);
int __wrap_hf_file_service_prepare(struct hf_file_service *service, const struct hf_config *config,
				   struct hf_export_list *listp, size_t *n_failedp)
{
	int r;

	memory_may_fail = true;
	r = __real_hf_file_service_prepare(service, config, listp, n_failedp);
	memory_may_fail = false;
	return r;
}

int __real_hf_file_service_take(struct hf_file_service *service, struct hf_export_list *list);
int __wrap_hf_file_service_take(struct hf_file_service *service, struct hf_export_list *list);
int __wrap_hf_file_service_take(struct hf_file_service *service, struct hf_export_list *list)
{
	int r;

	memory_may_fail = true;
	r = __real_hf_file_service_take(service, list);
	memory_may_fail = false;
	return r;
}

int __real_hf_work_submit(struct hf_loop *loop, struct hf_work *work, void (*run)(struct hf_work *work),
			  void (*done)(struct hf_work *work));
int __wrap_hf_work_submit(struct hf_loop *loop, struct hf_work *work, void (*run)(struct hf_work *work),
			  void (*done)(struct hf_work *work));
int __wrap_hf_work_submit(struct hf_loop *loop, struct hf_work *work, void (*run)(struct hf_work *work),
			  void (*done)(struct hf_work *work))
{
	return submit_fails ? -ENOMEM : __real_hf_work_submit(loop, work, run, done);
}

/* The bed: /a is shared, with locks in the kernel; reloaded it is without them, and /b is there, too */

#define HEAD "server: {state_dir: %s, threads: 1}\nexports: [{path: %s, name: /a, local_locks: %s}"

static const char *path_of(const struct bed *bed, const char *name)
{
	static char path[64];

	snprintf(path, sizeof(path), "%s/%s", bed->base, name);
	return path;
}

static void write_config(const struct bed *bed, const char *text)
{
	FILE *out = fopen(bed->file, "w");

	assert_non_null(out);
	fputs(text, out);
	assert_int_equal(fclose(out), 0);
}

static void write_old(const struct bed *bed, char text[512])
{
	snprintf(text, 512, HEAD "]\n", bed->base, bed->base, "on");
	write_config(bed, text);
}

static void write_new(const struct bed *bed)
{
	char text[512];

	snprintf(text, sizeof(text), HEAD ", {path: %s/b, name: /b}]\n", bed->base, bed->base, "off",
		 bed->base);
	write_config(bed, text);
}

static int set_up(void **state)
{
	static struct bed bed;
	char text[512];

	*state = &bed;
	memory_until_failure = 0;
	submit_fails = false;
	n_descriptors = 0;
	to_vanish = NULL;
	bed_make_folder(&bed);
	write_old(&bed, text);
	if (mkdir(path_of(&bed, "b"), 0755) < 0 || bed_start(&bed, text) < 0)
		return -1;
	write_new(&bed);
	return 0;
}

static int tear_down(void **state)
{
	return bed_end(*state);
}

/* What others know of it */

static uint32_t number_of(const struct bed *bed, const struct hf_export *export)
{
	struct hf_nlm_files files = hf_file_service_nlm(bed->files);
	uint64_t home;
	uint32_t number = files.export_number_of(files.user, export->id, &home);

	assert_int_not_equal(number, 0);
	assert_true(files.export_id_of(files.user, number) == export->id);
	return number;
}

/* How many are shared; each is known to the lock table, and /a is with or without locks in the kernel. */
static size_t count_shared(const struct bed *bed)
{
	struct hf_nlm_files files = hf_file_service_nlm(bed->files);
	struct hf_export_list list;
	size_t n;

	assert_int_equal(hf_exports_list(files.exports, &list), 0);
	n = list.n;
	assert_in_range(n, 1, 2);
	for (size_t i = 0; i < n; i++)
		assert_int_not_equal(number_of(bed, list.items[i]), 0);
	assert_string_equal(list.items[0]->settings.name, "/a");
	assert_int_equal(list.items[0]->settings.local_locks,
			 n == 1 ? HF_LOCAL_LOCKS_ON : HF_LOCAL_LOCKS_OFF);
	assert_int_equal(hf_local_needs(files.local, number_of(bed, list.items[0]),
					hf_bytes_of_str("a file")),
			 n == 1);
	if (n == 2) /* nothing is done without because there was too little of something for a moment */
		assert_int_equal(list.items[1]->volume->has_ids, list.items[0]->volume->has_ids);
	hf_export_list_clear(&list);
	return n;
}

static void reload_now(struct bed *bed)
{
	struct rlimit before, limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	if (n_descriptors)
		limit.rlim_cur = n_descriptors;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	hf_reload_ask(bed->reload);
	bed_until_ended(bed, bed->n_begun);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* Whether the new ones are there. */
static bool reload(struct bed *bed)
{
	struct said said;
	size_t n;

	said_begin(&said);
	reload_now(bed);
	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	said_end(&said);
	n = count_shared(bed);
	assert_int_equal(said_times(&said, LOADED), n == 2);
	assert_int_equal(said_times(&said, OLD_STAYS), n == 1);
	return n == 2;
}

static void test_it_loads(void **state)
{
	assert_int_equal(count_shared(*state), 1);
	assert_true(reload(*state));
}

/* Each allocation fails once. */
static void test_no_memory_at_any_moment(void **state)
{
	struct bed *bed = *state;
	int n = 0;
	bool is_loaded;

	do {
		memory_until_failure = ++n;
		is_loaded = reload(bed);
		assert_true(is_loaded == (memory_until_failure > 0));
	} while (!is_loaded);
	assert_true(n > 20); /* it was about something */
}

static rlim_t next_descriptor(void)
{
	int fd = open("/", O_PATH | O_CLOEXEC);

	close(fd);
	return (rlim_t)fd;
}

/* There is none left, or one, or two, until there are enough. */
static void test_no_descriptors(void **state)
{
	rlim_t used = next_descriptor() + 2; /* and two to watch the log with */

	n_descriptors = used;
	while (!reload(*state))
		n_descriptors++;
	assert_in_range(n_descriptors - used, 3, 10);
}

static void test_a_directory_that_is_not_there(void **state)
{
	struct bed *bed = *state;

	assert_int_equal(rmdir(path_of(bed, "b")), 0);
	assert_false(reload(bed));
	assert_int_equal(mkdir(path_of(bed, "b"), 0755), 0);
	assert_true(reload(bed));
}

/* It was there when the configuration was read. */
static void test_a_directory_that_vanishes(void **state)
{
	struct bed *bed = *state;

	to_vanish = path_of(bed, "b");
	assert_false(reload(bed));
}

static void test_a_mistake(void **state)
{
	struct bed *bed = *state;

	write_config(bed, "exports: 5\n");
	assert_false(reload(bed));
	assert_int_equal(unlink(bed->file), 0);
	assert_false(reload(bed));
	write_new(bed);
	assert_true(reload(bed));
}

/* No worker takes the job. */
static void test_no_worker(void **state)
{
	submit_fails = true;
	assert_false(reload(*state));
	submit_fails = false;
	assert_true(reload(*state));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(test_it_loads),
		T(test_no_memory_at_any_moment),
		T(test_no_descriptors),
		T(test_a_directory_that_is_not_there),
		T(test_a_directory_that_vanishes),
		T(test_a_mistake),
		T(test_no_worker),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests_name("reload_failure", tests, NULL, NULL);
}
