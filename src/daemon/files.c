#include "daemon/files.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "daemon/call_log.h"
#include "daemon/config.h"
#include "daemon/process.h"
#include "export/export_table.h"
#include "export/export.h"
#include "export/groups.h"
#include "export/local.h"
#include "export/sweeper.h"
#include "loop/loop.h"
#include "proto/mount/mount.h"
#include "proto/nfs3/nfs3.h"
#include "vfs/disk_queue.h"
#include "vfs/jobs.h"
#include "vfs/watch.h"

#define LOCK_THREADS  8  /* beside one for each disk */
#define MAX_DISKS     64 /* disks with a thread of their own; a thread is cheap, but not free */
#define SPARE_THREADS 8  /* for other addresses, while slow calls occupy all file threads */

struct hf_file_service {
	struct hf_exports *exports;
	struct hf_jobs *jobs;
	struct hf_disk_queue *lock_disk_queue; /* for the questions that locks have about files */
	struct hf_watch *watch;                /* watches files that locks asked about; NULL: not available */
	struct hf_nfs3 nfs;
	struct hf_call_log call_log;
	bool has_call_log; /* call_log must be deinitialised */
	struct hf_mount mount;
	bool has_mount; /* mount must be deinitialised */
	struct hf_sweeper *sweeper;
	struct hf_export_table export_table;
	bool manages_gids; /* as the list wants it that was prepared last */
	struct hf_local *local;
};

/* From the configuration */

static enum hf_squash squash_of(enum hf_config_squash squash)
{
	switch (squash) {
	case HF_CONFIG_SQUASH_NONE:
		return HF_SQUASH_NONE;
	case HF_CONFIG_SQUASH_ALL:
		return HF_SQUASH_ALL;
	default:
		return HF_SQUASH_ROOT;
	}
}

static void set_clients(struct hf_client_rule *rules, const struct hf_config_clients *clients)
{
	static const enum hf_client_rule_kind kinds[] = {
		[HF_CONFIG_CLIENT_NETWORK] = HF_CLIENT_NETWORK,
		[HF_CONFIG_CLIENT_HOST] = HF_CLIENT_HOST,
		[HF_CONFIG_CLIENT_DOMAIN] = HF_CLIENT_DOMAIN,
		[HF_CONFIG_CLIENT_PRIVATE] = HF_CLIENT_PRIVATE,
		[HF_CONFIG_CLIENT_ANY] = HF_CLIENT_ANY,
	};

	for (size_t i = 0; i < clients->n; i++)
		rules[i] = (struct hf_client_rule){
			.text = clients->items[i].text,
			.kind = kinds[clients->items[i].kind],
			.network = clients->items[i].network,
		};
}

/* Room for what the settings of exports refer to */
struct room {
	struct hf_export_rule *rules;
	size_t n_rules;
	struct hf_client_rule *clients;
	size_t n_clients;
	const char **identities;
	size_t n_identities;
};

static void set_rule(struct room *room, const struct hf_config_rule *rule)
{
	struct hf_client_rule *clients = room->clients + room->n_clients;

	set_clients(clients, &rule->clients);
	room->n_clients += rule->clients.n;
	room->rules[room->n_rules++] = (struct hf_export_rule){
		.clients = clients,
		.n_clients = rule->clients.n,
		.read_only = rule->access == HF_CONFIG_ACCESS_RO,
		.squash = squash_of(rule->squash),
		.anon_uid = (uint32_t)rule->anon_uid,
		.anon_gid = (uint32_t)rule->anon_gid,
		.secure = rule->secure,
	};
}

static void set_rules(struct room *room, const struct hf_config_export *export)
{
	const struct hf_config_rule only = hf_config_own_rule(export);

	if (!export->rules.n)
		set_rule(room, &only);
	for (size_t i = 0; i < export->rules.n; i++)
		set_rule(room, &export->rules.items[i]);
}

static const char *const *set_identities(struct room *room, const struct hf_config_export *export)
{
	const char **identities = room->identities + room->n_identities;

	for (size_t i = 0; i < export->identities.n; i++)
		identities[i] = export->identities.items[i].text;
	room->n_identities += export->identities.n;
	return identities;
}

