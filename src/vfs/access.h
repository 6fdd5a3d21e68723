/*
 * May this caller do that with the file? The kernel decides, under the caller's
 * identity, so that modes, groups and access control lists all count. Its
 * answer is remembered while the file's ctime stays the same.
 */
#pragma once

#include <stdint.h>
#include <sys/stat.h>

#include "vfs/file.h"
#include "vfs/identity.h"

/* Which of R_OK, W_OK and X_OK the caller has: those bits, or -errno. @st must be fresh. */
int hf_file_access(struct hf_file *file, const struct hf_identity *caller, const struct stat *st);

/* This server has changed the file's mode or owner. Not every file system shows that in ctime. */
void hf_file_forget_access(struct hf_file *file);

/* Will any later change show in ctime? Not while the clock behind ctime has hardly moved on. */
bool hf_stat_shows_changes(const struct stat *st);

/* The same for data, as NFS needs it: the owner always may, because it could when it opened the file, and a
 * caller that may execute may read. 0, or -EACCES, or another -errno. @want: R_OK or W_OK. */
int hf_file_may(struct hf_file *file, const struct hf_identity *caller, const struct stat *st, int want);
