#include "base/metric.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

const uint64_t hf_metric_bounds_ns[HF_METRIC_N_BOUNDS] = {
	10 * US, 25 * US, 50 * US, 100 * US, 250 * US, 500 * US, 1 * MS,    2500 * US,
	5 * MS,  10 * MS, 25 * MS, 100 * MS, 250 * MS, 1 * S,    2500 * MS, 10 * S,
};

#define REQUEST_LABELS "procedure, result"

const struct hf_metric_row hf_metrics[HF_N_METRICS] = {
	[HF_METRIC_NSM_REQUESTS] = { "nsm_requests_total", HF_METRIC_COUNTER, REQUEST_LABELS,
				     "Calls of the status monitor (NSM) that were served." },
	[HF_METRIC_NSM_DURATION] = { "nsm_request_duration_seconds", HF_METRIC_HISTOGRAM, "procedure",
				     "Time from a call of the status monitor to its reply." },
	[HF_METRIC_NSM_CLIENTS] = { "nsm_clients_registered", HF_METRIC_GAUGE, "",
				    "Clients that will be told of our restart." },
	[HF_METRIC_NSM_NOTIFICATIONS] = { "nsm_notifications_total", HF_METRIC_COUNTER,
					  "result: started, success, failed",
					  "Tries to tell a client of our restart." },
	[HF_METRIC_NSM_NOTIFICATION_DURATION] = { "nsm_notification_duration_seconds", HF_METRIC_HISTOGRAM,
						  "",
						  "Time that one try to tell a client of our restart took." },
	[HF_METRIC_NSM_CRASHES] = { "nsm_crashes_detected_total", HF_METRIC_COUNTER, "",
				    "Evidence that a client died or was restarted." },
	[HF_METRIC_NSM_CLEANUPS] = { "nsm_crash_cleanups_total", HF_METRIC_COUNTER, "",
				     "Clean-ups of what a dead client held." },
	[HF_METRIC_NSM_LOCKS_CLEANED] = { "nsm_locks_cleaned_on_crash_total", HF_METRIC_COUNTER, "",
					  "Locks released because their client died." },
	[HF_METRIC_NLM_REQUESTS] = { "nlm_requests_total", HF_METRIC_COUNTER, REQUEST_LABELS,
				     "Calls of the lock manager (NLM) that were served." },
	[HF_METRIC_NLM_DURATION] = { "nlm_request_duration_seconds", HF_METRIC_HISTOGRAM, "procedure",
				     "Time from a call of the lock manager to its reply, the store's "
				     "sync included." },
	[HF_METRIC_NLM_LOCKS] = { "nlm_locks_held", HF_METRIC_GAUGE, "share",
				  "Byte-range locks that are held, those not yet reclaimed included." },
	[HF_METRIC_NLM_WAITERS] = { "nlm_waiters", HF_METRIC_GAUGE, "", "Requests that wait for a lock." },
	[HF_METRIC_NLM_GRANTS] = { "nlm_grants_total", HF_METRIC_COUNTER,
				   "result: told, refused, abandoned, kept, retried",
				   "Waiters that got their lock: the client took it, refused it, or could "
				   "not be "
				   "told; and tries beyond the first." },
	[HF_METRIC_NFS_REQUESTS] = { "nfs_requests_total", HF_METRIC_COUNTER, REQUEST_LABELS,
				     "NFS version 3 calls that were served." },
	[HF_METRIC_NFS_DURATION] = { "nfs_request_duration_seconds", HF_METRIC_HISTOGRAM, "procedure",
				     "Time from an NFS call to its reply, the disk included." },
	[HF_METRIC_NFS_BYTES] = { "nfs_bytes_total", HF_METRIC_COUNTER, "direction: read, written",
				  "Bytes of file data that clients read and wrote." },
	[HF_METRIC_MOUNT_REQUESTS] = { "mount_requests_total", HF_METRIC_COUNTER, REQUEST_LABELS,
				       "Calls of the MOUNT program that were served." },
	[HF_METRIC_MOUNT_DURATION] = { "mount_request_duration_seconds", HF_METRIC_HISTOGRAM, "procedure",
				       "Time from a call of the MOUNT program to its reply." },
	[HF_METRIC_GRACE] = { "holdfast_grace_active", HF_METRIC_GAUGE, "",
			      "1 while only reclaims are granted, else 0." },
	[HF_METRIC_UNRECLAIMED] = { "holdfast_locks_unreclaimed", HF_METRIC_GAUGE, "",
				    "Locks from before our restart that their owners have not reclaimed "
				    "yet." },
	[HF_METRIC_STORE_HEALTHY] = { "holdfast_store_healthy", HF_METRIC_GAUGE, "",
				      "1 while the store can make facts durable, else 0: no lock is "
				      "granted." },
	[HF_METRIC_STORE_COMMIT] = { "holdfast_store_commit_seconds", HF_METRIC_HISTOGRAM, "",
				     "Time that one commit of the store took." },
	[HF_METRIC_STORE_FAILURES] = { "holdfast_store_failures_total", HF_METRIC_COUNTER, "",
				       "Writes of the store that could not be made durable." },
	[HF_METRIC_CONNECTIONS] = { "holdfast_connections", HF_METRIC_GAUGE, "transport: tcp, udp, http",
				    "Connections that are open: of clients, and of operators (http). UDP "
				    "has none; there it is calls that are being served." },
	[HF_METRIC_CONNECTIONS_REFUSED] = { "holdfast_connections_refused_total", HF_METRIC_COUNTER, "",
					    "Connections that were over a limit: of how many there may be, "
					    "or "
					    "of how much of records that they do not end." },
	[HF_METRIC_CALLS_DROPPED] = { "holdfast_calls_dropped_total", HF_METRIC_COUNTER, "",
				      "Calls over UDP that were dropped because too many were under way." },
	[HF_METRIC_CALLS_REPLAYED] = { "holdfast_calls_replayed_total", HF_METRIC_COUNTER, "",
				       "Repeated calls that got the reply of the first again." },
	[HF_METRIC_LOCK_BYTES] = { "holdfast_lock_table_bytes", HF_METRIC_GAUGE, "",
				   "Memory that the lock table uses." },
	[HF_METRIC_EVENTS_LOST] = { "holdfast_events_lost_total", HF_METRIC_COUNTER, "",
				    "Events that readers of /api/v1/events were too slow for." },
	[HF_METRIC_START_TIME] = { "holdfast_start_time_seconds", HF_METRIC_GAUGE, "",
				   "When the server was started, in seconds since 1970." },
	[HF_METRIC_BUILD] = { "holdfast_build_info", HF_METRIC_GAUGE, "version", "Always 1." },
};

