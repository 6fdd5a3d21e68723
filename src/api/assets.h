/* Files that are part of the program: the page and the description; made by embed.py. */
#pragma once

#include <stddef.h>

struct hf_api_asset {
	const char *data;
	size_t len;
	const char *type;
	const char *csp; /* with the hashes of its own scripts and styles, so that nothing else runs */
};

extern const struct hf_api_asset hf_api_dashboard;
extern const struct hf_api_asset hf_api_openapi;
