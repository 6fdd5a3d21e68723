/*
 * Reads a directory from any position.
 *
 * A cookie is the kernel's own position after an entry (d_off), which is
 * stable while names come and go, also over restarts. So nothing
 * is remembered between two calls, and reading a part of a directory of a
 * million names costs only that part.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vfs/file.h"
#include "vfs/identity.h"

#define HF_LISTING_MAX 32768

struct hf_entry {
	uint64_t inode;
	uint64_t cookie; /* of the position after it */
	const char *name;
};

struct hf_listing {
	int fd;
	size_t at;
	size_t len;
	size_t room; /* bytes to request from the kernel at once */
	_Alignas(8) char buffer[HF_LISTING_MAX];
};

enum { /* answers of hf_listing_open() and hf_listing_next() */
	HF_LISTING_OK = 0,
	HF_LISTING_END,
	HF_LISTING_BAD_COOKIE,
};

/* Opens the directory under the present identity (vfs/identity.h), at @cookie; 0 is the start. @hint: how
 * many bytes of names will be needed, approximately. */
int hf_listing_open(struct hf_listing *listing, const struct hf_file *dir, uint64_t cookie, size_t hint);
void hf_listing_close(struct hf_listing *listing);
/* The entry's name is valid until the next call. */
int hf_listing_next(struct hf_listing *listing, struct hf_entry *entryp);
