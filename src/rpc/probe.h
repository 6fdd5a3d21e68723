/*
 * Does the peer of an old connection still know it?
 *
 * After a restart a host's kernel does not know the connections from before, and says so
 * when it is asked. A host that was not restarted acknowledges. This uses no byte of the
 * connection, and a peer can prevent it only by silence. Only for connections of the home lane,
 * on its thread.
 */
#pragma once

#include <stdint.h>

struct hf_rpc_call;
struct hf_rpc_probe;

enum hf_rpc_pulse {
	HF_RPC_PULSE_NONE,   /* there is no such connection, or it ended meanwhile without an answer to the
				question */
	HF_RPC_PULSE_ALIVE,  /* the peer knows it */
	HF_RPC_PULSE_DEAD,   /* the peer was asked, is there, and does not know it */
	HF_RPC_PULSE_SILENT, /* no answer in time */
};

typedef void (*hf_rpc_pulse_fn)(void *user, enum hf_rpc_pulse pulse);

/* Probes the connection with this number (hf_rpc_call_link()) of the server that serves @call. NULL: it does
 * not exist, or cannot be probed. @fn is called once, later, unless the probe is cancelled. */
struct hf_rpc_probe *hf_rpc_probe_start(const struct hf_rpc_call *call, uint64_t number, uint64_t timeout_ns,
					hf_rpc_pulse_fn fn, void *user);
struct hf_rpc_probe *hf_rpc_probe_cancel(struct hf_rpc_probe *probe); /* NULL does nothing. Returns NULL */
