/*
 * What the service manager hears of the server, if there is one (sd_notify(3)):
 * readiness, a line of status, and that the home loop turns.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "loop/timer.h"

#define HF_MANAGER_STATUS 512

struct hf_loop;

/* Writes the line of status as it is now. */
typedef void (*hf_manager_status_fn)(void *user, char out[static HF_MANAGER_STATUS]);

struct hf_manager {
	struct hf_timer timer;
	hf_manager_status_fn status;
	void *user;
	uint64_t watchdog_ns;         /* how often the manager wants a sign of life; 0: it wants none */
	char told[HF_MANAGER_STATUS]; /* the last line of status */
};

/* Before the first use, again for each loop. */
void hf_manager_init(struct hf_manager *manager, struct hf_loop *loop, hf_manager_status_fn status,
		     void *user);
/* The loop must not be used after this. An object of zeros is fine. */
void hf_manager_deinit(struct hf_manager *manager);

/* At the start, and at the end of a reload. From then on the line of status follows what it tells of. */
void hf_manager_tell_ready(struct hf_manager *manager);
void hf_manager_tell_reloading(void);
/* The process ends. A node of a cluster that only hands the service over does not say it. */
void hf_manager_tell_stopping(void);
