/* `exports import`: /etc/exports as the exports of a configuration. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/exports.h"
#include "daemon/config.h"
#include "daemon/config_yaml.h"

#define FILE_NAME    "/etc/exports"
#define MORE_NAMES   "/etc/exports.d/*.exports"
#define MAX_BYTES    1048576
#define MAX_REPORT   2048
#define ANONYMOUS_ID 65534
#define MAX_PATH     1024
/* The most bytes and values of YAML that an export, a rule and a client add to the words in them */
#define EXPORT_BYTES 256
#define RULE_BYTES   256
#define CLIENT_BYTES 8
#define EXPORT_NODES 16
#define RULE_NODES   16
#define OTHER_BYTES  65536 /* room for the rest of the configuration */
#define OTHER_NODES  1000

static void import_deinit(struct import *import)
{
	for (size_t i = 0; i < import->n; i++) {
		for (size_t j = 0; j < import->exports[i].n; j++)
			free(import->exports[i].entries[j].client);
		free(import->exports[i].entries);
		free(import->exports[i].path);
		free(import->exports[i].directory);
	}
	free(import->exports);
}

/* The order of rules. In the configuration of Holdfast, the first rule that has the client applies. So rules
 * stand in the order in which the kernel's server tries them. */
static void sort_entries(struct import_export *export)
{
	for (size_t i = 1; i < export->n; i++) {
		struct import_entry entry = export->entries[i];
		size_t j = i;

		for (; j > 0 && export->entries[j - 1].kind > entry.kind; j--)
			export->entries[j] = export->entries[j - 1];
		export->entries[j] = entry;
	}
}

/* Output */

static void print_quoted(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putchar('\\');
		putchar(*text);
	}
	putchar('"');
}

static const char *squash_of(const struct import_options *options)
{
	if (options->squashes_all)
		return "all";
	return options->keeps_root ? "none" : "root";
}

static bool are_alike(const struct import_options *a, const struct import_options *b)
{
	return a->is_writable == b->is_writable && a->is_insecure == b->is_insecure &&
	       strcmp(squash_of(a), squash_of(b)) == 0 && a->anon_uid == b->anon_uid &&
	       a->anon_gid == b->anon_gid;
}

/* The entries from @i that one rule covers */
static size_t count_alike(const struct import_export *export, size_t i)
{
	size_t n = 1;

	while (i + n < export->n && n < HF_CONFIG_MAX_ITEMS &&
	       are_alike(&export->entries[i].options, &export->entries[i + n].options))
		n++;
	return n;
}

/* @first begins the first line, @next the others. */
static void print_rule(const struct import_entry *entries, size_t n, const char *first, const char *next)
{
	const struct import_options *options = &entries->options;

	printf("%sclients: [", first);
	for (size_t i = 0; i < n; i++) {
		fputs(i ? ", " : "", stdout);
		print_quoted(entries[i].client);
	}
	printf("]\n%saccess: %s\n", next, options->is_writable ? "rw" : "ro");
	if (options->squashes_all || options->keeps_root)
		printf("%ssquash: %s\n", next, squash_of(options));
	if (options->anon_uid != ANONYMOUS_ID)
		printf("%sanon_uid: %u\n", next, options->anon_uid);
	if (options->anon_gid != ANONYMOUS_ID)
		printf("%sanon_gid: %u\n", next, options->anon_gid);
	if (!options->is_insecure)
		printf("%ssecure: true\n", next);
}

static void print_rules(const struct import_export *export, const char *mark)
{
	char first[32], next[32];
	size_t n;

	snprintf(next, sizeof(next), "%s    ", mark);
	if (export->n == 0) { /* no line of it could be read; the configuration does not take an empty list */
		const struct import_entry none = { .options = import_defaults };

		print_rule(&none, 0, next, next);
		return;
	}
	if (count_alike(export, 0) == export->n) {
		print_rule(export->entries, export->n, next, next);
		return;
	}
	snprintf(first, sizeof(first), "%s      - ", mark);
	snprintf(next, sizeof(next), "%s        ", mark);
	printf("%s    rules:\n", mark);
	for (size_t i = 0; i < export->n; i += n) {
		n = count_alike(export, i);
		print_rule(&export->entries[i], n, first, next);
	}
}

/* async is the same for all clients of an export here. */
static bool is_async(struct import *import, const struct import_export *export)
{
	size_t n = 0;

	for (size_t i = 0; i < export->n; i++)
		n += export->entries[i].options.is_async;
	if (n && n < export->n)
		import_say(import, export->line,
			   "async: sync and async are the same for all clients of an export; %s stays sync",
			   export->path);
	return n && n == export->n;
}

/* The transport is the same for all clients of an export here. The strongest one gives no client more. */
static enum import_transport transport_of(struct import *import, const struct import_export *export)
{
	static const char *const names[] = { "any", "tls", "mtls" };
	enum import_transport strongest = IMPORT_ANY, weakest = IMPORT_MTLS;

	for (size_t i = 0; i < export->n; i++) {
		enum import_transport transport = export->entries[i].options.transport;

		strongest = HF_MAX(strongest, transport);
		weakest = HF_MIN(weakest, transport);
	}
	if (export->n && strongest != weakest)
		import_say(import, export->line,
			   "xprtsec: the transport is the same for all clients of an export; %s gets the "
			   "strongest, "
			   "%s",
			   export->path, names[strongest]);
	return strongest;
}

static void print_transport(enum import_transport transport, const char *mark)
{
	if (transport == IMPORT_TLS)
		printf("%s    transport: tls    # needs tls.certificate and tls.key\n", mark);
	if (transport == IMPORT_MTLS)
		printf("%s    transport: mtls    # needs tls.certificate, tls.key and tls.client_ca\n", mark);
}

