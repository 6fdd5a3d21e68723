/*
 * The limit for CREATE and REMOVE: threads that make and remove files in a
 * directory by plain system calls, with no protocol and no socket.
 *
 *	bench_files_names DIRECTORY THREADS DEPTH SECONDS sync|async
 *
 * Each makes DEPTH files, then removes them, and again. With sync the directory
 * is put on stable storage after each turn of DEPTH, which is as often as a
 * server must that has DEPTH calls of a client under way; and the new files
 * themselves, where the file system does not do that with the directory. Prints
 * one line of JSON; the processor time is that of one call.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "vfs/fskind.h"

#define MAX_THREADS 64

struct maker {
	pthread_t thread;
	int index;
	int dir;
	int depth;
	bool is_sync;
	bool is_sync_each; /* every new file by itself, too */
	int *made;         /* that are open for it */
	double deadline;
	uint64_t n_calls;
};

static void die(const char *what)
{
	fprintf(stderr, "bench_files_names: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double seconds_of(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int make(int dir, const char *name)
{
	int fd = openat(dir, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);

	if (fd < 0)
		die("openat");
	return fd;
}

static void sync_turn(const struct maker *maker, bool is_create)
{
	if (fsync(maker->dir) < 0)
		die("fsync");
	for (int i = 0; i < maker->depth && is_create && maker->is_sync_each; i++)
		if (fsync(maker->made[i]) < 0)
			die("fsync");
}

static void run_turn(struct maker *maker, bool is_create)
{
	char name[64];

	for (int i = 0; i < maker->depth; i++) {
		snprintf(name, sizeof(name), "new-%d-%d", maker->index, i);
		if (is_create)
			maker->made[i] = make(maker->dir, name);
		else if (unlinkat(maker->dir, name, 0) < 0)
			die("unlinkat");
	}
	if (maker->is_sync)
		sync_turn(maker, is_create);
	for (int i = 0; i < maker->depth && is_create; i++)
		close(maker->made[i]);
	maker->n_calls += (uint64_t)maker->depth;
}

static void *run_maker(void *arg)
{
	struct maker *maker = arg;

	while (seconds_of(CLOCK_MONOTONIC) < maker->deadline) {
		run_turn(maker, true);
		run_turn(maker, false);
	}
	return NULL;
}

static bool needs_sync_each(int dir)
{
	struct statfs fs;
	struct stat st;

	if (fstatfs(dir, &fs) < 0 || fstat(dir, &st) < 0)
		die("stat");
	return !hf_fskind_syncs_made_with_dir((uint64_t)(uint32_t)fs.f_type, st.st_dev);
}

int main(int argc, char **argv)
{
	static struct maker makers[MAX_THREADS];
	int n_threads = argc == 6 ? atoi(argv[2]) : 0, depth = argc == 6 ? atoi(argv[3]) : 0, dir;
	double begun = seconds_of(CLOCK_MONOTONIC), took;
	uint64_t n_calls = 0;

	if (n_threads < 1 || n_threads > MAX_THREADS || depth < 1) {
		fprintf(stderr, "usage: bench_files_names DIRECTORY THREADS DEPTH SECONDS sync|async\n");
		return 2;
	}
	dir = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		die(argv[1]);
	for (int i = 0; i < n_threads; i++) {
		makers[i] = (struct maker){ .index = i, .dir = dir, .depth = depth };
		makers[i].is_sync = strcmp(argv[5], "sync") == 0;
		makers[i].is_sync_each = needs_sync_each(dir);
		makers[i].made = calloc((size_t)depth, sizeof(int));
		if (!makers[i].made)
			die("calloc");
		makers[i].deadline = begun + atof(argv[4]);
		pthread_create(&makers[i].thread, NULL, run_maker, &makers[i]);
	}
	for (int i = 0; i < n_threads; i++) {
		pthread_join(makers[i].thread, NULL);
		n_calls += makers[i].n_calls;
		free(makers[i].made);
	}
	took = seconds_of(CLOCK_MONOTONIC) - begun;
	printf("{\"calls_per_second\":%.0f,\"cpu_us\":%.2f}\n", (double)n_calls / took,
	       seconds_of(CLOCK_PROCESS_CPUTIME_ID) * 1e6 / (double)n_calls);
	return 0;
}
