/* The inside of src/client: the set of all clients and its indexes. */
#pragma once

#include <net/if.h>

#include "base/log.h"
#include "client/client.h"

#define HF_CLIENTS_MAX_WINDOWS 8

struct hf_clients_window_rule {
	const char *protocol;
	uint64_t window_ns;
};

/* In this order clients give their place to a new client. None of them has locks. */
enum hf_clients_rank {
	HF_CLIENTS_UNHEARD,     /* registered by SM_MON, never confirmed */
	HF_CLIENTS_UNCONFIRMED, /* without a call-back, never confirmed */
	HF_CLIENTS_IDLE,        /* without a call-back */
	HF_CLIENTS_ANSWERED,    /* registered by SM_MON; its host answers, but the call may be forged */
	HF_CLIENTS_N_RANKS,
	HF_CLIENTS_STAYS = HF_CLIENTS_N_RANKS,
};

/* The group in which a registered client without a call-back is counted. */
enum hf_clients_standing {
	HF_CLIENTS_UNCOUNTED,
	HF_CLIENTS_UNMET,     /* not confirmed */
	HF_CLIENTS_BY_ANSWER, /* confirmed by its host's answer only */
};

/* An address and its clients, of any protocol. */
struct hf_clients_host {
	struct hf_hash_node node;
	struct hf_addr address;
	char interface[IF_NAMESIZE]; /* of a link-local address, if its name is known */
	struct hf_list clients;
	size_t n_registered;
	size_t n_by_answer; /* of them */
	struct hf_lock_group group;
	bool has_lost_one; /* a client was unregistered that had connected and was not the only one here */
	struct hf_rb_node by_size; /* in clients->by_size, while n_registered is not 0 */
	struct hf_list idle[HF_CLIENTS_N_RANKS];
};

struct hf_clients {
	struct hf_clients_options options;
	struct hf_hashtable by_id;
	struct hf_hashtable by_key;
	struct hf_hashtable hosts;
	struct hf_rb_tree all;                   /* by serial */
	struct hf_rb_tree by_name;               /* by the hash of the name, then by serial */
	struct hf_rb_tree by_size;               /* hosts, by n_registered */
	struct hf_list idle[HF_CLIENTS_N_RANKS]; /* the client that is idle longest comes first */
	struct hf_timer sweep;
	struct hf_clients_window_rule windows[HF_CLIENTS_MAX_WINDOWS];
	size_t n_windows;
	size_t n;
	size_t n_registered;
	size_t n_unmet; /* of them */
	size_t max_unmet;
	uint64_t serial;
	uint64_t n_evicted;
	uint64_t refused[HF_N_LIMITS];
	uint64_t refused_for_tls[HF_CLIENT_N_REFUSALS];
	struct hf_log_limit refusals;
	struct hf_log_limit evictions;
	struct hf_log_limit drops; /* of addresses that clients use */
};

void hf_clients_forget(struct hf_client *client);

/* places.c */
void hf_places_init_host(struct hf_clients_host *host);
/* The client's locks, or what is known of it, may have changed: puts it into the right list. */
void hf_places_note(struct hf_client *client);
/* Takes it out of the lists. */
void hf_places_leave(struct hf_client *client);
/* The bound on registered clients that are not confirmed. */
size_t hf_places_max_unmet(size_t max_registered);
/* May its host's answer confirm it? */
bool hf_places_may_confirm(const struct hf_client *client);
/* One more registered client at its address, or one less. Set registered_at before. */
void hf_places_count(struct hf_client *client, bool is_more);
/* Is there a place for @client? May unregister another client for it. */
bool hf_places_make_room(struct hf_client *client);
/* Unregisters clients without a call-back that have had no locks since before @limit (monotonic ns). */
void hf_places_sweep(struct hf_clients *clients, uint64_t limit);
