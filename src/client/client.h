/*
 * Who is out there: peers by a stable identity, whatever protocol they speak.
 *
 * A client is (protocol, address, name); its id is "protocol:address:name". The
 * transport and the port it calls from never count. It is known while there is a
 * reference to it, while it is registered, or while it holds anything in the lock
 * table. Registered means that the store has it, and that it can come back after our
 * restart, as its protocol does that; max_clients bounds the registered clients.
 *
 * A protocol whose clients live by a connection (SMB) says when a client is
 * disconnected and when it is back. From the disconnection on the client has its
 * protocol's window: if it is not back at its end, it has crashed. For the others
 * (NLM, NSM) a broken connection means nothing. A crash is the same for all: the
 * events table is told, and what the client held goes.
 *
 * Belongs to the home loop's thread.
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
struct hf_nsm_sight;
struct hf_recovery_client;

#define HF_CLIENT_MAX_NAME 1024
#define HF_CLIENT_PRIV     16
#define HF_CLIENT_PAST     4
#define HF_CLIENT_WAYS     2 /* transports */

enum hf_client_status {
	HF_CLIENT_ACTIVE,
	HF_CLIENT_NOTIFIED,    /* knows of our restart */
	HF_CLIENT_UNREACHABLE, /* could not be told yet */
	HF_CLIENT_CRASHED,
};

const char *hf_client_status_name(enum hf_client_status status);

/* Whom to call when something happens; none: host is NULL. */
struct hf_client_callback {
	char *host;
	uint32_t program;
	uint32_t version;
	uint32_t procedure;
};

/* A state number that it had, and until when (monotonic ns) a message with it is a straggler. */
struct hf_client_past {
	int32_t state;
	bool is_proven; /* see is_state_proven */
	uint64_t until;
};

