/* How the checks of invariants report a failure. */
#pragma once

/* A check returns NULL, or the text of the condition that is broken. */
#define FAIL_UNLESS(condition)             \
	do {                               \
		if (!(condition))          \
			return #condition; \
	} while (0)
#define PASS_ON(call)                     \
	do {                              \
		const char *why = (call); \
                                          \
		if (why)                  \
			return why;       \
	} while (0)
