/* Whether another server has a port of this server: asked before a start that should step aside for it. */
#pragma once

#include <stddef.h>

struct hf_config;

enum { /* answers of hf_port_check() */
	HF_PORTS_FREE = 0,
	HF_PORTS_TAKEN, /* @error says which, and what to do */
};

/* Binds the configured ports and closes them again. What else prevents a server from listening is left for
 * its start. */
int hf_port_check(const struct hf_config *config, char *error, size_t error_size);
