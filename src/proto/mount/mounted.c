#include "proto/mount/mounted.h"

#include <stdlib.h>
#include <string.h>

#define END 4 /* bytes that end the list */

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

static void drop(struct hf_mount *mount, struct hf_mounted *mounted)
{
	hf_link_remove(&mounted->link);
	free(mounted);
	mount->n_mounted--;
}

static void remove_locked(struct hf_mount *mount, const struct hf_addr *host, const char *dir)
{
	hf_list_for_each_safe(link, &mount->mounted) {
		struct hf_mounted *mounted = hf_list_entry(link, struct hf_mounted, link);

		if (hf_addr_same_host(&mounted->host, host) && (!dir || strcmp(mounted->dir, dir) == 0))
			drop(mount, mounted);
	}
}

/* Appends the entry, once. If there are too many, the oldest is dropped. */
void hf_mounted_add(struct hf_mount *mount, const struct hf_addr *host, const char *dir)
{
	size_t size = strlen(dir) + 1;
	struct hf_mounted *mounted = malloc(sizeof(*mounted) + size);

	if (!mounted)
		return; /* the list only informs people, so the mount succeeds */
	mounted->host = *host;
	mounted->host.port = 0;
	memcpy(mounted->dir, dir, size);
	pthread_mutex_lock(&mount->lock);
	remove_locked(mount, host, dir);
	if (mount->n_mounted == HF_MOUNT_MAX_ENTRIES)
		drop(mount, hf_list_entry(hf_list_first(&mount->mounted), struct hf_mounted, link));
	hf_list_push_back(&mount->mounted, &mounted->link);
	mount->n_mounted++;
	pthread_mutex_unlock(&mount->lock);
}

void hf_mounted_remove(struct hf_mount *mount, const struct hf_addr *host, const char *dir)
{
	pthread_mutex_lock(&mount->lock);
	remove_locked(mount, host, dir);
	pthread_mutex_unlock(&mount->lock);
}

static size_t room_of(const struct hf_mounted *mounted)
{
	return 4 + 4 + HF_ADDR_TEXT + 4 + ((strlen(mounted->dir) + 3) & ~(size_t)3);
}

size_t hf_mounted_room(struct hf_mount *mount)
{
	size_t room = END;

	pthread_mutex_lock(&mount->lock);
	hf_list_for_each(link, &mount->mounted)
		room += room_of(hf_list_entry(link, struct hf_mounted, link));
	pthread_mutex_unlock(&mount->lock);
	return room;
}

/* Entries that do not fit are left out. */
void hf_mounted_put(struct hf_mount *mount, struct hf_xdr_out *out)
{
	char host[HF_ADDR_TEXT];

	pthread_mutex_lock(&mount->lock);
	hf_list_for_each(link, &mount->mounted) {
		struct hf_mounted *mounted = hf_list_entry(link, struct hf_mounted, link);

		if (hf_xdr_out_left(out) < room_of(mounted) + END)
			break;
		hf_xdr_put_bool(out, true);
		hf_xdr_put_string(out, hf_addr_format(&mounted->host, host, sizeof(host)));
		hf_xdr_put_string(out, mounted->dir);
	}
	pthread_mutex_unlock(&mount->lock);
	hf_xdr_put_bool(out, false);
}
