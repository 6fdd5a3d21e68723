/*
 * When was an address last in contact, and when was it heard last? An open connection is a
 * contact, even if nothing comes; the server hears calls, datagrams and new connections.
 *
 * Both times are remembered for a bounded number of addresses. The address without contact
 * for longest makes room, and from then on each address that is not remembered counts as if
 * it had done that at the latest time of a forgotten address: an answer may be too late, and
 * is never too early.
 *
 * The caller locks.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/limit.h"
#include "base/siphash.h"

struct hf_contacts;

int hf_contacts_new(struct hf_contacts **contactsp, const struct hf_siphash_key *key, size_t max);
struct hf_contacts *hf_contacts_free(struct hf_contacts *contacts);

/* The port of an address does not count. The contact ends @now, and @heard_at is not later; monotonic ns. */
void hf_contacts_note(struct hf_contacts *contacts, const struct hf_addr *addr, uint64_t now,
		      uint64_t heard_at);
uint64_t hf_contacts_last(const struct hf_contacts *contacts, const struct hf_addr *addr);  /* 0: never */
uint64_t hf_contacts_heard(const struct hf_contacts *contacts, const struct hf_addr *addr); /* the same */
void hf_contacts_show_limit(const struct hf_contacts *contacts, struct hf_limit_use *use);
