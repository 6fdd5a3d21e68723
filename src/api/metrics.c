/* GET /metrics: the table of metrics with their values, in Prometheus' text format. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/files.h"
#include "api/internal.h"
#include "api/usage.h"
#include "base/macros.h"
#include "cluster/cluster.h"
#include "tls/tls.h"

#define MAX_PROGRAMS 4
#define MAX_PROCS    64

/* Calls of one procedure, summed over all loops */
struct calls {
	const char *procedure;
	struct hf_call_meter sum;
};

struct program {
	uint32_t number;
	enum hf_metric requests, duration;
	struct calls procs[MAX_PROCS];
};

static void begin(FILE *out, enum hf_metric metric)
{
	static const char *const kinds[] = { "counter", "gauge", "histogram" };
	const struct hf_metric_row *row = &hf_metrics[metric];

	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help, row->name, kinds[row->kind]);
}

static void put_value(FILE *out, enum hf_metric metric, uint64_t value)
{
	begin(out, metric);
	fprintf(out, "%s %llu\n", hf_metrics[metric].name, (unsigned long long)value);
}

static void put_seconds(FILE *out, enum hf_metric metric, uint64_t ns)
{
	begin(out, metric);
	fprintf(out, "%s %.3f\n", hf_metrics[metric].name, (double)ns / 1e9);
}

static void put_text(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\n')
			fputs("\\n", out);
		else if (*text == '"' || *text == '\\')
			fprintf(out, "\\%c", *text);
		else
			fputc(*text, out);
	}
}

static void put_label(FILE *out, enum hf_metric metric, const char *label, const char *text, uint64_t value)
{
	fprintf(out, "%s{%s=\"", hf_metrics[metric].name, label);
	put_text(out, text);
	fprintf(out, "\"} %llu\n", (unsigned long long)value);
}

/* @labels: "" or "name=\"value\"," */
static void put_histogram(FILE *out, enum hf_metric metric, const char *labels,
			  const struct hf_histogram *histogram)
{
	const char *name = hf_metrics[metric].name;
	int n = (int)strlen(labels);
	uint64_t sum = 0;

	for (size_t i = 0; i < HF_METRIC_N_BOUNDS; i++) {
		sum += hf_metric_read(&histogram->counts[i]);
		fprintf(out, "%s_bucket{%sle=\"%g\"} %llu\n", name, labels,
			(double)hf_metric_bounds_ns[i] / 1e9, (unsigned long long)sum);
	}
	sum += hf_metric_read(&histogram->counts[HF_METRIC_N_BOUNDS]);
	fprintf(out, "%s_bucket{%sle=\"+Inf\"} %llu\n", name, labels, (unsigned long long)sum);
	fprintf(out, n ? "%s_sum{%.*s} %.9g\n" : "%s_sum%.*s %.9g\n", name, n ? n - 1 : 0, labels,
		(double)hf_metric_read(&histogram->sum_ns) / 1e9);
	fprintf(out, n ? "%s_count{%.*s} %llu\n" : "%s_count%.*s %llu\n", name, n ? n - 1 : 0, labels,
		(unsigned long long)sum);
}

/* Calls */

static void merge_results(struct hf_call_meter *sum, const struct hf_call_meter *meter)
{
	for (size_t i = 0; i < HF_METER_N_RESULTS; i++) {
		const char *name = atomic_load_explicit(&meter->results[i].name, memory_order_acquire);
		size_t j = 0;

		if (!name)
			continue;
		while (j < HF_METER_N_RESULTS - 1 && sum->results[j].name &&
		       strcmp(sum->results[j].name, name) != 0)
			j++;
		if (!sum->results[j].name)
			sum->results[j].name = name;
		hf_metric_add(&sum->results[j].n, hf_metric_read(&meter->results[i].n));
	}
}

static void on_meter(void *context, uint32_t number, uint32_t procedure, const char *name,
		     const struct hf_call_meter *meter)
{
	struct program *programs = context;

	for (size_t i = 0; i < MAX_PROGRAMS; i++) {
		struct calls *calls = &programs[i].procs[procedure];

		if (programs[i].number != number || procedure >= MAX_PROCS)
			continue;
		calls->procedure = name;
		merge_results(&calls->sum, meter);
		hf_histogram_merge(&calls->sum.duration, &meter->duration);
	}
}

