/*
 * Memory that fails when told to, in the place of libc's functions: for programs
 * that are linked with memory_wraps (ld --wrap). To be included once in a program.
 */
#pragma once

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

static _Thread_local bool memory_may_fail; /* this thread is at what is tested */
static _Atomic int memory_until_failure;   /* the last one of so many allocations fails; 0: none */

static inline bool memory_fails(void)
{
	return memory_may_fail && memory_until_failure > 0 && atomic_fetch_sub(&memory_until_failure, 1) == 1;
}

#define MEMORY_WRAPPED(type, name, parameters, arguments) \
	type __real_##name parameters;                    \
	type __wrap_##name parameters;                    \
	type __wrap_##name parameters                     \
	{                                                 \
		if (!memory_fails())                      \
			return __real_##name arguments;   \
		errno = ENOMEM;                           \
		return NULL;                              \
	}

MEMORY_WRAPPED(void *, malloc, (size_t size), (size))
MEMORY_WRAPPED(void *, calloc, (size_t n, size_t size), (n, size))
MEMORY_WRAPPED(void *, realloc, (void *p, size_t size), (p, size))
MEMORY_WRAPPED(char *, strdup, (const char *text), (text))

int __wrap_asprintf(char **outp, const char *format, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **outp, const char *format, ...)
{
	va_list args;
	int n;

	if (memory_fails())
		return -1; /* *outp is undefined then */
	va_start(args, format);
	n = vasprintf(outp, format, args);
	va_end(args);
	return n;
}
