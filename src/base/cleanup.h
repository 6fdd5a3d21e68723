/*
 * Variables that clean up after themselves when they leave their scope.
 *
 *	hf_cleanup(hf_client_unrefp) struct hf_client *client = NULL;
 *
 * The function gets a pointer to the variable, so every early return releases
 * it.
 */
#pragma once

#include <stdlib.h>
#include <unistd.h>

#define hf_cleanup(fn) __attribute__((cleanup(fn)))

/* Declares the pointer-to-pointer form of a release function: name##p. */
#define HF_DEFINE_CLEANUP(type, fn)       \
	static inline void fn##p(type *p) \
	{                                 \
		if (*p)                   \
			fn(*p);           \
	}

static inline void hf_freep(void *p)
{
	free(*(void **)p);
}

static inline void hf_closep(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
