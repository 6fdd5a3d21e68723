#include "vfs/identity.h"

#include <assert.h>
#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/caps.h"
#include "base/error.h"
#include "base/macros.h"

/* The kernel's state of this thread. Raw calls are used, because libc's would change all threads. */
struct thread_state {
	bool is_known;
	bool can_switch;
	bool is_on;
	bool is_changed;  /* the ids differ from the server's own */
	uint32_t own_uid; /* between calls */
	uint32_t own_gid;
	uint32_t n_gids; /* the groups of the thread; they stay between calls, because then only the server's
			    own work runs, as root, which no group restricts */
	uint32_t gids[HF_IDENTITY_MAX_GIDS];
	uint64_t list_id; /* the groups are those of this list; 0: they are gids */
	bool has_groups;
};

static _Thread_local struct thread_state thread;

/* On 32-bit machines the calls of these names take 16-bit ids. */
#ifdef SYS_setgroups32
#define SETGROUPS SYS_setgroups32
#define SETFSGID  SYS_setfsgid32
#define SETFSUID  SYS_setfsuid32
#else
#define SETGROUPS SYS_setgroups
#define SETFSGID  SYS_setfsgid
#define SETFSUID  SYS_setfsuid
#endif

/* These two calls never fail: they return the previous id, and ignore a new one that does not exist. */
static bool set_fsgid(uint32_t gid)
{
	syscall(SETFSGID, gid);
	return (uint32_t)syscall(SETFSGID, UINT32_MAX) == gid;
}

static bool set_fsuid(uint32_t uid)
{
	syscall(SETFSUID, uid);
	return (uint32_t)syscall(SETFSUID, UINT32_MAX) == uid;
}

/* In a user namespace with a single user there are no groups to set, nor others to act as. */
static bool can_become_others(void)
{
	const uint64_t needed = HF_CAP(CAP_SETUID) | HF_CAP(CAP_SETGID) | HF_CAP(CAP_DAC_OVERRIDE);

	return (hf_caps_get().effective & needed) == needed && syscall(SETGROUPS, (size_t)0, NULL) == 0;
}

static void learn(void)
{
	/* The umask is part of what threads share (CLONE_FS); give this thread its own. Where that is
	 * forbidden, as in most containers, clear it for all threads: the server's own files are created with
	 * explicit modes. */
	unshare(CLONE_FS);
	umask(0);
	thread.can_switch = can_become_others();
	thread.has_groups = thread.can_switch; /* none */
	thread.own_uid = (uint32_t)geteuid();
	thread.own_gid = (uint32_t)getegid();
	if (hf_caps_get().effective &
	    HF_CAP(CAP_SYS_RESOURCE)) /* ignores quotas, so it must not act for clients */
		hf_caps_lower(CAP_SYS_RESOURCE);
	thread.is_known = true;
}

bool hf_identity_can_switch(void)
{
	if (!thread.is_known)
		learn();
	return thread.can_switch;
}

uint32_t hf_identity_acting_uid(const struct hf_identity *identity)
{
	return hf_identity_can_switch() ? identity->uid : thread.own_uid;
}

static int set_listed_groups(const struct hf_group_list *list)
{
	if (thread.has_groups && thread.list_id == list->id)
		return 0;
	if (syscall(SETGROUPS, (size_t)list->n, list->gids) < 0)
		return hf_trace(-EPERM);
	thread.list_id = list->id;
	thread.has_groups = true;
	return 0;
}

static int set_groups(const struct hf_identity *identity)
{
	size_t size = identity->n_gids * sizeof(identity->gids[0]);

	if (identity->list)
		return set_listed_groups(identity->list);
	if (thread.has_groups && !thread.list_id && thread.n_gids == identity->n_gids &&
	    memcmp(thread.gids, identity->gids, size) == 0)
		return 0;
	if (syscall(SETGROUPS, (size_t)identity->n_gids, identity->gids) < 0)
		return hf_trace(-EPERM);
	memcpy(thread.gids, identity->gids, size);
	thread.n_gids = identity->n_gids;
	thread.list_id = 0;
	thread.has_groups = true;
	return 0;
}

/* Where the server has a user of its own and capabilities, the thread takes the superuser's id for file
 * access and has it between calls from then on. The kernel drops the capabilities for files when that id
 * changes from 0 to another, and only then: without this, every client would act with them. */
static bool become_superuser(void)
{
	if (!set_fsuid(0))
		return false;
	thread.own_uid = 0;
	return true;
}

/* Skips ids that the thread already has, as for the superuser. The superuser's groups restrict nothing and
 * are skipped, too. */
static int put_on(const struct hf_identity *identity)
{
	int r;

	if (thread.own_uid && !become_superuser())
		return hf_trace(-EPERM);
	if (identity->uid == thread.own_uid && identity->gid == thread.own_gid)
		return 0;
	r = identity->uid == thread.own_uid ? 0 : set_groups(identity);
	if (r < 0)
		return r;
	thread.is_changed = true;
	return set_fsgid(identity->gid) && set_fsuid(identity->uid) ? 0 : hf_trace(-EPERM);
}

static void put_off(void)
{
	if (!thread.is_changed)
		return;
	syscall(SETFSUID, thread.own_uid);
	syscall(SETFSGID, thread.own_gid);
	thread.is_changed = false;
}

int hf_identity_enter(const struct hf_identity *identity)
{
	int r;

	assert(identity->n_gids <= HF_IDENTITY_MAX_GIDS);
	assert(!thread.is_on);
	r = hf_identity_can_switch() ? put_on(identity) : 0;
	if (r < 0) {
		put_off();
		return r;
	}
	thread.is_on = true;
	return 0;
}

void hf_identity_leave(void)
{
	assert(thread.is_on);
	thread.is_on = false;
	put_off();
}