static int make_room(struct room *room, const struct hf_config_exports *exports)
{
	size_t n_rules = 0, n_clients = 0, n_identities = 0;

	for (size_t i = 0; i < exports->n; i++) {
		const struct hf_config_export *export = &exports->items[i];

		n_rules += export->rules.n + 1;
		n_clients += export->clients.n;
		n_identities += export->identities.n;
		for (size_t j = 0; j < export->rules.n; j++)
			n_clients += export->rules.items[j].clients.n;
	}
	room->rules = calloc(n_rules + 1, sizeof(*room->rules));
	room->clients = calloc(n_clients + 1, sizeof(*room->clients));
	room->identities = calloc(n_identities + 1, sizeof(*room->identities));
	return room->rules && room->clients && room->identities ? 0 : hf_trace(-ENOMEM);
}

static void clear_room(struct room *room)
{
	free(room->rules);
	free(room->clients);
	free(room->identities);
}

static void set_export(struct hf_export_settings *settings, const struct hf_config_export *export,
		       const struct hf_export_rule *rules, size_t n_rules, const char *const *identities)
{
	static const enum hf_local_locks local_locks[] = {
		[HF_CONFIG_LOCAL_LOCKS_AUTO] = HF_LOCAL_LOCKS_AUTO,
		[HF_CONFIG_LOCAL_LOCKS_ON] = HF_LOCAL_LOCKS_ON,
		[HF_CONFIG_LOCAL_LOCKS_OFF] = HF_LOCAL_LOCKS_OFF,
	};

	static const enum hf_transport transports[] = {
		[HF_CONFIG_TRANSPORT_ANY] = HF_TRANSPORT_ANY,
		[HF_CONFIG_TRANSPORT_TLS] = HF_TRANSPORT_TLS,
		[HF_CONFIG_TRANSPORT_MTLS] = HF_TRANSPORT_MTLS,
	};

	*settings = (struct hf_export_settings){
		.path = export->path,
		.name = export->name,
		.rules = rules,
		.n_rules = n_rules,
		.async = !export->sync,
		.local_locks = local_locks[export->local_locks],
		.transport = transports[export->transport],
		.identities = identities,
		.n_identities = export->identities.n,
	};
}

