/* Where HTTP is served: the value of api.listen. */
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
	char path[108];      /* of HF_ENDPOINT_UNIX: as long as sun_path */
};

/* "", "127.0.0.1:8049", "[::1]:0", "localhost:8049" (the IPv4 one), "unix:/run/holdfast.sock". Names are not
 * looked up: a configuration must not depend on a name server. Cannot fail for api.listen of a hf_config. */
bool hf_endpoint_parse(struct hf_endpoint *endpoint, const char *text);
