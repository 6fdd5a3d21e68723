/* Reloads that take their time: the configuration is a pipe, and reading it waits until the test writes. */
#include "reload_bed.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

/* "a" and "b" may be shared; the first is at the start. */
static void set_text(const struct bed *bed, char text[256], const char *name)
{
	snprintf(text, 256, "server: {state_dir: %s, threads: 1}\nexports: [{path: %s, name: /%s}]\n",
		 bed->base, bed->base, name);
}

static int set_up(void **state)
{
	static struct bed bed;
	char text[256];

	*state = &bed;
	bed_make_folder(&bed);
	set_text(&bed, text, "a");
	return mkfifo(bed.file, 0600) < 0 || bed_start(&bed, text) < 0;
}

static int tear_down(void **state)
{
	return bed_end(*state);
}

/* Waits until the worker has the pipe open; the loop is not needed for that. */
static int open_pipe(const struct bed *bed)
{
	int fd = open(bed->file, O_WRONLY);

	assert_true(fd >= 0);
	return fd;
}

static void write_to(int fd, const char *text)
{
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void write_export(const struct bed *bed, int fd, const char *name)
{
	char text[256];

	set_text(bed, text, name);
	write_to(fd, text);
}

static void expect_shared(struct bed *bed, const char *name)
{
	struct hf_export_list list;

	assert_int_equal(hf_exports_list(hf_file_service_nlm(bed->files).exports, &list), 0);
	assert_int_equal(list.n, 1);
	assert_string_equal(list.items[0]->settings.name, name);
	hf_export_list_clear(&list);
}

static void test_the_loop_goes_on_meanwhile(void **state)
{
	struct bed *bed = *state;
	int fd;

	hf_reload_ask(bed->reload);
	assert_int_equal(bed->n_begun, 1);
	fd = open_pipe(bed);
	turn_for(bed->loop, HF_NS_PER_MS); /* to be here at all is the test */
	turn_for(bed->loop, HF_NS_PER_MS);
	assert_int_equal(bed->n_ended, 0);
	expect_shared(bed, "/a");
	write_export(bed, fd, "b");
	bed_until_ended(bed, 1);
	expect_shared(bed, "/b");
	assert_true(bed->is_loaded);
	assert_string_equal(bed->fixed, "");
}

static void test_it_says_what_waits_for_the_next_start(void **state)
{
	struct bed *bed = *state;
	char text[256];

	snprintf(text, sizeof(text),
		 "server: {state_dir: %s, threads: 2, port: 2050}\nexports: [{path: %s, name: /b}]\n",
		 bed->base, bed->base);
	hf_reload_ask(bed->reload);
	write_to(open_pipe(bed), text);
	bed_until_ended(bed, 1);
	expect_shared(bed, "/b");
	assert_true(bed->is_loaded);
	assert_string_equal(bed->fixed, "server.port,server.threads");
}

/* A standby serves no files; what it takes a configuration for may fail. */

static int n_taken, taken_result;

static int on_taken(void *user, struct hf_config *config)
{
	assert_string_equal(config->exports.items[0].name, "/b");
	n_taken++;
	return taken_result;
}

static void test_a_process_without_files(void **state)
{
	struct bed *bed = *state;
	const struct hf_reload_options options = {
		.loop = bed->loop,
		.args = &bed->args,
		.started = bed->started,
		.begins = bed_on_begins,
		.taken = on_taken,
		.change = bed_on_changes,
		.ended = bed_on_ended,
		.user = bed,
	};

	bed->reload = hf_reload_free(bed->reload);
	assert_int_equal(hf_reload_new(&bed->reload, &options), 0);
	for (int i = 0; i < 2; i++) {
		taken_result = i ? -ENOMEM : 0;
		hf_reload_ask(bed->reload);
		assert_true(hf_reload_is_running(bed->reload));
		write_export(bed, open_pipe(bed), "b");
		bed_until_ended(bed, i + 1);
		assert_false(hf_reload_is_running(bed->reload));
		assert_int_equal(n_taken, i + 1);
		assert_true(bed->is_loaded == (taken_result == 0));
		assert_true(bed->is_last);
		assert_int_equal(bed->n_changed, 1); /* only when it was taken */
	}
	expect_shared(bed, "/a");
}

/* In a cluster the exports that are taken become those that the next term starts with. */

static int keep_exports(void *user, struct hf_config *config)
{
	struct bed *bed = user;
	struct hf_config_exports before = bed->started->exports;

	bed->started->exports = config->exports;
	config->exports = before;
	return 0;
}

static void test_exports_come_back_in_a_cluster(void **state)
{
	struct bed *bed = *state;
	const struct hf_reload_options options = {
		.loop = bed->loop,
		.args = &bed->args,
		.started = bed->started,
		.files = bed->files,
		.tls = bed->tls,
		.begins = bed_on_begins,
		.taken = keep_exports,
		.change = bed_on_changes,
		.ended = bed_on_ended,
		.user = bed,
	};
	char text[256];

	bed->reload = hf_reload_free(bed->reload);
	assert_int_equal(hf_reload_new(&bed->reload, &options), 0);
	snprintf(text, sizeof(text), "server: {state_dir: %s, threads: 1}\nexports: []\n", bed->base);
	hf_reload_ask(bed->reload);
	write_to(open_pipe(bed), text);
	bed_until_ended(bed, 1);
	assert_true(bed->is_loaded);
	assert_int_equal(bed->started->exports.n, 0);
	hf_reload_ask(bed->reload);
	write_export(bed, open_pipe(bed), "b");
	bed_until_ended(bed, 2);
	assert_true(bed->is_loaded);
	assert_string_equal(bed->fixed, "");
	expect_shared(bed, "/b");
}

/* The first may have read before the second change was made. */
static void test_asked_again_meanwhile(void **state)
{
	struct bed *bed = *state;
	int fd;

	hf_reload_ask(bed->reload);
	fd = open_pipe(bed);
	hf_reload_ask(bed->reload);
	hf_reload_ask(bed->reload);
	assert_int_equal(bed->n_begun, 1);
	write_export(bed, fd, "b");
	bed_until_ended(bed, 1);
	assert_int_equal(bed->n_begun, 2); /* once more is enough for both */
	expect_shared(bed, "/b");
	assert_true(hf_reload_is_owed(bed->reload));
	write_export(bed, open_pipe(bed), "c");
	bed_until_ended(bed, 2);
	assert_false(hf_reload_is_owed(bed->reload));
	expect_shared(bed, "/c");
	turn_for(bed->loop, HF_NS_PER_MS);
	assert_int_equal(bed->n_begun, 2);
}

static void test_a_mistake_leaves_all_as_it_was(void **state)
{
	struct bed *bed = *state;

	hf_reload_ask(bed->reload);
	write_to(open_pipe(bed), "exports: 5\n");
	bed_until_ended(bed, 1);
	expect_shared(bed, "/a");
	assert_false(bed->is_loaded);
	assert_false(hf_reload_is_owed(bed->reload)); /* the log has said it */
	hf_reload_ask(bed->reload);                   /* and the next one is read */
	write_export(bed, open_pipe(bed), "b");
	bed_until_ended(bed, 2);
	expect_shared(bed, "/b");
}

static void test_stopped_meanwhile(void **state)
{
	struct bed *bed = *state;
	int fd;

	hf_reload_ask(bed->reload);
	fd = open_pipe(bed);
	hf_reload_ask(bed->reload);
	hf_reload_stop(bed->reload);
	write_export(bed, fd, "b");
	for (int i = 0; i < 20; i++) /* long enough for it to come back, as a rule; nothing must follow */
		turn_for(bed->loop, HF_NS_PER_MS);
	hf_reload_ask(bed->reload);
	assert_int_equal(bed->n_begun, 1);
	assert_int_equal(bed->n_ended, 0);
	assert_true(hf_reload_is_owed(bed->reload));
	expect_shared(bed, "/a");
}

static void test_asked_after_a_stop(void **state)
{
	struct bed *bed = *state;

	hf_reload_stop(bed->reload);
	assert_false(hf_reload_is_owed(bed->reload));
	hf_reload_ask(bed->reload);
	assert_int_equal(bed->n_begun, 0);
	assert_true(hf_reload_is_owed(bed->reload));
}

static void *write_later(void *user)
{
	const struct bed *bed = user;

	write_export(bed, open_pipe(bed), "b");
	return NULL;
}

static void test_freed_meanwhile(void **state)
{
	struct bed *bed = *state;
	pthread_t thread;
	int fd;

	hf_reload_ask(bed->reload);
	hf_reload_stop(bed->reload);
	assert_int_equal(pthread_create(&thread, NULL, write_later, bed), 0);
	bed->reload = hf_reload_free(bed->reload);
	/* A reload that has not begun never will, and no other reader opens the pipe. */
	fd = open(bed->file, O_RDONLY | O_NONBLOCK);
	pthread_join(thread, NULL);
	close(fd);
	assert_int_equal(bed->n_ended, 0);
	expect_shared(bed, "/a");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(test_the_loop_goes_on_meanwhile),
		T(test_it_says_what_waits_for_the_next_start),
		T(test_a_process_without_files),
		T(test_exports_come_back_in_a_cluster),
		T(test_asked_again_meanwhile),
		T(test_a_mistake_leaves_all_as_it_was),
		T(test_stopped_meanwhile),
		T(test_asked_after_a_stop),
		T(test_freed_meanwhile),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests_name("reload", tests, NULL, NULL);
}
