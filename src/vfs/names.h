/*
 * Which file a name led to, lately.
 *
 * A look-up by name opens the file, asks for its id and closes it again, though the cache of open files
 * mostly has it. With a guess, one question to the kernel is enough: does the name still lead to that inode
 * number? While a file is open that was found by this name, the name stays in the kernel's memory, so the
 * question does not wait for the disk. There are exceptions: a local process has renamed the file since, or
 * it was opened again by its handle. Then the kernel may read the directory, on a loop, too.
 *
 * A guess may be wrong or missing; a wrong one costs that question. Any thread may use it.
 */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"

struct hf_file;
struct hf_names;

int hf_names_new(struct hf_names **namesp);
struct hf_names *hf_names_free(struct hf_names *names);

HF_DEFINE_CLEANUP(struct hf_names *, hf_names_free)

void hf_names_saw(struct hf_names *names, const struct hf_file *dir, const char *name, uint64_t inode);
/* The inode number; 0: no guess. */
uint64_t hf_names_guess(const struct hf_names *names, const struct hf_file *dir, const char *name);
