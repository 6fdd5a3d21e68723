#include "base/error.h"

#include <string.h>

#include "base/log.h"

int hf_error_trace(int r, const char *file, int line, const char *function)
{
	if (r < 0)
		hf_log_debug("error passed on", "error=%s where=%s:%d function=%s", strerror(-r), file, line,
			     function);
	return r;
}
