/*
 * Whose rights a file operation runs with.
 *
 * The kernel keeps the identity for files by thread: as the superuser we put on
 * the caller's user, group and groups around an operation, and the kernel then
 * decides on permission, ownership and quota. Where we may not do that, every
 * operation runs as ourselves; hf_identity_can_switch() tells.
 *
 * The first use on a thread also takes away two things from it that must not
 * leak into what clients do: the process's umask, and CAP_SYS_RESOURCE, with
 * which the kernel would overlook quotas and reserved blocks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HF_IDENTITY_MAX_GIDS 16

struct hf_identity {
	uint32_t uid;
	uint32_t gid;
	uint32_t n_gids;
	uint32_t gids[HF_IDENTITY_MAX_GIDS];
};

/* May this process act as others? */
bool hf_identity_can_switch(void);

/* Who the files belong to that this identity makes: itself, or ourselves. */
uint32_t hf_identity_acting_uid(const struct hf_identity *identity);

/* Puts it on, for this thread: -EPERM where this id does not exist here (user namespaces). Not nested. */
int hf_identity_enter(const struct hf_identity *identity);
void hf_identity_leave(void);

/* Would this identity pass every check of permission? */
static inline bool hf_identity_is_superuser(const struct hf_identity *identity)
{
	return identity->uid == 0;
}

/* The variable's scope is the time in which the identity is on; *entered is the answer of entering. */
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
