#include "store/lmdb/journal.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/macros.h"
#include "store/checksum.h"

#define SEGMENT_HEAD  64
#define UNTRUSTED_GAP (UINT64_C(1) << 40)
#define RETAIN_BYTES  ((size_t)4 << 20) /* a larger buffer is freed after its frame */
#define FRAME_MAGIC   0x316a6668u       /* "hfj1" */

struct segment_head {
	char name[16];
	uint32_t version;
	uint32_t zero;
	uint64_t instance;
	uint8_t zeros[32];
};

struct frame_head {
	uint32_t magic;
	uint32_t length;
	uint64_t sequence;
	uint64_t checksum;
	uint64_t seal;
};

_Static_assert(sizeof(struct segment_head) == SEGMENT_HEAD, "format");
_Static_assert(sizeof(struct frame_head) == 32, "format");

static const char segment_name[16] = "holdfast journal";

static uint64_t seal_of(const struct frame_head *head, uint64_t instance)
{
	return htole64(hf_checksum_with(head, offsetof(struct frame_head, seal), instance));
}

static bool is_sealed(const struct frame_head *head, uint64_t instance)
{
	return le32toh(head->magic) == FRAME_MAGIC && head->seal == seal_of(head, instance);
}

static int write_all(int fd, const void *data, size_t len, off_t at)
{
	const uint8_t *p = data;

	while (len) {
		ssize_t n = pwrite(fd, p, len, at);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		p += n;
		len -= (size_t)n;
		at += n;
	}
	return 0;
}

/* Opening */

