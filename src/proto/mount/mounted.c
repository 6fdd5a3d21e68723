/*
 * A host has its directories in a list, the oldest first. The hosts are in a tree by address, and in one
 * list for each number of directories. So a call looks only at what its own host has mounted, and the host
 * with the most is found without a search.
 *
 * When the list is full, the host with the most loses its oldest directory: no host takes the place of one
 * that has fewer.
 */
#include "proto/mount/mounted.h"

#include <stdlib.h>
#include <string.h>

#define END 4 /* bytes that end the list */

struct host {
	struct hf_rb_node node; /* in mount->hosts */
	struct hf_link rank;    /* in mount->ranks[n - 1] */
	struct hf_addr addr;    /* its port is 0 */
	struct hf_list dirs;    /* the oldest first */
	size_t n;
	char name[HF_ADDR_TEXT]; /* the address, as DUMP shows it */
};

struct dir {
	struct hf_link link; /* in host->dirs */
	size_t room;         /* upper bound for its bytes in a list */
	char path[];
};

void hf_mount_tidy(char *path)
{
	char *out = path;

	for (const char *in = path; *in; in++)
		if (*in != '/' || out == path || out[-1] != '/')
			*out++ = *in;
	if (out > path + 1 && out[-1] == '/')
		out--;
	*out = '\0';
}

void hf_mounted_init(struct hf_mount *mount)
{
	for (size_t i = 0; i < HF_MOUNT_MAX_PER_HOST; i++)
		hf_list_init(&mount->ranks[i]);
}

void hf_mounted_deinit(struct hf_mount *mount)
{
	struct hf_link *link, *dir;

	for (size_t i = 0; i < HF_MOUNT_MAX_PER_HOST; i++)
		while ((link = hf_list_pop_front(&mount->ranks[i]))) {
			struct host *host = hf_list_entry(link, struct host, rank);

			while ((dir = hf_list_pop_front(&host->dirs)))
				free(hf_list_entry(dir, struct dir, link));
			free(host);
		}
}

/* Hosts. Everything below is called under the lock. */

/* The host, or NULL and where it would be */
static struct host *find_host(struct hf_mount *mount, const struct hf_addr *addr, struct hf_rb_node **parentp,
			      struct hf_rb_node ***linkp)
{
	*parentp = NULL;
	*linkp = &mount->hosts.root;
	while (**linkp) {
		struct host *host = hf_rb_entry(**linkp, struct host, node);
		int order = memcmp(addr, &host->addr, sizeof(*addr));

		if (order == 0)
			return host;
		*parentp = **linkp;
		*linkp = order < 0 ? &(*parentp)->left : &(*parentp)->right;
	}
	return NULL;
}

static struct host *find_or_make_host(struct hf_mount *mount, const struct hf_addr *addr)
{
	struct hf_rb_node *parent, **link;
	struct host *host = find_host(mount, addr, &parent, &link);

	if (host)
		return host;
	host = calloc(1, sizeof(*host));
	if (!host)
		return NULL;
	host->addr = *addr;
	hf_addr_format(addr, host->name, sizeof(host->name));
	hf_list_init(&host->dirs);
	hf_link_init(&host->rank);
	hf_rb_insert(&mount->hosts, &host->node, parent, link, NULL);
	return host;
}

/* Its number of directories has changed. @host may be freed here. */
static void update_rank(struct hf_mount *mount, struct host *host)
{
	hf_link_remove(&host->rank);
	if (host->n) {
		hf_list_push_back(&mount->ranks[host->n - 1], &host->rank);
		return;
	}
	hf_rb_erase(&mount->hosts, &host->node, NULL);
	free(host);
}

static void drop(struct hf_mount *mount, struct host *host, struct dir *dir)
{
	mount->room -= dir->room;
	mount->n_mounted--;
	host->n--;
	hf_link_remove(&dir->link);
	free(dir);
}

static void drop_oldest(struct hf_mount *mount, struct host *host)
{
	drop(mount, host, hf_list_entry(hf_list_first(&host->dirs), struct dir, link));
	update_rank(mount, host);
}

static struct host *host_with_most(struct hf_mount *mount)
{
	size_t i = HF_MOUNT_MAX_PER_HOST;

	while (i && hf_list_is_empty(&mount->ranks[i - 1]))
		i--;
	return i ? hf_list_entry(hf_list_first(&mount->ranks[i - 1]), struct host, rank) : NULL;
}

