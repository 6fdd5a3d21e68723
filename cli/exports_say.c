/* How the import reports what it does not take over. */
#include <stdarg.h>

#include "cli/cli.h"
#include "cli/exports.h"

#define MAX_REPORT 2048

void import_say(struct import *import, unsigned int line, const char *format, ...)
{
	char text[MAX_REPORT], shown[MAX_REPORT];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(import->errors, "%s:%u: %s\n", import->file, line, cli_clean(shown, sizeof(shown), text));
	import->n_left_out++;
}
