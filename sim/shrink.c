#include "shrink.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "sim.h"

#define MAX_ROUNDS 4

static const struct {
	const char *name;
	uint32_t bit;
} omissions[] = {
	{ "loss", OMIT_LOSS },         { "doubles", OMIT_DOUBLES },     { "delays", OMIT_DELAYS },
	{ "rogue", OMIT_ROGUE },       { "slow-disk", OMIT_SLOW_DISK }, { "latency", OMIT_LATENCY },
	{ "pipes", OMIT_PIPES },       { "files", OMIT_FILES },         { "parts", OMIT_PARTS },
	{ "fates", OMIT_FATES },       { "patience", OMIT_PATIENCE },   { "flood", OMIT_FLOOD },
	{ "ordinary", OMIT_ORDINARY },
};

/* The list, both ways */

static bool read_word(struct sim_options *options, const char *word)
{
	unsigned int number;
	char rest;

	for (size_t i = 0; i < HF_ARRAY_SIZE(omissions); i++)
		if (strcmp(word, omissions[i].name) == 0) {
			options->omit |= omissions[i].bit;
			return true;
		}
	if (sscanf(word, "host%u%c", &number, &rest) == 1 && number < MAX_HOSTS) {
		options->omit |= (uint32_t)OMIT_HOST_0 << number;
		return true;
	}
	if (sscanf(word, "fault%u%c", &number, &rest) == 1 && number < MAX_FAULTS) {
		options->omit_faults |= UINT64_C(1) << number;
		return true;
	}
	return false;
}

bool shrink_read_list(struct sim_options *options, const char *list)
{
	char copy[1024], *save = NULL;

	if (snprintf(copy, sizeof(copy), "%s", list) >= (int)sizeof(copy))
		return false;
	for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save))
		if (!read_word(options, word))
			return false;
	return true;
}

static void print_world(const struct sim_options *options)
{
	printf("./dev sim --seed %llu%s%s%s", (unsigned long long)options->seed,
	       options->is_cluster  ? " --cluster"
	       : options->continues ? " --continue"
				    : "",
	       options->has_more_forgers ? " --forgers" : "", options->has_tls ? " --tls" : "");
}

static void print_command(const struct sim_options *options)
{
	const char *separator = " --omit ";

	print_world(options);
	for (size_t i = 0; i < HF_ARRAY_SIZE(omissions); i++)
		if (options->omit & omissions[i].bit) {
			printf("%s%s", separator, omissions[i].name);
			separator = ",";
		}
	for (unsigned int i = 0; i < MAX_HOSTS; i++)
		if (options->omit & (uint32_t)OMIT_HOST_0 << i) {
			printf("%shost%u", separator, i);
			separator = ",";
		}
	for (unsigned int i = 0; i < MAX_FAULTS; i++)
		if (options->omit_faults >> i & 1) {
			printf("%sfault%u", separator, i);
			separator = ",";
		}
	if (options->n_steps)
		printf(" --steps %u", options->n_steps);
	putchar('\n');
}

/* Each try is a process of its own: a sanitizer may end it. */
static bool still_fails(const struct sim_options *options, const char *rule, struct sim_result *result)
{
	int ends[2], status = 0;
	pid_t pid;
	ssize_t n;

	fflush(stdout);
	if (pipe(ends) < 0)
		return false;
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY);

		dup2(null, STDERR_FILENO);
		sim_run(options, result);
		_exit(write(ends[1], result, sizeof(*result)) < 0);
	}
	close(ends[1]);
	n = read(ends[0], result, sizeof(*result));
	close(ends[0]);
	waitpid(pid, &status, 0);
	if (n != (ssize_t)sizeof(*result)) { /* it came to no verdict */
		snprintf(result->rule, sizeof(result->rule), "CRASH");
		return !rule || strcmp(rule, "CRASH") == 0;
	}
	return result->has_failed && (!rule || strcmp(result->rule, rule) == 0);
}

static bool try_one(struct sim_options *options, const struct sim_options *smaller, const char *rule)
{
	struct sim_result result = { 0 };

	if (!still_fails(smaller, rule, &result))
		return false;
	*options = *smaller;
	return true;
}

static bool leave_out_more(struct sim_options *options, const struct sim_result *first)
{
	bool any = false;

	for (uint64_t i = 0; i < first->n_faults; i++) {
		struct sim_options smaller = *options;

		smaller.omit_faults |= UINT64_C(1) << i;
		if (smaller.omit_faults != options->omit_faults)
			any |= try_one(options, &smaller, first->rule);
	}
	for (uint32_t i = 0; i < first->n_hosts; i++) {
		struct sim_options smaller = *options;

		smaller.omit |= (uint32_t)OMIT_HOST_0 << i;
		if (smaller.omit != options->omit)
			any |= try_one(options, &smaller, first->rule);
	}
	for (size_t i = 0; i < HF_ARRAY_SIZE(omissions); i++) {
		struct sim_options smaller = *options;

		smaller.omit |= omissions[i].bit;
		if (smaller.omit != options->omit)
			any |= try_one(options, &smaller, first->rule);
	}
	return any;
}

/* As few steps of trouble as are enough. */
static void cut_short(struct sim_options *options, const char *rule)
{
	struct sim_result result = { 0 };
	uint32_t least = 1, most;

	if (!still_fails(options, rule, &result) || !result.n_steps)
		return;
	most = result.n_steps;
	while (least < most) {
		struct sim_options smaller = *options;

		smaller.n_steps = least + (most - least) / 2;
		if (try_one(options, &smaller, rule))
			most = smaller.n_steps;
		else
			least = smaller.n_steps + 1;
	}
}

void shrink_and_show(const struct sim_options *failing)
{
	struct sim_options options = *failing;
	struct sim_result first = { 0 }, last;

	if (!still_fails(&options, NULL, &first)) {
		printf("it does not fail again: something besides the seed decides, and that is a bug, "
		       "too\n");
		return;
	}
	printf("%s: %s\nmaking it smaller\n", first.rule, first.what);
	for (int round = 0; round < MAX_ROUNDS && leave_out_more(&options, &first); round++)
		continue;
	cut_short(&options, first.rule);
	printf("what happens, in the smallest schedule found:\n\n");
	fflush(stdout);
	options.is_verbose = true;
	hf_log_configure(HF_LOG_DEBUG, HF_LOG_TEXT);
	sim_run(&options, &last);
	printf("\n%s: %s\nto see it again:\n  ", last.rule, last.what);
	options.is_verbose = false;
	print_command(&options);
	printf("and the whole of it:\n  ");
	print_world(failing);
	printf("\n");
}
