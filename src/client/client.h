/*
 * The clients: peers with a stable identity, of any protocol.
 *
 *	client.c     one client: references, registration, state numbers, window
 *	clients.c    the set of clients: finding, making, forgetting
 *	places.c     which client may be registered when places are few?
 *	binding.c    which certificates may use a client's name?
 *	host_name.c  which names may mean one host? (an index)
 *	clients.h    the inside of the folder
 *
 * A client is (protocol, address, name). Its id is "protocol:address:name". Its transport and
 * port do not count. The server knows a client while there is a reference to it, while it is
 * registered, or while it has anything in the lock table. A registered client is in the
 * store, and can come back after the server's restart in the way of its protocol.
 * max_clients bounds the registered clients.
 *
 * A protocol whose clients depend on a connection (SMB) says when a client is disconnected
 * and when it is back. With the disconnection the window of its protocol begins. If the
 * client is not back at its end, it has crashed. For NLM and NSM a broken connection means
 * nothing. A crash is the same for all protocols: the events table is told, and the client's
 * locks are released.
 *
 * All of this belongs to the home loop's thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/hashtable.h"
#include "base/list.h"
#include "base/rbtree.h"
#include "base/siphash.h"
#include "lock/lock.h"
#include "loop/timer.h"

struct hf_clients;
struct hf_clients_host;
struct hf_nsm_baseline;
struct hf_recovery_client;
struct hf_tls_peer;

#define HF_CLIENT_MAX_NAME 1024
#define HF_CLIENT_PRIV     16
#define HF_CLIENT_PAST     4
#define HF_CLIENT_TAGS     4
#define HF_CLIENT_WAYS     2 /* transports */

#define HF_CLIENT_RAISED_BY 2 /* each restart of a client raises its state number by 2 */

enum hf_client_status {
	HF_CLIENT_ACTIVE,
	HF_CLIENT_NOTIFIED,    /* it knows of the server's restart */
	HF_CLIENT_UNREACHABLE, /* it could not be told yet, and lost nothing by that */
	HF_CLIENT_CRASHED,     /* its locks were released */
};

const char *hf_client_status_name(enum hf_client_status status);

/* The program to call back; host is NULL if there is none. */
struct hf_client_callback {
	char *host;
	uint32_t program;
	uint32_t version;
	uint32_t procedure;
};

/* A state number that the client had. A message with it counts as a delayed one until @until (monotonic ns).
 */
struct hf_client_past {
	int32_t state;
	bool is_proven; /* see is_state_proven */
	uint64_t until;
};

/* Locks that were taken while a notice was being checked carry @tag instead of @said, the number in the
 * client's LOCKs. 0: the LOCKs had none, or several. */
struct hf_client_tag {
	int32_t tag;
	int32_t said;
};

/* Why a call was refused for lack of TLS, or of the right certificate */
enum hf_client_refusal {
	HF_CLIENT_NO_CONNECTION, /* its address has no TLS connection as the export demands it */
	HF_CLIENT_NOT_NAMED,     /* no name of its certificate is in the export's identities */
	HF_CLIENT_NAME_TAKEN,    /* the client's name belongs to another identity */
	HF_CLIENT_DATAGRAM,      /* it came over UDP, and the client calls over TCP */
	HF_CLIENT_NO_PROOF,      /* it tells of a restart, and its host has not connected again since */
	HF_CLIENT_N_REFUSALS,
};

extern const char *const hf_client_refusal_names[HF_CLIENT_N_REFUSALS];

/* Every folder may read it. A field that another folder sets says so; the rest changes through the functions
 * below. */
