/* The inside of the status monitor. nsm.h has the map of the files. */
#pragma once

#include "base/hashtable.h"
#include "base/list.h"
#include "base/rbtree.h"
#include "base/siphash.h"
#include "client/client.h"
#include "loop/loop.h"
#include "proto/nsm/nsm.h"
#include "proto/nsm/wire.h"
#include "recovery/recovery.h"
#include "rpc/call.h"
#include "rpc/client.h"

#define HF_NSM_PROTOCOL    "nsm"
#define HF_NSM_N_STRANGERS 64  /* each is looked at for a refused call */
#define HF_NSM_N_EARLY     64  /* each is looked at for a notice */
#define HF_NSM_N_DEPARTED  256 /* each is looked at for each client of a notice */

/* Clients at one address, beyond the client that a notice names exactly. Hundreds of clients at one address
 * are behind an address translator. There the name must match anyway. */
#define HF_NSM_MAX_LOOKED_AT 256

#define HF_NSM_RPCBIND         100000
#define HF_NSM_RPCBIND_VERSION 2
#define HF_NSM_LOCKD           100021
#define HF_NSM_LOCKD_VERSION   4

/* A source whose call was refused or ignored. It gets one log line in this time. */
struct hf_nsm_stranger {
	struct hf_addr host;
	uint64_t until;
};

/* A notice from a host of which no client was registered. */
struct hf_nsm_early {
	struct hf_addr host;
	uint64_t name; /* its hash */
	int32_t state;
	uint64_t until;
};

/* A client that is not registered any more, and a number that its host had for sure. */
struct hf_nsm_departed {
	struct hf_addr host;
	uint64_t name; /* its hash */
	int32_t state;
	uint64_t until;
};

/* A host whose restart the server knows, and has yet to tell its watchers. */
struct hf_nsm_restarted_host {
	struct hf_addr host;
	int32_t state;
};

struct hf_nsm {
	struct hf_nsm_options options;
	bool is_ending; /* hf_nsm_free() resumes calls. They may ask for more, and nothing new may begin. */
	char *server_name;
	struct hf_clients *clients;
	struct hf_siphash_key key;
	struct hf_recovery_observer observer;
	struct hf_rb_tree watches;    /* local registrations that give the name of a peer; by that name */
	struct hf_delays delays;      /* replies that wait for the store */
	struct hf_list tellings;      /* clients that are being told of the server's restart */
	struct hf_list signs_of_life; /* hosts that are asked for a sign of life */
	struct hf_list lookups;       /* names that are being looked up, or wait for it */
	size_t n_looking_up;
	struct hf_list callbacks; /* lock managers that are being told of a peer's restart */
	struct hf_nsm_stranger strangers[HF_NSM_N_STRANGERS];
	struct hf_nsm_early early[HF_NSM_N_EARLY]; /* a ring: a new one replaces the oldest */
	size_t n_early;
	struct hf_nsm_departed departed[HF_NSM_N_DEPARTED]; /* the oldest makes room */
	size_t n_departed;
	struct hf_nsm_restarted_host *restarted; /* in this turn */
	size_t n_restarted, restarted_room;
	struct hf_task restarts_task;
	struct hf_list unasked;   /* clients whose hosts are yet to be asked */
	struct hf_list baselines; /* clients whose hosts have been asked, or are being asked */
	size_t n_asking;
	struct hf_list attempts;         /* connections to rpcbinds that are under way; the oldest first */
	struct hf_list attempts_waiting; /* those that wait to begin */
	size_t n_attempting;             /* under way */
	struct hf_timer attempt_timer;   /* until the next one may begin */
	struct hf_list exchanges; /* addresses that are asked whether a notice is true; the oldest first */
	struct hf_hashtable exchanges_by_host;
	struct hf_hashtable doubts_by_client;
	uint32_t n_doubted;      /* counts doubts, for doubt tags; starts at a random number */
	struct hf_list doubts;   /* doubts whose host has answered, but did not decide */
	struct hf_list unproven; /* notices that wait for a proof, the oldest first; proof.c */
	size_t n_unproven;
	uint64_t n_unproven_forgotten;  /* to make room */
	struct hf_timer unproven_timer; /* until the oldest ends */
	struct hf_list visitors; /* calls over UDP from other hosts that wait for an answer of that host */
	size_t n_visitors;
	struct hf_hashtable meetings; /* addresses that are being asked whether a host is there; by address */
	struct hf_list meetings_by_age;
	size_t n_guests;                               /* calls that wait for those */
	uint64_t n_guests_refused, n_visitors_refused; /* because there were too many */
	uint64_t n_guests_refused_of_host, n_visitors_refused_of_host;
};