static void print_export(struct import *import, struct import_export *export)
{
	const char *mark = export->is_disabled ? "#" : "";
	char shown[MAX_REPORT];

	if (export->does_not_fit)
		return;
	if (export->is_disabled)
		printf("# Line %u: not all of this could be taken over, and without it clients could get "
		       "more. "
		       "Decide, and remove the #.\n",
		       export->line);
	printf("%s  - path: ", mark);
	print_quoted(export->is_disabled ? cli_clean(shown, sizeof(shown), export->path) : export->path);
	putchar('\n');
	print_rules(export, mark);
	if (is_async(import, export))
		printf("%s    sync: false\n", mark);
	print_transport(transport_of(import, export), mark);
}

/* What must fit before anything is written */

struct room {
	size_t n_exports;
	size_t n_bytes;
	size_t n_nodes;
};

static size_t count_rules(const struct import_export *export)
{
	size_t n = 0;

	for (size_t i = 0; i < export->n; i += count_alike(export, i))
		n++;
	return n;
}

static bool has_room(struct room *room, const struct import_export *export)
{
	size_t n_rules = count_rules(export);

	room->n_exports += !export->is_disabled;
	room->n_nodes += EXPORT_NODES + n_rules * RULE_NODES + export->n;
	room->n_bytes += EXPORT_BYTES + n_rules * RULE_BYTES + 2 * strlen(export->path);
	for (size_t i = 0; i < export->n; i++)
		room->n_bytes += CLIENT_BYTES + strlen(export->entries[i].client);
	return room->n_exports <= HF_CONFIG_MAX_EXPORTS && room->n_nodes <= HF_YAML_MAX_NODES - OTHER_NODES &&
	       room->n_bytes <= HF_CONFIG_MAX_BYTES - OTHER_BYTES;
}

/* holdfastd would refuse the whole file if one export were too large for it. */
static void disable_what_is_too_large(struct import *import, struct room *room, struct import_export *export)
{
	if (strlen(export->path) > MAX_PATH) {
		import_say(import, export->line, "path %s: it has more than %d bytes", export->path,
			   MAX_PATH);
		export->is_disabled = true;
	}
	if (count_rules(export) > HF_CONFIG_MAX_ITEMS) {
		import_say(import, export->line, "%s: it needs %zu rules; an export has at most %d",
			   export->path, count_rules(export), HF_CONFIG_MAX_ITEMS);
		export->is_disabled = true;
	}
	if (has_room(room, export))
		return;
	import_say(import, export->line,
		   "%s: it does not fit: a configuration has at most %d exports, %d bytes and %d values",
		   export->path, HF_CONFIG_MAX_EXPORTS, HF_CONFIG_MAX_BYTES, HF_YAML_MAX_NODES);
	export->does_not_fit = true;
}

static void prepare(struct import *import)
{
	struct room room = { 0 };

	for (size_t i = 0; i < import->n; i++) {
		struct import_export *export = &import->exports[i];

		export->is_disabled |= import->lacks_path; /* the line that lacks it could be for this one */
		sort_entries(export);
		disable_what_is_too_large(import, &room, export);
	}
}

/* Input */

static char *read_all(int fd, size_t *lenp)
{
	char *text = malloc(MAX_BYTES + 1);
	ssize_t n = text ? 1 : -1;

	for (*lenp = 0; n > 0 && *lenp <= MAX_BYTES; *lenp += (size_t)n) {
		n = read(fd, text + *lenp, MAX_BYTES + 1 - *lenp);
		if (n < 0)
			break;
	}
	if (n >= 0 && *lenp <= MAX_BYTES)
		return text;
	if (n >= 0)
		errno = EFBIG;
	free(text);
	return NULL;
}

static int read_file(struct import *import, const char *file)
{
	hf_cleanup(hf_closep) int fd =
		strcmp(file, "-") == 0 ? dup(STDIN_FILENO) : open(file, O_RDONLY | O_CLOEXEC);
	hf_cleanup(hf_freep) char *text = NULL;
	size_t len = 0;
	int r;

	text = fd < 0 ? NULL : read_all(fd, &len);
	r = text ? 0 : -errno;
	import->file = strcmp(file, "-") == 0 ? "stdin" : file;
	if (r == 0)
		r = import_read(import, text, len);
	if (r < 0)
		fprintf(stderr, "holdfast: %s cannot be read: %s\n", import->file, strerror(-r));
	return r;
}

/* As the kernel's server: the file, and those of a folder beside it. */
static int read_default_files(struct import *import, glob_t *more)
{
	int r = access(FILE_NAME, F_OK) == 0 || more->gl_pathc == 0 ? read_file(import, FILE_NAME) : 0;

	for (size_t i = 0; i < more->gl_pathc && r == 0; i++)
		r = read_file(import, more->gl_pathv[i]);
	return r;
}

int cli_exports(struct cli *cli, const char *argument)
{
	hf_cleanup(import_deinit) struct import import = { .errors = stderr };
	glob_t more = { 0 };
	int r;

	if (!argument || strcmp(argument, "import") != 0) {
		fputs("holdfast: exports takes `import [FILE]`\n", stderr);
		return CLI_USAGE;
	}
	if (!cli->object && glob(MORE_NAMES, 0, NULL, &more) != 0)
		more.gl_pathc = 0;
	r = cli->object ? read_file(&import, cli->object) : read_default_files(&import, &more);
	if (r == 0) {
		printf("# Made by `holdfast exports import`.\nexports:%s\n", import.n ? "" : " []");
		prepare(&import);
		for (size_t i = 0; i < import.n; i++)
			print_export(&import, &import.exports[i]);
	}
	globfree(&more);
	if (r < 0)
		return CLI_NOT_FOUND;
	return import.n_left_out ? CLI_FAILED : CLI_OK;
}
