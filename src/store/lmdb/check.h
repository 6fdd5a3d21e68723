/*
 * Is this LMDB file valid? LMDB trusts its file: a damaged page or a truncated
 * file crashes the process that reads it, and writing makes it worse. The
 * server therefore walks every page in use before LMDB opens the file. The
 * check changes nothing.
 *
 * The format is LMDB's data version 1 (all of 0.9.x) in this machine's byte
 * order and word size, with pages of any size. The check tells a file of
 * another machine from a damaged file and refuses both.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/* Called for each key and value. A named database comes with a value without data. Any answer other than NULL
 * says what is wrong. */
typedef const char *(*hf_lmdb_check_fn)(void *user, struct hf_bytes key, struct hf_bytes value);

/* NULL: valid. Otherwise the reason, in words for the operator. */
const char *hf_lmdb_check(const void *file, size_t size, hf_lmdb_check_fn fn, void *user);
