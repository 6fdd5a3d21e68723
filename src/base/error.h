/*
 * How functions report.
 *
 * 0 means done. A negative result is -errno: the function failed, and the
 * caller passes it on with hf_trace(), which leaves a trail in the debug log. A
 * positive result is an answer from an enum declared beside the function; the
 * caller handles it and does not forward it.
 */
#pragma once

#include <errno.h>

#include "base/macros.h"

#define hf_trace(r) hf_error_trace((r), __FILE__, __LINE__, __func__)

HF_COLD int hf_error_trace(int r, const char *file, int line, const char *function);
