/* Shared by tree.c, create.c, remove.c and attr.c. */
#pragma once

#include "vfs/tree.h"

/* With the server's own rights */
int hf_dir_open_entry(struct hf_file *dir, const struct hf_name *name, bool cached, struct hf_file **filep,
		      struct stat *stp);
/* Like hf_dir_check(), within a change of the directory. */
int hf_dir_check_begun(struct hf_file *dir, const struct hf_change *change);
int hf_dir_check_name(struct hf_file *dir, const struct hf_change *change,
		      const struct hf_name *name); /* for a name that is to be created */
int hf_link_fd(int fd, int dir, const char *name);
/* The name was created, but opening the file failed with @error. 0: the client hears that it exists. */
int hf_dir_made_unopened(int error, const struct hf_setattr *set, const struct hf_identity *caller,
			 mode_t type);
