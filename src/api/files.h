/* The names of locked files. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"

struct hf_api_export_row;
struct hf_exports;

#define HF_API_MAX_PATH 4096

/* The path of a handle's file within its export. false: unknown. May wait for a disk. */
bool hf_api_file_path(struct hf_exports *exports, struct hf_bytes handle, char *out, size_t size);

/* All exports in their order, with the counts of @rows; then former exports that still have locks. Returns a
 * new reference. */
json_t *hf_api_exports_of(struct hf_exports *exports, const struct hf_api_export_row *rows, size_t n_rows);
