/* Names of what is locked. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"

struct hf_api_share_row;
struct hf_exports;

#define HF_API_MAX_PATH 4096

/* The path of the file of this handle, within its export; false: it cannot be known. Waits for a disk. */
bool hf_api_file_path(struct hf_exports *exports, struct hf_bytes handle, char *out, size_t size);

/* All shares: the exports in their order, with what @rows count for them; then those that are no exports any
 * more and still have locks. A new reference. */
json_t *hf_api_shares_of(struct hf_exports *exports, const struct hf_api_share_row *rows, size_t n_rows);
