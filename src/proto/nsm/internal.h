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
	struct hf_nsm_witnessed *witnessed; /* in this turn */
	size_t n_witnessed, witnessed_room;
	struct hf_task witness_task;
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

/* Handlers, by file */
void hf_nsm_proc_mon(void *service, struct hf_rpc_call *call);
void hf_nsm_proc_unmon(void *service, struct hf_rpc_call *call);
void hf_nsm_proc_unmon_all(void *service, struct hf_rpc_call *call);
void hf_nsm_proc_notify(void *service, struct hf_rpc_call *call);
/* notify.c: the host at @address was restarted; those who watch it by its address shall know. */
void hf_nsm_tell_watchers(struct hf_nsm *nsm, const struct hf_addr *address, int32_t state);
