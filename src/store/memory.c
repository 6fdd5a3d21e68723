/* The store without a medium: every ticket is reached at once, and a start finds nothing. */
#include "store/store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "store/backend.h"

static void memory_free(struct hf_store *store)
{
}

static int memory_load_state(struct hf_store *store, struct hf_store_state *statep)
{
	return 0;
}

static int memory_save_state(struct hf_store *store, const struct hf_store_state *state, bool drop_locks)
{
	return 0;
}

static int memory_load(struct hf_store *store, enum hf_record_type type,
		       int (*fn)(void *user, const struct hf_record *record), void *user)
{
	return 0;
}

static int memory_clear(struct hf_store *store)
{
	return 0;
}

static void memory_commit(struct hf_store *store, struct hf_store_batch *batch)
{
	assert(!batch); /* the front commits nothing to a volatile store */
}

static void memory_recover(struct hf_store *store)
{
	assert(!store); /* memory never fails */
}

static const struct hf_store_ops memory_ops = {
	.name = "memory",
	.is_volatile = true,
	.free = memory_free,
	.load_state = memory_load_state,
	.save_state = memory_save_state,
	.load = memory_load,
	.clear = memory_clear,
	.commit = memory_commit,
	.recover = memory_recover,
};

int hf_store_open_memory(struct hf_store **storep, struct hf_loop *loop,
			 const struct hf_store_options *options)
{
	hf_cleanup(hf_freep) struct hf_store *store = calloc(1, sizeof(*store));
	int r;

	if (!store)
		return hf_trace(-ENOMEM);
	r = hf_store_init(store, loop, &memory_ops, options);
	if (r < 0)
		return hf_trace(r);
	*storep = store;
	store = NULL;
	return 0;
}
