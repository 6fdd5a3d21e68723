/*
 * The file service for fuzzing: MOUNT and NFS over real directories of a
 * temporary place, with a loop and a network in memory (standin/fake_world.h). Beside the
 * exports lies a directory that is not exported; no client may ever get there.
 *
 * A script is a sequence of calls. Handles cannot be guessed, so a script names
 * them: those of the roots, and those that earlier replies gave.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FILES_WORLD_HANDLES 32
#define FILES_WORLD_ROOTS   2 /* the first handles: of a writable and of a read-only export */

struct files_world;

struct files_world *files_world_new(void);
/* Back to what it was at first; aborts if something happened outside, or to the read-only export. */
void files_world_reset(struct files_world *world);

/* One call from one of two users over UDP; aborts unless there is one well-formed reply. The status, or -1
 * where the call was refused as such. */
int files_world_call(struct files_world *world, uint32_t program, uint32_t version, uint32_t procedure,
		     const uint8_t *args, size_t len, uint32_t uid);
/* A handle as XDR has it; its length in all. */
size_t files_world_put_handle(const struct files_world *world, size_t which, uint8_t out[68]);
