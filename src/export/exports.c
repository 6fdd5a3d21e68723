/* The list of exports: made from settings, replaced by a reload, searched by number and by path. */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "export/exports_internal.h"
#include "export/client_names.h"

#define LEAST_FDS 64
#define MOST_FDS  131072

/* One export */

struct hf_export *hf_export_ref(struct hf_export *export)
{
	atomic_fetch_add_explicit(&export->n_refs, 1, memory_order_relaxed);
	return export;
}

static void free_text(const char *text)
{
	free((void *)(uintptr_t)text);
}

static void clear_rule(const struct hf_export_rule *rule)
{
	for (size_t i = 0; i < rule->n_clients; i++)
		free_text(rule->clients[i].text);
	free((void *)(uintptr_t)rule->clients);
}

static void clear_settings(struct hf_export_settings *settings)
{
	for (size_t i = 0; i < settings->n_rules; i++)
		clear_rule(&settings->rules[i]);
	free((void *)(uintptr_t)settings->rules);
	for (size_t i = 0; settings->identities && i < settings->n_identities; i++)
		free_text(settings->identities[i]);
	free((void *)(uintptr_t)settings->identities);
	free_text(settings->path);
	free_text(settings->name);
}

struct hf_export *hf_export_unref(struct hf_export *export)
{
	if (!export || atomic_fetch_sub_explicit(&export->n_refs, 1, memory_order_acq_rel) > 1)
		return NULL;
	clear_settings(&export->settings);
	hf_volume_unref(export->volume);
	free(export);
	return NULL;
}

static int copy_rule(struct hf_export_rule *to, const struct hf_export_rule *from)
{
	struct hf_client_rule *clients = calloc(from->n_clients ? from->n_clients : 1, sizeof(*clients));

	*to = *from;
	to->clients = clients;
	to->n_clients = 0;
	to->has_names = false;
	if (!clients)
		return -ENOMEM;
	for (size_t i = 0; i < from->n_clients; i++) {
		clients[i] = from->clients[i];
		to->has_names |= clients[i].kind == HF_CLIENT_HOST || clients[i].kind == HF_CLIENT_DOMAIN;
		clients[i].text = strdup(from->clients[i].text);
		if (!clients[i].text)
			return -ENOMEM;
		to->n_clients++;
	}
	return 0;
}

static int copy_rules(struct hf_export_settings *to, const struct hf_export_settings *from)
{
	struct hf_export_rule *rules = calloc(from->n_rules ? from->n_rules : 1, sizeof(*rules));
	int r = rules ? 0 : -ENOMEM;

	to->rules = rules;
	to->n_rules = 0;
	for (size_t i = 0; i < from->n_rules && r == 0; i++) {
		r = copy_rule(&rules[i], &from->rules[i]);
		to->n_rules++;
	}
	return r;
}

static int copy_identities(struct hf_export_settings *to, const struct hf_export_settings *from)
{
	const char **names = calloc(from->n_identities ? from->n_identities : 1, sizeof(*names));

	to->identities = names;
	to->n_identities = 0;
	if (!names)
		return -ENOMEM;
	for (size_t i = 0; i < from->n_identities; i++) {
		names[i] = strdup(from->identities[i]);
		if (!names[i])
			return -ENOMEM;
		to->n_identities++;
	}
	return 0;
}

/* Only the operator chooses the hashed text, so a fixed key is enough. It must never change: it determines
 * the numbers in handles. */
static uint64_t id_of(const struct hf_export_settings *settings)
{
	static const struct hf_seal_key fixed = { "holdfast exports" };

	return hf_seal(&fixed, settings->path, strlen(settings->path) + 1) ^
	       hf_seal(&fixed, settings->name, strlen(settings->name)) * 3;
}

/* If the directory is already open, uses that volume, so that its files stay open, too. */
static struct hf_volume *find_open(const struct hf_export_list *list,
				   const struct hf_export_settings *settings)
{
	for (size_t i = 0; i < list->n; i++) {
		struct hf_export *old = list->items[i];

		if (strcmp(old->settings.path, settings->path) == 0 &&
		    strcmp(old->settings.name, settings->name) == 0 &&
		    hf_volume_is_at(old->volume, settings->path))
			return hf_volume_ref(old->volume);
	}
	return NULL;
}

