/* A libpq connection string that may be shown: stars replace its passwords. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Writes to @out, which has room for @size bytes; text that does not fit is left out. true: something is
 * hidden. In a text that libpq would refuse, every doubtful part is hidden. */
bool hf_config_hide_secrets(const char *text, char *out, size_t size);
