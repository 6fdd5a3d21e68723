/* The inside of hf_exports: exports.c, admit.c and handle.c. */
#pragma once

#include <pthread.h>

#include "export/export.h"
#include "export/groups.h"
#include "export/seal.h"

#define HF_N_REFUSALS 64

/* A refusal that was logged already. */
struct hf_refusal {
	uint64_t until; /* 0: none */
	struct hf_addr host;
	uint64_t export;
	int rule;
};

/* A list that was replaced. */
struct hf_retired {
	struct hf_retired *next;
	struct hf_export_list list;
};

struct hf_exports {
	struct hf_seal_key key;             /* (c) */
	struct hf_files *files;             /* (c) */
	struct hf_client_names *names;      /* (c) */
	_Atomic(struct hf_groups *) groups; /* NULL: groups are not looked up */
	struct hf_groups *made_groups;      /* (c) once made: what looks them up if it is wanted; or NULL */
	_Atomic unsigned int n_patient;     /* threads that wait for a look-up */
	pthread_rwlock_t lock;
	struct hf_export_list list; /* under lock */
	struct hf_retired *retired; /* under lock; the next sweep frees them */
	_Atomic uint64_t n_changes; /* number of changes of list; changed under lock */
	pthread_mutex_t refusals_lock;
	struct hf_refusal refusals[HF_N_REFUSALS]; /* under refusals_lock */
};

/* NULL: they are not looked up. */
static inline struct hf_groups *hf_exports_groups(struct hf_exports *exports)
{
	return atomic_load_explicit(&exports->groups, memory_order_acquire);
}

/* A new reference, or NULL. */
struct hf_export *hf_exports_by_id(struct hf_exports *exports, uint64_t id);
