/*
 * The file service alone, for its tests and benchmarks: MOUNT and NFS on one
 * port of the loopback address, over TCP and UDP.
 *
 *	files_serve STATE_DIR PORT [lanes=N] [threads=N] [audit=FILE] EXPORT...
 *
 * EXPORT is PATH,NAME followed by any of ,ro ,squash=none|root|all ,secure
 * ,async ,client=NETWORK. The first line on stdout is the port. SIGHUP loads
 * the exports again, SIGTERM ends it.
 */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/audit.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/sandbox.h"
#include "export/export.h"
#include "export/sweeper.h"
#include "loop/backend.h"
#include "loop/loop.h"
#include "proto/mount/mount.h"
#include "proto/nfs3/nfs3.h"
#include "proto/nfs3/record.h"
#include "rpc/server.h"
#include "vfs/jobs.h"

#define MAX_EXPORTS 64
#define MAX_RULES   8
#define MAX_LANES   16

struct options {
	const char *state_dir;
	uint16_t port;
	size_t n_lanes;
	size_t n_threads;
	const char *audit; /* NULL: no audit log */
	struct hf_export_settings settings[MAX_EXPORTS];
	struct hf_export_rule rules[MAX_EXPORTS][MAX_RULES];
	struct hf_client_rule clients[MAX_EXPORTS][MAX_RULES];
	size_t n_exports;
};

struct serving {
	struct options options;
	struct hf_loop *loops[MAX_LANES];
	struct hf_rpc_lane *lanes[MAX_LANES];
	pthread_t threads[MAX_LANES];
	struct hf_exports *exports;
	struct hf_sweeper *sweeper;
};

static void die(const char *what, int r)
{
	fprintf(stderr, "files_serve: %s: %s\n", what, strerror(-r));
	exit(1);
}

/* Options */

static const struct hf_client_rule all = { .text = "*", .kind = HF_CLIENT_ANY };

static void add_rule(struct options *options)
{
	struct hf_export_settings *settings = &options->settings[options->n_exports];
	struct hf_export_rule *rules = options->rules[options->n_exports];

	if (settings->n_rules == MAX_RULES)
		die("rules", -EINVAL);
	rules[settings->n_rules++] = (struct hf_export_rule){ .clients = &all,
							      .n_clients = 1,
							      .squash = HF_SQUASH_ROOT,
							      .anon_uid = 65534,
							      .anon_gid = 65534 };
	settings->rules = rules;
}

/* The first one is that of the rule so far; each that follows begins another rule. */
static void parse_client(struct options *options, const char *text)
{
	struct hf_export_settings *settings = &options->settings[options->n_exports];
	struct hf_client_rule *client;

	if (settings->rules[settings->n_rules - 1].clients != &all)
		add_rule(options);
	client = &options->clients[options->n_exports][settings->n_rules - 1];
	client->kind = HF_CLIENT_NETWORK;
	client->text = text;
	if (!hf_network_parse(&client->network, text))
		die(text, -EINVAL);
	options->rules[options->n_exports][settings->n_rules - 1].clients = client;
}

static void parse_word(struct options *options, char *word)
{
	struct hf_export_settings *settings = &options->settings[options->n_exports];
	struct hf_export_rule *rule = &options->rules[options->n_exports][settings->n_rules - 1];

	if (strcmp(word, "ro") == 0)
		rule->read_only = true;
	else if (strcmp(word, "secure") == 0)
		rule->secure = true;
	else if (strcmp(word, "async") == 0)
		settings->async = true;
	else if (strcmp(word, "squash=none") == 0)
		rule->squash = HF_SQUASH_NONE;
	else if (strcmp(word, "squash=root") == 0)
		rule->squash = HF_SQUASH_ROOT;
	else if (strcmp(word, "squash=all") == 0)
		rule->squash = HF_SQUASH_ALL;
	else if (strncmp(word, "anon=", 5) == 0)
		rule->anon_uid = rule->anon_gid = (uint32_t)atoi(word + 5);
	else if (strncmp(word, "client=", 7) == 0)
		parse_client(options, word + 7);
	else
		die(word, -EINVAL);
}

static void parse_export(struct options *options, char *text)
{
	struct hf_export_settings *settings = &options->settings[options->n_exports];
	char *save, *word;

	add_rule(options);
	settings->path = strtok_r(text, ",", &save);
	settings->name = strtok_r(NULL, ",", &save);
	if (!settings->name)
		die(text, -EINVAL);
	while ((word = strtok_r(NULL, ",", &save)))
		parse_word(options, word);
	options->n_exports++;
}

static void parse_options(struct options *options, int argc, char **argv)
{
	if (argc < 3)
		die("files_serve STATE_DIR PORT [lanes=N] [threads=N] [audit=FILE] EXPORT...", -EINVAL);
	options->state_dir = argv[1];
	options->port = (uint16_t)atoi(argv[2]);
	options->n_lanes = 1;
	options->n_threads = 2;
	for (int i = 3; i < argc; i++) {
		if (strncmp(argv[i], "lanes=", 6) == 0)
			options->n_lanes = (size_t)atoi(argv[i] + 6);
		else if (strncmp(argv[i], "threads=", 8) == 0)
			options->n_threads = (size_t)atoi(argv[i] + 8);
		else if (strncmp(argv[i], "audit=", 6) == 0)
			options->audit = argv[i] + 6;
		else if (options->n_exports < MAX_EXPORTS)
			parse_export(options, argv[i]);
	}
	if (options->n_lanes < 1 || options->n_lanes > MAX_LANES)
		die("lanes", -EINVAL);
}

