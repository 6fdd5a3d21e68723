/*
 * What a program offers: constant tables of versions and procedures, written with designated
 * initialisers, and the service object that its handlers get.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hf_rpc_call;

/* Serves one call: decodes the arguments, does the work, and ends the call, now or later (rpc/call.h). */
typedef void (*hf_rpc_handler_fn)(void *service, struct hf_rpc_call *call);

/* If a procedure must not take effect twice, its replies are cached for a while, and a repeated request gets
 * the same reply again (rpc/replay.h). */
enum hf_rpc_replay {
	HF_RPC_REPLAY_NO = 0, /* it may be executed again */
	HF_RPC_REPLAY_UDP,    /* only datagrams can be delayed and doubled on the way */
	HF_RPC_REPLAY_ALWAYS, /* a client that reconnects sends its call again, too */
};

struct hf_rpc_proc {
	const char *name; /* NULL: not there, answered with PROC_UNAVAIL */
	hf_rpc_handler_fn handle;
	enum hf_rpc_replay replay;
	/* Its reply is a list, and many times as long as the call. The source of a call over UDP may be
	 * forged, and its victim gets the list. So the server limits the lists to other hosts over UDP. */
	bool is_list;
	/* Its reply may be long: the call begins when there is memory for that (rpc/budget.c). Not for
	 * programs that are served only at home. */
	bool has_long_reply;
};

struct hf_rpc_version {
	uint32_t version;
	uint32_t n_procs;
	const struct hf_rpc_proc *procs; /* by number */
};

struct hf_rpc_program {
	uint32_t program;
	const char *name;
	uint32_t n_versions;
	const struct hf_rpc_version *versions; /* ascending */
	size_t max_request;   /* bytes of a call with its header; a longer one gets GARBAGE_ARGS */
	bool at_home;         /* served only on the loop that owns the locks */
	bool logs_slow_calls; /* by itself, because it knows more of them (rpc/log.c) */
};