static int export_new(struct hf_export **exportp, const struct hf_export_settings *settings,
		      const struct hf_export_list *before, struct hf_client_names *names)
{
	hf_cleanup(hf_export_unrefp) struct hf_export *export = calloc(1, sizeof(*export));
	int r;

	if (!export)
		return hf_trace(-ENOMEM);
	export->n_refs = 1;
	export->id = id_of(settings);
	export->settings = *settings;
	export->settings.rules = NULL;
	export->settings.n_rules = 0;
	export->settings.identities = NULL;
	export->names = names;
	export->settings.path = strdup(settings->path);
	export->settings.name = strdup(settings->name);
	r = copy_rules(&export->settings, settings);
	if (r == 0)
		r = copy_identities(&export->settings, settings);
	if (r < 0 || !export->settings.path || !export->settings.name)
		return hf_trace(-ENOMEM);
	export->volume = find_open(before, settings);
	r = export->volume ? 0 : hf_volume_new(&export->volume, settings->path);
	if (r < 0)
		return r; /* the caller logs which directory it was */
	*exportp = export;
	export = NULL;
	return 0;
}

enum hf_local_locks hf_export_local_locks(const struct hf_export *export)
{
	if (export->settings.local_locks == HF_LOCAL_LOCKS_AUTO && !export->volume->is_local)
		return HF_LOCAL_LOCKS_OFF;
	return export->settings.local_locks;
}

/* Loading */

static const char *access_text(const struct hf_export_settings *settings)
{
	size_t n_read_only = 0;

	for (size_t i = 0; i < settings->n_rules; i++)
		n_read_only += settings->rules[i].read_only;
	if (n_read_only == 0)
		return "rw";
	return n_read_only == settings->n_rules ? "ro" : "by_rule";
}

static void log_loaded(const struct hf_export *export)
{
	const struct hf_export_settings *s = &export->settings;
	const struct hf_volume *volume = export->volume;
	char path[256], name[256];

	hf_log_info("exporting a directory",
		    "path=%s name=%s access=%s handles=%s identity=%s local_locks=%s",
		    hf_log_quote(path, sizeof(path), s->path, strlen(s->path)),
		    hf_log_quote(name, sizeof(name), s->name, strlen(s->name)), access_text(s),
		    volume->has_ids ? "kernel" : "finder", hf_identity_can_switch() ? "callers" : "own",
		    hf_export_local_locks(export) == HF_LOCAL_LOCKS_OFF ? "off" : "on");
	if (s->local_locks == HF_LOCAL_LOCKS_ON && !volume->is_local)
		hf_log_warn("local_locks is on for a file system that is not local: locks wait for it",
			    "path=%s", path);
}

static void log_failed(const struct hf_export_settings *settings, int error)
{
	char path[256];

	hf_log_error("cannot export a directory", "path=%s error=%s",
		     hf_log_quote(path, sizeof(path), settings->path, strlen(settings->path)),
		     strerrorname_np(-error));
}

void hf_export_list_clear(struct hf_export_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		hf_export_unref(list->items[i]);
	free(list->items);
	*list = (struct hf_export_list){ 0 };
}

static int make_list(struct hf_exports *exports, struct hf_export_list *list,
		     const struct hf_export_settings *settings, size_t n, const struct hf_export_list *before,
		     size_t *n_failedp)
{
	list->items = calloc(n ? n : 1, sizeof(struct hf_export *));
	if (!list->items)
		return hf_trace(-ENOMEM);
	for (size_t i = 0; i < n; i++) {
		int r = export_new(&list->items[list->n], &settings[i], before, exports->names);

		if (r == -ENOMEM)
			return r;
		if (r < 0) {
			log_failed(&settings[i], r);
			(*n_failedp)++;
			continue;
		}
		list->n++;
	}
	return 0;
}

