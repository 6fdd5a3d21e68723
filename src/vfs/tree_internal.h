/* Of tree.c, for create.c, remove.c and attr.c. */
#pragma once

#include "vfs/tree.h"

/* With the server's own rights */
int hf_dir_open_entry(struct hf_file *dir, const struct hf_name *name, bool cached, struct hf_file **filep,
		      struct stat *stp);
/* Like hf_dir_check(), within a change of the directory. */
int hf_dir_check_begun(struct hf_file *dir, const struct hf_change *change);