struct hf_client {
	struct hf_clients *clients;
	struct hf_lock_client locking; /* its part of the lock table */
	const char *protocol;          /* a constant: "nlm", "nsm", "smb" */
	char *id;
	char *name;
	size_t name_len;
	char *mon_name;         /* the host that it asked to monitor; NULL: itself */
	struct hf_addr address; /* port 0 */
	struct hf_addr local;   /* the server's address that notices to it leave from; port 0 */
	char *other_locals;     /* further ones that it used, as text with blanks between; NULL: none */
	uint32_t n_dropped;     /* how many left other_locals: each time the others get new numbers */
	int32_t named_state;    /* inside: see hf_client_note_named() */
	size_t n_named;         /* likewise */
	struct hf_client_callback callback;
	uint8_t priv[HF_CLIENT_PRIV];
	/* The number of its life is a part of what the client is: src/client, proto/nlm and proto/nsm compare
	 * by it (below), and src/recovery sets it. */
	int32_t sm_state;      /* its own state number; 0: unknown */
	bool is_state_proven;  /* its statd gave it, or its host over TCP from a reserved port */
	bool is_restart_shown; /* of proto/nsm: its host showed the restart that brought sm_state, and its
				* statd gives the number before */
	bool has_connected;    /* of proto/nlm: it called by its name over TCP since the server's start */
	bool is_privileged_by_datagram; /* likewise: what made it privileged since the start may be forged */
	int32_t lock_state;    /* the number in its LOCKs since sm_state changed; 0: none. It may be older: a
				* statd that was started too early gives the old number until it ends */
	int32_t doubted_state; /* of proto/nsm: the number of the notice that is being checked; 0: none */
	int32_t doubt_tag;     /* the number of locks that it takes meanwhile; 0: none */
	uint64_t doubted_at;   /* monotonic ns, when that notice came */
	struct hf_client_tag tags[HF_CLIENT_TAGS]; /* inside: of the last checks, the latest first */
	int32_t refused_state;  /* of proto/nlm: a number in a LOCK that was not believed (state_number.c) */
	uint64_t refused_until; /* monotonic ns: the number is not checked again before this */
	bool is_refusal_sure;   /* likewise: its host denied the number */
	struct hf_client_past past[HF_CLIENT_PAST];
	enum hf_client_status status;
	uint64_t registered_at;         /* wall ns; 0: it is not registered */
	bool is_local_stored;           /* it is registered, with local and other_locals as they are */
	uint64_t last_seen;             /* wall ns */
	uint64_t seen_at;               /* monotonic ns, of the turn in which last_seen was set */
	uint64_t met_at;                /* monotonic ns, when it was made; 0: in an earlier epoch */
	uint64_t called_at;             /* monotonic ns, of its last call under its own name; 0: none yet */
	uint64_t answered_at;           /* monotonic ns, when its host answered a call of the server last */
	uint16_t ports[HF_CLIENT_WAYS]; /* the ports that it called from last, by transport; 0: none yet */
	uint64_t registration_ticket;   /* of the store: durable replies to it wait for this, too */
	struct hf_recovery_client *recovery; /* of src/recovery: made and freed with the client */
	bool is_privileged;      /* it locked from a reserved port: only such a port may change its locks */
	bool is_secured;         /* it locked in an export that demands TLS, see binding.c */
	char *identity;          /* names of certificates with blanks between; NULL: none is demanded */
	uint64_t vouched;        /* of proto/nlm: see rpc/presence.h, the connections that had begun when its
				  * last such call was served */
	uint64_t vouched_at;     /* monotonic ns, of that call, unless it had the number of a restart that is
				  * being checked */
	uint64_t n_refused;      /* calls in its name that were refused for lack of TLS */
	uint8_t refusals_logged; /* inside: a bit for each reason */
	struct hf_nsm_baseline *baseline; /* of proto/nsm: its host's first answers; while it is registered */
	uint64_t link; /* of proto/nsm: the connection of its first lock; 0: none, see rpc/probe.h */
	bool is_disconnected;
	bool is_pinned; /* stays registered even without locks: it must still be told of the server's restart,
			 * or may reclaim locks that the store does not have */
	bool is_confirmed; /* it called over TCP or from this host, or its host answered the server */
	bool has_answered; /* its host answered a call of the server since the server's start */
	bool is_certain;   /* it called over TCP or from this host: no other host can do that in its name */
	uint8_t standing;  /* inside: the group that it is counted in, see places.c */
	uint8_t idle_rank; /* inside: the list that idle_link is in */
	uint64_t serial;   /* rises with each client made; lists are in this order */
	/* Inside */
	size_t n_refs;
	struct hf_timer window;
	struct hf_hash_node by_id;
	struct hf_hash_node by_key; /* (protocol, address, name) */
	struct hf_rb_node by_serial;
	struct hf_rb_node by_name; /* by name_hash, then by serial */
	uint64_t name_hash;        /* see host_name.h */
	struct hf_clients_host *host;
	struct hf_link host_link;
	struct hf_link idle_link;    /* places.c: its place can go to another client */
	struct hf_link idle_at_host; /* the same, among the clients at its address */
	uint64_t idle_since;         /* monotonic ns */
	uint64_t idle_mark;          /* see struct hf_client_events */
};

