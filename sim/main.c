/*
 * Many schedules, on all cores; or one, with its full trace.
 *
 *	holdfast-sim [--count N] [--start SEED] [--jobs N] [--omit LIST] [--quiet]
 *	holdfast-sim --seed SEED [--omit LIST] [--steps N] [--quiet]
 *	holdfast-sim --acts N [--forgers] [--start NUMBER] [--count N] [--jobs N] [--quiet]
 *	holdfast-sim --sequence NAME [--quiet]
 *
 * Each job is a process with every n-th seed. The first violation ends all jobs. Then its schedule is made
 * smaller (shrink.c) and shown. Sequences are short, and each that fails is shown by its name (sequence.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "shrink.h"
#include "sim.h"

#define MAX_JOBS 64

/* Shared by the jobs and their parent. */
struct board {
	_Atomic bool must_end;
	_Atomic uint64_t failed_seed; /* plus 1; 0: none */
	_Atomic uint64_t current[MAX_JOBS];
	_Atomic uint64_t sums[MAX_JOBS][sizeof(struct sim_counts) / sizeof(uint64_t)];
};

struct settings {
	struct sim_options one;
	bool is_one;
	bool is_quiet;
	uint64_t start;
	uint64_t count; /* 0: for ever */
	unsigned int jobs;
};

static void mute(void)
{
	int fd = open("/dev/null", O_WRONLY);

	if (fd >= 0)
		dup2(fd, STDERR_FILENO); /* where an assertion prints; the trace says more */
}

/* Jobs */

static void add(struct board *board, unsigned int job, const struct sim_counts *counts)
{
	uint64_t values[sizeof(*counts) / sizeof(uint64_t)];

	memcpy(values, counts, sizeof(values));
	for (size_t i = 0; i < HF_ARRAY_SIZE(values); i++)
		atomic_fetch_add_explicit(&board->sums[job][i], values[i], memory_order_relaxed);
}

static void show_sequence(const struct sim_options *options, const struct sim_result *result)
{
	char name[80];

	sequence_name(options, name, sizeof(name));
	printf("%s: %s: %s\n", name, result->rule, result->what);
	fflush(stdout);
}

static void work(struct board *board, const struct settings *settings, unsigned int job)
{
	struct sim_options options = settings->one;
	struct sim_result result;

	mute();
	signal(SIGINT, SIG_IGN); /* the parent ends the jobs, between two schedules */
	for (uint64_t i = job; !settings->count || i < settings->count; i += settings->jobs) {
		uint64_t none = 0;

		if (atomic_load(&board->must_end) || getppid() == 1)
			break;
		options.seed = settings->start + i;
		atomic_store(&board->current[job], options.seed + 1);
		sim_run(&options, &result);
		if (result.is_void)
			continue;
		add(board, job, &result.counts);
		if (!result.has_failed)
			continue;
		if (options.n_acts) {
			show_sequence(&options, &result);
			continue;
		}
		atomic_compare_exchange_strong(&board->failed_seed, &none, options.seed + 1);
		atomic_store(&board->must_end, true);
		break;
	}
	atomic_store(&board->current[job], 0);
}

/* Progress */

static void sum_up(struct board *board, unsigned int jobs, struct sim_counts *sum)
{
	uint64_t values[sizeof(*sum) / sizeof(uint64_t)] = { 0 };

	for (unsigned int job = 0; job < jobs; job++)
		for (size_t i = 0; i < HF_ARRAY_SIZE(values); i++)
			values[i] += atomic_load_explicit(&board->sums[job][i], memory_order_relaxed);
	memcpy(sum, values, sizeof(*sum));
}

static double seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

#define N(value) ((unsigned long long)(value))

static void show_line(const struct sim_counts *sum, double seconds, const char *end)
{
	fprintf(stderr,
		"%llu schedules in %.0f s, %.0f simulated hours: daemon killed %llu, machine %llu, clients "
		"%llu, "
		"partitions %llu; violations %llu%s",
		N(sum->schedules), seconds, (double)sum->virtual_ns / 3.6e12, N(sum->daemon_crashes),
		N(sum->machine_crashes), N(sum->host_crashes), N(sum->partitions), N(sum->violations), end);
	fflush(stderr);
}

