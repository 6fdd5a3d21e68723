/*
 * RPC calls made by hand, in place of rpc/call.c: for handlers and for the registrar
 * without sockets. Also under the fuzz target.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rpc/call.h"
#include "rpc/program.h"

struct fake_caller {
	struct hf_loop **loop; /* where the test has it */
	const char *peer;      /* "127.0.0.1:700" */
	const char *local;
	enum hf_rpc_transport transport;
};

struct fake_reply {
	enum hf_rpc_accept stat;
	uint8_t data[256 * 1024];
	size_t len;
};

/* As the server would: the procedure's handler, or the error that fits. */
void fake_call(struct fake_reply *reply, const struct hf_rpc_program *program, void *service,
	       const struct fake_caller *caller, uint32_t version, uint32_t procedure, const void *args,
	       size_t args_len);
