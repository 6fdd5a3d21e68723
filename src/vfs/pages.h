/*
 * A cache of directory listings with attributes (READDIRPLUS), page by page, as
 * the protocol encoded them, for as long as they are valid.
 *
 * Asking the kernel for the attributes of each name is most of the cost of such
 * a listing. A cached page is used only if
 *
 *	- the directory still has the same ctime: no name came, went or changed;
 *	- the kernel's watch on the directory (inotify) has reported nothing: no
 *	  local process wrote to a file in it or changed its attributes;
 *	- no client of this server did: each change marks the file's inode number,
 *	  because for a file that was opened by its id the kernel may not know
 *	  the directory;
 *	- it is younger than two sweeps, about two seconds: the kernel does not
 *	  report writes through mmap(2).
 *
 * Entries that change without notice (directories, files with several names)
 * are marked as fluid: their attributes are read each time.
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

/* What distinguishes pages of one directory. */
struct hf_page_key {
	uint64_t export;
	uint64_t cookie;
	uint32_t names;
	uint32_t max;
};

struct hf_page_part {
	uint64_t inode;
	uint32_t stamp;   /* hf_pages_stamp(), taken before its attributes were read */
	uint32_t name_at; /* offset of its name in the page, */
	uint32_t attr_at; /* and of its attributes */
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

/* A watch that has not reported anything yet. */
struct hf_page_watch {
	int slot; /* -1: no watch; the page cannot be cached */
	uint64_t epoch;
};

int hf_pages_new(struct hf_pages **pagesp);
struct hf_pages *hf_pages_free(struct hf_pages *pages);
void hf_pages_sweep(struct hf_pages *pages); /* call about once a second */
void hf_pages_clear(struct hf_pages *pages);

HF_DEFINE_CLEANUP(struct hf_pages *, hf_pages_free)

/* A reference, or NULL. @st: the directory's attributes now. */
struct hf_page *hf_pages_find(struct hf_pages *pages, const struct hf_file *dir,
			      const struct hf_page_key *key, const struct stat *st);
struct hf_page *hf_page_unref(struct hf_page *page);

HF_DEFINE_CLEANUP(struct hf_page *, hf_page_unref)

/* To make a page: watch, then note the directory's attributes, then read everything, then put. */
struct hf_page_watch hf_pages_watch(struct hf_pages *pages, const struct hf_file *dir);
void hf_pages_put(struct hf_pages *pages, const struct hf_file *dir, const struct hf_page_key *key,
		  struct hf_page_watch watch, const struct stat *st, const struct hf_page *page);

/* Changes through this server. */
uint32_t hf_pages_stamp(const struct hf_pages *pages, uint64_t inode);
void hf_pages_mark(struct hf_pages *pages, uint64_t inode);
