/*
 * What is counted, and how.
 *
 * Every metric is one row of one table: name, kind, labels, help. GET /metrics
 * and the manual page holdfast-metrics(7) are made from the table, so it
 * contains only data.
 *
 * One thread writes a counter or histogram, and any thread reads it. Each loop
 * has its own, and the reader adds them up. So counting is a plain load, add
 * and store, and no thread waits.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* The table */

enum hf_metric_kind {
	HF_METRIC_COUNTER,
	HF_METRIC_GAUGE,
	HF_METRIC_HISTOGRAM, /* of seconds, with the bounds hf_metric_bounds_ns[] */
};

enum hf_metric {
	HF_METRIC_NSM_REQUESTS,
	HF_METRIC_NSM_DURATION,
	HF_METRIC_NSM_CLIENTS,
	HF_METRIC_NSM_NOTIFICATIONS,
	HF_METRIC_NSM_NOTIFICATION_DURATION,
	HF_METRIC_NSM_CRASHES,
	HF_METRIC_NSM_CLEANUPS,
	HF_METRIC_NSM_LOCKS_CLEANED,
	HF_METRIC_NLM_REQUESTS,
	HF_METRIC_NLM_DURATION,
	HF_METRIC_NLM_LOCKS,
	HF_METRIC_LOCKS_REVOKED,
	HF_METRIC_SILENT_LOCK,
	HF_METRIC_SILENT_BLOCKER,
	HF_METRIC_SILENT_RELEASED,
	HF_METRIC_NLM_WAITERS,
	HF_METRIC_NLM_GRANTS,
	HF_METRIC_RESERVATIONS,
	HF_METRIC_NFS_REQUESTS,
	HF_METRIC_NFS_DURATION,
	HF_METRIC_NFS_BYTES,
	HF_METRIC_CLIENT_CALLS,
	HF_METRIC_CLIENT_BYTES,
	HF_METRIC_CLIENT_ERRORS,
	HF_METRIC_MOUNT_REQUESTS,
	HF_METRIC_MOUNT_DURATION,
	HF_METRIC_GRACE,
	HF_METRIC_UNRECLAIMED,
	HF_METRIC_STORE_HEALTHY,
	HF_METRIC_STORE_COMMIT,
	HF_METRIC_STORE_FAILURES,
	HF_METRIC_CLUSTER_ROLE,
	HF_METRIC_CLUSTER_TAKEOVERS,
	HF_METRIC_CLUSTER_LEASE,
	HF_METRIC_CONNECTIONS,
	HF_METRIC_CONNECTIONS_REFUSED,
	HF_METRIC_TLS_HANDSHAKES,
	HF_METRIC_TLS_EXPIRES,
	HF_METRIC_API_EXPIRES,
	HF_METRIC_API_HANDSHAKES,
	HF_METRIC_TLS_REFUSED,
	HF_METRIC_CALLS_DROPPED,
	HF_METRIC_CALLS_REPLAYED,
	HF_METRIC_LOCK_BYTES,
	HF_METRIC_LIMIT_USED,
	HF_METRIC_LIMIT_MAX,
	HF_METRIC_LIMIT_REFUSED,
	HF_METRIC_EVENTS_LOST,
	HF_METRIC_START_TIME,
	HF_METRIC_BUILD,
	HF_N_METRICS,
};

struct hf_metric_row {
	const char *name;
	enum hf_metric_kind kind;
	const char *labels; /* label names, with their values if these are few; for the manual */
	const char *help;   /* one sentence */
};

extern const struct hf_metric_row hf_metrics[HF_N_METRICS];

/* Counting */

static inline void hf_metric_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static inline uint64_t hf_metric_read(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

#define HF_METRIC_N_BOUNDS 16

extern const uint64_t hf_metric_bounds_ns[HF_METRIC_N_BOUNDS]; /* ascending; above the last: +Inf */

struct hf_histogram {
	_Atomic uint64_t counts[HF_METRIC_N_BOUNDS + 1]; /* each for its own interval; not cumulative */
	_Atomic uint64_t sum_ns;
};

void hf_histogram_add(struct hf_histogram *histogram, uint64_t ns, uint64_t n); /* n times */
/* Adds @from to @to, which no other thread uses. */
void hf_histogram_merge(struct hf_histogram *to, const struct hf_histogram *from);

/* Calls of one procedure, as one loop counts them. */

#define HF_METER_N_RESULTS 24

struct hf_call_meter {
	struct {
		_Atomic(const char *) name; /* a constant; NULL: this entry and those after it are unused */
		_Atomic uint64_t n;
	} results[HF_METER_N_RESULTS];
	struct hf_histogram duration;
};

/* Counts @n calls of @ns each. @result is a constant: the same text always has the same address. After
 * HF_METER_N_RESULTS different results, further ones count as the last. */
void hf_call_meter_add(struct hf_call_meter *meter, const char *result, uint64_t ns, uint64_t n);
