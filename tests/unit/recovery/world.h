/* A recovery on a disk, with a loop that runs until something is so, and with a teller that does as told. */
#pragma once

#include "../test.h"

#include "../../../standin/disk.h"
#include "loop/loop.h"
#include "loop/timer.h"
#include "recovery/recovery.h"

#define MS HF_NS_PER_MS

enum peer { /* how the clients answer the server's notices, by the first letter of their names */
	PEER_FINE,
	PEER_BLACK_HOLE, /* 'b': no answer in time */
	PEER_REFUSES,    /* 'r': fails at once */
	PEER_STUBBORN,   /* 's': cannot be told on the first try */
	PEER_LATE,       /* 'l': the end of the first try is the test's, by world_end_telling() */
};

enum { /* places in options.protocols */
	WORLD_NLM,
	WORLD_NSM,
	WORLD_SMB, /* reconnects; nothing is sent to it */
};

struct world {
	struct disk disk;
	struct hf_loop *loop;
	struct hf_recovery *recovery;
	struct hf_recovery_options options;
	struct hf_recovery_observer observer;
	size_t n_events[HF_EVENT_GRACE_ENDED + 1];
	struct hf_recovery_event last[HF_EVENT_GRACE_ENDED + 1];
	size_t n_told, n_failed, n_in_flight, max_in_flight;
	size_t n_granted, n_gone;
	uint64_t last_granted;
	uint64_t told_at;     /* the last one that was fine */
	int32_t told_state;   /* the server's, in that */
	bool all_deaf;        /* no client can be told */
	unsigned int n_busy;  /* so many tries to come find that there are too many calls under way */
	unsigned int n_short; /* so many tries to come end for lack of a socket */
	struct hf_list tellings;
};

void world_init(struct world *world);
void world_deinit(struct world *world);
void world_up(struct world *world);   /* new, start not called */
void world_kill(struct world *world); /* as by SIGKILL */
void world_stop(struct world *world); /* in order */
void world_restart(struct world *world);
void world_turn(struct world *world); /* one turn of the loop, with all that is due */
#define world_until(world, condition)             \
	do {                                      \
		int i_ = 0;                       \
                                                  \
		while (!(condition)) {            \
			assert_true(i_++ < 5000); \
			world_turn(world);        \
		}                                 \
	} while (0)

void world_end_telling(struct world *world, bool was_told); /* the first that is under way */
struct hf_client *world_client(struct world *world, const char *address, const char *name); /* registered */
struct hf_lock_request world_request(struct hf_client *client, uint64_t owner, const char *file,
				     uint64_t start, uint64_t end);
int world_lock(struct world *world, struct hf_client *client, uint64_t owner, const char *file,
	       uint64_t start, uint64_t end);
int world_reclaim(struct world *world, struct hf_client *client, uint64_t owner, const char *file,
		  uint64_t start, uint64_t end); /* a lock answer; GRACE where it is refused */
void world_unlock(struct world *world, struct hf_client *client, uint64_t owner, const char *file,
		  uint64_t start, uint64_t end);
uint64_t world_unreclaimed(struct world *world);
bool world_in_grace(struct world *world);
