/*
 * The audit log: a file of JSON lines, one for each event.
 *
 * Any thread adds lines, and none waits for the disk: a line goes into a buffer, and one thread
 * writes what is in it. If the buffer is full, because the disk is slow or full, the line is
 * lost, and all lines until the buffer is written. A line in their place says how many were lost.
 * No part of a line stays in the file, if it can be truncated.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

struct hf_audit;
struct hf_audit_file;

/* Writes nowhere yet: lines are discarded. */
int hf_audit_new(struct hf_audit **auditp);
/* Writes what is left, and waits for the disks of all files that it had; takes NULL. Returns NULL */
struct hf_audit *hf_audit_close(struct hf_audit *audit);

/* Opens or creates the file, to append to it; on any thread, and it may wait for the disk. -errno: it cannot
 * be opened. start() begins the thread that writes it, and will open it again; that thread has the rights of
 * the caller. Without turn_to(), close() ends both. */
int hf_audit_file_open(struct hf_audit_file **filep, const char *path);
int hf_audit_file_start(struct hf_audit_file *file, struct hf_audit *audit);
struct hf_audit_file *hf_audit_file_close(struct hf_audit_file *file);
/* Lines that come from now on go to @file, which was started and is taken; if it is NULL they are discarded.
 * Those before go to the file that there was, however long its disk takes. Always on the thread that closes
 * the audit log. */
void hf_audit_turn_to(struct hf_audit *audit, struct hf_audit_file *file);
/* Of the file that lines go to now; NULL: none. While no other thread turns. */
const char *hf_audit_path(const struct hf_audit *audit);
/* All of it for one file */
int hf_audit_open(struct hf_audit **auditp, const char *path);
/* The file was moved away: opens the path again, soon. If that fails, the old file stays open. */
void hf_audit_reopen(struct hf_audit *audit);

HF_DEFINE_CLEANUP(struct hf_audit *, hf_audit_close)
HF_DEFINE_CLEANUP(struct hf_audit_file *, hf_audit_file_close)

/* One line. It has room for all fields of a call whose texts are as long as they can be: four with
 * hexadecimal digits, one without. If it has not, fields are missing, and it has "cut":true. */
#define HF_AUDIT_LINE 24576

struct hf_audit_line {
	size_t len;
	bool is_cut;
	char text[HF_AUDIT_LINE];
};

/* Begins with the time and "op":@op, a constant. */
void hf_audit_begin(struct hf_audit_line *line, const char *op);
/* @key is a constant. Bytes that are not UTF-8 become U+FFFD, and @key with "_hex" has all bytes. A text that
 * is too long is cut, and @key with "_cut" is true then. */
void hf_audit_put_text(struct hf_audit_line *line, const char *key, const void *text, size_t len);
void hf_audit_put_number(struct hf_audit_line *line, const char *key, uint64_t number);
void hf_audit_end(struct hf_audit *audit, struct hf_audit_line *line);

/* Lines that a caller can cause without the right to change anything. So many are written in a minute; a line
 * says how many more there were. */
enum hf_audit_bound {
	HF_AUDIT_REFUSED_MOUNTS,
	HF_AUDIT_UDP_MOUNTS, /* that were not refused; their source may be forged */
	HF_AUDIT_REFUSED_CALLS,
	HF_AUDIT_N_BOUNDS,
};

/* May a line of this kind be written now? If not, it is counted. */
bool hf_audit_allow(struct hf_audit *audit, enum hf_audit_bound bound);
