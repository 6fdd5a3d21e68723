/*
 * Listings with attributes, page by page, as a protocol has encoded them, for
 * as long as they are true.
 *
 * Asking the kernel for the attributes of each name is most of what such a
 * listing costs. A page that was made before is given again only if
 *
 *	- the directory has the ctime that it had: no name has come, gone or changed;
 *	- the kernel's own watch on the directory (inotify) has told of nothing: no
 *	  local process has written to a file in it, or changed its attributes;
 *	- none of our own clients has: each change marks the file's inode number,
 *	  since what we open by its id the kernel may not know to be in a directory;
 *	- it is younger than two sweeps, about two seconds: the kernel does not tell
 *	  of writes through mmap(2).
 *
 * Entries that change without a word (directories, files with several names)
 * are marked as fluid: their attributes are asked for each time.
 *
 * May be used from every thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/cleanup.h"

struct hf_file;
struct hf_pages;

#define HF_PAGES_MAX_BYTES ((size_t)32 << 20)
#define HF_PAGES_MAX_DIRS  64

/* What makes a page another one, besides its directory. */
struct hf_page_key {
	uint64_t export;
	uint64_t cookie;
	uint32_t names;
	uint32_t max;
};

struct hf_page_part {
	uint64_t inode;
	uint32_t stamp;   /* hf_pages_stamp(), before its attributes were asked for */
	uint32_t name_at; /* where in the page its name is, */
	uint32_t attr_at; /* and its attributes */
	uint16_t name_len;
	bool is_fluid;
};

struct hf_page {
	_Atomic unsigned int n_refs;
	size_t n_parts;
	size_t n_fluid;
	size_t len;
	const struct hf_page_part *parts;
	const uint8_t *bytes;
};

/* A watch that has not told of anything yet. */
struct hf_page_watch {
	int slot; /* -1: there is none, nothing can be kept */
	uint64_t epoch;
};

int hf_pages_new(struct hf_pages **pagesp);
struct hf_pages *hf_pages_free(struct hf_pages *pages);
void hf_pages_sweep(struct hf_pages *pages); /* about once a second */
void hf_pages_clear(struct hf_pages *pages);

HF_DEFINE_CLEANUP(struct hf_pages *, hf_pages_free)

/* A reference, or NULL. @st: the directory's attributes now. */
struct hf_page *hf_pages_find(struct hf_pages *pages, const struct hf_file *dir,
			      const struct hf_page_key *key, const struct stat *st);
struct hf_page *hf_page_unref(struct hf_page *page);

HF_DEFINE_CLEANUP(struct hf_page *, hf_page_unref)

/* To make one: watch, then note the directory's attributes, then ask for everything, then put. */
struct hf_page_watch hf_pages_watch(struct hf_pages *pages, const struct hf_file *dir);
void hf_pages_put(struct hf_pages *pages, const struct hf_file *dir, const struct hf_page_key *key,
		  struct hf_page_watch watch, const struct stat *st, const struct hf_page *page);

/* Changes of ours. */
uint32_t hf_pages_stamp(const struct hf_pages *pages, uint64_t inode);
void hf_pages_mark(struct hf_pages *pages, uint64_t inode);
