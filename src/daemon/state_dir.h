/*
 * The state directory: created if it is missing, readable by the server's user
 * alone, and locked, so that two servers never write to the same one.
 */
#pragma once

#include <stddef.h>

#include "base/cleanup.h"

struct hf_state_dir;

/* On failure @error says in one line what is wrong and what to do. */
int hf_state_dir_open(struct hf_state_dir **dirp, const char *path, char *error, size_t error_size);
struct hf_state_dir *hf_state_dir_close(struct hf_state_dir *dir);

HF_DEFINE_CLEANUP(struct hf_state_dir *, hf_state_dir_close)

/* Replaces a file in the directory as a whole, or leaves it unchanged. */
int hf_state_dir_write(struct hf_state_dir *dir, const char *name, const void *data, size_t len);
/* The same, on stable storage when it returns 0. */
int hf_state_dir_save(struct hf_state_dir *dir, const char *name, const void *data, size_t len);
/* Reads at most @size - 1 bytes of a file and ends them with a NUL. -ENOENT: there is none. */
int hf_state_dir_read(struct hf_state_dir *dir, const char *name, char *out, size_t size);
int hf_state_dir_remove(struct hf_state_dir *dir, const char *name); /* a missing file is no error */
/* Gives the directory and the server's files in it to the user that the server changes to next. */
int hf_state_dir_give(struct hf_state_dir *dir, unsigned int uid, unsigned int gid);
