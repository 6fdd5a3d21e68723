/*
 * When did an address last do anything? It is remembered for a bounded number of
 * addresses. The address that did nothing for longest makes room, and from then on
 * each address that is not remembered counts as if it had done something at that
 * time: an answer may be too late, and is never too early.
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

/* The port of an address does not count. @now is monotonic ns. */
void hf_contacts_note(struct hf_contacts *contacts, const struct hf_addr *addr, uint64_t now);
uint64_t hf_contacts_last(const struct hf_contacts *contacts, const struct hf_addr *addr); /* 0: never */
void hf_contacts_show_limit(const struct hf_contacts *contacts, struct hf_limit_use *use);