static void put_program(FILE *out, const struct program *program)
{
	char labels[128];

	begin(out, program->requests);
	for (size_t i = 0; i < MAX_PROCS; i++) {
		const struct calls *calls = &program->procs[i];

		for (size_t j = 0; j < HF_METER_N_RESULTS && calls->sum.results[j].name; j++)
			fprintf(out, "%s{procedure=\"%s\",result=\"%s\"} %llu\n",
				hf_metrics[program->requests].name, calls->procedure,
				(const char *)calls->sum.results[j].name,
				(unsigned long long)hf_metric_read(&calls->sum.results[j].n));
	}
	begin(out, program->duration);
	for (size_t i = 0; i < MAX_PROCS; i++) {
		const struct calls *calls = &program->procs[i];

		if (!calls->procedure || !calls->sum.results[0].name)
			continue; /* omit procedures that were never called */
		snprintf(labels, sizeof(labels), "procedure=\"%s\",", calls->procedure);
		put_histogram(out, program->duration, labels, &calls->sum.duration);
	}
}

static void put_calls(FILE *out, const struct hf_api_rpc *rpc)
{
	struct program *programs = calloc(MAX_PROGRAMS, sizeof(*programs));

	if (!programs)
		return;
	programs[0] = (struct program){ 100024, HF_METRIC_NSM_REQUESTS, HF_METRIC_NSM_DURATION };
	programs[1] = (struct program){ 100021, HF_METRIC_NLM_REQUESTS, HF_METRIC_NLM_DURATION };
	programs[2] = (struct program){ 100003, HF_METRIC_NFS_REQUESTS, HF_METRIC_NFS_DURATION };
	programs[3] = (struct program){ 100005, HF_METRIC_MOUNT_REQUESTS, HF_METRIC_MOUNT_DURATION };
	if (rpc->meters)
		rpc->meters(rpc->user, on_meter, programs);
	for (size_t i = 0; i < MAX_PROGRAMS; i++)
		put_program(out, &programs[i]);
	free(programs);
}

/* The rest */

static void put_nsm(FILE *out, const struct hf_api_status *status, const struct hf_histogram *notices)
{
	const struct hf_recovery_counts *counts = &status->recovery;

	put_value(out, HF_METRIC_NSM_CLIENTS, status->n_registered);
	begin(out, HF_METRIC_NSM_NOTIFICATIONS);
	put_label(out, HF_METRIC_NSM_NOTIFICATIONS, "result", "started", counts->notifications_started);
	put_label(out, HF_METRIC_NSM_NOTIFICATIONS, "result", "success", counts->notifications_told);
	put_label(out, HF_METRIC_NSM_NOTIFICATIONS, "result", "failed", counts->notifications_failed);
	begin(out, HF_METRIC_NSM_NOTIFICATION_DURATION);
	put_histogram(out, HF_METRIC_NSM_NOTIFICATION_DURATION, "", notices);
	put_value(out, HF_METRIC_NSM_CRASHES, counts->crashes);
	put_value(out, HF_METRIC_NSM_CLEANUPS, counts->cleanups);
	put_value(out, HF_METRIC_NSM_LOCKS_CLEANED, counts->locks_cleaned);
}

/* Includes exports without locks: to queries that add and compare, a missing series is not 0. */
static void put_exports(FILE *out, const struct hf_api_request *request)
{
	json_t *exports = hf_api_exports_of(request->api->options.exports, request->rows, request->n_rows);
	const json_t *export;
	size_t i;

	begin(out, HF_METRIC_NLM_LOCKS);
	json_array_foreach(exports, i, export)
	{
		put_label(out, HF_METRIC_NLM_LOCKS, "share",
			  json_string_value(json_object_get(export, "name")),
			  (uint64_t)json_integer_value(json_object_get(export, "locks")));
	}
	json_decref(exports);
}

static void put_nlm(FILE *out, const struct hf_api_request *request)
{
	const struct hf_api_status *status = &request->status;

	put_exports(out, request);
	put_value(out, HF_METRIC_LOCKS_REVOKED, status->recovery.locks_revoked);
	put_seconds(out, HF_METRIC_SILENT_LOCK, status->silence_ns);
	put_seconds(out, HF_METRIC_SILENT_BLOCKER, status->blocking_silence_ns);
	put_value(out, HF_METRIC_SILENT_RELEASED, status->recovery.silent_released);
	put_value(out, HF_METRIC_NLM_WAITERS, status->locks.waiters);
	begin(out, HF_METRIC_NLM_GRANTS);
	put_label(out, HF_METRIC_NLM_GRANTS, "result", "told", status->grants_told);
	put_label(out, HF_METRIC_NLM_GRANTS, "result", "refused", status->grants_refused);
	put_label(out, HF_METRIC_NLM_GRANTS, "result", "abandoned", status->grants_abandoned);
	put_label(out, HF_METRIC_NLM_GRANTS, "result", "kept", status->grants_kept);
	put_label(out, HF_METRIC_NLM_GRANTS, "result", "retried", status->grants_retried);
	put_value(out, HF_METRIC_RESERVATIONS, status->locks.reservations);
	begin(out, HF_METRIC_TLS_REFUSED);
	for (int i = 0; i < HF_CLIENT_N_REFUSALS; i++)
		put_label(out, HF_METRIC_TLS_REFUSED, "reason", hf_client_refusal_names[i],
			  status->tls_refused[i]);
}

