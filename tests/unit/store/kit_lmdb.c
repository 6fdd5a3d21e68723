/* The embedded store, in a folder of its own. */
#include "kit.h"

#include <signal.h>
#include <sys/resource.h>

static int open_lmdb(struct kit *kit)
{
	return hf_store_open_lmdb(&kit->store, kit->loop, &kit->options);
}

static void prepare(struct kit *kit)
{
	kit->path = kit_temporary();
	kit->options.path = kit->path;
	signal(SIGXFSZ, SIG_IGN);
}

static void clean_up(struct kit *kit)
{
	kit_remove_tree(kit->path);
	free(kit->path);
}

/* Files may not grow, nor be written beyond their first page. */
static void limit(rlim_t max)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void break_medium(struct kit *kit)
{
	limit(64);
}

static void repair_medium(struct kit *kit)
{
	limit(RLIM_INFINITY);
}

const struct kit_backend kit_lmdb = {
	.name = "lmdb",
	.open = open_lmdb,
	.prepare = prepare,
	.clean_up = clean_up,
	.break_medium = break_medium,
	.repair_medium = repair_medium,
};
