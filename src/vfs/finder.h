/*
 * Finds files by inode number where the kernel does not do it for us.
 *
 * It remembers where each file was last seen: its name, and the directory's
 * inode number. A file that is not there any more, or was never seen since we
 * started, is looked for in the whole tree; on the way all that is there is
 * remembered. So ids survive a restart and renames by others, at the price of a
 * walk over the tree. Walks are made one at a time and at most once in
 * HF_FINDER_PAUSE_S seconds, so that ids of files that are gone cost little: in
 * between the answer is -EAGAIN, ask again later. So it is for those who come
 * while a walk goes on for longer than HF_FINDER_WAIT_S: a huge tree takes one
 * thread, not all of them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hf_file_id;
struct hf_finder;
struct hf_volume;

#define HF_FINDER_PAUSE_S   5
#define HF_FINDER_WAIT_S    1
#define HF_FINDER_MAX_FILES 4000000 /* remembered; about 100 bytes each */

int hf_finder_new(struct hf_finder **finderp, uint64_t root_inode);
struct hf_finder *hf_finder_free(struct hf_finder *finder);

void hf_finder_learn(struct hf_finder *finder, uint64_t dir_inode, const char *name, uint64_t inode);
/* An O_PATH descriptor of the file with this very id, or -ESTALE, or -EAGAIN as above. Whoever asks again is
 * answered by the next walk, whoever that was made for. */
int hf_finder_open(struct hf_finder *finder, const struct hf_volume *volume, const struct hf_file_id *id);