/* Files of a volume that is in no export any more are closed. */
static void forget_unless_shared(struct hf_exports *exports, const struct hf_volume *volume)
{
	bool is_shared = false;

	pthread_rwlock_rdlock(&exports->lock);
	for (size_t i = 0; i < exports->list.n; i++)
		is_shared |= exports->list.items[i]->volume == volume;
	pthread_rwlock_unlock(&exports->lock);
	if (!is_shared)
		hf_files_forget_volume(exports->files, volume);
}

/* Looks the hosts up before their clients come. */
static void look_up_hosts(const struct hf_export *export)
{
	static const struct hf_addr none;

	for (size_t i = 0; i < export->settings.n_rules; i++)
		for (size_t j = 0; j < export->settings.rules[i].n_clients; j++)
			if (export->settings.rules[i].clients[j].kind == HF_CLIENT_HOST)
				hf_client_names_is_host(export->names,
							export->settings.rules[i].clients[j].text, &none);
}

/* Closing the files of former exports may wait for a disk, so the sweep does it. */
int hf_exports_publish(struct hf_exports *exports, struct hf_export_list *list)
{
	struct hf_retired *retired = calloc(1, sizeof(*retired));

	if (!retired)
		return hf_trace(-ENOMEM);
	hf_client_names_renew(exports->names);
	for (size_t i = 0; i < list->n; i++) {
		log_loaded(list->items[i]);
		look_up_hosts(list->items[i]);
	}
	pthread_rwlock_wrlock(&exports->lock);
	retired->list = exports->list;
	retired->next = exports->retired;
	exports->retired = retired;
	exports->list = *list;
	exports->n_changes++;
	pthread_rwlock_unlock(&exports->lock);
	*list = (struct hf_export_list){ 0 };
	return 0;
}

uint64_t hf_exports_count_changes(const struct hf_exports *exports)
{
	return exports->n_changes;
}

int hf_exports_prepare(struct hf_exports *exports, const struct hf_export_settings *settings, size_t n,
		       struct hf_export_list *listp, size_t *n_failedp)
{
	hf_cleanup(hf_export_list_clear) struct hf_export_list before = { 0 }, list = { 0 };
	int r;

	*n_failedp = 0;
	r = hf_exports_list(exports, &before);
	if (r == 0)
		r = make_list(exports, &list, settings, n, &before, n_failedp);
	if (r < 0)
		return r;
	*listp = list;
	list = (struct hf_export_list){ 0 };
	return 0;
}

int hf_exports_load(struct hf_exports *exports, const struct hf_export_settings *settings, size_t n,
		    size_t *n_failedp)
{
	hf_cleanup(hf_export_list_clear) struct hf_export_list list = { 0 };
	int r = hf_exports_prepare(exports, settings, n, &list, n_failedp);

	return r < 0 ? r : hf_exports_publish(exports, &list);
}

static void forget_retired(struct hf_exports *exports)
{
	struct hf_retired *retired, *next;

	pthread_rwlock_wrlock(&exports->lock);
	retired = exports->retired;
	exports->retired = NULL;
	pthread_rwlock_unlock(&exports->lock);
	for (; retired; retired = next) {
		next = retired->next;
		for (size_t i = 0; i < retired->list.n; i++)
			forget_unless_shared(exports, retired->list.items[i]->volume);
		hf_export_list_clear(&retired->list);
		free(retired);
	}
}

/* Finding */

int hf_exports_list(struct hf_exports *exports, struct hf_export_list *listp)
{
	pthread_rwlock_rdlock(&exports->lock);
	listp->n = exports->list.n;
	listp->items = calloc(listp->n ? listp->n : 1, sizeof(struct hf_export *));
	if (!listp->items)
		listp->n = 0;
	for (size_t i = 0; i < listp->n; i++)
		listp->items[i] = hf_export_ref(exports->list.items[i]);
	pthread_rwlock_unlock(&exports->lock);
	return listp->items ? 0 : hf_trace(-ENOMEM);
}

struct hf_export *hf_exports_by_id(struct hf_exports *exports, uint64_t id)
{
	struct hf_export *found = NULL;

