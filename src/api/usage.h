/* What the tables of src/export/usage.h say, with the names of exports. On the HTTP thread. */
#pragma once

#include "export/export.h"
#include "export/usage.h"

struct hf_api_request;

struct hf_api_usage {
	struct hf_usage_row *rows; /* of exports that are there */
	size_t n;
	struct hf_usage_counts others; /* includes what exports had that are gone */
	struct hf_export_list exports;
};

extern const char *const hf_api_usage_names[HF_N_USAGE_COUNTERS];

/* Clear it in any case. < 0: no memory. */
int hf_api_usage_load(struct hf_api_usage *usage, const struct hf_api_request *request);
void hf_api_usage_clear(struct hf_api_usage *usage);
const char *hf_api_usage_share(const struct hf_api_usage *usage, uint64_t export_id); /* NULL: it is gone */
