/* A libpq connection string that may be shown: its passwords are stars. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Into @out, which has room for @size bytes; what does not fit is left out. True: something is hidden. A text
 * that libpq would not take is hidden rather than shown wherever in doubt. */
bool hf_config_hide_secrets(const char *text, char *out, size_t size);