static bool is_within(const char *path, const char *folder)
{
	size_t len = strlen(folder);

	if (strcmp(folder, "/") == 0)
		return true;
	return strncmp(path, folder, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* Warn: a client that acts as the owner of these files can read the API's token and forge handles. */
static void warn_of_own_files(const struct hf_config *config)
{
	hf_cleanup(hf_freep) char *state_dir = realpath(config->server.state_dir, NULL);
	char quoted[512];

	for (size_t i = 0; state_dir && i < config->exports.n; i++) {
		hf_cleanup(hf_freep) char *path = realpath(config->exports.items[i].path, NULL);

		if (path && is_within(state_dir, path))
			hf_log_warn("an export contains the server's state directory, with the API token and "
				    "the key of file handles: move one of them",
				    "path=%s", hf_log_quote(quoted, sizeof(quoted), path, strlen(path)));
	}
}

static void warn_of_weak_way(const struct hf_config_export *strong, const struct hf_config_export *weak)
{
	char strong_text[256], weak_text[256];

	hf_log_warn(
		"an export lies inside another one that demands less of a client: its files can be reached "
		"through that one. Demand as much there, or move one of them",
		"path=%s inside=%s",
		hf_log_quote(strong_text, sizeof(strong_text), strong->path, strlen(strong->path)),
		hf_log_quote(weak_text, sizeof(weak_text), weak->path, strlen(weak->path)));
}

/* Two lists of identities are not compared: where both exports have one, the operator has thought of it. */
static bool demands_less(const struct hf_config_export *one, const struct hf_config_export *other)
{
	if (one->transport != other->transport)
		return one->transport < other->transport;
	return other->identities.n && !one->identities.n;
}

/* A handle of a file in the inner directory that was looked up through the outer export belongs to the outer
 * export. */
static void warn_of_weak_ways(const struct hf_config *config)
{
	const struct hf_config_exports *exports = &config->exports;

	for (size_t i = 0; i < exports->n; i++) {
		const struct hf_config_export *strong = &exports->items[i];
		hf_cleanup(hf_freep) char *inner =
			strong->transport != HF_CONFIG_TRANSPORT_ANY ? realpath(strong->path, NULL) : NULL;

		for (size_t j = 0; inner && j < exports->n; j++) {
			const struct hf_config_export *weak = &exports->items[j];
			hf_cleanup(hf_freep) char *outer =
				demands_less(weak, strong) ? realpath(weak->path, NULL) : NULL;

			if (outer && is_within(inner, outer))
				warn_of_weak_way(strong, weak);
		}
	}
}

int hf_file_service_prepare(struct hf_file_service *service, const struct hf_config *config,
			    struct hf_export_list *listp, size_t *n_failedp)
{
	const struct hf_config_exports *exports = &config->exports;
	hf_cleanup(hf_freep) struct hf_export_settings *settings = calloc(exports->n + 1, sizeof(*settings));
	hf_cleanup(clear_room) struct room room = { 0 };
	int r = make_room(&room, exports);

	if (r < 0 || !settings)
		return hf_trace(-ENOMEM);
	service->manages_gids = config->server.manage_gids;
	if (service->manages_gids)
		r = hf_exports_prepare_groups(service->exports, &hf_system_groups);
	if (r < 0)
		return hf_trace(r);
	for (size_t i = 0; i < exports->n; i++) {
		size_t first = room.n_rules;

		set_rules(&room, &exports->items[i]);
		set_export(&settings[i], &exports->items[i], room.rules + first, room.n_rules - first,
			   set_identities(&room, &exports->items[i]));
	}
	r = hf_exports_prepare(service->exports, settings, exports->n, listp, n_failedp);
	if (r < 0)
		return hf_trace(r);
	warn_of_own_files(config);
	warn_of_weak_ways(config);
	return 0;
}

/* The steps that may fail come first. */
int hf_file_service_take(struct hf_file_service *service, struct hf_export_list *list)
{
	const struct hf_export_list shared = *list; /* hf_exports_publish() takes the list; it stays valid
						       until the next one is taken here */
	bool managed_gids;
	int r = 0;

	for (size_t i = 0; i < shared.n && r == 0; i++)
		r = hf_export_table_add(&service->export_table, shared.items[i]);
	if (r < 0)
		return hf_trace(r);
	managed_gids = hf_exports_use_groups(service->exports, service->manages_gids);
	r = hf_exports_publish(service->exports, list);
	if (r < 0) {
		hf_exports_use_groups(service->exports, managed_gids);
		return hf_trace(r);
	}
	hf_export_table_note(&service->export_table, &shared);
	return 0;
}

/* At the start: exports what can be exported, and logs the rest. */
static int load(struct hf_file_service *service, const struct hf_config *config)
{
	hf_cleanup(hf_export_list_clear) struct hf_export_list list = { 0 };
	size_t n_failed;
	int r = hf_file_service_prepare(service, config, &list, &n_failed);

	return r < 0 ? r : hf_file_service_take(service, &list);
}

/* For other parts */

struct hf_export_table *hf_file_service_table(struct hf_file_service *service)
{
	return &service->export_table;
}

struct hf_nlm_files hf_file_service_nlm(struct hf_file_service *service)
{
	return (struct hf_nlm_files){
		.exports = service->exports,
		.disk_queue = service->lock_disk_queue,
		.watch = service->watch,
		.local = service->local,
		.export_number_of = hf_export_table_number,
		.export_id_of = hf_export_table_id,
		.is_secure = hf_export_table_is_secure,
		.transport_of = hf_export_table_transport,
		.demands_tls = hf_export_table_demands_tls,
		.user = &service->export_table,
	};
}

static void take_up(void *local, uint32_t export, struct hf_bytes key)
{
	hf_local_take_up(local, export, key);
}

uint64_t hf_file_service_key_print(const struct hf_file_service *service)
{
	return hf_exports_key_print(service->exports);
}

struct hf_recovery_exports hf_file_service_exports(struct hf_file_service *service)
{
	return (struct hf_recovery_exports){
		.name = hf_export_table_name,
		.find = hf_export_table_find,
		.key = hf_export_table_key,
		.handle = hf_export_table_handle,
		.user = &service->export_table,
		.take_up = take_up,
		.take_up_user = service->local,
	};
}

/* Locks in the kernel */

static int make_local(struct hf_file_service *service, struct hf_loop *loop)
{
	const struct hf_local_options options = {
		.loop = loop,
		.exports = service->exports,
		.policy = hf_export_table_local_locks,
		.handle = hf_export_table_handle,
		.disk = hf_export_table_home,
		.user = &service->export_table,
		.disk_queue = service->lock_disk_queue,
	};

	return hf_local_new(&service->local, &options);
}

/* Without a watch each lock checks the right to its file, which is slower and equally correct. */
static void make_watch(struct hf_file_service *service)
{
	int r = hf_watch_new(&service->watch);

	if (r < 0)
		hf_log_warn("inotify is not available: each lock checks the access to its file again",
			    "error=%s", strerrorname_np(-r));
}

struct hf_local *hf_file_service_local(struct hf_file_service *service)
{
	return service->local;
}

void hf_file_service_show_limits(struct hf_file_service *service, struct hf_limit_use uses[HF_N_LIMITS])
{
	hf_exports_show_limits(service->exports, uses);
	hf_mount_show_limits(&service->mount, uses);
	if (hf_export_table_has_local_locks(&service->export_table))
		hf_local_show_limit(service->local, &uses[HF_LIMIT_LOCAL_FILES]);
}

void hf_file_service_set_locks(struct hf_file_service *service, struct hf_locks *locks)
{
	hf_local_set_locks(service->local, locks);
	if (hf_export_table_has_local_locks(&service->export_table))
		hf_local_restore(service->local);
}

/* Making and freeing */

static size_t threads_for_files(const struct hf_config *config)
{
	return config->server.threads ? (size_t)config->server.threads : hf_process_count_cores();
}

/* At most one for each export; how many disks they share is known only after they are opened. */
static size_t count_disks(const struct hf_config *config)
{
	return HF_MIN(config->exports.n, (size_t)MAX_DISKS);
}

size_t hf_file_service_threads(const struct hf_config *config)
{
	size_t n_disks = count_disks(config);

	return threads_for_files(config) + SPARE_THREADS + n_disks + LOCK_THREADS +
	       hf_sweeper_threads(n_disks);
}

struct hf_jobs *hf_file_service_jobs(struct hf_file_service *service)
{
	return service->jobs;
}

struct hf_call_log *hf_file_service_call_log(struct hf_file_service *service)
{
	return &service->call_log;
}

void hf_file_service_log_calls(struct hf_file_service *service, const struct hf_config *config)
{
	hf_call_log_serve(&service->call_log, config, &service->nfs, &service->mount);
}

void hf_file_service_set_usage(struct hf_file_service *service, struct hf_usage *usage)
{
	atomic_store_explicit(&service->nfs.usage, usage, memory_order_release);
}

int hf_file_service_new(struct hf_file_service **servicep, struct hf_loop *loop,
			const struct hf_config *config, const struct hf_seal_key *key)
{
	hf_cleanup(hf_file_service_freep) struct hf_file_service *service = calloc(1, sizeof(*service));
	const struct hf_exports_options options = {
		.key = key,
		.state_dir = config->server.state_dir,
		.loop = loop,
	};
	int r;

	if (!service)
		return hf_trace(-ENOMEM);
	r = hf_exports_new(&service->exports, &options);
	service->export_table.exports = service->exports;
	if (r == 0)
		r = hf_jobs_new(&service->jobs, threads_for_files(config), SPARE_THREADS);
	if (r == 0)
		r = hf_disk_queue_new(&service->lock_disk_queue, loop, count_disks(config), LOCK_THREADS);
	if (r == 0)
		make_watch(service);
	if (r == 0)
		r = load(service, config);
	if (r == 0)
		r = make_local(service, loop);
	if (r == 0) {
		service->has_call_log = true;
		r = hf_call_log_init(&service->call_log, config);
	}
	if (r == 0)
		r = hf_sweeper_new(&service->sweeper, loop, service->exports, count_disks(config));
	if (r < 0)
		return hf_trace(r);
	hf_nfs3_init(&service->nfs, service->exports, service->jobs, loop);
	hf_mount_init(&service->mount, service->exports, service->jobs);
	service->has_mount = true;
	hf_file_service_log_calls(service, config);
	*servicep = service;
	service = NULL;
	return 0;
}

struct hf_file_service *hf_file_service_free(struct hf_file_service *service)
{
	if (!service)
		return NULL;
	if (service->has_mount)
		hf_mount_deinit(&service->mount);
	hf_local_free(service->local);
	hf_disk_queue_free(service->lock_disk_queue);
	hf_watch_free(service->watch);
	hf_jobs_free(service->jobs);
	hf_sweeper_free(service->sweeper);
	hf_exports_free(service->exports);
	if (service->has_call_log)
		hf_call_log_deinit(&service->call_log);
	hf_export_table_deinit(&service->export_table);
	free(service);
	return NULL;
}

int hf_file_service_serve(struct hf_file_service *service,
			  int (*serve)(void *user, const struct hf_rpc_program *program, void *object),
			  void *user)
{
	int r = serve(user, &hf_nfs3_program, &service->nfs);

	if (r == 0)
		r = serve(user, &hf_mount_program, &service->mount);
	return r;
}

void hf_file_service_wait(struct hf_file_service *service)
{
	hf_disk_queue_wait(service->lock_disk_queue);
	hf_jobs_wait(service->jobs);
	hf_sweeper_wait(service->sweeper);
}
