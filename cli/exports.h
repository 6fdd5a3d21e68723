/*
 * What `holdfast exports import` reads: the entries of /etc/exports, one for
 * each client of each line, with the options that apply to it.
 *
 *	exports.c          the command, and the YAML that it writes
 *	exports_file.c     the syntax of the file
 *	exports_path.c     which directory a line is for
 *	exports_option.c   the options
 *	exports_client.c   which clients an entry is for
 *	exports_say.c      reports what is not taken over
 *
 * A thing that has no counterpart is reported with its line. If an entry without
 * it would give clients more than the file does, the whole export is disabled: it is
 * written as a comment, for a person to decide.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/macros.h"

/* In the order in which the kernel's server tries them, see exports(5) */
enum import_kind {
	IMPORT_HOST,
	IMPORT_NETWORK,
	IMPORT_PATTERN,
	IMPORT_NETGROUP,
	IMPORT_ALL,
};

/* What calls must come over, the weakest first */
enum import_transport {
	IMPORT_ANY,
	IMPORT_TLS,
	IMPORT_MTLS,
};

struct import_options {
	bool is_writable;
	bool is_insecure;
	bool is_async;
	bool is_disabled;  /* without what they also say, they would give more */
	bool squashes_all; /* also root, whatever keeps_root is */
	bool keeps_root;
	uint32_t anon_uid;
	uint32_t anon_gid;
	unsigned int n_flavours; /* lists of security flavours */
	enum import_transport transport;
};

/* A client and its options */
struct import_entry {
	char *client; /* as the configuration of Holdfast has it */
	enum import_kind kind;
	struct import_options options;
	unsigned int line;
};

struct import_export {
	char *path;      /* to be mounted */
	char *directory; /* with all links resolved, if it exists here */
	unsigned int line;
	bool is_disabled;
	bool does_not_fit; /* into a configuration, not even as a comment */
	struct import_entry *entries;
	size_t n;
};

/* All that was read so far, and where */
struct import {
	const char *file;
	unsigned int line;
	size_t n_left_out; /* things that were reported */
	bool lacks_path;   /* of a line it is not known which directory it is for */
	struct import_export *exports;
	size_t n;
	FILE *errors;
};

/* exports_say.c: reports what is not taken over, and why. */
void import_say(struct import *import, unsigned int line, const char *format, ...) HF_PRINTF(3, 4);

/* exports_file.c. -errno: out of memory. What cannot be read is reported. */
int import_read(struct import *import, const char *text, size_t len);

/* exports_path.c: the export of a directory, also if several lines are for it. Changes @path. *exportp lasts
 * until the next call; NULL: there is none, it is reported. -errno: out of memory. */
int import_open(struct import *import, char *path, struct import_export **exportp);

/* exports_option.c: "rw,no_root_squash" */
extern const struct import_options import_defaults;
void import_read_options(struct import *import, struct import_options *options, char *text);

/* exports_client.c: the entry is for @client of the file. Takes @client, also if it fails. A client that has
 * no counterpart is reported. -errno: out of memory. */
int import_add(struct import *import, struct import_export *export, char *client,
	       const struct import_options *options);
