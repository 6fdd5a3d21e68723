/* The options of /etc/exports, and what becomes of each. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/exports.h"

#define ANONYMOUS 65534

const struct import_options import_defaults = { .anon_uid = ANONYMOUS, .anon_gid = ANONYMOUS };

enum action {
	NOTHING, /* the server does this anyway, or has no need of it */
	RO,
	RW,
	SECURE,
	INSECURE,
	SYNC,
	ASYNC,
	ROOT_SQUASH,
	NO_ROOT_SQUASH,
	ALL_SQUASH,
	NO_ALL_SQUASH,
	ANON_UID,
	ANON_GID,
	FLAVOURS,
	TRANSPORT,
	LEAVE_OUT, /* clients get no more without it */
	DISABLE,   /* without it, clients could get more */
};

static const struct row {
	const char *name;
	enum action action;
	const char *why;
	bool has_value; /* always; the others never, but for those with DISABLE */
} rows[] = {
	{ "ro", RO, NULL },
	{ "rw", RW, NULL },
	{ "secure", SECURE, NULL },
	{ "insecure", INSECURE, NULL },
	{ "sync", SYNC, NULL },
	{ "async", ASYNC, NULL },
	{ "root_squash", ROOT_SQUASH, NULL },
	{ "no_root_squash", NO_ROOT_SQUASH, NULL },
	{ "all_squash", ALL_SQUASH, NULL },
	{ "no_all_squash", NO_ALL_SQUASH, NULL },
	{ "anonuid", ANON_UID, NULL, true },
	{ "anongid", ANON_GID, NULL, true },
	{ "sec", FLAVOURS, NULL, true },
	{ "xprtsec", TRANSPORT, NULL, true },
	{ "subtree_check", NOTHING, NULL },
	{ "no_subtree_check", NOTHING, NULL },
	{ "wdelay", NOTHING, NULL },
	{ "no_wdelay", NOTHING, NULL },
	{ "hide", NOTHING, NULL },
	{ "auth_nlm", NOTHING, NULL },
	{ "secure_locks", NOTHING, NULL },
	{ "acl", NOTHING, NULL },
	{ "no_acl", NOTHING, NULL },
	{ "no_pnfs", NOTHING, NULL },
	{ "rdirplus", NOTHING, NULL },
	{ "nohide", LEAVE_OUT, "a file system that is mounted below an export needs an export of its own" },
	{ "crossmnt", LEAVE_OUT,
	  "each file system that is mounted below the export needs an export of its own" },
	{ "fsid", LEAVE_OUT, "file handles need no number of the file system; NFSv4 is not served", true },
	{ "no_auth_nlm", LEAVE_OUT, "the rights to a file are checked for each lock" },
	{ "insecure_locks", LEAVE_OUT, "the rights to a file are checked for each lock" },
	{ "nordirplus", LEAVE_OUT, "READDIRPLUS is always served; mount with nordirplus" },
	{ "pnfs", LEAVE_OUT, "it is of NFSv4, which is not served" },
	{ "refer", LEAVE_OUT, "it is of NFSv4, which is not served", true },
	{ "replicas", LEAVE_OUT, "it is of NFSv4, which is not served", true },
	{ "security_label", LEAVE_OUT, "it is of NFSv4, which is not served" },
	{ "mountpoint", DISABLE, "the directory would be exported also if nothing is mounted there" },
	{ "mp", DISABLE, "the directory would be exported also if nothing is mounted there" },
	{ "squash_uids", DISABLE, "there are no lists of users to squash" },
	{ "squash_gids", DISABLE, "there are no lists of groups to squash" },
};

static const struct row *find(const char *name)
{
	for (size_t i = 0; i < HF_ARRAY_SIZE(rows); i++)
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	return NULL;
}

/* Ids may be negative in the file: -2 is the last but one. The last one means "no change" to the kernel. */
static void set_id(struct import *import, struct import_options *options, uint32_t *idp, const char *name,
		   const char *value)
{
	char *end = NULL;
	long long id;

	errno = 0;
	id = strtoll(value, &end, 10);
	if (*value == '\0' || *end || errno || id < -2147483647LL || id == -1 || id >= UINT32_MAX) {
		import_say(import, import->line, "%s=%s: it is not an id", name, value);
		options->is_disabled = true;
		return;
	}
	*idp = (uint32_t)id;
}

/* Is @word one of "a:b:c"? */
static bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (; list; list = strchr(list, ':')) {
		list += *list == ':';
		if (strncmp(list, word, len) == 0 && (list[len] == '\0' || list[len] == ':'))
			return true;
		if (*list == '\0')
			break;
	}
	return false;
}