/* Creates the segment under a temporary name first, so that it never exists without its header. */
static int make_segment(int dir_fd, const char *name, uint64_t instance)
{
	hf_cleanup(hf_closep) int fd = -1;
	struct segment_head head = { .version = htole32(HF_JOURNAL_VERSION), .instance = htole64(instance) };
	char temporary[32];
	int r;

	memcpy(head.name, segment_name, sizeof(head.name));
	snprintf(temporary, sizeof(temporary), "%s.new", name);
	fd = openat(dir_fd, temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = write_all(fd, &head, sizeof(head), 0);
	if (r < 0)
		return r;
	if (fsync(fd) < 0 || renameat(dir_fd, temporary, dir_fd, name) < 0)
		return -errno;
	r = fd;
	fd = -1;
	return r;
}

static int check_head(int fd, uint64_t instance, const char **wrongp)
{
	struct segment_head head;
	ssize_t n = pread(fd, &head, sizeof(head), 0);

	if (n < 0)
		return -errno;
	if (n != sizeof(head) || memcmp(head.name, segment_name, sizeof(head.name)) != 0)
		*wrongp = "it is not a journal of holdfastd";
	else if (le32toh(head.version) > HF_JOURNAL_VERSION)
		*wrongp = "it was written by a newer holdfastd";
	else if (le32toh(head.version) != HF_JOURNAL_VERSION)
		*wrongp = "its header is damaged";
	else if (le64toh(head.instance) != instance)
		*wrongp = "it belongs to another store";
	else
		return 0;
	return -EBADMSG;
}

static int open_segment(struct hf_journal_segment *segment, int dir_fd, unsigned int i, uint64_t instance,
			enum hf_journal_trust trust, const char **wrongp)
{
	char name[16];
	int r;

	snprintf(name, sizeof(name), "journal.%u", i);
	segment->fd = openat(dir_fd, name, O_RDWR | O_CLOEXEC);
	r = segment->fd < 0 ? -errno : check_head(segment->fd, instance, wrongp);
	if (r == -ENOENT && trust == HF_JOURNAL_WHOLE) {
		*wrongp = "it is missing";
		return -EBADMSG;
	}
	if (r == -ENOENT || (r == -EBADMSG && trust == HF_JOURNAL_GIVEN_UP)) {
		hf_closep(&segment->fd);
		segment->fd = make_segment(dir_fd, name, instance);
		r = HF_MIN(segment->fd, 0);
	}
	return r;
}

/* A segment whose first frame is already folded was not used since: it holds nothing to replay. Most segments
 * are like that, and this check saves reading them whole. */
static bool is_old_segment(const struct hf_journal *journal, unsigned int i, uint64_t folded)
{
	struct frame_head head;

	return pread(journal->segments[i].fd, &head, sizeof(head), SEGMENT_HEAD) == sizeof(head) &&
	       is_sealed(&head, journal->instance) && le64toh(head.sequence) <= folded;
}

/* Finds the frames to replay: one unbroken sequence, after @folded. */
static int scan_segment(struct hf_journal *journal, unsigned int i, uint64_t folded, const char **wrongp)
{
	struct hf_journal_segment *segment = &journal->segments[i];
	struct hf_journal_frames frames;
	struct hf_bytes records;
	int r;

	if (is_old_segment(journal, i, folded))
		return 0;
	r = hf_journal_read(&frames, journal, (int)i, SIZE_MAX);
	if (r < 0)
		return r;
	while ((r = hf_journal_next(&frames, &records)) > 0) {
		if (frames.sequence <= folded)
			continue;
		if (!segment->first_sequence)
			segment->first_sequence = frames.sequence;
		segment->last_sequence = frames.sequence;
		segment->end = frames.at;
	}
	/* Frames of an earlier use were folded long ago and do not count. */
	if (r == 0 && hf_journal_has_more(&frames, folded)) {
		*wrongp = "a part in its middle is damaged";
		r = -EBADMSG;
	}
	hf_journal_read_end(&frames);
	return r;
}

/* Names the segment next to the gap before @next: the one that ends there, or, if there is none, the one that
 * follows. */
static void name_gap(const struct hf_journal *journal, const struct hf_journal_segment *after, uint64_t next,
		     const char **wrongp, unsigned int *segmentp)
{
	*segmentp = (unsigned int)(after - journal->segments);
	*wrongp = "the part before it is missing";
	for (unsigned int i = 0; i < HF_JOURNAL_SEGMENTS; i++) {
		if (journal->segments[i].first_sequence && journal->segments[i].last_sequence + 1 == next) {
			*segmentp = i;
			*wrongp = "its end is missing";
		}
	}
}

/* The sequences of all segments must form one unbroken sequence that continues after the last folded
 * frame. */
static int check_row(struct hf_journal *journal, uint64_t folded, const char **wrongp, unsigned int *segmentp)
{
	uint64_t next = folded + 1;

	for (unsigned int n = 0; n < HF_JOURNAL_SEGMENTS; n++) {
		struct hf_journal_segment *least = NULL;

		for (unsigned int i = 0; i < HF_JOURNAL_SEGMENTS; i++) {
			struct hf_journal_segment *segment = &journal->segments[i];

			if (segment->first_sequence >= next &&
			    (!least || segment->first_sequence < least->first_sequence))
				least = segment;
		}
		if (!least)
			break;
		if (least->first_sequence != next) {
			name_gap(journal, least, next, wrongp, segmentp);
			return -EBADMSG;
		}
		next = least->last_sequence + 1;
	}
	journal->next_sequence = next;
	return 0;
}

int hf_journal_open(struct hf_journal *journal, int dir_fd, uint64_t instance, uint64_t folded,
		    enum hf_journal_trust trust, const char **wrongp, unsigned int *segmentp)
{
	bool is_trusted = trust == HF_JOURNAL_WHOLE || trust == HF_JOURNAL_AT_REST;
	int r;

	*journal = (struct hf_journal){ .instance = instance };
	for (unsigned int i = 0; i < HF_JOURNAL_SEGMENTS; i++)
		journal->segments[i].fd = -1;
	for (unsigned int i = 0; i < HF_JOURNAL_SEGMENTS; i++) {
		journal->segments[i].end = SEGMENT_HEAD;
		*segmentp = i;
		r = open_segment(&journal->segments[i], dir_fd, i, instance, trust, wrongp);
		if (r == 0 && is_trusted)
			r = scan_segment(journal, i, folded, wrongp);
		if (r < 0)
			return hf_trace(r);
	}
	if (fsync(dir_fd) < 0)
		return hf_trace(-errno);
	if (is_trusted)
		return hf_trace(check_row(journal, folded, wrongp, segmentp));
	/* Higher than any number that an untrusted frame may carry. */
	journal->next_sequence = folded + UNTRUSTED_GAP;
	return 0;
}

void hf_journal_close(struct hf_journal *journal)
{
	for (unsigned int i = 0; i < HF_JOURNAL_SEGMENTS; i++) {
		hf_closep(&journal->segments[i].fd);
		journal->segments[i].fd = -1;
	}
	free(journal->frame);
	journal->frame = NULL;
}

/* Appending */

static int reserve_frame(struct hf_journal *journal, size_t size)
{
	uint8_t *frame;

	if (size <= journal->frame_capacity)
		return 0;
	size = HF_MAX(size, (size_t)64 << 10);
	frame = realloc(journal->frame, size);
	if (!frame)
		return hf_trace(-ENOMEM);
	journal->frame = frame;
	journal->frame_capacity = size;
	return 0;
}

/* Chooses the segment for a frame of @size; -EAGAIN: none is free. */
static int choose_segment(struct hf_journal *journal, size_t size)
{
	struct hf_journal_segment *segment = &journal->segments[journal->current];

	if (segment->end + size <= HF_JOURNAL_SIZE || !segment->first_sequence)
		return 0;
	for (unsigned int i = 1; i < HF_JOURNAL_SEGMENTS; i++) {
		unsigned int next = (journal->current + i) % HF_JOURNAL_SEGMENTS;

		if (!journal->segments[next].first_sequence) {
			journal->current = next;
			return 0;
		}
	}
	return -EAGAIN;
}

int hf_journal_append(struct hf_journal *journal, struct hf_bytes records)
{
	size_t size = sizeof(struct frame_head) + records.len;
	struct hf_journal_segment *segment;
	struct frame_head head;
	int r;

	r = choose_segment(journal, size);
	if (r < 0)
		return r;
	r = reserve_frame(journal, size);
	if (r < 0)
		return r;
	head = (struct frame_head){
		.magic = htole32(FRAME_MAGIC),
		.length = htole32(records.len),
		.sequence = htole64(journal->next_sequence),
		.checksum = htole64(hf_checksum(records.data, records.len)),
	};
	head.seal = seal_of(&head, journal->instance);
	memcpy(journal->frame, &head, sizeof(head));
	memcpy(journal->frame + sizeof(head), records.data, records.len);
	segment = &journal->segments[journal->current];
	r = write_all(segment->fd, journal->frame, size, (off_t)segment->end);
	if (r < 0)
		return hf_trace(r);
	if (!segment->first_sequence)
		segment->first_sequence = journal->next_sequence;
	segment->last_sequence = journal->next_sequence++;
	segment->end += size;
	if (journal->frame_capacity > RETAIN_BYTES) {
		free(journal->frame);
		journal->frame = NULL;
		journal->frame_capacity = 0;
	}
	return 0;
}

int hf_journal_current_fd(const struct hf_journal *journal)
{
	return journal->segments[journal->current].fd;
}

/* Folding */

/* The oldest segment whose frames are newer than @after; -1: none. */
static int next_oldest(const struct hf_journal *journal, bool all, uint64_t after)
{
	int oldest = -1;

	for (unsigned int i = 0; i < HF_JOURNAL_SEGMENTS; i++) {
		const struct hf_journal_segment *segment = &journal->segments[i];

		if (segment->first_sequence <= after || (i == journal->current && !all))
			continue;
		if (oldest < 0 || segment->first_sequence < journal->segments[oldest].first_sequence)
			oldest = (int)i;
	}
	return oldest;
}

unsigned int hf_journal_oldest(const struct hf_journal *journal, bool all, int *segments, unsigned int max)
{
	uint64_t after = 0;
	unsigned int n;

	for (n = 0; n < max; n++) {
		segments[n] = next_oldest(journal, all, after);
		if (segments[n] < 0)
			break;
		after = journal->segments[segments[n]].first_sequence;
	}
	return n;
}

void hf_journal_release(struct hf_journal *journal, int segment)
{
	journal->segments[segment].first_sequence = 0;
	journal->segments[segment].last_sequence = 0;
	journal->segments[segment].end = SEGMENT_HEAD;
}

void hf_journal_reset(struct hf_journal *journal)
{
	for (int i = 0; i < HF_JOURNAL_SEGMENTS; i++)
		hf_journal_release(journal, i);
}

void hf_journal_shrink(const struct hf_journal *journal, int segment)
{
	int fd = journal->segments[segment].fd;
	struct stat st;

	if (fstat(fd, &st) == 0 && st.st_size > (off_t)HF_JOURNAL_SIZE &&
	    ftruncate(fd, (off_t)HF_JOURNAL_SIZE) < 0)
		hf_trace(-errno); /* nothing is lost but space */
}

/* Reading */

int hf_journal_read(struct hf_journal_frames *frames, const struct hf_journal *journal, int segment,
		    size_t end)
{
	int fd = journal->segments[segment].fd;
	struct stat st;
	size_t size;

	*frames = (struct hf_journal_frames){ .instance = journal->instance, .at = SEGMENT_HEAD };
	if (fstat(fd, &st) < 0)
		return hf_trace(-errno);
	size = HF_MIN((size_t)st.st_size, end);
	frames->data = malloc(size + 1);
	if (!frames->data)
		return hf_trace(-ENOMEM);
	while (frames->size < size) {
		ssize_t n = pread(fd, frames->data + frames->size, size - frames->size, (off_t)frames->size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			hf_journal_read_end(frames);
			return hf_trace(n < 0 ? -errno : -EIO);
		}
		frames->size += (size_t)n;
	}
	return 0;
}

void hf_journal_read_end(struct hf_journal_frames *frames)
{
	free(frames->data);
	frames->data = NULL;
	frames->size = 0;
}

static bool parse_frame(const struct hf_journal_frames *frames, size_t at, uint64_t *sequencep,
			struct hf_bytes *recordsp)
{
	struct frame_head head;

	if (frames->size < at || frames->size - at < sizeof(head))
		return false;
	memcpy(&head, frames->data + at, sizeof(head));
	if (!is_sealed(&head, frames->instance) || le32toh(head.length) > frames->size - at - sizeof(head))
		return false;
	*recordsp = hf_bytes_of(frames->data + at + sizeof(head), le32toh(head.length));
	*sequencep = le64toh(head.sequence);
	return le64toh(head.checksum) == hf_checksum(recordsp->data, recordsp->len);
}

int hf_journal_next(struct hf_journal_frames *frames, struct hf_bytes *recordsp)
{
	uint64_t sequence;

	if (!parse_frame(frames, frames->at, &sequence, recordsp))
		return 0;
	/* The first frame starts the sequence. A frame that does not continue it is left from an earlier
	 * use. */
	if (frames->sequence && sequence != frames->sequence + 1)
		return 0;
	frames->sequence = sequence;
	frames->at += sizeof(struct frame_head) + recordsp->len;
	return 1;
}

bool hf_journal_has_more(const struct hf_journal_frames *frames, uint64_t folded)
{
	uint64_t last = HF_MAX(frames->sequence, folded);
	struct hf_bytes records;
	uint64_t sequence;

	for (size_t at = frames->at; at + sizeof(struct frame_head) <= frames->size; at += 8) {
		if (parse_frame(frames, at, &sequence, &records) && sequence > last)
			return true;
	}
	return false;
}