static inline struct hf_bytes hf_client_name(const struct hf_client *client)
{
	return hf_bytes_of(client->name, client->name_len);
}

static inline bool hf_client_is_registered(const struct hf_client *client)
{
	return client->registered_at != 0;
}

/*
 * Which state number of a client counts as known depends on the question.
 *
 *	is a message old, is a statd another's    the proven number alone. A forger can say any other number.
 *	does a LOCK tell of a restart             hf_client_life_state(). If a forger could raise it, the
 *	                                          client's next number would look old. If a forger could lower
 *	                                          it, the client's own number would look like a restart.
 *	is a message a copy                       sm_state, proven or not, and only if it is equal. A number
 *	                                          that is not proven has no order: it may be far off.
 */

/* The state number, if no forged datagram can have given it; else 0. */
static inline int32_t hf_client_proven_state(const struct hf_client *client)
{
	return client->is_state_proven ? client->sm_state : 0;
}

/* The number of the life in which the client took what it has: the proven number, else the number in its
 * LOCKs. A client whose LOCKs carry none has the number that was said last. */
static inline int32_t hf_client_life_state(const struct hf_client *client)
{
	return client->is_state_proven || !client->lock_state ? client->sm_state : client->lock_state;
}

static inline bool hf_client_is_newer(int32_t state, int32_t than)
{
	return (int32_t)((uint32_t)state - (uint32_t)than) > 0;
}

/* Has one restart brought @state after @than? */
static inline bool hf_client_is_next(int32_t state, int32_t than)
{
	return (uint32_t)state - (uint32_t)than == HF_CLIENT_RAISED_BY;
}

/* More than one restart would have to lie between @than and @state. */
static inline bool hf_client_is_far_above(int32_t state, int32_t than)
{
	return (int32_t)((uint32_t)state - (uint32_t)than) > HF_CLIENT_RAISED_BY;
}

/* A LOCK came with this number, which may be forged. While the client has something, only the proven number
 * takes the place of the number in earlier LOCKs. */
void hf_client_note_lock_state(struct hf_client *client, int32_t state);

/* Its crash would release nothing: it has no lock, waits for none, and has none to reclaim. */
bool hf_client_has_nothing(const struct hf_client *client);

/* Tells the owner of the clients what happens. Only `crashed` may change clients. */
struct hf_client_events {
	/* Its record for src/recovery is cleared. May be NULL. */
	void (*made)(void *user, struct hf_client *client);
	/* Stores the client; gives the ticket. An error refuses the registration. */
	int (*registered)(void *user, struct hf_client *client, uint64_t *ticketp);
	void (*unregistered)(void *user, struct hf_client *client);
	/* The number of the last change of a lock, for idle_mark. */
	uint64_t (*mark)(void *user);
	/* May it be unregistered? The store must have its registration, and none of its locks any more. Both
	 * may be NULL. */
	bool (*may_leave)(void *user, const struct hf_client *client);
	/* May it still reclaim locks that are no longer in the lock table? May be NULL. */
	bool (*may_reclaim)(void *user, const struct hf_client *client);
	/* Its window is over, or there is other evidence. The receiver releases its locks. */
	void (*crashed)(void *user, struct hf_client *client);
	/* Its window is over, and it was back in time. May be NULL. */
	void (*window_over)(void *user, struct hf_client *client);
};

struct hf_clients_options {
	struct hf_loop *loop;
	struct hf_locks *locks;
	struct hf_siphash_key key;
	size_t max_registered;
	size_t max_per_address; /* of registered clients; 0: half of max_registered */
	uint64_t window_ns;     /* unless a protocol has its own */
	uint64_t idle_ns;       /* a client without locks is unregistered after this time; 0: never */
	size_t recovery_size;   /* of struct hf_recovery_client */
	const struct hf_client_events *events;
	void *user;
};

