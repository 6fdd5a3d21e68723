/*
 * Which clients have TLS connections now, or had one lately?
 *
 * Linux sends NLM and NSM in the clear, beside the TLS connection of its NFS calls. So the
 * server asks here whether the address of such a call has a TLS connection, and with whose
 * certificate.
 *
 * Each loop says when a TLS connection begins and ends. The home loop alone asks. What the
 * loops have said waits in a queue, which the home loop reads before it answers: a call that a
 * client sends when its TLS connection is open always finds that connection. If the queue is
 * empty, an answer needs no lock.
 *
 * An identity is the list of names in a certificate; a client without certificate has the
 * empty one. An identity at an address is remembered while it has a connection there, and for
 * the grace time after that. If too many have ended, those that are not needed are forgotten.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/limit.h"

struct hf_loop;
struct hf_rpc_presence;
struct hf_rpc_presence_link;
struct hf_tls_peer;

/* @home: the loop that asks. @grace_ns: how long an identity counts after the end of its last connection. */
int hf_rpc_presence_new(struct hf_rpc_presence **presencep, struct hf_loop *home, uint64_t grace_ns);
/* After the home loop was freed, and all links have ended. */
struct hf_rpc_presence *hf_rpc_presence_free(struct hf_rpc_presence *presence);

HF_DEFINE_CLEANUP(struct hf_rpc_presence *, hf_rpc_presence_free)

/* From any thread: a TLS connection begins, and ends. NULL: no memory. Without @presence there is no link. */
struct hf_rpc_presence_link *hf_rpc_presence_begin(struct hf_rpc_presence *presence,
						   const struct hf_addr *address,
						   const struct hf_tls_peer *peer);
void hf_rpc_presence_end(struct hf_rpc_presence_link *link);

/* The rest on the home loop's thread. */

/* From now on, also for connections that have ended; but an identity that was forgotten does not come back.
 */
void hf_rpc_presence_set_grace(struct hf_rpc_presence *presence, uint64_t grace_ns);

/* @fn is called for each identity that counts at this address, until it answers true. @newest: the number of
 * its latest connection. */
typedef bool (*hf_rpc_presence_fn)(void *user, const struct hf_tls_peer *peer, uint64_t newest);
bool hf_rpc_presence_find(struct hf_rpc_presence *presence, const struct hf_addr *address,
			  hf_rpc_presence_fn fn, void *user);
/* The same for each identity that has a connection from this address now. */
bool hf_rpc_presence_find_connected(struct hf_rpc_presence *presence, const struct hf_addr *address,
				    hf_rpc_presence_fn fn, void *user);
void hf_rpc_presence_show_limit(struct hf_rpc_presence *presence, struct hf_limit_use *use);
/* The number of connections that have begun: each later one has a greater number. */
uint64_t hf_rpc_presence_count(struct hf_rpc_presence *presence);
/* The server has just started: connections of its last run count as if they had ended at the start. */
bool hf_rpc_presence_is_young(const struct hf_rpc_presence *presence);
/* @fn is called from the loop after connections have begun. NULL: it is not any more. */
void hf_rpc_presence_listen(struct hf_rpc_presence *presence, void (*fn)(void *user), void *user);
/* @fn answers whether calls in the clear from this address need the identity, because its client holds
 * something. It is asked when too many identities have ended. NULL: none is needed. */
typedef bool (*hf_rpc_presence_judge_fn)(void *user, const struct hf_addr *address,
					 const struct hf_tls_peer *peer);
void hf_rpc_presence_set_judge(struct hf_rpc_presence *presence, hf_rpc_presence_judge_fn fn, void *user);
