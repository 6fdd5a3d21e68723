#include "vfs/names.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/siphash.h"
#include "vfs/file.h"

#define N_PLACES 16384 /* a power of two: 256 KiB */

/* Two threads may write one place at once, and mix two names. That is a wrong guess. */
struct place {
	_Atomic uint64_t hash;
	_Atomic uint64_t inode;
};

struct hf_names {
	struct place places[N_PLACES];
};

int hf_names_new(struct hf_names **namesp)
{
	*namesp = calloc(1, sizeof(**namesp));
	return *namesp ? 0 : hf_trace(-ENOMEM);
}

struct hf_names *hf_names_free(struct hf_names *names)
{
	free(names);
	return NULL;
}

static uint64_t hash_of(const struct hf_file *dir, const char *name)
{
	const struct hf_siphash_key key = { .k0 = (uint64_t)(uintptr_t)dir->volume, .k1 = dir->id.inode };

	return hf_siphash(&key, name, strlen(name));
}

void hf_names_saw(struct hf_names *names, const struct hf_file *dir, const char *name, uint64_t inode)
{
	uint64_t hash = hash_of(dir, name);
	struct place *place = &names->places[hash % N_PLACES];

	atomic_store_explicit(&place->inode, inode, memory_order_relaxed);
	atomic_store_explicit(&place->hash, hash, memory_order_relaxed);
}

uint64_t hf_names_guess(const struct hf_names *names, const struct hf_file *dir, const char *name)
{
	uint64_t hash = hash_of(dir, name);
	const struct place *place = &names->places[hash % N_PLACES];

	if (atomic_load_explicit(&place->hash, memory_order_relaxed) != hash)
		return 0;
	return atomic_load_explicit(&place->inode, memory_order_relaxed);
}