static void set_flavours(struct import *import, struct import_options *options, const char *list)
{
	if (options->n_flavours++) {
		import_say(import, import->line,
			   "sec=%s: rights that depend on the security flavour are not there; AUTH_SYS alone "
			   "is served",
			   list);
		options->is_disabled = true;
	} else if (!has_word(list, "sys")) {
		import_say(import, import->line,
			   "sec=%s: AUTH_SYS alone is served, where the client names the user", list);
		options->is_disabled = true;
	} else if (strcmp(list, "sys") != 0) {
		import_say(import, import->line, "sec=%s: of these, sys alone is served", list);
	}
}

/* The kernel's server takes each of the listed kinds. Here, each kind takes the stronger ones, too, so the
 * weakest one stands for the list. */
static void set_transport(struct import *import, struct import_options *options, const char *value)
{
	static const char *const words[] = {
		[IMPORT_ANY] = "none",
		[IMPORT_TLS] = "tls",
		[IMPORT_MTLS] = "mtls",
	};
	const char *list = value ? value : "";
	size_t n = 0, len = 0;

	for (size_t i = HF_ARRAY_SIZE(words); i-- > 0;)
		if (has_word(list, words[i])) {
			options->transport = (enum import_transport)i;
			len += (n++ > 0) + strlen(words[i]);
		}
	if (len != strlen(list) || n == 0) {
		import_say(import, import->line, "xprtsec=%s: give a list of none, tls and mtls", list);
		options->is_disabled = true;
	} else if (n > 1) {
		import_say(import, import->line,
			   "xprtsec=%s: the weakest, %s, is taken; it lets the others in, too", list,
			   words[options->transport]);
	}
}

static void apply(struct import *import, struct import_options *options, const struct row *row,
		  const char *value)
{
	switch (row->action) {
	case NOTHING:
		break;
	case RO:
	case RW:
		options->is_writable = row->action == RW;
		break;
	case SECURE:
	case INSECURE:
		options->is_insecure = row->action == INSECURE;
		break;
	case SYNC:
	case ASYNC:
		options->is_async = row->action == ASYNC;
		break;
	case ROOT_SQUASH:
	case NO_ROOT_SQUASH:
		options->keeps_root = row->action == NO_ROOT_SQUASH;
		break;
	case ALL_SQUASH:
	case NO_ALL_SQUASH:
		options->squashes_all = row->action == ALL_SQUASH;
		break;
	case ANON_UID:
		set_id(import, options, &options->anon_uid, row->name, value);
		break;
	case ANON_GID:
		set_id(import, options, &options->anon_gid, row->name, value);
		break;
	case FLAVOURS:
		set_flavours(import, options, value);
		break;
	case TRANSPORT:
		set_transport(import, options, value);
		break;
	case LEAVE_OUT:
	case DISABLE:
		import_say(import, import->line, "%s%s%s: %s", row->name, value ? "=" : "",
			   value ? value : "", row->why);
		options->is_disabled |= row->action == DISABLE;
		break;
	}
}

static bool have_same_rights(const struct import_options *a, const struct import_options *b)
{
	return a->is_writable == b->is_writable && a->is_insecure == b->is_insecure &&
	       a->squashes_all == b->squashes_all && a->keeps_root == b->keeps_root;
}

/* The kernel's server copies the rights into the flavour when it reads sec=, and serves by that copy. Only
 * the rest of the same list changes the copy. */
static void keep_rights_of_flavour(struct import *import, struct import_options *options,
				   const struct import_options *before)
{
	if (before->n_flavours == 0 || options->n_flavours > before->n_flavours ||
	    have_same_rights(options, before))
		return;
	import_say(
		import, import->line,
		"sec= in an earlier list has fixed ro or rw, squash and secure; the kernel's server ignores "
		"them here. Decide what the client gets");
	options->is_disabled = true;
	options->is_writable = before->is_writable;
	options->is_insecure = before->is_insecure;
	options->squashes_all = before->squashes_all;
	options->keeps_root = before->keeps_root;
}

void import_read_options(struct import *import, struct import_options *options, char *text)
{
	const struct import_options before = *options;
	char *name, *value;

	while ((name = strsep(&text, ","))) {
		const struct row *row;

		if (*name == '\0' && !text) /* none, or a comma at the end */
			break;
		value = strchr(name, '=');
		if (value)
			*value++ = '\0';
		row = find(name);
		if (row && (row->action == DISABLE || row->has_value == !!value)) {
			apply(import, options, row, value);
			continue;
		}
		import_say(import, import->line, "%s%s%s: %s", name, value ? "=" : "", value ? value : "",
			   !row             ? "an unknown option"
			   : row->has_value ? "it needs a value"
					    : "it takes no value");
		options->is_disabled = true;
	}
	keep_rights_of_flavour(import, options, &before);
}