/* Running */

static void load(struct serving *serving)
{
	size_t n_failed;
	int r = hf_exports_load(serving->exports, serving->options.settings, serving->options.n_exports,
				&n_failed);

	if (r < 0)
		die("exports", r);
}

static void on_signal(void *user, int signum)
{
	struct serving *serving = user;

	if (signum == SIGHUP) {
		load(serving);
		hf_log_info("the exports were loaded again", "n=%zu", serving->options.n_exports);
	} else {
		hf_loop_stop(serving->loops[0]);
	}
}

static void *run_lane(void *loop)
{
	hf_loop_run(loop);
	return NULL;
}

static void listen_all(struct serving *serving, struct hf_rpc_server *server)
{
	struct hf_addr addr = { .family = AF_INET, .ip = { 127, 0, 0, 1 } };
	uint16_t port = serving->options.port;
	int r = hf_rpc_server_listen_tcp(server, &addr, &port);

	if (r == 0)
		r = hf_rpc_server_listen_udp(server, &addr, &port);
	if (r < 0)
		die("listen", r);
	printf("%u\n", port);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static struct serving serving;
	struct options *options = &serving.options;
	struct rlimit limit;
	struct hf_rpc_server *server;
	struct hf_jobs *jobs = NULL;
	struct hf_nfs3_recorder recorder = { 0 };
	struct hf_mount mount;
	struct hf_nfs3 nfs;
	char threads[16];
	int r;

	hf_heap_prepare();
	parse_options(options, argc, argv);
	hf_log_configure(getenv("HF_DEBUG") ? HF_LOG_DEBUG : HF_LOG_INFO, HF_LOG_TEXT);
	snprintf(threads, sizeof(threads), "%zu",
		 options->n_threads + hf_sweeper_threads(options->n_exports));
	setenv("UV_THREADPOOL_SIZE", threads, 1);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	hf_sandbox_limit_caps(false); /* as the daemon serves files */
	hf_sandbox_enter();
	r = hf_rpc_server_new(&server, &hf_rpc_default_limits);
	for (size_t i = 0; i < options->n_lanes && r == 0; i++) {
		r = hf_loop_new(&serving.loops[i]);
		if (r == 0)
			r = hf_rpc_server_add_lane(server, serving.loops[i], &serving.lanes[i]);
	}
	if (r == 0)
		r = hf_exports_new(&serving.exports,
				   &(struct hf_exports_options){ .state_dir = options->state_dir,
								 .loop = serving.loops[0] });
	if (r == 0)
		r = hf_jobs_new(&jobs, options->n_threads, 0);
	if (r == 0)
		r = hf_sweeper_new(&serving.sweeper, serving.loops[0], serving.exports, options->n_exports);
	if (r < 0)
		die("start", r);
	load(&serving);
	hf_mount_init(&mount, serving.exports, jobs);
	hf_nfs3_init(&nfs, serving.exports, jobs, serving.loops[0]);
	hf_nfs3_recorder_init(&recorder);
	if (options->audit) {
		struct hf_audit *audit;

		r = hf_audit_open(&audit, options->audit);
		if (r < 0)
			die(options->audit, r);
		recorder.audit = audit;
		nfs.recorder = &recorder;
	}
	hf_rpc_server_add_program(server, &hf_mount_program, &mount);
	hf_rpc_server_add_program(server, &hf_nfs3_program, &nfs);
	hf_loop_on_signal(serving.loops[0], SIGTERM, on_signal, &serving);
	hf_loop_on_signal(serving.loops[0], SIGINT, on_signal, &serving);
	hf_loop_on_signal(serving.loops[0], SIGHUP, on_signal, &serving);
	listen_all(&serving, server);
	for (size_t i = 1; i < options->n_lanes; i++)
		pthread_create(&serving.threads[i], NULL, run_lane, serving.loops[i]);
	hf_loop_run(serving.loops[0]);

	for (size_t i = 1; i < options->n_lanes; i++) {
		hf_loop_stop(serving.loops[i]);
		pthread_join(serving.threads[i], NULL);
	}
	for (size_t i = 0; i < options->n_lanes; i++)
		hf_rpc_lane_close(serving.lanes[i]);
	hf_jobs_wait(jobs);
	hf_sweeper_wait(serving.sweeper);
	for (size_t i = 0; i < options->n_lanes; i++)
		hf_loop_drain(serving.loops[i]);
	hf_jobs_free(jobs);
	hf_sweeper_free(serving.sweeper);
	hf_rpc_server_free(server);
	hf_audit_close(recorder.audit);
	hf_nfs3_recorder_deinit(&recorder);
	hf_mount_deinit(&mount);
	hf_exports_free(serving.exports);
	for (size_t i = 0; i < options->n_lanes; i++)
		hf_loop_free(serving.loops[i]);
	return 0;
}
