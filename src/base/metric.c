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
				     "Calls of the status monitor (NSM) that were served. IGNORED: an "
				     "SM_NOTIFY "
				     "that names no known client; DENIED: an SM_NOTIFY that the host it "
				     "names "
				     "denies; REFUSED: the caller may not make this call." },
	[HF_METRIC_NSM_DURATION] = { "nsm_request_duration_seconds", HF_METRIC_HISTOGRAM, "procedure",
				     "Time from a call of the status monitor to its reply." },
	[HF_METRIC_NSM_CLIENTS] = { "nsm_clients_registered", HF_METRIC_GAUGE, "",
				    "Registered clients. They get an SM_NOTIFY after a restart of the "
				    "server." },
	[HF_METRIC_NSM_NOTIFICATIONS] = { "nsm_notifications_total", HF_METRIC_COUNTER,
					  "result: started, success, failed",
					  "Attempts to send SM_NOTIFY to a client after a restart of the "
					  "server." },
	[HF_METRIC_NSM_NOTIFICATION_DURATION] = { "nsm_notification_duration_seconds", HF_METRIC_HISTOGRAM,
						  "", "Duration of one attempt to send SM_NOTIFY." },
	[HF_METRIC_NSM_CRASHES] = { "nsm_crashes_detected_total", HF_METRIC_COUNTER, "",
				    "Crashes and restarts of clients that the server detected." },
	[HF_METRIC_NSM_CLEANUPS] = { "nsm_crash_cleanups_total", HF_METRIC_COUNTER, "",
				     "Clean-ups after a client crashed." },
	[HF_METRIC_NSM_LOCKS_CLEANED] = { "nsm_locks_cleaned_on_crash_total", HF_METRIC_COUNTER, "",
					  "Locks released because their client crashed." },
	[HF_METRIC_NLM_REQUESTS] = { "nlm_requests_total", HF_METRIC_COUNTER, REQUEST_LABELS,
				     "Calls of the lock manager (NLM) that were served." },
	[HF_METRIC_NLM_DURATION] = { "nlm_request_duration_seconds", HF_METRIC_HISTOGRAM, "procedure",
				     "Time from a call of the lock manager to its reply, including the "
				     "store's sync." },
	[HF_METRIC_NLM_LOCKS] = { "nlm_locks_held", HF_METRIC_GAUGE, "share",
				  "Byte-range locks, including those that are not reclaimed yet." },
	[HF_METRIC_LOCKS_REVOKED] = { "holdfast_locks_released_by_operator_total", HF_METRIC_COUNTER, "",
				      "Locks that an operator released one by one or file by file. Their "
				      "clients do not know of it." },
	[HF_METRIC_SILENT_LOCK] = { "holdfast_oldest_lock_of_silent_client_seconds", HF_METRIC_GAUGE, "",
				    "Of all clients that hold locks, the longest time since a sign of life "
				    "of "
				    "one of them: its locks are at least so old; 0 if no client holds a "
				    "lock. "
				    "Signs of life are calls of any kind and new connections from its "
				    "address, "
				    "and answers of its host. The time begins anew with the server." },
	[HF_METRIC_SILENT_BLOCKER] = { "holdfast_silent_client_in_the_way_seconds", HF_METRIC_GAUGE, "",
				       "The same of the clients that hold a lock for which another client "
				       "waits; 0 if no client waits for another." },
	[HF_METRIC_SILENT_RELEASED] = { "holdfast_silent_clients_released_total", HF_METRIC_COUNTER, "",
					"Clients whose locks were released because they gave no sign of life "
					"for recovery.release_silent_seconds while others waited." },
	[HF_METRIC_NLM_WAITERS] = { "nlm_waiters", HF_METRIC_GAUGE, "",
				    "Waiters: requests that wait for a lock." },
	[HF_METRIC_NLM_GRANTS] = { "nlm_grants_total", HF_METRIC_COUNTER,
				   "result: told, refused, abandoned, kept, retried",
				   "Grants to waiters. told: the client accepted the lock; refused: it "
				   "refused the lock; abandoned: no GRANTED was sent, so the next waiter "
				   "gets the lock; kept: it is unknown whether the client accepted, so it "
				   "keeps the lock; retried: attempts after the first." },
	[HF_METRIC_RESERVATIONS] = { "holdfast_reservations", HF_METRIC_GAUGE, "",
				     "Share reservations that clients hold, without those that are not "
				     "reclaimed yet." },
	[HF_METRIC_NFS_REQUESTS] = { "nfs_requests_total", HF_METRIC_COUNTER, REQUEST_LABELS,
				     "NFS version 3 calls that were served." },
	[HF_METRIC_NFS_DURATION] = { "nfs_request_duration_seconds", HF_METRIC_HISTOGRAM, "procedure",
				     "Time from an NFS call to its reply, including the disk." },
	[HF_METRIC_NFS_BYTES] = { "nfs_bytes_total", HF_METRIC_COUNTER, "direction: read, written",
				  "Bytes of file data that clients read and wrote." },
	[HF_METRIC_CLIENT_CALLS] = { "holdfast_client_calls_total", HF_METRIC_COUNTER,
				     "client, share, kind: reads, writes, metadata, locks",
				     "Calls by client address and export. client=\"other\": calls of the "
				     "pairs "
				     "that made room for others, and calls that name no export. Absent "
				     "without "
				     "metrics.per_client." },
	[HF_METRIC_CLIENT_BYTES] = { "holdfast_client_bytes_total", HF_METRIC_COUNTER,
				     "client, share, direction: read, written",
				     "Bytes of file data by client address and export. Absent without "
				     "metrics.per_client." },
	[HF_METRIC_CLIENT_ERRORS] = { "holdfast_client_errors_total", HF_METRIC_COUNTER, "client, share",
				      "Calls by client address and export that were not answered with "
				      "success. "
				      "Absent without metrics.per_client." },
	[HF_METRIC_MOUNT_REQUESTS] = { "mount_requests_total", HF_METRIC_COUNTER, REQUEST_LABELS,
				       "Calls of the MOUNT program that were served." },
	[HF_METRIC_MOUNT_DURATION] = { "mount_request_duration_seconds", HF_METRIC_HISTOGRAM, "procedure",
				       "Time from a call of the MOUNT program to its reply." },
	[HF_METRIC_GRACE] = { "holdfast_grace_active", HF_METRIC_GAUGE, "",
			      "1 during a grace period, when only reclaims are granted; otherwise 0." },
	[HF_METRIC_UNRECLAIMED] = { "holdfast_locks_unreclaimed", HF_METRIC_GAUGE, "",
				    "Locks from before the restart that are not reclaimed yet." },
	[HF_METRIC_STORE_HEALTHY] = { "holdfast_store_healthy", HF_METRIC_GAUGE, "",
				      "1 while the store can write; otherwise 0, and no lock is granted." },
	[HF_METRIC_STORE_COMMIT] = { "holdfast_store_commit_seconds", HF_METRIC_HISTOGRAM, "",
				     "Duration of one commit of the store." },
	[HF_METRIC_STORE_FAILURES] = { "holdfast_store_failures_total", HF_METRIC_COUNTER, "",
				       "Failures of the store to make a write durable." },
	[HF_METRIC_CLUSTER_ROLE] = { "holdfast_cluster_role", HF_METRIC_GAUGE,
				     "role: active, standby, mismatched, stopping",
				     "1 for the role of this node of a cluster, otherwise 0. Absent without "
				     "a "
				     "cluster." },
	[HF_METRIC_CLUSTER_TAKEOVERS] = { "holdfast_cluster_takeovers_total", HF_METRIC_COUNTER,
					  "result: continued, reclaimed",
					  "Takeovers by this process. continued: all locks were held; "
					  "reclaimed: clients had to reclaim their locks. Absent without a "
					  "cluster." },
	[HF_METRIC_CLUSTER_LEASE] = { "holdfast_cluster_lease_seconds", HF_METRIC_GAUGE, "",
				      "Seconds that the active node may still serve without an answer of the "
				      "database; 0 on any other node. Absent without a cluster." },
	[HF_METRIC_CONNECTIONS] = { "holdfast_connections", HF_METRIC_GAUGE,
				    "transport: tcp, tls, mtls, udp, http",
				    "Open connections of clients: in the clear (tcp), with TLS (tls), with "
				    "TLS and a client certificate (mtls); and of operators (http). For udp: "
				    "calls in "
				    "progress." },
	[HF_METRIC_CONNECTIONS_REFUSED] = { "holdfast_connections_refused_total", HF_METRIC_COUNTER, "",
					    "Connections refused or closed because of a limit: on their "
					    "number, or on "
					    "the bytes of incomplete records." },
	[HF_METRIC_TLS_HANDSHAKES] = { "holdfast_tls_handshakes_total", HF_METRIC_COUNTER,
				       "result: ok, bad_certificate, failed, closed, timeout, too_many",
				       "TLS handshakes of RPC connections. bad_certificate: the client's was "
				       "refused; failed: the client broke the rules of TLS 1.3; closed: the "
				       "client "
				       "closed the connection; timeout: it did not finish in time; too_many: "
				       "the "
				       "handshake made room for a newer one." },
	[HF_METRIC_TLS_EXPIRES] = { "holdfast_tls_certificate_expires_seconds", HF_METRIC_GAUGE, "",
				    "Seconds until the server's TLS certificate expires; negative: it has "
				    "expired. Absent without TLS." },
	[HF_METRIC_API_EXPIRES] = { "holdfast_api_certificate_expires_seconds", HF_METRIC_GAUGE, "",
				    "Seconds until the certificate of the API (HTTPS) expires; negative: it "
				    "has expired. Absent without HTTPS." },
	[HF_METRIC_API_HANDSHAKES] = { "holdfast_api_handshakes_total", HF_METRIC_COUNTER,
				       "result: ok, failed, closed, timeout, too_many",
				       "TLS handshakes of connections to the API (HTTPS). failed: there is "
				       "no "
				       "common version, cipher or protocol, the caller refused the "
				       "certificate, or it spoke HTTP in the clear; closed: the caller "
				       "closed "
				       "the connection; timeout: it did not finish in time; too_many: the "
				       "connection made room for a newer one. Absent without HTTPS." },
	[HF_METRIC_TLS_REFUSED] = { "holdfast_tls_refused_calls_total", HF_METRIC_COUNTER,
				    "reason: no_connection, identity, name_taken, datagram, no_proof",
				    "Calls of the lock manager and of the status monitor that were refused "
				    "because an export demands TLS. no_connection: the client's address has "
				    "no TLS connection; identity: its certificate is not among the export's "
				    "identities; name_taken: the client's name belongs to another "
				    "certificate; datagram: it came over UDP, and the client calls over "
				    "TCP; no_proof: it tells of a restart, and the client has not "
				    "connected again." },
	[HF_METRIC_CALLS_DROPPED] = { "holdfast_calls_dropped_total", HF_METRIC_COUNTER, "",
				      "UDP calls dropped because too many were in progress." },
	[HF_METRIC_CALLS_REPLAYED] = { "holdfast_calls_replayed_total", HF_METRIC_COUNTER, "",
				       "Retransmitted calls that got the first reply again." },
	[HF_METRIC_LOCK_BYTES] = { "holdfast_lock_table_bytes", HF_METRIC_GAUGE, "",
				   "Memory of the lock table." },
	[HF_METRIC_LIMIT_USED] = { "holdfast_limit_used", HF_METRIC_GAUGE, "limit",
				   "How much of a limit is used; of a limit for each client or address: by "
				   "the "
				   "one that uses the most, and the same of limits for each file, session "
				   "and loop." },
	[HF_METRIC_LIMIT_MAX] = { "holdfast_limit_max", HF_METRIC_GAUGE, "limit",
				  "The limit. Beyond it the server refuses or drops calls, closes "
				  "connections, or forgets the oldest entry." },
	[HF_METRIC_LIMIT_REFUSED] = { "holdfast_limit_refused_total", HF_METRIC_COUNTER, "limit",
				      "Calls that were refused or dropped, and connections that were refused "
				      "or "
				      "closed, because the limit was reached; of lists that forget their "
				      "oldest entry: "
				      "entries that were forgotten early." },
	[HF_METRIC_EVENTS_LOST] = { "holdfast_events_lost_total", HF_METRIC_COUNTER, "",
				    "Events that readers of /api/v1/events missed because they were too "
				    "slow." },
	[HF_METRIC_START_TIME] = { "holdfast_start_time_seconds", HF_METRIC_GAUGE, "",
				   "Start time of the server, in seconds since 1970." },
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
