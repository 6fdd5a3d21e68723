/* Stopping the sweeper while a disk is slow. The test replaces fsync(2). */
#include "../exports.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

#include "../../until.h"
#include "base/macros.h"
#include "export/sweeper.h"
#include "loop/timer.h"
#include "vfs/data.h"
#include "vfs/disk_queue.h"
#include "vfs/file.h"

#define N_FILES 32 /* of each kind, with one descriptor each: together as many as the cache has room for */
#define SWEEPS  11 /* until a file counts as idle */

static struct hf_volume *volume;
static struct hf_sweeper *sweeper;

/* Relaxed: ThreadSanitizer must not take these for what orders the threads. */
static _Atomic bool is_inside, may_leave = true;
static bool was_set_beside;

int fsync(int fd)
{
	struct until until = until_begin(UNTIL_PATIENCE);

	while (!atomic_load_explicit(&may_leave, memory_order_relaxed) && until_again(&until))
		atomic_store_explicit(&is_inside, true, memory_order_relaxed);
	return 0;
}

void __real_hf_files_set_on_full(struct hf_files *files, void (*fn)(void *user), void *user);
void __wrap_hf_files_set_on_full(struct hf_files *files, void (*fn)(void *user), void *user);

void __wrap_hf_files_set_on_full(struct hf_files *files, void (*fn)(void *user), void *user)
{
	if (is_inside && !may_leave)
		was_set_beside = true;
	__real_hf_files_set_on_full(files, fn, user);
}

void __real_hf_disk_queue_wait(struct hf_disk_queue *fair);
void __wrap_hf_disk_queue_wait(struct hf_disk_queue *fair);

/* Until here the disk did not answer. */
void __wrap_hf_disk_queue_wait(struct hf_disk_queue *fair)
{
	atomic_store_explicit(&may_leave, true, memory_order_relaxed);
	__real_hf_disk_queue_wait(fair);
}

static int set_up(void **state)
{
	return open_exports() < 0 || hf_volume_new(&volume, base) < 0 ||
	       hf_sweeper_new(&sweeper, loop, exports, 1) < 0;
}

static int tear_down(void **state)
{
	hf_volume_unref(volume);
	return close_exports(state);
}

static int make(const char *kind, unsigned int number)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "%s-%u", kind, number);
	fd = openat(volume->mount, name, O_CREAT | O_RDWR, 0644);
	assert_true(fd >= 0);
	return fd;
}

/* The cache keeps it open until a sync. */
static void write_file(unsigned int number)
{
	struct hf_identity ourselves = { .uid = (uint32_t)geteuid(), .gid = (uint32_t)getegid() };
	struct hf_file *file;
	size_t n;

	assert_int_equal(hf_files_take_made(hf_exports_files(exports), volume, make("written", number),
					    &file),
			 0);
	assert_int_equal(hf_file_write(file, &ourselves, 0, "x", 1, HF_UNSTABLE, &(struct hf_change){ 0 },
				       &n),
			 0);
	hf_file_unref(file);
}

static struct hf_file *use_file(unsigned int number)
{
	struct hf_file *file;
	struct stat st;

	assert_int_equal(hf_files_take(hf_exports_files(exports), volume, make("used", number), true, &file,
				       &st),
			 0);
	return file;
}

static void look(struct hf_timer *timer)
{
	if (is_inside)
		hf_loop_stop(timer->loop);
	else
		hf_timer_start(timer, HF_NS_PER_MS);
}

static void run_until_inside(void)
{
	struct hf_timer timer;

	hf_timer_init(&timer, loop, look);
	hf_timer_start(&timer, 0);
	hf_loop_run(loop);
	hf_timer_stop(&timer);
}

/* A thread of the sweeper drops files while the sweeper stops, and the cache is full. */
static void test_stop_while_files_are_dropped(void **state)
{
	struct hf_files *files = hf_exports_files(exports);
	struct hf_file *used[N_FILES];

	for (unsigned int i = 0; i < N_FILES; i++) {
		write_file(i);
		used[i] = use_file(i);
	}
	may_leave = false;
	for (int i = 0; i < SWEEPS; i++)
		hf_files_sweep(files);
	run_until_inside();
	hf_files_forget_volume(files, volume); /* the thread drops the last references */
	assert_true(hf_files_are_full(files));
	hf_sweeper_wait(sweeper);
	while (hf_loop_drain(loop))
		;
	hf_sweeper_free(sweeper);
	assert_false(was_set_beside);
	for (unsigned int i = 0; i < N_FILES; i++)
		hf_file_unref(used[i]);
	hf_files_close_all(files);
	assert_int_equal(hf_files_count_fds(files), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_stop_while_files_are_dropped, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
