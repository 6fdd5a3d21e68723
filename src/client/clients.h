/* The inside of src/client: the set of all clients and its indexes. */
#pragma once

#include "client/client.h"

#define HF_CLIENTS_MAX_WINDOWS 8

struct hf_clients_window_rule {
	const char *protocol;
	uint64_t window_ns;
};

/* An address and the clients there, of whatever protocol. */
struct hf_clients_host {
	struct hf_hash_node node;
	struct hf_addr address;
	struct hf_list clients;
};

struct hf_clients {
	struct hf_clients_options options;
	struct hf_hashtable by_id;
	struct hf_hashtable by_key;
	struct hf_hashtable hosts;
	struct hf_rb_tree all; /* by serial */
	struct hf_list idle;   /* registered, and hold nothing; the longest idle first */
	struct hf_timer sweep;
	struct hf_clients_window_rule windows[HF_CLIENTS_MAX_WINDOWS];
	size_t n_windows;
	size_t n;
	size_t n_registered;
	uint64_t serial;
	uint64_t quiet_until; /* monotonic ns: until then nobody is told again that it is full */
};

void hf_clients_forget(struct hf_client *client);
/* Its last user is done with it for now: does it hold nothing any more? */
void hf_clients_note_idle(struct hf_client *client);