/* Every folder may read it; only this folder writes it, and the setters below. */
struct hf_client {
	struct hf_clients *clients;
	struct hf_lock_client holds; /* its part of the lock table */
	const char *protocol;        /* a constant: "nlm", "nsm", "smb" */
	char *id;
	char *name;
	size_t name_len;
	char *mon_name;         /* the host that it asked us to monitor; NULL: itself */
	struct hf_addr address; /* port 0 */
	struct hf_addr local;   /* our address that it used last; port 0 */
	struct hf_client_callback callback;
	uint8_t priv[HF_CLIENT_PRIV];
	int32_t sm_state;     /* its own, as it last told us; 0: unknown */
	bool is_state_proven; /* its host said sm_state over a connection or by its statd, so no forged
			       * datagram did */
	bool has_connected;   /* it called by its name over a connection since our start */
	int32_t lock_state; /* what its LOCKs say since sm_state changed, which may be older: a statd that was
			     * started too early says the old number for its whole life; 0: nothing */
	int32_t doubted_state;  /* of proto/nsm: a notice with this number is being checked; 0: none is */
	int32_t doubt_tag;      /* the number of what it takes meanwhile; 0: none */
	uint64_t doubted_at;    /* monotonic ns, when it came */
	int32_t refused_state;  /* of proto/nlm: a LOCK by datagram said this number, and it was not believed
				 */
	uint64_t refused_until; /* monotonic ns: before this it is not asked about again */
	struct hf_client_past past[HF_CLIENT_PAST];
	enum hf_client_status status;
	uint64_t registered_at;          /* wall ns; 0: it is not registered */
	struct hf_addr registered_local; /* our address as it is stored */
	uint64_t last_seen;              /* wall ns */
	uint64_t seen_at;                /* monotonic ns, of the turn in which last_seen was set */
	uint64_t met_at;                 /* monotonic ns, when it was made; 0: in an earlier life of ours */
	uint64_t called_at;              /* monotonic ns, of its last call under its own name; 0: none yet */
	uint16_t ports[HF_CLIENT_WAYS];  /* that it called from last, by transport; 0: none yet */
	uint64_t registration_ticket;    /* of the store: what is promised to it waits for this */
	struct hf_recovery_client
		*recovery;  /* of src/recovery: made and freed with the client, not looked into */
	bool is_privileged; /* it locked from a reserved port: only such a port may change what it holds */
	struct hf_nsm_sight *sight; /* of proto/nsm: what its host said of itself; while it is registered */
	uint64_t link; /* the connection by which it took the first of what it holds; 0: none, see rpc/probe.h
			*/
	bool is_disconnected;
	bool is_pinned; /* stays registered although it holds nothing: it has yet to be told of our restart,
			 * or may yet reclaim what the store does not know of */
	bool is_confirmed; /* it called over TCP or from this host, or its host answered us */
	bool is_certain; /* it called over TCP or from this host: no other host can have done that in its name
			  */
	uint8_t standing;  /* inside: what it is counted as, see places.c */
	uint8_t idle_rank; /* inside: in which list idle_link is */
	uint64_t serial;   /* of being made: the order of lists */
	/* Inside */
	size_t n_refs;
	struct hf_timer window;
	struct hf_hash_node by_id;
	struct hf_hash_node by_key; /* (protocol, address, name) */
	struct hf_rb_node by_serial;
	struct hf_clients_host *host;
	struct hf_link host_link;
	struct hf_link idle_link;    /* places.c: it could give its place to another client */
	struct hf_link idle_at_host; /* the same, among those at its address */
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

/* The state number, where no forged datagram can have said it; else 0. */
static inline int32_t hf_client_proven_state(const struct hf_client *client)
{
	return client->is_state_proven ? client->sm_state : 0;
}

/* Nothing is lost by its death: it holds nothing, waits for nothing, and has nothing to reclaim. */
bool hf_client_has_nothing(const struct hf_client *client);

/* The owner of the clients is told of what happens. It must not change clients from within, but in
 * `crashed`. */
struct hf_client_events {
	/* Its record for src/recovery is cleared; may be NULL. */
	void (*made)(void *user, struct hf_client *client);
	/* It is to be stored; gives the ticket. An error refuses the registration. */
	int (*registered)(void *user, struct hf_client *client, uint64_t *ticketp);
	void (*unregistered)(void *user, struct hf_client *client);
	/* The number of the last change of a lock, noted in idle_mark. */
	uint64_t (*mark)(void *user);
	/* Has the store its registration, and no lock of it any more? Both may be NULL. */
	bool (*is_settled)(void *user, const struct hf_client *client);
	/* May it still reclaim what is not in the lock table any more? May be NULL. */
	bool (*may_reclaim)(void *user, const struct hf_client *client);
	/* Its window is over, or there is other evidence. The receiver releases what it holds. */
	void (*crashed)(void *user, struct hf_client *client);
	/* Its window is over, and it was back in time. May be NULL. */
	void (*window_over)(void *user, struct hf_client *client);
};

struct hf_clients_options {
	struct hf_loop *loop;
	struct hf_locks *locks;
	struct hf_siphash_key key;
	size_t max_registered;
	size_t max_per_address; /* of them; 0: half of max_registered */
	uint64_t window_ns;     /* the shared default */
	uint64_t idle_ns;       /* registered and holding nothing for so long: unregistered; 0: never */
	size_t recovery_size;   /* of struct hf_recovery_client */
	const struct hf_client_events *events;
	void *user;
};

/* Life */
int hf_clients_new(struct hf_clients **clientsp, const struct hf_clients_options *options);
struct hf_clients *hf_clients_free(struct hf_clients *clients); /* after all references are gone */

HF_DEFINE_CLEANUP(struct hf_clients *, hf_clients_free)

/* An override of the window for one protocol, a constant. */
int hf_clients_set_window(struct hf_clients *clients, const char *protocol, uint64_t window_ns);
uint64_t hf_clients_window(const struct hf_clients *clients, const char *protocol);

/* Is this a name that a peer may have? Printable, no blank, no '/', not first a '.', of 1 to
 * HF_CLIENT_MAX_NAME bytes: it will be a key, part of an id, and in the log. */
bool hf_client_name_is_good(struct hf_bytes name);

/* Finding: a reference, to be given back, or NULL. */
struct hf_client *hf_clients_find(struct hf_clients *clients, const char *protocol,
				  const struct hf_addr *address, struct hf_bytes name);
struct hf_client *hf_clients_find_id(struct hf_clients *clients, struct hf_bytes id);
/* The next one at this address after @after (NULL: the first), whatever protocol; takes over the reference
 * to @after. */
struct hf_client *hf_clients_next_at(struct hf_clients *clients, const struct hf_addr *address,
				     struct hf_client *after);
bool hf_client_is_alone(const struct hf_client *client); /* nobody else is at its address */
/* Another client that counts as a neighbour was at its address, and was unregistered since: two hosts may
 * have that address. */
bool hf_client_had_neighbour(const struct hf_client *client);
/* Two names at one address may be two hosts there. But a forged datagram can make up a name, so @other speaks
 * for that only if it called over a connection; from a reserved port where @client locks from one, since an
 * ordinary user of a host can make up names as well. */
bool hf_client_is_neighbour(const struct hf_client *client, const struct hf_client *other);
/* The next one of all with a serial above @serial, whatever has come and gone in between. */
struct hf_client *hf_clients_next(struct hf_clients *clients, uint64_t serial);

/* Found or made; -EINVAL: not a good name. */
int hf_clients_get(struct hf_client **clientp, struct hf_clients *clients, const char *protocol,
		   const struct hf_addr *address, struct hf_bytes name);
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
 * New, or the same again with what has changed (local address, callback, priv, state: set them before). Where
 * no place is left, a registered client that holds nothing is unregistered for a new one; see places.c.
 */
int hf_client_register(struct hf_client *client);
void hf_client_unregister(struct hf_client *client);
/* From the store, at the start: registered, and not written again. */
int hf_client_restore(struct hf_client *client, uint64_t registered_at, uint64_t last_seen);

/* Being */
/* It called over TCP or from this host: the source of that call is not forged. */
void hf_client_confirm(struct hf_client *client);
/*
 * Its host answered a call of ours. A host answers for each name that a forger gives it, so this confirms few
 * names of one address only: is_confirmed says whether it did.
 */
void hf_client_answered(struct hf_client *client);
/* Is there a place for it although nothing confirms that its address is not forged? True of each client that
 * is confirmed or registered. */
bool hf_client_may_be_unmet(struct hf_client *client);
/* While pinned it stays registered, whether it holds something or not. */
void hf_client_pin(struct hf_client *client, bool is_pinned);
void hf_client_seen(struct hf_client *client,
		    const struct hf_addr *local); /* it called, at this address of ours */
/* The same, and it gave its own name: what else is known by another name at its address may be it. */
void hf_client_called(struct hf_client *client, const struct hf_addr *local);
/* The port that the client, by whatever name, called from; @way numbers the transport. */
static inline void hf_client_came_by(struct hf_client *client, unsigned int way, uint16_t port)
{
	client->ports[way] = port;
}

/* Of two at one address: may @client be the new name of the host that was @old? Not when @old was heard since
 * @client was met, nor when their state numbers differ: then they are two hosts behind one address. What a
 * LOCK says is compared with what a LOCK says: the notice of the same host may have another number. */
bool hf_client_may_be(const struct hf_client *client, const struct hf_client *old);
int hf_client_set_callback(struct hf_client *client, struct hf_bytes host, uint32_t program, uint32_t version,
			   uint32_t procedure);
int hf_client_set_mon_name(struct hf_client *client, struct hf_bytes mon_name);
/* The registration, if there is one, is stored again. Where that fails (-errno) nothing has changed. */
int hf_client_set_privileged(struct hf_client *client, bool is_privileged);
void hf_client_set_status(struct hf_client *client, enum hf_client_status status);
/* The state number of what it takes by a call that says @said, and has waited for @age_ns. Where the call
 * says none it is the client's own, if that is proven: a forger can guess the number of the next life, and
 * what had it would survive the restart. While a notice is being checked, what it takes by a call that came
 * later has a number of its own (doubt_tag), which no client has. If the notice is believed, it is of the
 * life that the notice tells of, and does not go with what the client held before. If not, it goes with the
 * rest at the next restart. The notice's own number would not do: a forger could guess the next one, and what
 * has it would survive the restart that brings it. */
int32_t hf_client_state_for(const struct hf_client *client, int32_t said, uint64_t age_ns);
/*
 * What was taken with the number @state, as it was stored: another run of ours cannot tell what came of a
 * doubt and takes it for the life that the notice told of. Such a number is negative and even, which no
 * client's is: the number of the notice, where that is short, and one that is new for each doubt.
 */
int32_t hf_client_stored_number(int32_t state);
int32_t hf_client_make_doubt_tag(int32_t doubted, uint32_t serial);
/* It has no connection any more, or lost it by our restart: its window begins. */
void hf_client_disconnected(struct hf_client *client);
void hf_client_reconnected(struct hf_client *client);
void hf_client_crash(struct hf_client *client);

/* Counting */
size_t hf_clients_count(const struct hf_clients *clients);
size_t hf_clients_count_registered(const struct hf_clients *clients);
size_t hf_clients_count_unmet(const struct hf_clients *clients); /* of those, see places.c */
/* How many were unregistered for a new client. */
uint64_t hf_clients_count_evicted(const struct hf_clients *clients);