static void show_sum(const struct sim_counts *sum, double seconds)
{
	printf("%llu schedules, %.1f simulated hours, %.0f s (%.2f ms each)\n", N(sum->schedules),
	       (double)sum->virtual_ns / 3.6e12, seconds, seconds * 1e3 / (double)HF_MAX(sum->schedules, 1u));
	printf("  server   killed %llu times (%llu in the middle of a turn), machine crashed %llu times, "
	       "stopped in "
	       "order %llu times\n",
	       N(sum->daemon_crashes), N(sum->amid_crashes), N(sum->machine_crashes), N(sum->clean_stops));
	if (sum->continued)
		printf("  continued %llu times: the server went on where it had ended\n", N(sum->continued));
	if (sum->takeovers)
		printf("  nodes    %llu takeovers; %llu times handed over; halted %llu times, cut off %llu "
		       "times; the database crashed %llu times, a replica was promoted %llu times\n",
		       N(sum->takeovers), N(sum->moved), N(sum->halts), N(sum->node_cuts), N(sum->db_crashes),
		       N(sum->promotions));
	printf("  clients  crashed %llu times; %llu partitions; the store failed %llu times; %llu forged or "
	       "replayed messages, %llu of a flood; %llu notices sent again\n",
	       N(sum->host_crashes), N(sum->partitions), N(sum->store_failures), N(sum->forgeries),
	       N(sum->floods), N(sum->repeated));
	printf("  network  %llu datagrams, %llu lost, %llu doubled\n", N(sum->datagrams), N(sum->lost),
	       N(sum->doubled));
	printf("  locks    %llu calls, %llu granted, %llu of them by call-back, %llu reclaimed; %llu could "
	       "not be reclaimed in time; %llu call-backs were late, and came while their owner waited "
	       "again\n",
	       N(sum->calls), N(sum->granted), N(sum->callbacks), N(sum->reclaimed), N(sum->forfeits),
	       N(sum->stale_grants));
	printf("  programs %llu were killed while they asked; %llu questions about files; %llu writes took "
	       "seconds\n",
	       N(sum->kills), N(sum->questions), N(sum->stalls));
	printf("  files    %llu refusals; %llu questions were never answered; %llu LOCKs were not waited "
	       "for\n",
	       N(sum->refusals), N(sum->never), N(sum->given_up));
	printf("  exports  %llu reloads, of which %llu brought back a file that the run had not had\n",
	       N(sum->reloads), N(sum->returns));
	if (sum->sessions)
		printf("  tls      %llu connections; %llu calls refused for want of one; %llu calls in the "
		       "name "
		       "of a host without its key\n",
		       N(sum->sessions), N(sum->tls_refused), N(sum->intrusions));
	printf("  steps    %llu, of them %llu turns of the server\n", N(sum->steps), N(sum->turns));
	printf("  violations: %llu\n", N(sum->violations));
}

/* Running */

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signum)
{
	is_interrupted = 1;
}

/* A job that a sanitizer ended could not report: its current seed tells. */
static void note_death(struct board *board, const struct settings *settings, pid_t *pids, pid_t pid,
		       int status)
{
	uint64_t none = 0;

	for (unsigned int job = 0; job < settings->jobs; job++)
		if (pids[job] == pid && status)
			atomic_compare_exchange_strong(&board->failed_seed, &none,
						       atomic_load(&board->current[job]));
	if (status)
		atomic_store(&board->must_end, true);
}

static int run_many(const struct settings *settings)
{
	struct board *board =
		mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double began = seconds_now(), shown = began;
	unsigned int n_left = settings->jobs;
	pid_t pids[MAX_JOBS];
	struct sim_counts sum;
	struct sim_options options = settings->one;
	uint64_t failed;

	if (board == MAP_FAILED)
		return EXIT_FAILURE;
	fflush(stdout);
	for (unsigned int job = 0; job < settings->jobs; job++) {
		pids[job] = fork();
		if (pids[job] == 0) {
			work(board, settings, job);
			exit(0);
		}
	}
	signal(SIGINT, on_interrupt);
	signal(SIGTERM, on_interrupt);
	while (n_left) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (is_interrupted)
			atomic_store(&board->must_end, true);
		if (pid > 0) {
			note_death(board, settings, pids, pid, status);
			n_left--;
			continue;
		}
		if (!settings->is_quiet && seconds_now() - shown >= 1) {
			shown = seconds_now();
			sum_up(board, settings->jobs, &sum);
			show_line(&sum, shown - began, isatty(STDERR_FILENO) ? "   \r" : "\n");
			if (!isatty(STDERR_FILENO))
				shown += 59;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	}
	sum_up(board, settings->jobs, &sum);
	if (!settings->is_quiet && isatty(STDERR_FILENO))
		fputc('\n', stderr);
	show_sum(&sum, seconds_now() - began);
	failed = atomic_load(&board->failed_seed);
	munmap(board, sizeof(*board));
	if (!failed)
		return sum.violations ? EXIT_FAILURE : EXIT_SUCCESS;
	options.seed = failed - 1;
	if (options.n_acts) { /* it ended its job */
		show_sequence(&options, &(struct sim_result){ .rule = "CRASH" });
		return EXIT_FAILURE;
	}
	printf("seed %llu fails\n", N(failed - 1));
	if (!settings->is_quiet)
		shrink_and_show(&options);
	return EXIT_FAILURE;
}