static void put_cluster(FILE *out, struct hf_cluster *cluster)
{
	static const enum hf_node_role roles[] = { HF_NODE_ACTIVE, HF_NODE_STANDBY, HF_NODE_MISMATCHED,
						   HF_NODE_STOPPING };
	struct hf_cluster_view view;

	hf_cluster_view(cluster, &view);
	begin(out, HF_METRIC_CLUSTER_ROLE);
	for (size_t i = 0; i < HF_ARRAY_SIZE(roles); i++) {
		const char *name = hf_node_role_name(roles[i]);

		put_label(out, HF_METRIC_CLUSTER_ROLE, "role", name,
			  strcmp(name, hf_node_role_name(view.role)) == 0);
	}
	begin(out, HF_METRIC_CLUSTER_TAKEOVERS);
	put_label(out, HF_METRIC_CLUSTER_TAKEOVERS, "result", "continued", view.n_continued);
	put_label(out, HF_METRIC_CLUSTER_TAKEOVERS, "result", "reclaimed", view.n_reclaimed);
	begin(out, HF_METRIC_CLUSTER_LEASE);
	fprintf(out, "%s %.3f\n", hf_metrics[HF_METRIC_CLUSTER_LEASE].name, (double)view.lease_left_ns / 1e9);
}

static void put_service(FILE *out, const struct hf_api_request *request,
			const struct hf_api_rpc_counts *counts)
{
	const struct hf_api_status *status = &request->status;
	const struct hf_api *api = request->api;

	begin(out, HF_METRIC_NFS_BYTES);
	put_label(out, HF_METRIC_NFS_BYTES, "direction", "read", counts->n_read);
	put_label(out, HF_METRIC_NFS_BYTES, "direction", "written", counts->n_written);
	put_value(out, HF_METRIC_GRACE, status->grace.is_active);
	put_value(out, HF_METRIC_UNRECLAIMED, status->locks.unreclaimed);
	put_value(out, HF_METRIC_STORE_HEALTHY, status->store_is_healthy);
	put_value(out, HF_METRIC_STORE_FAILURES, status->store_failures);
	begin(out, HF_METRIC_STORE_COMMIT);
	put_histogram(out, HF_METRIC_STORE_COMMIT, "", hf_recovery_commits(api->options.recovery));
	put_value(out, HF_METRIC_CONNECTIONS_REFUSED, counts->refused);
	put_value(out, HF_METRIC_CALLS_DROPPED, counts->dropped);
	put_value(out, HF_METRIC_CALLS_REPLAYED, counts->replayed);
	put_value(out, HF_METRIC_LOCK_BYTES, status->locks.bytes);
}

static void put_tls(FILE *out, struct hf_tls *tls)
{
	int64_t end;

	begin(out, HF_METRIC_TLS_HANDSHAKES);
	for (int i = 0; i < HF_TLS_N_RESULTS; i++)
		put_label(out, HF_METRIC_TLS_HANDSHAKES, "result", hf_tls_result_names[i],
			  hf_tls_counted(tls, (enum hf_tls_result)i));
	if (!hf_tls_expires(tls, &end))
		return;
	begin(out, HF_METRIC_TLS_EXPIRES);
	fprintf(out, "%s %lld\n", hf_metrics[HF_METRIC_TLS_EXPIRES].name,
		(long long)end - (long long)time(NULL));
}

static void put_https(FILE *out, struct hf_api *api)
{
	int64_t end;

	if (!hf_api_expires(api, &end))
		return;
	begin(out, HF_METRIC_API_EXPIRES);
	fprintf(out, "%s %lld\n", hf_metrics[HF_METRIC_API_EXPIRES].name,
		(long long)end - (long long)time(NULL));
	begin(out, HF_METRIC_API_HANDSHAKES);
	for (int i = 0; i < HF_TLS_N_RESULTS; i++)
		if (i != HF_TLS_REFUSED_CERTIFICATE) /* the API asks for none */
			put_label(out, HF_METRIC_API_HANDSHAKES, "result", hf_tls_result_names[i],
				  hf_metric_read(&api->handshakes[i]));
}

static void put_limits(FILE *out, const struct hf_limit_use *uses)
{
	static const enum hf_metric metrics[] = { HF_METRIC_LIMIT_USED, HF_METRIC_LIMIT_MAX,
						  HF_METRIC_LIMIT_REFUSED };

	for (size_t m = 0; m < HF_ARRAY_SIZE(metrics); m++) {
		begin(out, metrics[m]);
		for (size_t i = 0; i < HF_N_LIMITS; i++) {
			const uint64_t values[] = { uses[i].used, uses[i].max, uses[i].refused };

			if (uses[i].max)
				put_label(out, metrics[m], "limit", hf_limits[i].name, values[m]);
		}
	}
}

