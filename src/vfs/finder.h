/*
 * Finds files by inode number where the kernel cannot do that.
 *
 * The finder remembers where each file was last seen: its name and the
 * directory's inode number. A file that is no longer there, or was not seen
 * since the start, is searched in the whole tree, and the walk remembers
 * everything that it meets. So ids survive a restart and renames by local
 * programs, at the price of a walk.
 *
 * One walk runs at a time, and at most one in HF_FINDER_PAUSE_S seconds, so
 * that ids of removed files cost little: in between the answer is -EAGAIN,
 * retry later. A caller gets the same answer if a walk takes longer than
 * HF_FINDER_WAIT_S: a huge tree occupies one thread, not all of them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hf_file_id;
struct hf_finder;
struct hf_volume;

#define HF_FINDER_PAUSE_S   5
#define HF_FINDER_WAIT_S    1
#define HF_FINDER_MAX_FILES 4000000 /* files remembered; about 100 bytes each */

int hf_finder_new(struct hf_finder **finderp, uint64_t root_inode);
struct hf_finder *hf_finder_free(struct hf_finder *finder);

void hf_finder_learn(struct hf_finder *finder, uint64_t dir_inode, const char *name, uint64_t inode);
/* An O_PATH descriptor of the file with exactly this id, or -ESTALE, or -EAGAIN as above. After -EAGAIN the
 * next walk answers the caller, even if it was made for another file. */
int hf_finder_open(struct hf_finder *finder, const struct hf_volume *volume, const struct hf_file_id *id);
