/*
 * May this caller do that with the file? The kernel decides, with the caller's
 * identity on, so that modes, groups and access control lists all count; its
 * word is remembered while the file's ctime stays the same.
 */
#pragma once

#include <stdint.h>
#include <sys/stat.h>

#include "vfs/file.h"
#include "vfs/identity.h"

/* What of R_OK, W_OK and X_OK he may: those bits, or -errno. @st is fresh. */
int hf_file_access(struct hf_file *file, const struct hf_identity *caller, const struct stat *st);

/* Will any later change show in ctime? Not as long as the clock that it comes from has hardly moved on. */
bool hf_stat_is_settled(const struct stat *st);

/* The same for data, as NFS needs it: the owner may always, because he could when he opened the file, and
 * who may execute may read. 0, or -EACCES, or another -errno. @want: R_OK or W_OK. */
int hf_file_may(struct hf_file *file, const struct hf_identity *caller, const struct stat *st, int want);
