/* The list of mounts: which client has mounted which directory. Each function but the first two takes the
 * lock itself. */
#pragma once

#include "proto/mount/mount.h"
#include "proto/mount/wire.h"
#include "rpc/xdr.h"

void hf_mounted_init(struct hf_mount *mount);
void hf_mounted_deinit(struct hf_mount *mount);

/* @addr has mounted @path, which is in the list once. */
void hf_mounted_add(struct hf_mount *mount, const struct hf_addr *addr, const char *path);
void hf_mounted_remove(struct hf_mount *mount, const struct hf_addr *addr, const char *path); /* NULL: all */
size_t hf_mounted_room(struct hf_mount *mount); /* upper bound for the bytes of the list */
/* Puts the hosts with the fewest directories first. Entries that do not fit are left out. Returns how many it
 * has put. */
size_t hf_mounted_put(struct hf_mount *mount, struct hf_xdr_out *out);

/* Normalises a path for storing and searching: one slash between names, none at the end. */
void hf_mount_tidy(char *path);
