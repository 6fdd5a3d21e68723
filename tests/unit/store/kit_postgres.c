/* The PostgreSQL store, in a fresh database of a server of the test's own. */
#include "kit.h"

#include "cluster.h"

static int open_postgres(struct kit *kit)
{
	return hf_store_open_postgres(&kit->store, kit->loop, &kit->options);
}

static void prepare(struct kit *kit)
{
	kit->path = cluster_new_database(cluster_get());
	kit->options.postgres = kit->path;
}

static void clean_up(struct kit *kit)
{
	free(kit->path);
}

static void break_medium(struct kit *kit)
{
	cluster_kill(cluster_get());
}

static void repair_medium(struct kit *kit)
{
	cluster_start(cluster_get());
}

static void lose_machine(struct kit *kit)
{
	cluster_kill(cluster_get());
	cluster_start(cluster_get());
}

const struct kit_backend kit_postgres = {
	.name = "postgres",
	.open = open_postgres,
	.prepare = prepare,
	.clean_up = clean_up,
	.break_medium = break_medium,
	.repair_medium = repair_medium,
	.lose_machine = lose_machine,
};
