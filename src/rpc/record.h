/*
 * Record marking (RFC 5531, section 11): messages on a stream. Each fragment has a four-byte
 * header: its length and, in the top bit, whether it is the last of its record.
 *
 * A record that is complete, in one fragment, in the bytes just read is given out in place.
 * Any other is gathered in a buffer. Until 64 KiB have arrived, the buffer grows with them,
 * not with what a header promises.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

#define HF_RECORD_LAST 0x80000000u
#define HF_RECORD_MARK 4 /* bytes before each fragment */

struct hf_record_reader {
	uint8_t *data; /* of the record being gathered */
	size_t len;
	size_t capacity;
	size_t max;        /* (c) bytes of one record */
	size_t n_marks;    /* that came since hf_record_take_work() */
	size_t n_told;     /* of @len, told by hf_record_take_work() */
	uint32_t expected; /* bytes of the current fragment still to come */
	uint8_t header[4]; /* of the next fragment, as far as it is there */
	uint8_t n_header;
	bool in_fragment; /* @expected and @is_last are those of a fragment that has begun */
	bool is_last;
	bool in_record; /* a fragment of it has begun */
	bool is_given;  /* @data was given out: reset it before the next byte */
};

/* Answers of hf_record_read() */
enum {
	HF_RECORD_MORE = 0, /* all input is used, and no record is complete */
	HF_RECORD_READY = 1,
};

void hf_record_reader_init(struct hf_record_reader *reader, size_t max);
void hf_record_reader_deinit(struct hf_record_reader *reader);

/*
 * Uses input until a record is complete. The record is valid until the next call or until the input is
 * freed. -EMSGSIZE: longer than max; -ENOMEM. After an error the position in the stream is lost: close it.
 */
int hf_record_read(struct hf_record_reader *reader, struct hf_bytes *input, struct hf_bytes *recordp);

/* A place for the next bytes of a long fragment, so that they are read there and not copied. Returns how many
 * fit, 0: there is no such place. hf_record_filled() says that they have arrived, and answers like
 * hf_record_read(). */
size_t hf_record_space(struct hf_record_reader *reader, uint8_t **spacep);
int hf_record_filled(struct hf_record_reader *reader, size_t len, struct hf_bytes *recordp);

/* When the input is used: what has it cost, besides the records that were given out? In bytes that could have
 * been copied in that time: those of the incomplete record, and some for each mark, since a fragment may be
 * empty. Tells everything once. Of the record just given out, reader->n_told bytes were told. */
size_t hf_record_take_work(struct hf_record_reader *reader);

/* Takes over the buffer of the record just given out, if it has its own; else NULL. */
uint8_t *hf_record_take_buffer(struct hf_record_reader *reader);

/* The record just given out is no longer used: frees its buffer now, not when the next one begins. */
void hf_record_release(struct hf_record_reader *reader);

/* Has a record begun that is not complete? */
bool hf_record_is_partial(const struct hf_record_reader *reader);
