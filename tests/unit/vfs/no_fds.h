/* A process that has no descriptor left. */
#pragma once

#include <sys/resource.h>
#include <unistd.h>

/* Every descriptor that this process may have is taken; gives the limit that it had. */
static inline struct rlimit take_all_fds(void)
{
	int next = dup(0);
	struct rlimit limit, none_left;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	close(next);
	none_left = limit;
	none_left.rlim_cur = (rlim_t)next;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none_left), 0);
	return limit;
}