void hf_histogram_add(struct hf_histogram *histogram, uint64_t ns, uint64_t n)
{
	size_t i = 0;

	while (i < HF_METRIC_N_BOUNDS && ns > hf_metric_bounds_ns[i])
		i++;
	hf_metric_add(&histogram->counts[i], n);
	hf_metric_add(&histogram->sum_ns, ns * n);
}

void hf_histogram_merge(struct hf_histogram *to, const struct hf_histogram *from)
{
	for (size_t i = 0; i <= HF_METRIC_N_BOUNDS; i++)
		hf_metric_add(&to->counts[i], hf_metric_read(&from->counts[i]));
	hf_metric_add(&to->sum_ns, hf_metric_read(&from->sum_ns));
}

void hf_call_meter_add(struct hf_call_meter *meter, const char *result, uint64_t ns, uint64_t n)
{
	size_t i;

	for (i = 0; i < HF_METER_N_RESULTS - 1; i++) {
		const char *name = atomic_load_explicit(&meter->results[i].name, memory_order_relaxed);

		if (name == result)
			break;
		if (!name) {
			atomic_store_explicit(&meter->results[i].name, result, memory_order_release);
			break;
		}
	}
	if (i == HF_METER_N_RESULTS - 1)
		atomic_store_explicit(&meter->results[i].name, "other", memory_order_release);
	hf_metric_add(&meter->results[i].n, n);
	hf_histogram_add(&meter->duration, ns, n);
}
