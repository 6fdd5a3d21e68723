/*
 * The journal: an append-only log of lock batches in front of LMDB.
 *
 * The journal uses a few files (segments) of a fixed nominal size in rotation.
 * A batch is one frame. One write(2) writes it before its ticket is reached;
 * from then on the page cache holds it, and the death of the daemon cannot lose
 * it. A full segment is folded into LMDB in the background and may then be
 * overwritten.
 *
 *	segment  16 bytes "holdfast journal"   u32 version   u32 zero   u64 instance   zeros to 64
 *	         then frames
 *	frame    u32 magic   u32 length of the records   u64 sequence   u64 checksum of the records
 *	         u64 seal   records
 *
 * Sequence numbers rise by one from frame to frame over all segments. LMDB
 * stores the last sequence number that was folded into it: this number alone
 * decides which frames are replayed. The numbers also chain the segments: if
 * one ends early, the next one does not continue it. All segments are created
 * before the first frame is written, so a missing one is damage. A frame that
 * is cut off at the end of the last segment was never acknowledged and is no
 * loss.
 *
 * The seal is a checksum of the frame header and the store's instance number.
 * Sequence, checksum and seal together reject a torn frame, a frame of an
 * earlier use and a frame of another store.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

#define HF_JOURNAL_SEGMENTS 16
#define HF_JOURNAL_SIZE     ((size_t)8 << 20) /* a single larger frame makes its segment longer */
#define HF_JOURNAL_VERSION  1

struct hf_journal_segment {
	int fd;
	size_t end;              /* offset of the next frame */
	uint64_t first_sequence; /* 0: nothing in it needs replay */
	uint64_t last_sequence;
};

struct hf_journal {
	struct hf_journal_segment segments[HF_JOURNAL_SEGMENTS];
	uint64_t instance;
	uint64_t next_sequence;
	unsigned int current;
	uint8_t *frame; /* header and records side by side, for one write */
	size_t frame_capacity;
};

/* Reading: the frames of one segment. */
struct hf_journal_frames {
	uint8_t *data;
	size_t size;
	size_t at;
	uint64_t instance;
	uint64_t sequence; /* of the last frame that was returned */
};

/* What the caller knows about the segments before they are read. */
enum hf_journal_trust {
	/* In use when the last run ended: all exist, and frames after @folded are replayed. */
	HF_JOURNAL_WHOLE,
	HF_JOURNAL_AT_REST, /* the same, but a missing segment held nothing to replay: it is created */
	/* Frames that were not synced may survive in any mixture: nothing is replayed. */
	HF_JOURNAL_UNTRUSTED,
	HF_JOURNAL_GIVEN_UP, /* nothing is replayed, and a segment that cannot be read is created anew */
};

/* Opens the segments in @dir_fd, or creates them, and finds the frames to replay. -EBADMSG, with the reason
 * in *wrongp and the segment in *segmentp: a segment is missing, foreign or damaged. */
int hf_journal_open(struct hf_journal *journal, int dir_fd, uint64_t instance, uint64_t folded,
		    enum hf_journal_trust trust, const char **wrongp, unsigned int *segmentp);
void hf_journal_close(struct hf_journal *journal);

/* Appends a frame. 0: written. -EAGAIN: no segment is free until one is folded. Otherwise -errno of the
 * write. */
int hf_journal_append(struct hf_journal *journal, struct hf_bytes records);
int hf_journal_current_fd(const struct hf_journal *journal);

/* The segments to fold next, oldest first, at most @max; returns their number. With @all, includes the
 * current one. */
unsigned int hf_journal_oldest(const struct hf_journal *journal, bool all, int *segments, unsigned int max);
void hf_journal_release(struct hf_journal *journal, int segment); /* after it was folded */
void hf_journal_reset(struct hf_journal *journal);                /* nothing needs replay any more */

/* After it was folded and before it is released, from any thread: a single large frame may have made the file
 * longer than the nominal size. It gives that space back. */
void hf_journal_shrink(const struct hf_journal *journal, int segment);

/* From any thread, while nothing is appended to that segment: returns the frames to replay one by one, up to
 * the offset @end. 1: a frame; 0: the end; -errno. */
int hf_journal_read(struct hf_journal_frames *frames, const struct hf_journal *journal, int segment,
		    size_t end);
int hf_journal_next(struct hf_journal_frames *frames, struct hf_bytes *recordsp);
void hf_journal_read_end(struct hf_journal_frames *frames);
/* After the last frame: does a frame newer than @folded follow further on? If so, the end is damage and not a
 * torn tail. */
bool hf_journal_has_more(const struct hf_journal_frames *frames, uint64_t folded);
