/* The inside of the status monitor. */
#pragma once

#include "base/hashtable.h"
#include "base/list.h"
#include "base/siphash.h"
#include "client/client.h"
#include "loop/loop.h"
#include "proto/nsm/nsm.h"
#include "proto/nsm/wire.h"
#include "recovery/recovery.h"
#include "rpc/call.h"
#include "rpc/client.h"

#define HF_NSM_PROTOCOL    "nsm"
#define HF_NSM_N_STRANGERS 64
#define HF_NSM_N_EARLY     64
#define HF_NSM_N_DEPARTED  256

/* Somebody whose notice was ignored: one line for him in this time. */
struct hf_nsm_stranger {
	struct hf_addr host;
	uint64_t until;
};

/* A notice from a host that we knew nothing of. */
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

/* A host whose restart we know from elsewhere. */
struct hf_nsm_witnessed {
	struct hf_addr host;
	int32_t state;
};

struct hf_nsm {
	struct hf_nsm_options options;
	char *server_name;
	struct hf_clients *clients;
	struct hf_siphash_key key;
	struct hf_nsm_counts counts;
	struct hf_recovery_observer observer;
	struct hf_hashtable watches; /* local registrations that name a peer, not its address; by name */
	struct hf_list replies;      /* calls that wait for the store */
	struct hf_list tellings;     /* clients that are being told of our restart */
	struct hf_list lookups;      /* names that are being looked up, or are to be */
	size_t n_looking_up;
	struct hf_list callbacks; /* lock managers that are being told of a peer's */
	struct hf_nsm_stranger strangers[HF_NSM_N_STRANGERS];
	struct hf_nsm_early early[HF_NSM_N_EARLY]; /* the oldest makes room */
	size_t n_early;
	struct hf_nsm_departed departed[HF_NSM_N_DEPARTED]; /* the oldest makes room */
	size_t n_departed;
	struct hf_nsm_witnessed *witnessed; /* in this turn */
	size_t n_witnessed, witnessed_room;
	struct hf_task witness_task;
	struct hf_list inquiries; /* hosts that are being asked about themselves */
	struct hf_list unasked;   /* clients whose hosts are to be asked */
	struct hf_list sights;    /* those that were, or are being */
	size_t n_asking;
	size_t n_knocking;
	struct hf_list exchanges; /* addresses that are asked whether a notice is true; the oldest first */
	struct hf_hashtable exchanges_by_host;
	struct hf_hashtable doubts_by_client;
	uint32_t n_doubted;      /* makes numbers for what is taken in doubt; begins anywhere */
	struct hf_list doubts;   /* those whose answers are there, and do not decide */
	struct hf_list visitors; /* calls of other hosts by UDP that wait for an exchange */
	size_t n_visitors;
	struct hf_hashtable meetings; /* with addresses where a host may be; by address */
	struct hf_list meetings_by_age;
	size_t n_guests; /* that wait for them */
};

/* WHO (who.c) */
bool hf_nsm_is_us(const struct hf_nsm *nsm, struct hf_bytes name, const struct hf_addr *local);
/* A lock manager of this host that watches a peer. */
bool hf_nsm_is_local_watch(const struct hf_nsm *nsm, const struct hf_client *client);
/* Equal, but for case, or one is the first part of the other: "a" and "A.example.org". */
bool hf_nsm_names_match(struct hf_bytes a, struct hf_bytes b);
/* The port in a "host:port" where the host is @address; else 0. */
uint16_t hf_nsm_port_in_name(const char *name, const struct hf_addr *address);
uint64_t hf_nsm_hash_name(const struct hf_nsm *nsm, struct hf_bytes name); /* of its first part */
bool hf_nsm_is_stranger_new(struct hf_nsm *nsm, const struct hf_addr *peer);

/* REPLY (reply.c): when all that was written so far is durable. */
enum hf_nsm_answer {
	HF_NSM_ANSWER_VOID,     /* if it never is: no answer */
	HF_NSM_ANSWER_STAT_RES, /* if it never is: stat_fail */
	HF_NSM_ANSWER_STATE,    /* all the same, then: there is no other answer */
};
void hf_nsm_reply_kept(struct hf_nsm *nsm, struct hf_rpc_call *call, const struct hf_client *client,
		       enum hf_nsm_answer answer);
void hf_nsm_reply_stat_res(struct hf_nsm *nsm, struct hf_rpc_call *call, enum hf_nsm_res res);
void hf_nsm_replies_deinit(struct hf_nsm *nsm);
static inline void hf_nsm_count(struct hf_nsm *nsm, enum hf_nsm_proc proc, bool is_refused)
{
	nsm->counts.requests[proc][is_refused]++;
}

/* WATCH (watch.c): local registrations by the name of the peer. */
int hf_nsm_watches_init(struct hf_nsm *nsm);
void hf_nsm_watches_deinit(struct hf_nsm *nsm);
int hf_nsm_watch(struct hf_nsm *nsm, struct hf_client *client); /* if it is one of those */
/* The next one after @after that watches @name, a reference; takes over that to @after. */
struct hf_client *hf_nsm_next_watch(struct hf_nsm *nsm, struct hf_bytes name, struct hf_client *after);

