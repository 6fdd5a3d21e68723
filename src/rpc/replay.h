/*
 * The replay cache: the replies to calls that must not be executed twice.
 *
 * The cache knows a request by the peer's address, its channel, its xid and a keyed checksum
 * over the whole message. A channel is clear text (0), or TLS of one client. The peer's port does
 * not count: a client that reconnects repeats its call from another one. Only whether the port is
 * reserved counts: what a user of the client's host was refused must not be the answer to the
 * client's own call.
 *
 * There is a fixed number of entries, and each stays two minutes at most. They are divided by address:
 * when none is free, the address with the most answered calls loses its oldest. Calls under way cannot make
 * room. So an address may have no more of them than entries are left: half, if it is alone. What it sends
 * beyond that is served without the cache.
 *
 * A repeat of a call that is still being served becomes its follower, and gets the same reply. A
 * later repeat replaces an earlier one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "base/limit.h"
#include "base/siphash.h"

struct hf_replay;
struct hf_replay_entry;

/* Longer replies are not cached. No procedure that changes a file has one. The reply to a LOCK with the
 * longest cookie is a little shorter. */
#define HF_REPLAY_MAX_REPLY 1088

int hf_replay_new(struct hf_replay **replayp, const struct hf_siphash_key *key, size_t max_entries);
struct hf_replay *hf_replay_free(struct hf_replay *replay);

/* A call, as its copies are known. */
struct hf_replay_call {
	const struct hf_addr *peer;
	uint64_t channel;
	struct hf_bytes message;
	bool is_forgeable; /* its source is not proven: all such calls together count as one address */
};

/* Answers of hf_replay_begin() */
enum {
	HF_REPLAY_NEW = 0, /* serve it, then call hf_replay_finish() or hf_replay_forget() with *entryp */
	HF_REPLAY_DONE,    /* *replyp, of *lenp bytes, is the reply */
	HF_REPLAY_BUSY,    /* @follower will be told, or there is none (NULL): drop this copy */
	HF_REPLAY_FULL,    /* calls under way have too many entries: serve it without the cache */
};

/* Tells a follower the reply; @follower is what hf_replay_begin() got. */
typedef void (*hf_replay_fn)(void *follower, struct hf_bytes reply); /* empty: there will be no reply */

int hf_replay_begin(struct hf_replay *replay, uint64_t now, const struct hf_replay_call *call, void *follower,
		    hf_replay_fn told, uint8_t reply[HF_REPLAY_MAX_REPLY], uint32_t *lenp,
		    struct hf_replay_entry **entryp);
/* The reply is for the follower and for later copies. */
void hf_replay_finish(struct hf_replay *replay, struct hf_replay_entry *entry, struct hf_bytes reply);
/* The reply is only for the follower: a later copy is served. */
void hf_replay_finish_once(struct hf_replay *replay, struct hf_replay_entry *entry, struct hf_bytes reply);
void hf_replay_forget(struct hf_replay *replay, struct hf_replay_entry *entry);
/* An entry that makes room before its time is counted as refused. */
void hf_replay_show_limit(struct hf_replay *replay, struct hf_limit_use *use);