/* Names and addresses (names.c) */
bool hf_nsm_is_us(const struct hf_nsm *nsm, struct hf_bytes name, const struct hf_addr *local);
/* Does the registration belong to a lock manager of this host that watches a peer? */
bool hf_nsm_is_local_watch(const struct hf_nsm *nsm, const struct hf_client *client);
bool hf_nsm_is_watching(const struct hf_nsm *nsm, const struct hf_client *client); /* and it is registered */
/* The port in "host:port" if the host is @address; else 0. */
uint16_t hf_nsm_port_in_name(const char *name, const struct hf_addr *address);
struct hf_addr hf_nsm_host_of(const struct hf_rpc_call *call); /* its sender, without the port */
uint64_t hf_nsm_hash_host(const struct hf_nsm *nsm, const struct hf_addr *host);

/* Sources whose calls were refused or ignored (trust.c) */
bool hf_nsm_is_stranger_new(struct hf_nsm *nsm, const struct hf_addr *peer);

#define HF_NSM_REFUSED "REFUSED" /* a result for the metrics: the caller may not make this call */

/* Durable replies (reply.c): sent when all that was written so far is durable. */
enum hf_nsm_answer {
	HF_NSM_ANSWER_VOID,     /* if the store fails: no reply */
	HF_NSM_ANSWER_STAT_RES, /* if the store fails: stat_fail */
	HF_NSM_ANSWER_STATE,    /* sent even if the store fails: the protocol has no other answer */
};
void hf_nsm_reply_when_durable(struct hf_nsm *nsm, struct hf_rpc_call *call, const struct hf_client *client,
			       enum hf_nsm_answer answer);
void hf_nsm_reply_stat_res(struct hf_nsm *nsm, struct hf_rpc_call *call, enum hf_nsm_res res);
void hf_nsm_replies_deinit(struct hf_nsm *nsm);

/* Local registrations by the name of the peer (watch.c) */
int hf_nsm_watches_init(struct hf_nsm *nsm);
void hf_nsm_watches_deinit(struct hf_nsm *nsm);
/* Both do nothing for other registrations. */
int hf_nsm_watch(struct hf_nsm *nsm, struct hf_client *client);
void hf_nsm_unwatch(struct hf_nsm *nsm, struct hf_client *client);
/* The next client after @after that watches @name, a reference. Takes over the reference to @after. */
struct hf_client *hf_nsm_next_watch(struct hf_nsm *nsm, struct hf_bytes name, struct hf_client *after);

/* The address of a peer by its name (lookup.c). @fn gets NULL if the name has no address. */
struct hf_nsm_lookup;
typedef void (*hf_nsm_found_fn)(void *user, const struct hf_addr *address);
struct hf_nsm_lookup *hf_nsm_look_up(struct hf_nsm *nsm, const char *name, hf_nsm_found_fn fn, void *user);
void hf_nsm_lookup_abandon(struct hf_nsm_lookup *lookup); /* @fn is not called afterwards */
void hf_nsm_lookups_deinit(struct hf_nsm *nsm);

/* Telling a client of the server's restart (send_notice.c) */
extern const struct hf_recovery_teller hf_nsm_teller;
void hf_nsm_tellings_deinit(struct hf_nsm *nsm);

/* Looking for a sign of life of a client's host (sign_of_life.c) */
extern const struct hf_recovery_asker hf_nsm_sign_of_life_asker;
void hf_nsm_signs_of_life_deinit(struct hf_nsm *nsm);