int hf_clients_new(struct hf_clients **clientsp, const struct hf_clients_options *options);
struct hf_clients *hf_clients_free(struct hf_clients *clients); /* after all references are gone */

HF_DEFINE_CLEANUP(struct hf_clients *, hf_clients_free)

/* From now on; @max_per_address 0: half of @max_registered. Clients beyond a smaller limit stay. */
void hf_clients_set_max(struct hf_clients *clients, size_t max_registered, size_t max_per_address);
/* A window for one protocol; @protocol is a constant. */
int hf_clients_set_window(struct hf_clients *clients, const char *protocol, uint64_t window_ns);
uint64_t hf_clients_window(const struct hf_clients *clients, const char *protocol);

/* May a peer have this name? It is printable, without blanks and '/', does not begin with '.', and has 1 to
 * HF_CLIENT_MAX_NAME bytes: it becomes a key, a part of an id, and text in the log. */
bool hf_client_name_is_good(struct hf_bytes name);

/* Finding: each returns a reference, or NULL. */
struct hf_client *hf_clients_find(struct hf_clients *clients, const char *protocol,
				  const struct hf_addr *address, struct hf_bytes name);
struct hf_client *hf_clients_find_id(struct hf_clients *clients, struct hf_bytes id);
/* The next client at this address after @after (NULL: the first), of any protocol. Takes over the reference
 * to @after. */
struct hf_client *hf_clients_next_at(struct hf_clients *clients, const struct hf_addr *address,
				     struct hf_client *after);
/* The next one after @after (NULL: the first) whose name may be another form of @name, see host_name.h: at
 * whatever address, and of whatever protocol. The caller compares the names. Takes over the reference to
 * @after. */
struct hf_client *hf_clients_next_named(struct hf_clients *clients, struct hf_bytes name,
					struct hf_client *after);
bool hf_client_is_alone(const struct hf_client *client); /* no other client is at its address */
/* A neighbour of it was at its address, and was unregistered since: two hosts may have that address. */
bool hf_client_had_neighbour(const struct hf_client *client);
/* Two names at one address may be two hosts there. But a forged datagram can make up a name. So @other counts
 * only if it called over TCP; and from a reserved port if @client locks from one, because any user of a host
 * can make up a name, too. */
bool hf_client_is_neighbour(const struct hf_client *client, const struct hf_client *other);
/* The next of all clients with a serial above @serial, even if clients come and go meanwhile. */
struct hf_client *hf_clients_next(struct hf_clients *clients, uint64_t serial);

/* Finds the client or makes it. -EINVAL: the name is not allowed. */
int hf_clients_get(struct hf_client **clientp, struct hf_clients *clients, const char *protocol,
		   const struct hf_addr *address, struct hf_bytes name);
/* The same for one that was stored with @id, which stays its id. An interface in @id counts, not its number
 * in @address. -EINVAL: @id is not that of a client at @address. */
int hf_clients_get_stored(struct hf_client **clientp, struct hf_clients *clients, const char *protocol,
			  const struct hf_addr *address, const char *id);
/* Before a call to it: the interface of a link-local address may have another number by now. */
void hf_client_renumber(struct hf_client *client);
struct hf_client *hf_client_ref(struct hf_client *client);
struct hf_client *hf_client_unref(struct hf_client *client);

HF_DEFINE_CLEANUP(struct hf_client *, hf_client_unref)

/* Registering */
enum { /* answers of hf_client_register() */
	HF_CLIENT_OK = 0,
	HF_CLIENT_E_LIMIT, /* no place is left: for its address, for clients that are not confirmed, or at all
			    */
};

/*
 * Registers the client, or stores it again with its changes (local address, callback, priv, state: set them
 * before). If no place is left, a client without locks is unregistered for a new one; see places.c.
 */
int hf_client_register(struct hf_client *client);
void hf_client_unregister(struct hf_client *client);
/* Loaded from the store at the start: registered, and not written again. */
int hf_client_restore(struct hf_client *client, uint64_t registered_at, uint64_t last_seen);

