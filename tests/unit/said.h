/* What is said in the log between two moments. */
#pragma once

#include "test.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct said {
	int log, terminal;
	char all[8192];
};

static inline void said_begin(struct said *said)
{
	*said = (struct said){ memfd_create("log", MFD_CLOEXEC), dup(STDERR_FILENO), "" };
	assert_true(said->log >= 0 && said->terminal >= 0);
	dup2(said->log, STDERR_FILENO);
}

static inline void said_end(struct said *said)
{
	dup2(said->terminal, STDERR_FILENO);
	close(said->terminal);
	assert_true(pread(said->log, said->all, sizeof(said->all) - 1, 0) >= 0);
	close(said->log);
}

static inline int said_times(const struct said *said, const char *text)
{
	int n = 0;

	for (const char *at = said->all; (at = strstr(at, text)); at++)
		n++;
	return n;
}
