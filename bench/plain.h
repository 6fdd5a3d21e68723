/* What LMDB alone takes to give the stored locks: a limit that no store of the server can pass. */
#pragma once

#include <stdint.h>

/* Seconds to open the store's file in @folder, walk over its locks and read all their bytes; how many those
 * are. */
double plain_reading(const char *folder, uint64_t *np);
