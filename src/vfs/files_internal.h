/* Shared by file.c and files.c. */
#pragma once

#include "vfs/file.h"

/* Takes @fd on success. @st: of @fd. */
int hf_file_new(struct hf_file **filep, struct hf_files *files, struct hf_volume *volume,
		const struct hf_file_id *id, int fd, const struct stat *st);
void hf_files_count(struct hf_files *files, int n_fds);
/* Closes other files until there is room: one more descriptor of @file was opened. */
void hf_files_make_room_for(const struct hf_file *file);