static int run_one(const struct settings *settings)
{
	struct sim_options options = settings->one;
	struct sim_result result;

	options.is_verbose = !settings->is_quiet;
	if (settings->is_quiet)
		mute();
	sim_run(&options, &result);
	if (result.is_void) {
		printf("these acts make no sense in this order\n");
		return EXIT_FAILURE;
	}
	printf("seed %llu, digest %016llx: %s%s%s\n", N(options.seed), N(result.digest),
	       result.has_failed ? result.rule : "no violation", result.has_failed ? ": " : "", result.what);
	return result.has_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int usage(void)
{
	fprintf(stderr, "usage: holdfast-sim [--count N] [--start SEED] [--jobs N] [--omit LIST] "
			"[--continue | --cluster] [--forgers] [--tls] [--quiet]\n"
			"       holdfast-sim --seed SEED [--omit LIST] [--steps N] [--continue | --cluster] "
			"[--forgers] "
			"[--tls] [--quiet]\n"
			"       holdfast-sim --acts N [--forgers] [--start NUMBER] [--count N] [--jobs N] "
			"[--quiet]\n"
			"       holdfast-sim --sequence NAME [--quiet]\n"
			"--tls: not with --cluster\n"
			"LIST: "
			"loss,doubles,delays,rogue,slow-disk,latency,pipes,files,parts,fates,patience,host0.."
			".,fault0...\n");
	return 2;
}

static bool read_number(const char *text, uint64_t *numberp)
{
	char *end;

	errno = 0;
	*numberp = strtoull(text, &end, 0);
	return !errno && *text >= '0' && *text <= '9' && !*end;
}

static bool read_arguments(struct settings *settings, int argc, char **argv)
{
	static const struct option options[] = {
		{ "count", required_argument, NULL, 'n' },
		{ "start", required_argument, NULL, 'b' },
		{ "jobs", required_argument, NULL, 'j' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "seed", required_argument, NULL, 's' },
		{ "omit", required_argument, NULL, 'o' },
		{ "steps", required_argument, NULL, 'e' },
		{ "continue", no_argument, NULL, 'c' },
		{ "cluster", no_argument, NULL, 'k' },
		{ "forgers", no_argument, NULL, 'f' },
		{ "tls", no_argument, NULL, 't' },
		{ "acts", required_argument, NULL, 'a' },
		{ "sequence", required_argument, NULL, 'x' },
		{ NULL, 0, NULL, 0 },
	};
	uint64_t number = 0;
	int which;

	while ((which = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (which == '?' || (optarg && which != 'o' && which != 'x' && !read_number(optarg, &number)))
			return false;
		switch (which) {
		case 'n':
			settings->count = number;
			break;
		case 'b':
			settings->start = number;
			break;
		case 'j':
			settings->jobs = (unsigned int)HF_MIN(HF_MAX(number, 1u), (uint64_t)MAX_JOBS);
			break;
		case 'c':
			settings->one.continues = true;
			break;
		case 'k':
			settings->one.continues = settings->one.is_cluster = true;
			break;
		case 'f':
			settings->one.has_more_forgers = true;
			break;
		case 't':
			settings->one.has_tls = true;
			break;
		case 'q':
			settings->is_quiet = true;
			break;
		case 's':
			settings->one.seed = number;
			settings->is_one = true;
			break;
		case 'a':
			if (number < 1 || number > MAX_ACTS)
				return false;
			settings->one.n_acts = (uint32_t)number;
			break;
		case 'x':
			settings->is_one = true;
			if (!sequence_read(&settings->one, optarg))
				return false;
			break;
		case 'o':
			if (!shrink_read_list(&settings->one, optarg))
				return false;
			break;
		case 'e':
			settings->one.n_steps = (uint32_t)number;
			break;
		}
	}
	if (settings->one.n_acts && (settings->one.has_tls || settings->one.is_cluster))
		return false;
	return optind == argc && !(settings->one.has_tls && settings->one.is_cluster);
}

int main(int argc, char **argv)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	struct settings settings = {
		.start = (uint64_t)time(NULL) * 1000000,
		.jobs = (unsigned int)HF_MIN(HF_MAX(cores, 1), MAX_JOBS),
	};

	if (!read_arguments(&settings, argc, argv))
		return usage();
	if (settings.one.n_acts && !settings.is_one && !settings.count) {
		settings.start = 0;
		settings.count = sequence_count(&settings.one);
	}
	hf_log_configure(settings.is_one && !settings.is_quiet ? HF_LOG_DEBUG : HF_LOG_ERROR, HF_LOG_TEXT);
	return settings.is_one ? run_one(&settings) : run_many(&settings);
}
