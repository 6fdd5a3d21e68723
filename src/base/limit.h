/*
 * The limits that bound what peers can cause, one row each. The folder that has a limit counts
 * its use and its refusals, and shows them in an array with an entry for each row. GET
 * /api/v1/limits, /metrics and the manual page holdfast-metrics(7) are made from the table.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"

enum hf_limit {
	/* src/rpc */
	HF_LIMIT_CONNECTIONS,
	HF_LIMIT_CONNECTIONS_PER_ADDRESS,
	HF_LIMIT_RECORD_BYTES,
	HF_LIMIT_CALL_BYTES,
	HF_LIMIT_HANDSHAKES,
	HF_LIMIT_HANDSHAKES_PER_ADDRESS,
	HF_LIMIT_TLS_KEYS,
	HF_LIMIT_UDP_CALLS,
	HF_LIMIT_UDP_LISTS,
	HF_LIMIT_TLS_IDENTITIES,
	HF_LIMIT_CONTACTS,
	HF_LIMIT_CACHED_REPLIES,
	/* src/lock, in the order in which a request is refused */
	HF_LIMIT_WAITERS_PER_CLIENT,
	HF_LIMIT_WAITERS_PER_ADDRESS,
	HF_LIMIT_WAITERS_PER_FILE,
	HF_LIMIT_WAITERS,
	HF_LIMIT_LOCKS_PER_CLIENT,
	HF_LIMIT_LOCKS_PER_ADDRESS,
	HF_LIMIT_LOCKS_PER_FILE,
	HF_LIMIT_LOCKS,
	HF_LIMIT_LOCK_BYTES_PER_CLIENT,
	HF_LIMIT_LOCK_BYTES_PER_ADDRESS,
	HF_LIMIT_LOCK_BYTES,
	HF_LIMIT_OWNER_BYTES_PER_CLIENT,
	HF_LIMIT_OWNER_BYTES_PER_ADDRESS,
	HF_LIMIT_OWNER_BYTES,
	HF_LIMIT_RESERVATIONS_PER_CLIENT,
	HF_LIMIT_RESERVATIONS_PER_ADDRESS,
	HF_LIMIT_RESERVATIONS_PER_FILE,
	HF_LIMIT_RESERVATIONS,
	HF_LIMIT_LOCK_SEARCHES,
	/* src/client */
	HF_LIMIT_CLIENTS,
	HF_LIMIT_CLIENTS_PER_ADDRESS,
	HF_LIMIT_CLIENTS_UNCONFIRMED,
	/* src/export */
	HF_LIMIT_LOCAL_FILES,
	HF_LIMIT_NAME_LOOKUPS,
	HF_LIMIT_GROUP_LOOKUPS,
	HF_LIMIT_NAMES_REMEMBERED,
	HF_LIMIT_ADDRESSES_REMEMBERED,
	HF_LIMIT_USERS_REMEMBERED,
	HF_LIMIT_USAGE_PAIRS,
	/* src/proto */
	HF_LIMIT_UDP_LOCKS_UNCONFIRMED,
	HF_LIMIT_UDP_LOCKS_UNCONFIRMED_PER_ADDRESS,
	HF_LIMIT_UDP_MON_UNCONFIRMED,
	HF_LIMIT_UDP_MON_UNCONFIRMED_PER_ADDRESS,
	HF_LIMIT_TLS_NOTICES,
	HF_LIMIT_CACHED_MSG_REPLIES,
	HF_LIMIT_MOUNTS,
	HF_LIMIT_MOUNTS_PER_ADDRESS,
	HF_LIMIT_MAPPER_CONNECTIONS,
	HF_LIMIT_MAPPER_CONNECTIONS_PER_ADDRESS,
	HF_LIMIT_MAPPINGS,
	HF_LIMIT_MAPPINGS_UNPRIVILEGED,
	/* src/api */
	HF_LIMIT_API_CONNECTIONS,
	HF_LIMIT_API_ANSWER_BYTES,
	HF_LIMIT_EVENT_READERS,
	HF_N_LIMITS,
};

struct hf_limit_row {
	const char *name; /* in metrics and JSON */
	const char *help; /* what is counted, without a full stop */
	bool is_cache;    /* it may be full for ever: the oldest entry makes room, and no client is refused */
};

extern const struct hf_limit_row hf_limits[HF_N_LIMITS];

/* Of a limit for each client, address or file: the one that uses the most. */
struct hf_limit_use {
	uint64_t used;
	uint64_t max;      /* 0: this server does not have the limit */
	uint64_t refused;  /* of what forgets: entries that were forgotten early */
	struct hf_addr by; /* the address that uses the most, where it is known at once; family 0: none */
};