/* @path NULL: all that it has. */
static void drop_dirs(struct hf_mount *mount, struct host *host, const char *path)
{
	hf_list_for_each_safe(link, &host->dirs) {
		struct dir *dir = hf_list_entry(link, struct dir, link);

		if (!path || strcmp(dir->path, path) == 0)
			drop(mount, host, dir);
	}
}

static void add(struct hf_mount *mount, struct host *host, struct dir *dir)
{
	drop_dirs(mount, host, dir->path);
	hf_list_push_back(&host->dirs, &dir->link);
	mount->room += dir->room;
	mount->n_mounted++;
	if (++host->n > HF_MOUNT_MAX_PER_HOST) {
		drop_oldest(mount, host);
		mount->n_dropped_of_host++;
	} else {
		update_rank(mount, host);
	}
	if (mount->n_mounted > HF_MOUNT_MAX_ENTRIES) {
		drop_oldest(mount, host_with_most(mount));
		mount->n_dropped++;
	}
}

/* The list */

static struct hf_addr without_port(const struct hf_addr *addr)
{
	struct hf_addr host = *addr;

	host.port = 0;
	return host;
}

/* Without memory nothing is added: the list only informs people, so the mount succeeds. */
void hf_mounted_add(struct hf_mount *mount, const struct hf_addr *addr, const char *path)
{
	struct hf_addr key = without_port(addr);
	size_t size = strlen(path) + 1;
	struct dir *dir = malloc(sizeof(*dir) + size);
	struct host *host;

	if (!dir)
		return;
	memcpy(dir->path, path, size);
	dir->room = 4 + 4 + HF_ADDR_TEXT + 4 + ((size + 2) & ~(size_t)3);
	pthread_mutex_lock(&mount->lock);
	host = find_or_make_host(mount, &key);
	if (host)
		add(mount, host, dir);
	else
		free(dir);
	pthread_mutex_unlock(&mount->lock);
}

void hf_mounted_remove(struct hf_mount *mount, const struct hf_addr *addr, const char *path)
{
	struct hf_addr key = without_port(addr);
	struct hf_rb_node *parent, **link;
	struct host *host;

	pthread_mutex_lock(&mount->lock);
	host = find_host(mount, &key, &parent, &link);
	if (host) {
		drop_dirs(mount, host, path);
		update_rank(mount, host);
	}
	pthread_mutex_unlock(&mount->lock);
}

void hf_mount_show_limits(struct hf_mount *mount, struct hf_limit_use uses[HF_N_LIMITS])
{
	struct hf_limit_use *of_all = &uses[HF_LIMIT_MOUNTS], *of_host = &uses[HF_LIMIT_MOUNTS_PER_ADDRESS];
	const struct host *most;

	pthread_mutex_lock(&mount->lock);
	*of_all = (struct hf_limit_use){ .used = mount->n_mounted,
					 .max = HF_MOUNT_MAX_ENTRIES,
					 .refused = mount->n_dropped };
	*of_host = (struct hf_limit_use){ .max = HF_MOUNT_MAX_PER_HOST, .refused = mount->n_dropped_of_host };
	most = host_with_most(mount);
	if (most) {
		of_host->used = most->n;
		of_host->by = most->addr;
	}
	pthread_mutex_unlock(&mount->lock);
}

size_t hf_mounted_room(struct hf_mount *mount)
{
	size_t room;

	pthread_mutex_lock(&mount->lock);
	room = mount->room + END;
	pthread_mutex_unlock(&mount->lock);
	return room;
}

/* False: the entries of @host do not all fit. */
static bool put_host(struct hf_xdr_out *out, struct host *host, size_t *np)
{
	hf_list_for_each(link, &host->dirs) {
		struct dir *dir = hf_list_entry(link, struct dir, link);

		if (hf_xdr_out_left(out) < dir->room + END)
			return false;
		hf_xdr_put_bool(out, true);
		hf_xdr_put_string(out, host->name);
		hf_xdr_put_string(out, dir->path);
		++*np;
	}
	return true;
}

size_t hf_mounted_put(struct hf_mount *mount, struct hf_xdr_out *out)
{
	bool fits = true;
	size_t n = 0;

	pthread_mutex_lock(&mount->lock);
	for (size_t i = 0; i < HF_MOUNT_MAX_PER_HOST && fits; i++)
		hf_list_for_each(link, &mount->ranks[i]) {
			fits = put_host(out, hf_list_entry(link, struct host, rank), &n);
			if (!fits)
				break;
		}
	pthread_mutex_unlock(&mount->lock);
	hf_xdr_put_bool(out, false);
	return n;
}
