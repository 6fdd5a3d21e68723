/*
 * The journal: an append-only log of lock batches in front of LMDB.
 *
 * A few files (segments) of a fixed nominal size take turns. A batch is one
 * frame, written by one write(2) before its ticket is reached: from then on the
 * page cache has it, and the death of the daemon cannot undo it. A full segment
 * is folded into LMDB in the background, and may then be overwritten.
 *
 *	segment  16 bytes "holdfast journal"   u32 version   u32 zero   u64 instance   zeros to 64
 *	         then frames
 *	frame    u32 magic   u32 length of the records   u64 sequence   u64 checksum of the records
 *	         u64 seal   records
 *
 * Sequence numbers rise by one from frame to frame over all segments, and LMDB
 * knows the last one folded into it: that alone says what in a segment counts. It
 * also chains the segments: where one ends early, the next one does not follow. All
 * segments are made before the first frame is written, so none of them may be missing
 * afterwards. A frame that is cut off at the very end of the last segment was never
 * acknowledged, and is no loss. The seal is a checksum of the head and the instance. So neither a torn frame
 *nor one left from an earlier use nor one of another store is believed.
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
	size_t end;              /* where the next frame goes */
	uint64_t first_sequence; /* 0: nothing in it that counts */
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
	uint64_t sequence; /* of the frame last given */
};

/* What is known of the segments before they are looked at. */
enum hf_journal_trust {
	HF_JOURNAL_WHOLE,     /* they were in use: all are there, and what follows @folded counts */
	HF_JOURNAL_AT_REST,   /* the same, but one that is missing had nothing that counts: it is made */
	HF_JOURNAL_UNTRUSTED, /* what was not synced may be there in any mixture: nothing counts */
	HF_JOURNAL_GIVEN_UP,  /* nothing counts, and one that cannot be read is made anew */
};

/* Opens the segments in @dir_fd, or makes them, and finds out what counts; -EBADMSG with *wrongp and
 * *segmentp: missing, not ours, or damaged. */
int hf_journal_open(struct hf_journal *journal, int dir_fd, uint64_t instance, uint64_t folded,
		    enum hf_journal_trust trust, const char **wrongp, unsigned int *segmentp);
void hf_journal_close(struct hf_journal *journal);

/* Appends a frame: 0; -EAGAIN: all segments wait for being folded; or why it could not be written. */
int hf_journal_append(struct hf_journal *journal, struct hf_bytes records);
int hf_journal_current_fd(const struct hf_journal *journal);

/* The segments to fold next, oldest first, at most @max; how many. With @all the current one, too. */
unsigned int hf_journal_oldest(const struct hf_journal *journal, bool all, int *segments, unsigned int max);
void hf_journal_release(struct hf_journal *journal, int segment); /* it was folded */
void hf_journal_reset(struct hf_journal *journal);                /* nothing in it counts any more */

/* From any thread, while nobody appends to that segment: gives the frames that count one by one:
 * 1; 0 at the end; -errno. */
int hf_journal_read(struct hf_journal_frames *frames, const struct hf_journal *journal, int segment);
int hf_journal_next(struct hf_journal_frames *frames, struct hf_bytes *recordsp);
void hf_journal_read_end(struct hf_journal_frames *frames);
/* After the last frame: is there another, younger than @folded, further on? Then the end is no torn tail
 * but damage. */
bool hf_journal_has_more(const struct hf_journal_frames *frames, uint64_t folded);
