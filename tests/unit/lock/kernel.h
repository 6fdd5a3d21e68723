/*
 * The kernel as judge: a file that no other process has, and fcntl OFD locks on it. An
 * owner is an open file description.
 */
#pragma once

#include <stdbool.h>

#include "lock/lock.h"

enum {
	KERNEL_OWNERS = 16,
};

struct kernel {
	int fds[KERNEL_OWNERS];
	int n;
};

/* False: no such thing here. */
bool kernel_open(struct kernel *kernel, int n_owners);
void kernel_close(struct kernel *kernel);
/* Takes it, or gives it back with HF_LOCK_NONE. False: another lock is in the way. What else goes wrong ends
 * the program. */
bool kernel_set(const struct kernel *kernel, int owner, enum hf_lock_mode mode, struct hf_range range);
/* Could the owner take it? */
bool kernel_is_free(const struct kernel *kernel, int owner, enum hf_lock_mode mode, struct hf_range range);
