/*
 * Memory that can be thrown away as a whole.
 *
 * The program is linked so that malloc() and similar functions come to arena.c. While the server's code runs,
 * they take memory from one arena, that of its process. Killing the process is forgetting that arena,
 * wherever the code is at that moment. The world outside has an arena of its own, which ends with the
 * schedule.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_ARENAS 2 /* processes at most */

/* The processes */
void sim_arena_enter(uint32_t number); /* allocations from now on belong to this process */
void sim_arena_leave(void);
void sim_arena_kill(uint32_t number); /* all of it is lost */

/* The world outside: zeroed memory, until the next sim_outside_reset(). */
void *sim_alloc(size_t size);
void *sim_alloc_head(size_t size, size_t n_cleared); /* only its first bytes are zeroed */
void sim_free(void *p);
void sim_outside_reset(void);