/* What is known of a client */
/* It called over TCP or from this host: the source of such a call is not forged. */
HF_NOINLINE void hf_client_confirm(struct hf_client *client);
/*
 * Its host answered a call of the server. A host answers for every name that a forger gives it. So this
 * confirms only a few names at one address. is_confirmed says whether it confirmed this one.
 */
void hf_client_answered(struct hf_client *client);
/* Is there a place for it, even if its address may be forged? True for each client that is confirmed or
 * registered. */
bool hf_client_may_be_unmet(struct hf_client *client);
/* A call was dropped because there was none. */
void hf_clients_count_refused_unmet(struct hf_clients *clients);
/* A pinned client stays registered, with or without locks. */
void hf_client_pin(struct hf_client *client, bool is_pinned);
/* It called, at this address of the server. If it is a registered client of the lock manager, that is no
 * reason to name this address in a notice: see hf_client_use(). */
void hf_client_seen(struct hf_client *client, const struct hf_addr *local);
/* The same, and the call gave its name. A client of another name at its address may be the same host. */
void hf_client_called(struct hf_client *client, const struct hf_addr *local);
/* It took something at this address of the server, so a notice of a restart must give that address. The
 * caller registers the client again. Notices leave from the latest address, unless the call may be forged
 * (@is_certain is false). */
#define HF_CLIENT_OTHER_LOCALS 15 /* a further one replaces the first if it is certain */
int hf_client_use(struct hf_client *client, const struct hf_addr *local, bool is_certain);
/* The address number @n of other_locals: first those of calls that may be forged, then the oldest. */
bool hf_client_other_local(const struct hf_client *client, size_t n, struct hf_addr *local);
bool hf_client_has_used(const struct hf_client *client, const struct hf_addr *local); /* and it is stored */
/* The notice with the server's state number @state was answered under the first @n names of the server: its
 * own, the local address, the other ones. An address that is added needs no such notice. If one is
 * dropped, the names are counted anew. */
void hf_client_note_named(struct hf_client *client, int32_t state, size_t n);
size_t hf_client_count_named(const struct hf_client *client, int32_t state);
/* It answered under the names that each client is given: what it locked at the local address, it can
 * reclaim. */
static inline bool hf_client_is_reached(const struct hf_client *client, int32_t state)
{
	return hf_client_count_named(client, state) > 1;
}
/* Loaded from the store: see hf_client_restore(). */
int hf_client_restore_other_locals(struct hf_client *client, struct hf_bytes stored);
/* The port that the client called from. @way numbers the transport. */
static inline void hf_client_came_by(struct hf_client *client, unsigned int way, uint16_t port)
{
	client->ports[way] = port;
}

/* Are both known, and do they differ: @state, of a call, and the number of the client's LOCKs, or of its
 * life? */
bool hf_client_says_other(const struct hf_client *client, int32_t state);
/* Two clients have one address: may @client be the new name of the host that was @old? No, if @old was
 * registered after @client, also before a restart of the server, or called since @client was made, or if
 * their state numbers differ: then they are two hosts behind one address. The numbers compared are those in
 * LOCKs, if there are any: a notice of the same host may have another number. */
bool hf_client_may_be(const struct hf_client *client, const struct hf_client *old);
int hf_client_set_callback(struct hf_client *client, struct hf_bytes host, uint32_t program, uint32_t version,
			   uint32_t procedure);
int hf_client_set_mon_name(struct hf_client *client, struct hf_bytes mon_name);
/* A registered client is stored again. If that fails (-errno), nothing has changed. */
HF_NOINLINE int hf_client_set_privileged(struct hf_client *client, bool is_privileged);
/* May a call from this port change what the client has? A privileged client is changed from reserved ports
 * only. */
