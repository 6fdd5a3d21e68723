/* The value of api.listen: where HTTP is served. */
#pragma once

#include <stdbool.h>

#include "base/addr.h"

enum hf_endpoint_kind {
	HF_ENDPOINT_OFF,
	HF_ENDPOINT_TCP,
	HF_ENDPOINT_UNIX,
};

struct hf_endpoint {
	enum hf_endpoint_kind kind;
	struct hf_addr addr; /* of HF_ENDPOINT_TCP */
	char path[108];      /* of HF_ENDPOINT_UNIX; as long as sun_path */
};

/* Parses "", "127.0.0.1:8049", "[::1]:0", "localhost:8049" (the IPv4 address), "unix:/run/holdfast.sock".
 * Names are not looked up: a configuration must not depend on a name server. Cannot fail for api.listen of a
 * valid hf_config. */
bool hf_endpoint_parse(struct hf_endpoint *endpoint, const char *text);
