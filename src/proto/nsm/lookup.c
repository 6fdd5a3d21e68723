/*
 * Looks up the addresses of peers by name, on workers, a few at a time: a slow name server
 * must not take all the workers.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "loop/resolve.h"
#include "loop/work.h"
#include "proto/nsm/internal.h"

#define AT_ONCE 2

struct hf_nsm_lookup {
	struct hf_link link; /* in nsm->lookups, whether it waits or runs */
	struct hf_nsm *nsm;
	struct hf_work work;
	hf_nsm_found_fn fn; /* NULL: the caller has abandoned it */
	void *user;
	struct hf_addr address;
	int result;
	char name[];
};

static void lookup_free(struct hf_nsm_lookup *lookup)
{
	hf_link_remove(&lookup->link);
	free(lookup);
}

static void run(struct hf_work *work)
{
	struct hf_nsm_lookup *lookup = hf_container_of(work, struct hf_nsm_lookup, work);

	lookup->result = hf_resolve_host(&lookup->address, lookup->name);
}

static void start_some(struct hf_nsm *nsm);

static void on_done(struct hf_work *work)
{
	struct hf_nsm_lookup *lookup = hf_container_of(work, struct hf_nsm_lookup, work);
	struct hf_nsm *nsm = lookup->nsm;
	struct hf_addr address = lookup->address;
	hf_nsm_found_fn fn = lookup->fn;
	void *user = lookup->user;
	int r = lookup->result;

	lookup_free(lookup);
	nsm->n_looking_up--;
	if (fn)
		fn(user, r == 0 ? &address : NULL);
	start_some(nsm);
}

/* A look-up that cannot start now starts when another one ends. Its caller has a timer of its own. */
static void start_some(struct hf_nsm *nsm)
{
	hf_list_for_each(pos, &nsm->lookups) {
		struct hf_nsm_lookup *lookup = hf_list_entry(pos, struct hf_nsm_lookup, link);

		if (nsm->n_looking_up >= AT_ONCE)
			return;
		if (!hf_work_is_running(&lookup->work) &&
		    hf_work_submit(nsm->options.loop, &lookup->work, run, on_done) == 0)
			nsm->n_looking_up++;
	}
}

struct hf_nsm_lookup *hf_nsm_look_up(struct hf_nsm *nsm, const char *name, hf_nsm_found_fn fn, void *user)
{
	size_t len = strlen(name);
	struct hf_nsm_lookup *lookup = calloc(1, sizeof(*lookup) + len + 1);

	if (!lookup)
		return NULL;
	lookup->nsm = nsm;
	lookup->fn = fn;
	lookup->user = user;
	memcpy(lookup->name, name, len + 1);
	hf_list_push_back(&nsm->lookups, &lookup->link);
	start_some(nsm);
	return lookup;
}

void hf_nsm_lookup_abandon(struct hf_nsm_lookup *lookup)
{
	if (!lookup)
		return;
	lookup->fn = NULL;
	if (!hf_work_is_running(&lookup->work))
		lookup_free(lookup);
}

void hf_nsm_lookups_deinit(struct hf_nsm *nsm)
{
	struct hf_link *link;

	while ((link = hf_list_first(&nsm->lookups))) {
		struct hf_nsm_lookup *lookup = hf_list_entry(link, struct hf_nsm_lookup, link);

		hf_work_cancel(&lookup->work);
		lookup_free(lookup);
	}
}
