/*
 * Is this file what it should be? LMDB believes its file blindly: a page that
 * rotted, or a file cut short, crashes whoever reads it, and writing to it makes
 * it worse. So we walk every page that is in use before LMDB sees it, and change
 * nothing.
 *
 * The format is LMDB's data version 1 (all of 0.9.x) in this machine's byte
 * order and word size, with pages of any size. A file of another machine is refused, and
 * told from one that is damaged.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/* Called for each key and value, and for each named database with a value without data; an answer other than
 * NULL says what is wrong with it. */
typedef const char *(*hf_lmdb_check_fn)(void *user, struct hf_bytes key, struct hf_bytes value);

/* NULL: sound. Otherwise what is wrong, in words for the operator. */
const char *hf_lmdb_check(const void *file, size_t size, hf_lmdb_check_fn fn, void *user);
