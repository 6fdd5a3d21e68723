/*
 * Use by client and export: calls, bytes and errors for each pair of a client's address and an export.
 *
 * Each loop counts in a table of its own, so counting touches no memory that another loop writes. A reader
 * adds the tables up. All tables together have a bounded number of places: half of them belong to the loops
 * in equal parts, the other half to the loops that need them first. A loop without a free place gives the
 * place of the pair that it has not seen for longest to the new one, and adds what that pair had to its row
 * for all others. So the sums over all rows only rise.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/limit.h"

struct hf_loop;
struct hf_usage;

#define HF_USAGE_MAX_PAIRS 4096
/* In place of an export's number, where the files belong to another server and locks know no exports. */
#define HF_USAGE_ANOTHER_SERVER UINT64_MAX

enum hf_usage_counter {
	/* Calls; each is counted in one of these */
	HF_USAGE_READS,    /* READ */
	HF_USAGE_WRITES,   /* WRITE and COMMIT */
	HF_USAGE_METADATA, /* other NFS calls about a file */
	HF_USAGE_LOCKS,    /* NLM calls about a file */
	/* Of these */
	HF_USAGE_BYTES_READ,
	HF_USAGE_BYTES_WRITTEN,
	HF_USAGE_ERRORS, /* calls that were not answered with success; a lock that is denied or queued is none
			  */
	HF_N_USAGE_COUNTERS,
};

#define HF_USAGE_N_KINDS HF_USAGE_BYTES_READ /* of calls */

/* One call */
struct hf_usage_call {
	uint64_t export_id; /* 0: the call names no export, and counts for all others */
	enum hf_usage_counter kind;
	size_t n_read, n_written;
	bool has_failed;
	uint64_t now; /* the loop's time */
};

struct hf_usage_counts {
	uint64_t n[HF_N_USAGE_COUNTERS];
	uint64_t last_used; /* the time of the loops */
};

struct hf_usage_row {
	struct hf_addr client; /* without port */
	uint64_t export_id;
	struct hf_usage_counts counts;
};

/* @max_pairs: in all loops together, at least two for each loop. @loop provides the key of the hash. */
int hf_usage_new(struct hf_usage **usagep, size_t n_loops, size_t max_pairs, struct hf_loop *loop);
struct hf_usage *hf_usage_free(struct hf_usage *usage);

HF_DEFINE_CLEANUP(struct hf_usage *, hf_usage_free)

/* On the thread of the loop with this number. The port of @client does not count. */
void hf_usage_count(struct hf_usage *usage, size_t loop, const struct hf_addr *client,
		    const struct hf_usage_call *call);
/* The reply to a call that was counted as a success became an error before it left. */
void hf_usage_count_error(struct hf_usage *usage, size_t loop, const struct hf_addr *client,
			  uint64_t export_id);

/* A pair that makes room is counted as refused. From any thread. */
void hf_usage_show_limit(struct hf_usage *usage, struct hf_limit_use *use);
/* The sum over all loops: the pairs, ordered by address and export, and all others. The caller frees *rowsp.
 * From any thread. */
int hf_usage_list(struct hf_usage *usage, struct hf_usage_row **rowsp, size_t *np,
		  struct hf_usage_counts *othersp);

static inline uint64_t hf_usage_calls(const struct hf_usage_counts *counts)
{
	return counts->n[HF_USAGE_READS] + counts->n[HF_USAGE_WRITES] + counts->n[HF_USAGE_METADATA] +
	       counts->n[HF_USAGE_LOCKS];
}
