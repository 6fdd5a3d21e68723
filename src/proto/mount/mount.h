/*
 * The MOUNT service: program 100005 versions 1, 2 and 3 (RFC 1094, RFC 1813). It
 * gives the first handle, and keeps the list of who has mounted what, which is
 * for people only (showmount -a): it forgets with a restart, and holds at most
 * HF_MOUNT_MAX_ENTRIES.
 *
 * Version 1 is for its lists. Its handles have 32 bytes, which few of ours fit,
 * and NFS version 2 is not served, so its MNT is refused where a handle is too
 * long.
 */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "export/export.h"
#include "rpc/program.h"
#include "vfs/jobs.h"

#define HF_MOUNT_PROGRAM     100005
#define HF_MOUNT_MAX_ENTRIES 10000
#define HF_MOUNT_MAX_REQUEST 8192
#define HF_MOUNT_MAX_UDP     32768     /* bytes of a list in a datagram; the rest is left out */
#define HF_MOUNT_MAX_TCP     (1 << 20) /* and in a record, as of the longest READ */

struct hf_mount {
	struct hf_exports *exports; /* (c) */
	struct hf_jobs *jobs;       /* (c) */
	pthread_mutex_t lock;
	struct hf_list mounted; /* under lock, as all below */
	size_t n_mounted;
};

/* The service object of this program is a struct hf_mount. */
extern const struct hf_rpc_program hf_mount_program;

void hf_mount_init(struct hf_mount *mount, struct hf_exports *exports, struct hf_jobs *jobs);
void hf_mount_deinit(struct hf_mount *mount);
