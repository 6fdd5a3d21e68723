/*
 * The groups of a user as this host knows them. AUTH_SYS has room for 16; a user
 * who is in more has rights by all of them only if the server looks them up.
 *
 * Look-ups are asked and remembered as in lookups.h. The groups that the client
 * names never count: if there is no such user here, the user has none, since an
 * outage of the database can look like that. The gid of a call stays the client's.
 * Both are so with the kernel's server. If the look-up fails, or there is no room
 * for it, the call must be repeated. Group 0 is never among those that are looked
 * up.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/limit.h"
#include "vfs/identity.h"

enum {                         /* answers of a source */
	HF_GROUPS_NO_USER = 1, /* the database answers, and has no such user */
};

/* Where groups are looked up. */
struct hf_group_source {
	/* Blocks. 0: *np groups of the user, at most @max. HF_GROUPS_NO_USER. Any error, -ENOENT as well: the
	 * question could not be answered now. */
	int (*find)(void *user, uint32_t uid, uint32_t *gids, size_t max, size_t *np);
	uint64_t (*now)(void *user); /* NULL: the system's clock */
	void *user;
};

extern const struct hf_group_source hf_system_groups; /* getpwuid_r() and getgrouplist() */

struct hf_groups;

/* @source must outlive the threads that ask. */
int hf_groups_new(struct hf_groups **groupsp, const struct hf_group_source *source);
struct hf_groups *hf_groups_free(struct hf_groups *groups);

HF_DEFINE_CLEANUP(struct hf_groups *, hf_groups_free)

/* 0: *listp has the groups; it belongs to this thread, until its next call. -EAGAIN: they are being looked
 * up, or will be, or that failed. Does not block. */
int hf_groups_find(struct hf_groups *groups, uint32_t uid, const struct hf_group_list **listp);
/* On a thread that may wait: until they have been looked up; at most @ns. */
void hf_groups_show_limits(struct hf_groups *groups, struct hf_limit_use uses[HF_N_LIMITS]);
void hf_groups_wait(struct hf_groups *groups, uint32_t uid, uint64_t ns);
