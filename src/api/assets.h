/* Files that are part of the program: the page and the API description. embed.py makes them. */
#pragma once

#include <stddef.h>

struct hf_api_asset {
	const char *data;
	size_t len;
	const char *type;
	const char *csp; /* contains the hashes of the page's own scripts and styles, so that no others run */
};

extern const struct hf_api_asset hf_api_dashboard;
extern const struct hf_api_asset hf_api_openapi;
