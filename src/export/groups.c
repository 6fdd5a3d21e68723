#include "export/groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"
#include "base/log.h"
#include "base/siphash.h"
#include "export/lookups.h"
#include "loop/loop.h"

#define MAX_USERS   4096
#define MAX_WAITING 256
#define N_THREADS   2
#define FRESH_NS    (60 * HF_NS_PER_S)
#define STALE_NS    (1800 * HF_NS_PER_S)
#define RETRY_NS    (10 * HF_NS_PER_S)

struct hf_groups {
	struct hf_lookups *users; /* by uid: group ids; an empty answer: no such user, and no groups */
	struct hf_siphash_key key;
};

/* An answer begins with this many bytes, so that a user without groups has one; the group ids follow. */
#define HEAD sizeof(uint32_t)

static int ask(void *user, struct hf_bytes key, uint8_t *answer, size_t *lenp)
{
	const struct hf_group_source *source = user;
	uint32_t uid, gids[HF_IDENTITY_MAX_LISTED];
	size_t n = 0, n_listed = 0;
	int r;

	memcpy(&uid, key.data, sizeof(uid));
	r = source->find(source->user, uid, gids, HF_IDENTITY_MAX_LISTED, &n);
	*lenp = 0;
	if (r)
		return r == HF_GROUPS_NO_USER ? 0 : r;
	for (size_t i = 0; i < n; i++)
		if (gids[i] != 0)
			gids[n_listed++] = gids[i];
	memset(answer, 0, HEAD);
	memcpy(answer + HEAD, gids, n_listed * sizeof(gids[0]));
	*lenp = HEAD + n_listed * sizeof(gids[0]);
	return 0;
}

/* A user who is not known here is nothing unusual. */
static void report(void *user, struct hf_bytes key, int error)
{
	uint32_t uid;

	memcpy(&uid, key.data, sizeof(uid));
	if (error)
		hf_log_warn("cannot look up the groups of a user: its calls are to be repeated",
			    "uid=%u error=%s", uid, strerrorname_np(-error));
}

struct copying {
	const struct hf_groups *groups;
	const struct hf_group_list *list;
};

static bool copy(void *user, struct hf_bytes answer)
{
	static _Thread_local struct hf_group_list list;
	struct copying *copying = user;
	bool is_user = answer.len >= HEAD;

	list.n = is_user ? (uint32_t)((answer.len - HEAD) / sizeof(list.gids[0])) : 0;
	if (is_user)
		memcpy(list.gids, answer.data + HEAD, answer.len - HEAD);
	list.id = hf_siphash(&copying->groups->key, answer.data, answer.len) | 1;
	copying->list = &list;
	return is_user;
}

int hf_groups_find(struct hf_groups *groups, uint32_t uid, const struct hf_group_list **listp)
{
	struct copying copying = { .groups = groups };
	enum hf_lookup answer = hf_lookups_get(groups->users, hf_bytes_of(&uid, sizeof(uid)), copy, &copying);

	*listp = copying.list;
	return answer == HF_LOOKUP_KNOWN ? 0 : -EAGAIN;
}

void hf_groups_wait(struct hf_groups *groups, uint32_t uid, uint64_t ns)
{
	hf_lookups_wait(groups->users, hf_bytes_of(&uid, sizeof(uid)), ns);
}

void hf_groups_show_limits(struct hf_groups *groups, struct hf_limit_use uses[HF_N_LIMITS])
{
	hf_lookups_show_limit(groups->users, &uses[HF_LIMIT_GROUP_LOOKUPS]);
	hf_lookups_show_remembered(groups->users, &uses[HF_LIMIT_USERS_REMEMBERED]);
}

int hf_groups_new(struct hf_groups **groupsp, const struct hf_group_source *source)
{
	hf_cleanup(hf_groups_freep) struct hf_groups *groups = calloc(1, sizeof(*groups));
	const struct hf_lookups_options options = {
		.ask = ask,
		.report = report,
		.what = "groups of users",
		.now = source->now,
		.user = (void *)(uintptr_t)source,
		.max_entries = MAX_USERS,
		.max_waiting = MAX_WAITING,
		.max_threads = N_THREADS,
		.max_answer = HEAD + HF_IDENTITY_MAX_LISTED * sizeof(uint32_t),
		.fresh_ns = FRESH_NS,
		.fresh_empty_ns = FRESH_NS,
		.stale_ns = STALE_NS,
		.retry_ns = RETRY_NS,
	};
	int r;

	if (!groups)
		return hf_trace(-ENOMEM);
	if (getrandom(&groups->key, sizeof(groups->key), 0) < 0)
		return hf_trace(-errno);
	r = hf_lookups_new(&groups->users, &options);
	if (r < 0)
		return r;
	*groupsp = groups;
	groups = NULL;
	return 0;
}

struct hf_groups *hf_groups_free(struct hf_groups *groups)
{
	if (!groups)
		return NULL;
	hf_lookups_free(groups->users);
	free(groups);
	return NULL;
}