	pthread_rwlock_rdlock(&exports->lock);
	for (size_t i = 0; i < exports->list.n && !found; i++)
		if (exports->list.items[i]->id == id)
			found = hf_export_ref(exports->list.items[i]);
	pthread_rwlock_unlock(&exports->lock);
	return found;
}

/* The length of @prefix if @path begins with it as whole components; otherwise 0. */
static size_t match(const char *prefix, const char *path)
{
	size_t len = strlen(prefix);

	if (strcmp(prefix, "/") == 0)
		return path[0] == '/' ? 1 : 0;
	if (strncmp(path, prefix, len) != 0 || (path[len] != '\0' && path[len] != '/'))
		return 0;
	return len;
}

struct hf_export *hf_exports_find(struct hf_exports *exports, const char *path, const char **restp)
{
	struct hf_export *best = NULL;
	size_t best_len = 0;

	pthread_rwlock_rdlock(&exports->lock);
	for (size_t i = 0; i < exports->list.n; i++) {
		struct hf_export *export = exports->list.items[i];
		size_t len = HF_MAX(match(export->settings.name, path), match(export->settings.path, path));

		/* Of several exports with one path, the first wins. */
		if (len > best_len) {
			best = export;
			best_len = len;
		}
	}
	if (best)
		hf_export_ref(best);
	pthread_rwlock_unlock(&exports->lock);
	if (best) {
		path += best_len;
		*restp = path + strspn(path, "/");
	}
	return best;
}

/* Making and freeing */

static size_t default_fds(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return LEAST_FDS;
	return HF_MAX((size_t)LEAST_FDS, HF_MIN((size_t)limit.rlim_cur / 2, (size_t)MOST_FDS));
}

int hf_exports_prepare_groups(struct hf_exports *exports, const struct hf_group_source *source)
{
	return exports->made_groups ? 0 : hf_groups_new(&exports->made_groups, source);
}

/* A thread may still use them that found them when they counted: they stay until the end. */
bool hf_exports_use_groups(struct hf_exports *exports, bool is_on)
{
	return atomic_exchange(&exports->groups, is_on ? exports->made_groups : NULL);
}

int hf_exports_new(struct hf_exports **exportsp, const struct hf_exports_options *options)
{
	hf_cleanup(hf_exports_freep) struct hf_exports *exports = calloc(1, sizeof(*exports));
	int r;

	if (!exports)
		return hf_trace(-ENOMEM);
	pthread_rwlock_init(&exports->lock, NULL);
	pthread_mutex_init(&exports->refusals_lock, NULL);
	if (options->key)
		exports->key = *options->key;
	r = options->key ? 0 : hf_seal_key_load(&exports->key, options->state_dir, options->loop);
	if (r == 0)
		r = hf_client_names_new(&exports->names,
					options->resolver ? options->resolver : &hf_system_resolver);
	if (r == 0 && options->group_source)
		r = hf_exports_prepare_groups(exports, options->group_source);
	if (r == 0)
		hf_exports_use_groups(exports, true);
	if (r == 0)
		r = hf_files_new(&exports->files,
				 options->max_open_fds ? options->max_open_fds : default_fds());
	if (r < 0)
		return r;
	*exportsp = exports;
	exports = NULL;
	return 0;
}

struct hf_exports *hf_exports_free(struct hf_exports *exports)
{
	if (!exports)
		return NULL;
	forget_retired(exports);
	hf_files_free(exports->files);
	hf_export_list_clear(&exports->list);
	hf_client_names_free(exports->names);
	hf_groups_free(exports->made_groups);
	pthread_mutex_destroy(&exports->refusals_lock);
	pthread_rwlock_destroy(&exports->lock);
	free(exports);
	return NULL;
}

void hf_exports_sweep(struct hf_exports *exports)
{
	forget_retired(exports);
	hf_files_sweep(exports->files);
}

struct hf_files *hf_exports_files(struct hf_exports *exports)
{
	return exports->files;
}

void hf_exports_show_limits(struct hf_exports *exports, struct hf_limit_use uses[HF_N_LIMITS])
{
	struct hf_groups *groups = hf_exports_groups(exports);

	hf_client_names_show_limits(exports->names, uses);
	if (groups)
		hf_groups_show_limits(groups, uses);
}
