/* How a check says what is broken. */
#pragma once

/* A check returns NULL, or what is broken. */
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
