/* Exports over a directory of the test's own. */
#pragma once

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "export/export.h"
#include "loop/loop.h"

static char base[64];
static struct hf_loop *loop;
static struct hf_exports *exports;

static inline int open_exports(void)
{
	struct hf_exports_options options = { .state_dir = base, .max_open_fds = 64 };

	strcpy(base, "/tmp/hf-exports-XXXXXX");
	if (!mkdtemp(base) || hf_loop_new(&loop) < 0)
		return -1;
	options.loop = loop;
	return hf_exports_new(&exports, &options);
}

static inline int close_exports(void **state)
{
	char command[128];

	hf_exports_free(exports);
	hf_loop_free(loop);
	snprintf(command, sizeof(command), "rm -r %s", base);
	return system(command);
}
