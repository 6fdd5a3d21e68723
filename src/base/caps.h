/*
 * Capabilities of the calling thread (capabilities(7)). Each thread has
 * its own; a new thread inherits those of its creator. Sets are bits:
 * HF_CAP(CAP_CHOWN) and so on.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HF_CAP(cap) (UINT64_C(1) << (cap))

struct hf_caps {
	uint64_t effective;
	uint64_t permitted;
};

/* The thread's capabilities; empty if the kernel does not tell. */
struct hf_caps hf_caps_get(void);
/* Drops the capabilities that are not in @caps, permanently if @caps does not permit them, and clears those
 * that an exec would inherit. Never adds to the permitted set. 0 or -errno. */
int hf_caps_limit(struct hf_caps caps);

/* Makes a permitted capability effective. false: it is not permitted, or it was effective already; then do
 * not lower it. */
bool hf_caps_raise(int cap);
void hf_caps_lower(int cap);