/* LOOKUP (lookup.c): the address of a peer by its name. @fn gets NULL where it has none. */
struct hf_nsm_lookup;
typedef void (*hf_nsm_found_fn)(void *user, const struct hf_addr *address);
struct hf_nsm_lookup *hf_nsm_look_up(struct hf_nsm *nsm, const char *name, hf_nsm_found_fn fn, void *user);
void hf_nsm_lookup_abandon(struct hf_nsm_lookup *lookup); /* @fn is not called any more */
void hf_nsm_lookups_deinit(struct hf_nsm *nsm);

/* TELL (tell.c): the recovery's teller. */
extern const struct hf_recovery_teller hf_nsm_teller;
void hf_nsm_tellings_deinit(struct hf_nsm *nsm);

/* CALLBACK (callback.c): a peer was restarted; its watcher shall know. */
void hf_nsm_call_back(struct hf_nsm *nsm, struct hf_client *client, int32_t state);
void hf_nsm_callbacks_forget(struct hf_nsm *nsm, struct hf_client *client); /* it does not watch any more */
void hf_nsm_callbacks_deinit(struct hf_nsm *nsm);

/* ASK (ask.c): a host about itself */
enum hf_nsm_word {
	HF_NSM_SILENT, /* no answer in time, or not asked yet */
	HF_NSM_ABSENT, /* there is no statd, or none that says a number */
	HF_NSM_SPEAKS,
};

struct hf_nsm_facts {
	enum hf_nsm_word word;
	int32_t state;       /* where it speaks: the number */
	uint16_t statd_port; /* likewise */
	uint16_t lockd_port; /* where it is known: 0 when there is none */
	bool is_lockd_known; /* rpcbind answered that */
	bool is_answered;    /* rpcbind or statd answered anything */
};

struct hf_nsm_inquiry;
typedef void (*hf_nsm_facts_fn)(void *user, const struct hf_nsm_facts *facts);
/* @fn is called once, later. NULL: it cannot be asked now. */
struct hf_nsm_inquiry *hf_nsm_ask(struct hf_nsm *nsm, const struct hf_addr *host, const struct hf_addr *local,
				  hf_nsm_facts_fn fn, void *user);
struct hf_nsm_inquiry *hf_nsm_ask_cancel(struct hf_nsm_inquiry *inquiry); /* NULL is fine. Returns NULL */
bool hf_nsm_ask_is_answered(const struct hf_nsm_inquiry *inquiry);        /* in part */

/* SIGHT (sight.c): what the host of a client said when that began to hold something */
void hf_nsm_look_at(struct hf_nsm *nsm, struct hf_client *client, int32_t said);
void hf_nsm_sight_forget(struct hf_client *client);
const struct hf_nsm_facts *hf_nsm_sight_facts(const struct hf_client *client); /* NULL: it has not spoken */
bool hf_nsm_sight_is_of_another(const struct hf_client *client); /* host behind the same address */
/* The same, if what datagrams said in the client's name is true. */
bool hf_nsm_sight_may_be_of_another(const struct hf_client *client);
bool hf_nsm_is_number_of(int32_t said_by_statd, int32_t known); /* may both be of one life of one host? */
void hf_nsm_sights_deinit(struct hf_nsm *nsm);

/* DOUBT (doubt.c): is it true? See also nsm.h. */
int hf_nsm_doubts_init(struct hf_nsm *nsm);
void hf_nsm_doubts_deinit(struct hf_nsm *nsm);

/* VISIT (visit.c): a call over UDP of another host is served when that host has answered us. */
void hf_nsm_visit(struct hf_nsm *nsm, struct hf_rpc_call *call, const struct hf_nsm_my_id *my_id,
		  void (*serve)(struct hf_nsm *nsm, struct hf_rpc_call *call, bool has_answered));
void hf_nsm_visitors_deinit(struct hf_nsm *nsm);

/* MEET (meet.c): see nsm.h. */
int hf_nsm_meetings_init(struct hf_nsm *nsm);
void hf_nsm_meetings_deinit(struct hf_nsm *nsm);

/* Handlers, by file */
void hf_nsm_proc_mon(void *service, struct hf_rpc_call *call);
void hf_nsm_proc_unmon(void *service, struct hf_rpc_call *call);
void hf_nsm_proc_unmon_all(void *service, struct hf_rpc_call *call);
void hf_nsm_proc_notify(void *service, struct hf_rpc_call *call);
/* notify.c: @client is not registered any more, and holds nothing. A notice with its number is a copy from
 * now on, whatever it takes later. */
void hf_nsm_note_departed(struct hf_nsm *nsm, const struct hf_client *client);
/* notify.c: the host at @address was restarted; those who watch it by its address shall know. */
void hf_nsm_tell_watchers(struct hf_nsm *nsm, const struct hf_addr *address, int32_t state);
