/* Use by client and export. look on the loop, the rest on the HTTP thread: the tables belong to no thread. */
#include "api/usage.h"

#include <stdlib.h>
#include <string.h>

#include "api/internal.h"

const char *const hf_api_usage_names[HF_N_USAGE_COUNTERS] = {
	[HF_USAGE_READS] = "reads",           [HF_USAGE_WRITES] = "writes",
	[HF_USAGE_METADATA] = "metadata",     [HF_USAGE_LOCKS] = "locks",
	[HF_USAGE_BYTES_READ] = "bytes_read", [HF_USAGE_BYTES_WRITTEN] = "bytes_written",
	[HF_USAGE_ERRORS] = "errors",
};

/* The rows */

const char *hf_api_usage_share(const struct hf_api_usage *usage, uint64_t export_id)
{
	if (export_id == HF_USAGE_ANOTHER_SERVER)
		return "";
	for (size_t i = 0; i < usage->exports.n; i++)
		if (usage->exports.items[i]->id == export_id)
			return usage->exports.items[i]->settings.name;
	return NULL;
}

static void add_to_others(struct hf_usage_counts *others, const struct hf_usage_counts *counts)
{
	for (size_t i = 0; i < HF_N_USAGE_COUNTERS; i++)
		others->n[i] += counts->n[i];
	others->last_used = HF_MAX(others->last_used, counts->last_used);
}

/* An export that is gone has no name; two of them could not be told apart. */
static void fold_gone_exports(struct hf_api_usage *usage)
{
	size_t n = 0;

	for (size_t i = 0; i < usage->n; i++)
		if (hf_api_usage_share(usage, usage->rows[i].export_id))
			usage->rows[n++] = usage->rows[i];
		else
			add_to_others(&usage->others, &usage->rows[i].counts);
	usage->n = n;
}

int hf_api_usage_load(struct hf_api_usage *usage, const struct hf_api_request *request)
{
	struct hf_exports *exports = request->api->options.exports;
	int r = hf_usage_list(request->usage, &usage->rows, &usage->n, &usage->others);

	if (r == 0 && exports)
		r = hf_exports_list(exports, &usage->exports);
	if (r == 0)
		fold_gone_exports(usage);
	return r;
}

void hf_api_usage_clear(struct hf_api_usage *usage)
{
	hf_export_list_clear(&usage->exports);
	free(usage->rows);
}

/* Sorting: the greatest first, then by address and export */

struct sorted {
	uint64_t weight;
	const struct hf_usage_row *row;
};

static uint64_t weight_of(const struct hf_usage_counts *counts, const char *sort)
{
	if (strcmp(sort, "calls") == 0)
		return hf_usage_calls(counts);
	if (strcmp(sort, "bytes") == 0)
		return counts->n[HF_USAGE_BYTES_READ] + counts->n[HF_USAGE_BYTES_WRITTEN];
	for (size_t i = 0; i < HF_N_USAGE_COUNTERS; i++)
		if (strcmp(sort, hf_api_usage_names[i]) == 0)
			return counts->n[i];
	return strcmp(sort, "last_used") == 0 ? counts->last_used : 0;
}

static bool is_sort(const char *sort)
{
	static const char *const others[] = { "address", "calls", "bytes", "last_used" };

	for (size_t i = 0; i < HF_ARRAY_SIZE(others); i++)
		if (strcmp(sort, others[i]) == 0)
			return true;
	for (size_t i = 0; i < HF_N_USAGE_COUNTERS; i++)
		if (strcmp(sort, hf_api_usage_names[i]) == 0)
			return true;
	return false;
}

static int by_weight(const void *a, const void *b)
{
	const struct sorted *x = a, *y = b;

	if (x->weight != y->weight)
		return x->weight < y->weight ? 1 : -1;
	return (x->row > y->row) - (x->row < y->row); /* they come ordered */
}

static const char *sort_of(const struct hf_api_request *request)
{
	const char *sort = hf_api_target_param(&request->target, "sort");

	return sort ? sort : "calls";
}

static bool is_wanted(const struct hf_api_request *request, const struct hf_api_usage *usage,
		      const struct hf_usage_row *row)
{
	const char *address = hf_api_target_param(&request->target, "address");
	const char *share = hf_api_target_param(&request->target, "share");
	char text[HF_ADDR_TEXT];

	if (address && strcmp(address, hf_addr_format(&row->client, text, sizeof(text))) != 0)
		return false;
	return !share || strcmp(share, hf_api_usage_share(usage, row->export_id)) == 0;
}

static size_t sort_rows(const struct hf_api_request *request, const struct hf_api_usage *usage,
			struct sorted *sorted)
{
	size_t n = 0;

	for (size_t i = 0; i < usage->n; i++)
		if (is_wanted(request, usage, &usage->rows[i]))
			sorted[n++] = (struct sorted){ weight_of(&usage->rows[i].counts, sort_of(request)),
						       &usage->rows[i] };
	qsort(sorted, n, sizeof(*sorted), by_weight);
	return n;
}

/* The call */

int hf_api_query_usage(struct hf_api_request *request)
{
	const struct hf_api *api = request->api;

	if (!api->usage)
		hf_api_fail(request, 404, "off",
			    "Calls are not counted by client: set metrics.per_client to true, and reload.");
	else if (!is_sort(sort_of(request)))
		hf_api_fail(request, 400, "bad_request",
			    "sort must be calls, bytes, address, last_used, or the name of a counter.");
	request->usage = api->usage;
	request->wall_offset = hf_loop_wall(api->options.loop) - hf_loop_clock(api->options.loop);
	return HF_API_DONE;
}

static json_t *counts_of(const struct hf_api_request *request, const struct hf_usage_counts *counts)
{
	json_t *json = json_pack("{s:I}", "calls", (json_int_t)hf_usage_calls(counts));

	for (size_t i = 0; i < HF_N_USAGE_COUNTERS; i++)
		json_object_set_new(json, hf_api_usage_names[i], json_integer((json_int_t)counts->n[i]));
	json_object_set_new(json, "last_used",
			    hf_api_render_time(counts->last_used ? counts->last_used + request->wall_offset
								 : 0));
	return json;
}

static json_t *row_of(const struct hf_api_request *request, const struct hf_api_usage *usage,
		      const struct hf_usage_row *row)
{
	json_t *json = counts_of(request, &row->counts);
	char address[HF_ADDR_TEXT];

	json_object_set_new(json, "address",
			    json_string(hf_addr_format(&row->client, address, sizeof(address))));
	json_object_set_new(json, "share", json_string(hf_api_usage_share(usage, row->export_id)));
	return json;
}

json_t *hf_api_render_usage(struct hf_api_request *request)
{
	hf_cleanup(hf_api_usage_clear) struct hf_api_usage usage = { 0 };
	hf_cleanup(hf_freep) struct sorted *sorted = NULL;
	json_t *items, *page;
	size_t n, from;

	if (hf_api_usage_load(&usage, request) < 0 || !(sorted = calloc(usage.n + 1, sizeof(*sorted))))
		return NULL;
	n = sort_rows(request, &usage, sorted);
	items = json_array();
	from = HF_MIN((size_t)request->cursor[0], n);
	for (size_t i = from; i < n && i < from + request->limit; i++)
		json_array_append_new(items, row_of(request, &usage, sorted[i].row));
	request->has_next = from + request->limit < n;
	request->next[0] = from + request->limit;
	page = hf_api_render_page("usage", items, request);
	json_object_set_new(page, "other", counts_of(request, &usage.others));
	return page;
}