/* Telling a lock manager of this host that a peer was restarted (callback.c) */
void hf_nsm_call_back(struct hf_nsm *nsm, struct hf_client *client, int32_t state);
void hf_nsm_callbacks_forget(struct hf_nsm *nsm, struct hf_client *client); /* its watch has ended */
void hf_nsm_callbacks_deinit(struct hf_nsm *nsm);

/* Asking a host about itself (ask.c) */
enum hf_nsm_statd {
	HF_NSM_STATD_SILENT, /* no answer in time, or not asked yet */
	HF_NSM_STATD_ABSENT, /* there is no statd, or it gives no number */
	HF_NSM_STATD_ANSWERS,
};

struct hf_nsm_facts {
	enum hf_nsm_statd statd;
	int32_t state;       /* if it answers: its state number */
	uint16_t statd_port; /* if it answers */
	uint16_t lockd_port; /* 0: the host has no lock manager; see is_lockd_known */
	bool is_lockd_known; /* rpcbind said whether there is a lock manager, and at which port */
	bool is_answered;    /* statd answered SM_STAT, or rpcbind said that there is no statd */
	bool is_unasked;     /* the server had no socket or memory to ask statd */
};

/* The host gave no answer. UNREACHABLE may be the answer of a router. */
static inline bool hf_nsm_is_silence(const struct hf_rpc_result *result)
{
	return result->outcome == HF_RPC_OUTCOME_TIMEOUT || result->outcome == HF_RPC_OUTCOME_UNREACHABLE ||
	       result->outcome == HF_RPC_OUTCOME_NO_ROOM;
}

/* Why recovery's teller has not told a client. NULL: the try says nothing of the client. */
static inline const char *hf_nsm_why_not(const struct hf_rpc_result *result)
{
	return result->outcome == HF_RPC_OUTCOME_NO_ROOM ? NULL : hf_rpc_outcome_text(result->outcome);
}

struct hf_nsm_inquiry;
typedef void (*hf_nsm_facts_fn)(void *user, const struct hf_nsm_facts *facts);
/* @fn is called once, later. NULL: the host cannot be asked now. */
struct hf_nsm_inquiry *hf_nsm_ask(struct hf_nsm *nsm, const struct hf_addr *host, const struct hf_addr *local,
				  hf_nsm_facts_fn fn, void *user);
struct hf_nsm_inquiry *hf_nsm_ask_cancel(struct hf_nsm_inquiry *inquiry); /* takes NULL. Returns NULL */
bool hf_nsm_ask_is_answered(const struct hf_nsm_inquiry *inquiry);        /* at least in part */

/* Connecting to a host's rpcbind (rpcbind_connect.c). Embedded in what waits for the answer. */
enum hf_nsm_attempt_answer {
	HF_NSM_ATTEMPT_SILENT, /* no answer in time, or it gave way to another attempt */
	HF_NSM_ATTEMPT_ACCEPTED,
	HF_NSM_ATTEMPT_REFUSED,
};

struct hf_nsm_attempt;
typedef void (*hf_nsm_attempt_fn)(struct hf_nsm_attempt *attempt, enum hf_nsm_attempt_answer answer);
struct hf_nsm_attempt {
	struct hf_link link;   /* of nsm->attempts or nsm->attempts_waiting */
	struct hf_timer timer; /* until it may begin */
	struct hf_nsm *nsm;
	struct hf_addr host, local;
	struct hf_rpc_pending *pending; /* NULL: not under way */
	uint64_t began, until;          /* monotonic ns */
	hf_nsm_attempt_fn fn;
};

void hf_nsm_attempts_init(struct hf_nsm *nsm);
void hf_nsm_attempts_deinit(struct hf_nsm *nsm); /* when no attempt is left */
void hf_nsm_attempt_init(struct hf_nsm_attempt *attempt, struct hf_nsm *nsm, hf_nsm_attempt_fn fn);
/* Connects after @after_ns, as soon as there is room. The attempt's function is called at most once, later.
 */
int hf_nsm_attempt_start(struct hf_nsm_attempt *attempt, const struct hf_addr *host,
			 const struct hf_addr *local, uint64_t after_ns);
bool hf_nsm_attempt_is_under_way(const struct hf_nsm_attempt *attempt);
void hf_nsm_attempt_cancel(struct hf_nsm_attempt *attempt);

