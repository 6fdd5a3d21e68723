#include "base/limit.h"

const struct hf_limit_row hf_limits[HF_N_LIMITS] = {
	[HF_LIMIT_CONNECTIONS] = { "connections", "TCP connections of clients" },
	[HF_LIMIT_CONNECTIONS_PER_ADDRESS] = { "connections_per_address",
					       "TCP connections from one address" },
	[HF_LIMIT_RECORD_BYTES] = { "record_bytes", "Bytes of incomplete calls, in one loop" },
	[HF_LIMIT_CALL_BYTES] = { "call_bytes",
				  "Bytes of calls in progress and unread replies, in one loop" },
	[HF_LIMIT_HANDSHAKES] = { "tls_handshakes", "TLS handshakes under way in each loop" },
	[HF_LIMIT_TLS_KEYS] = { "tls_keys", "New keys of one TLS session without data between them" },
	[HF_LIMIT_UDP_CALLS] = { "udp_calls", "Calls over UDP in progress" },
	[HF_LIMIT_UDP_LISTS] = { "udp_lists",
				 "Lists of the port mapper and of MOUNT to other hosts over UDP" },
	[HF_LIMIT_WAITERS_PER_CLIENT] = { "waiters_per_client", "Waiters of one client" },
	[HF_LIMIT_WAITERS_PER_ADDRESS] = { "waiters_per_address", "Waiters of one address" },
	[HF_LIMIT_WAITERS_PER_FILE] = { "waiters_per_file", "Waiters in one file" },
	[HF_LIMIT_WAITERS] = { "waiters", "Waiters" },
	[HF_LIMIT_LOCKS_PER_CLIENT] = { "locks_per_client", "Locks and waiters of one client" },
	[HF_LIMIT_LOCKS_PER_ADDRESS] = { "locks_per_address", "Locks and waiters of one address" },
	[HF_LIMIT_LOCKS_PER_FILE] = { "locks_per_file", "Locks and waiters in one file" },
	[HF_LIMIT_LOCKS] = { "locks", "Locks and waiters" },
	[HF_LIMIT_LOCK_BYTES_PER_CLIENT] = { "lock_bytes_per_client",
					     "Memory for the locks, waiters and reservations of one client, "
					     "each counted at its greatest cost" },
	[HF_LIMIT_LOCK_BYTES_PER_ADDRESS] = { "lock_bytes_per_address", "Memory for the locks, waiters and "
									"reservations of one address, "
									"each counted at its greatest cost" },
	[HF_LIMIT_LOCK_BYTES] = { "lock_bytes", "Memory for locks, waiters and reservations, each counted at "
						"its greatest cost" },
	[HF_LIMIT_OWNER_BYTES] = { "owner_bytes", "Memory for owner handles of more than 70 bytes" },
	[HF_LIMIT_RESERVATIONS_PER_CLIENT] = { "reservations_per_client", "Reservations of one client" },
	[HF_LIMIT_RESERVATIONS_PER_ADDRESS] = { "reservations_per_address", "Reservations of one address" },
	[HF_LIMIT_RESERVATIONS_PER_FILE] = { "reservations_per_file", "Reservations in one file" },
	[HF_LIMIT_RESERVATIONS] = { "reservations", "Reservations" },
	[HF_LIMIT_LOCK_SEARCHES] = { "lock_searches",
				     "Steps of searches of the lock table, as an address may cause them" },
	[HF_LIMIT_CLIENTS] = { "clients", "Registered clients (recovery.max_clients)" },
	[HF_LIMIT_CLIENTS_PER_ADDRESS] = { "clients_per_address", "Registered clients at one address "
								  "(recovery.max_clients_per_address)" },
	[HF_LIMIT_CLIENTS_UNCONFIRMED] = { "clients_unconfirmed",
					   "Registered clients that call over UDP and whose hosts have not "
					   "answered" },
	[HF_LIMIT_LOCAL_FILES] = { "local_files", "Files that are open for local_locks" },
	[HF_LIMIT_NAME_LOOKUPS] = { "name_lookups",
				    "Names, or addresses, of clients that wait to be looked up" },
	[HF_LIMIT_GROUP_LOOKUPS] = { "group_lookups", "Users whose groups wait to be looked up" },
	[HF_LIMIT_UDP_LOCKS_UNCONFIRMED] = { "udp_locks_unconfirmed",
					     "Lock calls over UDP that wait for their host to answer" },
	[HF_LIMIT_UDP_MON_UNCONFIRMED] = { "udp_mon_unconfirmed", "SM_MON and SM_UNMON over UDP that wait "
								  "for their host to answer" },
	[HF_LIMIT_MAPPER_CONNECTIONS] = { "mapper_connections",
					  "TCP connections to the embedded port mapper" },
	[HF_LIMIT_MAPPINGS] = { "mappings", "Mappings of other programs in the embedded port mapper" },
	[HF_LIMIT_MAPPINGS_UNPRIVILEGED] = { "mappings_unprivileged",
					     "Mappings from unprivileged ports in the embedded port mapper" },
	[HF_LIMIT_API_CONNECTIONS] = { "api_connections", "Connections to the API" },
	[HF_LIMIT_EVENT_READERS] = { "event_readers", "Readers of /api/v1/events" },
};