/* By client and export. A pair has all series of a metric or none, so that rates begin at the first call. */

static const struct {
	enum hf_metric metric;
	const char *label, *value;
} usage_series[HF_N_USAGE_COUNTERS] = {
	[HF_USAGE_READS] = { HF_METRIC_CLIENT_CALLS, "kind", "reads" },
	[HF_USAGE_WRITES] = { HF_METRIC_CLIENT_CALLS, "kind", "writes" },
	[HF_USAGE_METADATA] = { HF_METRIC_CLIENT_CALLS, "kind", "metadata" },
	[HF_USAGE_LOCKS] = { HF_METRIC_CLIENT_CALLS, "kind", "locks" },
	[HF_USAGE_BYTES_READ] = { HF_METRIC_CLIENT_BYTES, "direction", "read" },
	[HF_USAGE_BYTES_WRITTEN] = { HF_METRIC_CLIENT_BYTES, "direction", "written" },
	[HF_USAGE_ERRORS] = { HF_METRIC_CLIENT_ERRORS, NULL, NULL },
};

static void put_counter(FILE *out, size_t i, const char *client, const char *share,
			const struct hf_usage_counts *counts)
{
	fprintf(out, "%s{client=\"%s\",share=\"", hf_metrics[usage_series[i].metric].name, client);
	put_text(out, share);
	if (usage_series[i].label)
		fprintf(out, "\",%s=\"%s", usage_series[i].label, usage_series[i].value);
	fprintf(out, "\"} %llu\n", (unsigned long long)counts->n[i]);
}

static void put_usage(FILE *out, const struct hf_api_request *request)
{
	hf_cleanup(hf_api_usage_clear) struct hf_api_usage usage = { 0 };
	char client[HF_ADDR_TEXT];

	if (!request->usage || hf_api_usage_load(&usage, request) < 0)
		return;
	for (size_t i = 0; i < HF_N_USAGE_COUNTERS; i++) {
		if (i == 0 || usage_series[i].metric != usage_series[i - 1].metric)
			begin(out, usage_series[i].metric);
		for (size_t j = 0; j < usage.n; j++) {
			const struct hf_usage_row *row = &usage.rows[j];

			put_counter(out, i, hf_addr_format(&row->client, client, sizeof(client)),
				    hf_api_usage_share(&usage, row->export_id), &row->counts);
		}
		put_counter(out, i, "other", "", &usage.others);
	}
}

static void put_server(FILE *out, const struct hf_api_request *request,
		       const struct hf_api_rpc_counts *counts)
{
	const struct hf_api *api = request->api;

	begin(out, HF_METRIC_CONNECTIONS);
	/* The counts are read one after the other: one may have changed meanwhile. */
	put_label(out, HF_METRIC_CONNECTIONS, "transport", "tcp",
		  counts->connections - HF_MIN(counts->connections, counts->tls + counts->mtls));
	put_label(out, HF_METRIC_CONNECTIONS, "transport", "tls", counts->tls);
	put_label(out, HF_METRIC_CONNECTIONS, "transport", "mtls", counts->mtls);
	put_label(out, HF_METRIC_CONNECTIONS, "transport", "udp", counts->datagrams);
	put_label(out, HF_METRIC_CONNECTIONS, "transport", "http", hf_api_count_doors(request->api));
	put_value(out, HF_METRIC_EVENTS_LOST, hf_metric_read(&api->events.n_lost));
	put_value(out, HF_METRIC_START_TIME, api->started_wall / HF_NS_PER_S);
	begin(out, HF_METRIC_BUILD);
	put_label(out, HF_METRIC_BUILD, "version", HF_VERSION, 1);
}

char *hf_api_metrics_text(struct hf_api_request *request, size_t *lenp)
{
	const struct hf_api_options *options = &request->api->options;
	struct hf_api_rpc_counts counts = { 0 };
	char *text = NULL;
	FILE *out = open_memstream(&text, lenp);

	if (!out)
		return NULL;
	if (options->rpc.counts)
		options->rpc.counts(options->rpc.user, &counts);
	/* A standby has no service. Zeros would look like a failed store, and like locks that are gone. */
	if (!hf_api_is_standby(request->api)) {
		put_calls(out, &options->rpc);
		put_nsm(out, &request->status, &request->api->notices);
		put_nlm(out, request);
		put_service(out, request, &counts);
		put_limits(out, request->limits);
		put_usage(out, request);
	}
	if (options->cluster.cluster)
		put_cluster(out, options->cluster.cluster);
	if (options->tls)
		put_tls(out, options->tls);
	put_https(out, request->api);
	put_server(out, request, &counts);
	if (ferror(out) | fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}
