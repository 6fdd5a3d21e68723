/*
 * A world for handlers and for the registrar without sockets: a loop whose clock
 * the test moves, and RPC calls made by hand (in place of rpc/call.c). Also under
 * the fuzz target.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop/backend.h"
#include "rpc/call.h"
#include "rpc/program.h"

/* Time */
struct fake_loop {
	struct hf_loop loop;
	uint64_t clock;
	uint64_t wall;
};

void fake_loop_init(struct fake_loop *fake);
void fake_loop_deinit(struct fake_loop *fake);
/* Lets time pass, turn by turn: timers that come due, and deferred tasks. */
void fake_loop_pass(struct fake_loop *fake, uint64_t ns);

/* Calls */
struct fake_caller {
	struct hf_loop *loop;
	const char *peer; /* "127.0.0.1:700" */
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
