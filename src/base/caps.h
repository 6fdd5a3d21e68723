/*
 * Capabilities of the calling thread (capabilities(7)). The kernel keeps them for
 * each thread; a new thread starts with those of the one that made it. Sets are
 * bits, HF_CAP(CAP_CHOWN) and so on.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HF_CAP(cap) (UINT64_C(1) << (cap))

struct hf_caps {
	uint64_t effective;
	uint64_t permitted;
};

/* What the thread has; nothing where the kernel does not tell. */
struct hf_caps hf_caps_get(void);
/* Takes away what is not in @caps, for good where @caps does not permit it, and clears what an exec would
 * inherit. Never adds to what is permitted. 0 or -errno. */
int hf_caps_limit(struct hf_caps caps);

/* Makes one capability that is permitted effective; false: it is not permitted, or was effective already, and
 * there is nothing to lower. */
bool hf_caps_raise(int cap);
void hf_caps_lower(int cap);
