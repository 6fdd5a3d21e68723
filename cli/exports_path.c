/* Which directory a path of /etc/exports is for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/utf8.h"
#include "cli/exports.h"

static bool is_plain(const char *text)
{
	size_t len = strlen(text), n;
	uint32_t code;

	for (size_t i = 0; i < len; i += n) {
		n = hf_utf8_decode(text + i, len - i, &code);
		if (n == 0 || !hf_utf8_is_plain(code))
			return false;
	}
	return true;
}

/* Takes "//", "/." and a slash at the end out of @path, which starts with /. Parts ".." stay: there may be a
 * link before them. Returns whether there are any. */
static bool tidy(char *path)
{
	const char *in = path;
	char *out = path;
	bool has_dots = false;

	while (*in) {
		size_t len = strcspn(++in, "/");

		has_dots |= len == 2 && in[0] == '.' && in[1] == '.';
		if (len && !(len == 1 && in[0] == '.')) {
			*out++ = '/';
			memmove(out, in, len);
			out += len;
		}
		in += len;
	}
	if (out == path)
		*out++ = '/';
	*out = '\0';
	return has_dots;
}

/* NULL: out of memory */
static struct import_export *add_export(struct import *import, const char *path, const char *directory)
{
	struct import_export added = { .path = strdup(path), .line = import->line }, *exports;

	added.directory = strdup(directory);
	exports = added.path && added.directory
			  ? reallocarray(import->exports, import->n + 1, sizeof(*exports))
			  : NULL;
	if (!exports) {
		free(added.path);
		free(added.directory);
		return NULL;
	}
	import->exports = exports;
	exports[import->n] = added;
	if (!is_plain(path)) {
		import_say(import, import->line,
			   "path %s: it has characters that are not printable UTF-8; export a directory "
			   "above it",
			   path);
		exports[import->n].is_disabled = true;
	}
	return &exports[import->n++];
}

static struct import_export *find_export(struct import *import, const char *directory)
{
	for (size_t i = 0; i < import->n; i++)
		if (strcmp(import->exports[i].directory, directory) == 0)
			return &import->exports[i];
	return NULL;
}

/* The kernel's server resolves links before it compares paths, and so merges the lines of one directory. */
int import_open(struct import *import, char *path, struct import_export **exportp)
{
	hf_cleanup(hf_freep) char *directory = NULL;
	const char *shown;

	*exportp = NULL;
	if (*path != '/') {
		import_say(import, import->line, "path %s: it does not start with /", path);
		return 0;
	}
	directory = realpath(path, NULL);
	shown = tidy(path) ? directory : path;
	if (!shown) {
		import_say(import, import->line, "path %s: it has parts .., and does not exist here", path);
		import->lacks_path = true;
		return 0;
	}
	*exportp = find_export(import, directory ? directory : path);
	if (!*exportp)
		*exportp = add_export(import, shown, directory ? directory : path);
	else if (strcmp((*exportp)->path, shown) != 0)
		import_say(import, import->line,
			   "path %s: it is the same directory as %s; the clients of both mount that", shown,
			   (*exportp)->path);
	return *exportp ? 0 : -ENOMEM;
}
