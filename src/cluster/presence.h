/*
 * The service's presence on this host: while this node serves, the addresses of the service
 * are here, the neighbours know it, and the clients of the node before find out that their
 * connections are gone.
 *
 * It has no clock of its own, and is called from the cluster's thread. Failures are logged.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "cluster/address.h"

struct hf_presence;

/* Opens its sockets: before the sandbox. @addresses is copied. On failure @error says what to do. */
int hf_presence_new(struct hf_presence **presencep, const struct hf_service_address *addresses, size_t n,
		    char *error, size_t error_size);
struct hf_presence *hf_presence_free(struct hf_presence *presence); /* the addresses stay as they are */

HF_DEFINE_CLEANUP(struct hf_presence *, hf_presence_free)

/* The lease ends in @lease_left_ns: the addresses are here as long. Call it after each renewal. The first
 * call, and the first that succeeds after one that failed, announces them, and makes the clients of the node
 * before speak. */
void hf_presence_hold(struct hf_presence *presence, uint64_t lease_left_ns, uint64_t now);
void hf_presence_give_up(struct hf_presence *presence);
bool hf_presence_is_held(const struct hf_presence *presence);
/* The connections of the node before (connections.h), for the next hold. */
void hf_presence_set_old_connections(struct hf_presence *presence, const uint8_t *bytes, size_t len);
/* What is due: announcements, nudges. Returns when to call it again; UINT64_MAX: not by itself. */
uint64_t hf_presence_run(struct hf_presence *presence, uint64_t now);
/* Do the interfaces have their links? If one does not, @why says so. */
bool hf_presence_has_links(struct hf_presence *presence, char *why, size_t size);
