/*
 * Unpins files on a thread that may wait: closing a file may have to free its
 * space, or wait for a hung disk. Belongs to one loop's thread.
 */
#pragma once

#include <stddef.h>

#include "loop/work.h"

struct hf_file;
struct hf_loop;

struct hf_local_closer {
	struct hf_loop *loop;
	struct hf_work work;
	size_t n; /* files handed over and not yet closed */
	struct hf_file **waiting;
	size_t n_waiting;
	size_t room;
	struct hf_file **taken; /* owned by the work while it runs */
	size_t n_taken;
};

void hf_local_closer_init(struct hf_local_closer *closer, struct hf_loop *loop);
/* Waits until all files are closed. */
void hf_local_closer_deinit(struct hf_local_closer *closer);
void hf_local_closer_unpin(struct hf_local_closer *closer, struct hf_file *file);
