/* Calls to the RPC services of a host, all at once, as the server's SM_NOTIFY and GRANTED calls would go. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "rpc/client.h"

#define CLI_PORTMAP_PORT 111

struct cli_examination;

struct cli_question {
	const char *service;
	uint32_t program, version;
	uint16_t port; /* 0: look it up in the host's rpcbind */
	enum hf_rpc_path path;
	const char *breaks, *mend; /* for the caller's messages */

	/* The answer */
	enum hf_rpc_outcome outcome;
	enum hf_rpc_stage stage;
	struct hf_addr remote;
	struct cli_examination *examination;
};

/* Sends NULL calls to @addr; returns when each is answered, or has timed out after five seconds. */
int cli_doctor_ask(struct cli_question *questions, size_t n, const struct hf_addr *addr);
