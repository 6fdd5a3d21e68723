/* Shared by file.c and files.c. */
#pragma once

#include "vfs/file.h"

/* Takes @fd on success. @st: of @fd. */
int hf_file_new(struct hf_file **filep, struct hf_files *files, struct hf_volume *volume,
		const struct hf_file_id *id, int fd, const struct stat *st);
/* Closes a file that has no reference any more. May wait. */
void hf_file_free(struct hf_file *file);
int hf_file_count_fds(const struct hf_file *file);
void hf_files_count(struct hf_files *files, int n_fds);
/* For hf_files_close(): to close a file that has no reference any more; otherwise to sync it, and to drop the
 * caller's reference. */
void hf_files_close_later(struct hf_file *file);
/* Closes other files until there is room: one more descriptor of @file was opened. May wait, but only for the
 * disk of @file. @may_sync: the caller is not in a sync itself. Then files with written data make room, too,
 * and callers that write to many files become as slow as the disk, before all descriptors are used up. */
void hf_files_make_room_for(const struct hf_file *file, bool may_sync);
