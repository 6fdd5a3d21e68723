/*
 * Is the peer of an old connection still the one that opened it?
 *
 * The kernel of a host that was restarted does not know the connections of the
 * host's last life, and says so to who asks. A host that lives acknowledges. No
 * byte of the connection is used for that, and no peer can prevent it but by
 * silence. Only connections of the home lane, on its thread.
 */
#pragma once

#include <stdint.h>

struct hf_rpc_call;
struct hf_rpc_probe;

enum hf_rpc_pulse {
	HF_RPC_PULSE_NONE,   /* there is no such connection, or it was closed in order meanwhile */
	HF_RPC_PULSE_ALIVE,  /* the peer knows it */
	HF_RPC_PULSE_DEAD,   /* the peer is there, and does not know it */
	HF_RPC_PULSE_SILENT, /* no answer in time */
};

typedef void (*hf_rpc_pulse_fn)(void *user, enum hf_rpc_pulse pulse);

/* Of the connection with this number (hf_rpc_call_link()), at the server that serves @call. NULL: it is not
 * there, or cannot be asked. @fn is called once, later, unless the probe is cancelled. */
struct hf_rpc_probe *hf_rpc_probe_start(const struct hf_rpc_call *call, uint64_t number, uint64_t timeout_ns,
					hf_rpc_pulse_fn fn, void *user);
struct hf_rpc_probe *hf_rpc_probe_cancel(struct hf_rpc_probe *probe); /* NULL is fine. Returns NULL */
