/* The list of mounts: which client has mounted which directory. Each function takes the lock itself. */
#pragma once

#include "proto/mount/mount.h"
#include "proto/mount/wire.h"
#include "rpc/xdr.h"

struct hf_mounted {
	struct hf_link link;
	struct hf_addr host;
	char dir[];
};

void hf_mounted_add(struct hf_mount *mount, const struct hf_addr *host, const char *dir);
void hf_mounted_remove(struct hf_mount *mount, const struct hf_addr *host, const char *dir); /* NULL: all */
size_t hf_mounted_room(struct hf_mount *mount); /* upper bound for the bytes of the list */
void hf_mounted_put(struct hf_mount *mount, struct hf_xdr_out *out);

/* Normalises a path for storing and searching: one slash between names, none at the end. */
void hf_mount_tidy(char *path);
