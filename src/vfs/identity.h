/*
 * Under whose identity a file operation runs.
 *
 * For the kernel, each thread has its own identity for file access. As the
 * superuser, or as a user with the capabilities CAP_SETUID, CAP_SETGID and
 * CAP_DAC_OVERRIDE, the server takes the caller's user, group and groups around
 * an operation, and the kernel decides on permission, ownership and quota.
 * Between operations such a thread acts as the superuser does. Without that
 * privilege every operation runs as the server's own user;
 * hf_identity_can_switch() tells.
 *
 * The first use on a thread also removes two things that must not affect
 * clients' operations: the process's umask, and CAP_SYS_RESOURCE, with which
 * the kernel would ignore quotas and reserved blocks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HF_IDENTITY_MAX_GIDS 16

#define HF_IDENTITY_MAX_LISTED 1024

/* More groups than an identity has room for. Lists with the same number have the same groups. */
struct hf_group_list {
	uint64_t id; /* never 0 */
	uint32_t n;
	uint32_t gids[HF_IDENTITY_MAX_LISTED];
};

struct hf_identity {
	uint32_t uid;
	uint32_t gid;
	uint32_t n_gids;
	uint32_t gids[HF_IDENTITY_MAX_GIDS];
	uint64_t list_id;                 /* 0: there is no list */
	const struct hf_group_list *list; /* in place of gids, and borrowed; NULL: none */
};

/* May this process act as other users? */
bool hf_identity_can_switch(void);

/* The owner of files that this identity creates: itself, or the server's own user. */
uint32_t hf_identity_acting_uid(const struct hf_identity *identity);

/* Switches this thread to @identity. -EPERM: the id does not exist here (user namespaces). Does not nest. */
int hf_identity_enter(const struct hf_identity *identity);
void hf_identity_leave(void);

/* Does this identity pass every permission check? */
static inline bool hf_identity_is_superuser(const struct hf_identity *identity)
{
	return identity->uid == 0;
}

/* The identity is on for the scope of the variable; result is the answer of hf_identity_enter(). */
struct hf_identity_scope {
	int result;
};

static inline struct hf_identity_scope hf_identity_scope(const struct hf_identity *identity)
{
	return (struct hf_identity_scope){ hf_identity_enter(identity) };
}

static inline void hf_identity_scope_end(struct hf_identity_scope *scope)
{
	if (scope->result == 0)
		hf_identity_leave();
	scope->result = -1;
}

#define HF_AS(var, identity)                                                           \
	__attribute__((cleanup(hf_identity_scope_end))) struct hf_identity_scope var = \
		hf_identity_scope(identity)
