/*
 * How many connections each peer address has, over all lanes. Asked when a
 * connection comes or goes, never for a call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/addr.h"
#include "base/siphash.h"

struct hf_hosts;

int hf_hosts_new(struct hf_hosts **hostsp, const struct hf_siphash_key *key);
struct hf_hosts *hf_hosts_free(struct hf_hosts *hosts);

/* One more, unless the host has @max already (false) or there is no memory (false, too). */
bool hf_hosts_enter(struct hf_hosts *hosts, const struct hf_addr *addr, size_t max);
void hf_hosts_leave(struct hf_hosts *hosts, const struct hf_addr *addr);
