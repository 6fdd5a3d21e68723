/* One world, up, for each test; and the clients in it. */
#pragma once

#include "world.h"

static struct world w;

static inline int setup(void **state)
{
	world_init(&w);
	world_up(&w);
	return 0;
}

static inline int teardown(void **state)
{
	world_deinit(&w);
	return 0;
}

static inline struct hf_client *a(void)
{
	return world_client(&w, "10.0.0.11", "alpha");
}

static inline struct hf_client *c(void)
{
	return world_client(&w, "10.0.0.12", "carol");
}