/* What a client's host said when the client took its first lock (baseline.c) */
void hf_nsm_take_baseline(struct hf_nsm *nsm, struct hf_client *client, int32_t said);
void hf_nsm_baseline_forget(struct hf_client *client);
const struct hf_nsm_facts *hf_nsm_baseline_facts(const struct hf_client *client); /* NULL: no number */
bool hf_nsm_baseline_is_late(const struct hf_client *client);       /* perhaps of the host's next life */
bool hf_nsm_baseline_is_of_another(const struct hf_client *client); /* host behind the same address */
/* The same, if also datagrams in the client's name count. */
bool hf_nsm_baseline_may_be_of_another(const struct hf_client *client);
/* Can both be numbers of one host between two restarts? */
bool hf_nsm_is_number_of(int32_t said_by_statd, int32_t known);
void hf_nsm_baselines_deinit(struct hf_nsm *nsm);

/* Checking a notice (doubt.c). See also nsm.h. */
int hf_nsm_doubts_init(struct hf_nsm *nsm);
void hf_nsm_doubts_deinit(struct hf_nsm *nsm);

/* Notices that wait for a proof (proof.c). See also nsm.h. */
void hf_nsm_unproven_show_limit(const struct hf_nsm *nsm, struct hf_limit_use *use);
void hf_nsm_unproven_init(struct hf_nsm *nsm);
void hf_nsm_unproven_deinit(struct hf_nsm *nsm);
/* The client has something, and no notice is believed before its host has connected. */
bool hf_nsm_awaits_proof(struct hf_nsm *nsm, struct hf_client *client);
/* The notice is believed when the client's host connects. If it does not, the notice is forgotten. */
void hf_nsm_remember_unproven(struct hf_nsm *nsm, struct hf_client *client, int32_t state);

/* Notices and numbers that came before (copies.c) */
bool hf_nsm_was_early(const struct hf_nsm *nsm, const struct hf_addr *peer, struct hf_bytes name,
		      int32_t state);
bool hf_nsm_is_last_early(const struct hf_nsm *nsm, const struct hf_addr *peer, struct hf_bytes name,
			  int32_t state);
void hf_nsm_note_early(struct hf_nsm *nsm, const struct hf_addr *peer, struct hf_bytes name, int32_t state);
/* @client is not registered any more. If it has nothing, a notice with its number is a copy from now on,
 * whatever it takes later. */
void hf_nsm_note_departed(struct hf_nsm *nsm, const struct hf_client *client);
bool hf_nsm_is_number_of_departed(const struct hf_nsm *nsm, const struct hf_client *client, int32_t state);

/* What follows from a crash, or from the end of a registration (restarts.c) */
void hf_nsm_restarts_init(struct hf_nsm *nsm);
void hf_nsm_restarts_deinit(struct hf_nsm *nsm);

/* Calls over UDP from another host, served only after that host has answered (visit.c) */
void hf_nsm_visit(struct hf_nsm *nsm, struct hf_rpc_call *call, const struct hf_nsm_my_id *my_id,
		  void (*serve)(struct hf_nsm *nsm, struct hf_rpc_call *call, bool has_answered));
void hf_nsm_visitors_show_limits(const struct hf_nsm *nsm, struct hf_limit_use uses[HF_N_LIMITS]);
void hf_nsm_visitors_deinit(struct hf_nsm *nsm);

/* Is there a host at an address? (meet.c). See nsm.h. */
int hf_nsm_meetings_init(struct hf_nsm *nsm);
void hf_nsm_meetings_deinit(struct hf_nsm *nsm);
void hf_nsm_meetings_show_limits(const struct hf_nsm *nsm, struct hf_limit_use uses[HF_N_LIMITS]);

/* Handlers, by file */
void hf_nsm_proc_mon(void *service, struct hf_rpc_call *call);
void hf_nsm_proc_unmon(void *service, struct hf_rpc_call *call);
void hf_nsm_proc_unmon_all(void *service, struct hf_rpc_call *call);
void hf_nsm_proc_notify(void *service, struct hf_rpc_call *call);
