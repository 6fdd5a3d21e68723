/*
 * The MOUNT service: program 100005, versions 1, 2 and 3 (RFC 1094, RFC 1813).
 * It returns the first handle. It also lists which client has mounted what, for
 * people only (showmount -a): a restart clears the list, and it has at most
 * HF_MOUNT_MAX_ENTRIES entries, HF_MOUNT_MAX_PER_HOST of one client.
 *
 * Version 1 exists for its lists. Its handles have 32 bytes, too few for most
 * handles of this server, and NFS version 2 is not served; MNT of version 1 is
 * refused if the handle is too long.
 *
 *	mount.c     the table of procedures, and those that return lists
 *	proc_mnt.c  MNT; mounted.c: the list of mounts
 */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limit.h"
#include "base/list.h"
#include "base/rbtree.h"
#include "export/export.h"
#include "rpc/program.h"
#include "vfs/jobs.h"

#define HF_MOUNT_PROGRAM      100005
#define HF_MOUNT_MAX_ENTRIES  10000
#define HF_MOUNT_MAX_PER_HOST 64
#define HF_MOUNT_MAX_REQUEST  8192
#define HF_MOUNT_MAX_UDP      32768     /* bytes of a list in a datagram; the rest is left out */
#define HF_MOUNT_MAX_TCP      (1 << 20) /* bytes of a list over TCP, as of the longest READ */

struct hf_mount {
	struct hf_exports *exports;       /* (c) */
	struct hf_jobs *jobs;             /* (c) */
	_Atomic(struct hf_audit *) audit; /* NULL: there is no audit log; home sets it */
	pthread_mutex_t lock;
	struct hf_rb_tree hosts;                     /* under lock, like everything below: by address */
	struct hf_list ranks[HF_MOUNT_MAX_PER_HOST]; /* the hosts with one directory, with two, … */
	size_t n_mounted;
	uint64_t n_dropped, n_dropped_of_host; /* to make room: in the list, or in a host's part of it */
	size_t room;                           /* upper bound for the bytes of all entries */
};

/* The service object of this program is a struct hf_mount. */
extern const struct hf_rpc_program hf_mount_program;

void hf_mount_init(struct hf_mount *mount, struct hf_exports *exports, struct hf_jobs *jobs);
void hf_mount_deinit(struct hf_mount *mount);
void hf_mount_show_limits(struct hf_mount *mount, struct hf_limit_use uses[HF_N_LIMITS]); /* of this folder */