static inline bool hf_client_may_be_changed_from(const struct hf_client *client, const struct hf_addr *peer)
{
	return !client->is_privileged || hf_addr_has_reserved_port(peer);
}
void hf_client_set_status(struct hf_client *client, enum hf_client_status status);
/* The state number of a lock that the client takes by a call with the number @said, which has waited for
 * @age_ns. If the call has no number, the lock gets the client's own, if it is proven. A forger can guess the
 * number after the next restart, and a lock with that number would survive the restart. While a notice is
 * being checked, a lock by a later call gets a tag (doubt_tag), a number that no client has. If the notice is
 * believed, such a lock was taken after the restart, and stays when the older ones are released. If not, it
 * is released with the rest at the next restart, unless that brings the number in the client's LOCK. The
 * notice's own number cannot be the tag: a forger could guess it, and locks with it would survive the restart
 * that brings it. */
int32_t hf_client_state_for(struct hf_client *client, int32_t said, uint64_t age_ns);
/* Does such a lock get the tag? */
bool hf_client_is_tagged(const struct hf_client *client, int32_t said, uint64_t age_ns);
/* Puts into @numbers the numbers of the locks that stay when the client is known to be in the life with the
 * number @state: that number, the tag of the notice that is being checked, and the tags that locks by LOCKs
 * with @state have. Returns how many. */
#define HF_CLIENT_LIFE_NUMBERS (3 + 2 * HF_CLIENT_TAGS)
size_t hf_client_life_numbers(const struct hf_client *client, int32_t state,
			      uint32_t numbers[HF_CLIENT_LIFE_NUMBERS]);
/* The LOCKs of the client's present life say @state. If the LOCKs that came during the check said an older
 * number, the client sent them in an earlier life, and the server read them late. What they took does not
 * stay: it loses the tag of the check. */
void hf_client_end_older_tag(struct hf_client *client, int32_t state);
/*
 * The number to use for a stored lock with the number @state. After a restart the server does not know how
 * a check ended. It treats a tagged lock as taken after the restart that the notice told of. A tag is
 * negative and even, which no client's number is. It contains the number of the notice, if that is small,
 * and a part that is new for each doubt. The lock of a LOCK that cannot be of the life that the notice tells
 * of has the tag without the number: stored, it would have the number of a notice that may be forged, and
 * would survive the restart that the forger tells of next.
 */
int32_t hf_client_stored_number(int32_t state);
/* A stored lock or waiter has the number @state, so a LOCK of its client said it. */
void hf_client_note_stored_number(struct hf_client *client, int32_t state);
int32_t hf_client_make_doubt_tag(int32_t doubted, uint32_t serial);

/* Binding (binding.c) */
#define HF_CLIENT_MAX_IDENTITY 1024
/* The client uses an export that demands TLS. @identity: one of these names must be in the certificates of
 * its connections from now on; NULL or empty: none is demanded. It is stored with the registration. */
int hf_client_bind(struct hf_client *client, const char *identity);
int hf_client_unbind(struct hf_client *client); /* only if it has nothing */
/* May a connection with this certificate, or without one, speak for the client? */
bool hf_client_is_bound_to(const struct hf_client *client, const struct hf_tls_peer *peer);
/* Loaded from the store: see hf_client_restore(). */
int hf_client_restore_binding(struct hf_client *client, struct hf_bytes identity);
/* What its locks demand, and not what its connections are: "clear", "tls", or "mtls" */
const char *hf_client_transport(const struct hf_client *client);
/* A call was refused. @client: NULL: it is not known. True: the first one of this client for this reason. */
bool hf_client_note_refused(struct hf_clients *clients, struct hf_client *client,
			    enum hf_client_refusal refusal);
uint64_t hf_clients_count_refused(const struct hf_clients *clients, enum hf_client_refusal refusal);

/* Its connection has ended, or ended by the server's restart: its window begins. */
void hf_client_disconnected(struct hf_client *client);
void hf_client_reconnected(struct hf_client *client);
void hf_client_crash(struct hf_client *client);

/* Counting */
size_t hf_clients_count(const struct hf_clients *clients);
size_t hf_clients_count_registered(const struct hf_clients *clients);
size_t hf_clients_count_unmet(const struct hf_clients *clients); /* of the registered; see places.c */
/* The limits of this folder. */
void hf_clients_show_limits(const struct hf_clients *clients, struct hf_limit_use uses[HF_N_LIMITS]);
/* Clients that were unregistered for a new one. For tests. */
uint64_t hf_clients_count_evicted(const struct hf_clients *clients);
