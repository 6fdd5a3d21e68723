#include "daemon/args.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/config_error.h"

enum flag_id {
	FLAG_CONFIG,
	FLAG_SET,
	FLAG_EXPORT,
	FLAG_CHECK,
	FLAG_CHECK_PORTS,
	FLAG_PRINT_CONFIG,
	FLAG_CLEAR_STORE,
	FLAG_VERSION,
	FLAG_HELP,
};

struct flag {
	const char *name;
	char letter;       /* its short form, or 0 */
	const char *value; /* name of its value, or NULL */
	const char *help;
};

static const struct flag flags[] = {
	[FLAG_CONFIG] = { "config", 'c', "FILE",
			  "read the configuration from FILE (YAML, see holdfast.yaml(5));\n"
			  "without it the embedded defaults apply" },
	[FLAG_SET] = { "set", 0, "KEY=VALUE", "override one key, as in --set server.port=2049; repeatable" },
	[FLAG_EXPORT] = { "export", 0, "DIR[:NAME]",
			  "export DIR, which clients mount as NAME (default: DIR), with the\n"
			  "default settings; repeatable" },
	[FLAG_CHECK] = { "check", 0, NULL,
			 "check the configuration, print nothing if it is correct, and exit\n"
			 "with 0 or 2" },
	[FLAG_CHECK_PORTS] = { "check-ports", 0, NULL,
			       "exit with 1 and say so if another server has a configured port,\n"
			       "with 0 otherwise" },
	[FLAG_PRINT_CONFIG] = { "print-config", 0, NULL,
				"print the effective configuration as YAML for --config, with every\n"
				"key explained and passwords hidden" },
	[FLAG_CLEAR_STORE] = { "clear-store", 0, NULL,
			       "delete all locks and registrations in the store, then start" },
	[FLAG_VERSION] = { "version", 'V', NULL, "print the version" },
	[FLAG_HELP] = { "help", 'h', NULL, "print this" },
};

/* The arguments that are not parsed yet */
struct reader {
	char *const *next;
	char *error;
	size_t error_size;
};

static HF_PRINTF(2, 3) int wrong(struct reader *reader, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(reader->error, reader->error_size, format, list);
	va_end(list);
	return HF_ARGS_E_WRONG;
}

static bool is_flag(const struct flag *flag, const char *argument, size_t len)
{
	if (len == 2 && argument[1] != '-')
		return flag->letter == argument[1];
	return len > 2 && strlen(flag->name) == len - 2 && strncmp(flag->name, argument + 2, len - 2) == 0;
}

static int unknown_option(struct reader *reader, const char *argument)
{
	char quoted[HF_CONFIG_QUOTE_SIZE], word[HF_CONFIG_QUOTE_SIZE];
	struct hf_config_guess guess = { .word = word };

	hf_config_quote(quoted, sizeof(quoted), argument);
	snprintf(word, sizeof(word), "%.*s", (int)strcspn(argument + strspn(argument, "-"), "="),
		 argument + strspn(argument, "-"));
	for (size_t i = 0; i < HF_ARRAY_SIZE(flags); i++)
		hf_config_guess_offer(&guess, flags[i].name);
	if (guess.best)
		return wrong(reader, "unknown option '%s'; did you mean --%s?", quoted, guess.best);
	return wrong(reader, "unknown option '%s'; holdfastd --help lists them all", quoted);
}

static int find_flag(struct reader *reader, const char *argument, enum flag_id *idp)
{
	size_t len = strcspn(argument, "=");
	char quoted[HF_CONFIG_QUOTE_SIZE];

	if (argument[0] != '-' || argument[1] == '\0')
		return wrong(reader, "unexpected argument '%s'; to export a directory, write --export DIR",
			     hf_config_quote(quoted, sizeof(quoted), argument));
	for (size_t i = 0; i < HF_ARRAY_SIZE(flags); i++) {
		if (!is_flag(&flags[i], argument, len))
			continue;
		*idp = (enum flag_id)i;
		return 0;
	}
	return unknown_option(reader, argument);
}

/* The value of "--flag=value" or "--flag value"; NULL for a flag without a value. */
static int take_value(struct reader *reader, const struct flag *flag, const char *argument,
		      const char **valuep)
{
	const char *equals = strchr(argument, '=');

	*valuep = NULL;
	if (!flag->value && equals)
		return wrong(reader, "--%s takes no value; write --%s alone", flag->name, flag->name);
	if (!flag->value)
		return 0;
	*valuep = equals ? equals + 1 : *reader->next;
	if (!*valuep || **valuep == '\0' || (!equals && strncmp(*valuep, "--", 2) == 0))
		return wrong(reader, "--%s needs a value; write --%s %s", flag->name, flag->name,
			     flag->value);
	if (!equals)
		reader->next++;
	return 0;
}

static int apply(struct reader *reader, struct hf_args *args, enum flag_id id, const char *value)
{
	switch (id) {
	case FLAG_CONFIG:
		if (args->config_file)
			return wrong(reader, "--config is given twice; give one file");
		args->config_file = value;
		break;
	case FLAG_SET:
		args->sets[args->n_sets++] = value;
		break;
	case FLAG_EXPORT:
		args->exports[args->n_exports++] = value;
		break;
	case FLAG_CHECK:
		args->check = true;
		break;
	case FLAG_CHECK_PORTS:
		args->check_ports = true;
		break;
	case FLAG_PRINT_CONFIG:
		args->print_config = true;
		break;
	case FLAG_CLEAR_STORE:
		args->clear_store = true;
		break;
	case FLAG_VERSION:
		args->version = true;
		break;
	case FLAG_HELP:
		args->help = true;
		break;
	}
	return 0;
}

static int read_next(struct reader *reader, struct hf_args *args)
{
	const char *argument = *reader->next++;
	const char *value;
	enum flag_id id = 0;
	int r;

	r = find_flag(reader, argument, &id);
	if (r)
		return r;
	r = take_value(reader, &flags[id], argument, &value);
	if (r)
		return r;
	return apply(reader, args, id, value);
}

/* --check prints nothing and starts nothing. */
static int check_together(struct reader *reader, const struct hf_args *args)
{
	if (args->check && args->print_config)
		return wrong(reader, "--check prints nothing, --print-config does; give one of them");
	if (args->check_ports && (args->check || args->print_config))
		return wrong(reader, "--check-ports looks at ports alone; give it without --%s",
			     args->check ? "check" : "print-config");
	if (args->clear_store && (args->check || args->print_config || args->check_ports))
		return wrong(reader, "--clear-store is for a start; give it without --%s",
			     args->check          ? "check"
			     : args->print_config ? "print-config"
						  : "check-ports");
	return 0;
}

int hf_args_init(struct hf_args *args, int argc, char *const argv[], char *error, size_t error_size)
{
	struct reader reader = { argv + (argc > 0), error, error_size };
	int r = 0;

	*args = (struct hf_args){ 0 };
	error[0] = '\0';
	args->sets = calloc((size_t)argc + 1, sizeof(*args->sets));
	args->exports = calloc((size_t)argc + 1, sizeof(*args->exports));
	if (!args->sets || !args->exports) {
		snprintf(error, error_size, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	while (r == 0 && *reader.next && !args->help && !args->version)
		r = read_next(&reader, args);
	if (r || args->help || args->version)
		return r;
	return check_together(&reader, args);
}

void hf_args_deinit(struct hf_args *args)
{
	free(args->sets);
	free(args->exports);
	*args = (struct hf_args){ 0 };
}

#define HELP_COLUMN 28

static void print_flag(const struct flag *flag, FILE *out)
{
	const char *help = flag->help;
	int column;

	if (flag->letter)
		column = fprintf(out, "  -%c, --%s", flag->letter, flag->name);
	else
		column = fprintf(out, "      --%s", flag->name);
	if (flag->value)
		column += fprintf(out, " %s", flag->value);
	for (;;) {
		size_t len = strcspn(help, "\n");

		fprintf(out, "%*s%.*s\n", HELP_COLUMN - column, "", (int)len, help);
		if (help[len] == '\0')
			return;
		help += len + 1;
		column = 0;
	}
}

void hf_args_print_help(FILE *out)
{
	fprintf(out, "Usage: holdfastd [OPTION]...\n"
		     "Serve directories over NFSv3, with locks that hold through crashes.\n"
		     "\n"
		     "Options:\n");
	for (size_t i = 0; i < HF_ARRAY_SIZE(flags); i++)
		print_flag(&flags[i], out);
	fprintf(out,
		"\n"
		"The defaults come first, then FILE, then --set and --export. Every key of the\n"
		"configuration can be set, except those of exports: holdfastd --print-config lists them.\n"
		"A list is written with commas: --set server.listen=192.0.2.1,::1.\n"
		"\n"
		"Examples:\n"
		"  holdfastd --export /srv/data\n"
		"  holdfastd --export /srv/data:/data --set server.state_dir=/tmp/holdfast\n"
		"  holdfastd --config /etc/holdfast/holdfast.yaml\n"
		"  holdfastd --config FILE --set recovery.window_seconds=10 --set api.listen=127.0.0.1:0\n"
		"  holdfastd --config FILE --check\n"
		"  holdfastd --print-config > holdfast.yaml\n"
		"\n"
		"holdfastd stays in the foreground and logs to stderr. SIGHUP loads the configuration again\n"
		"(so does `holdfast reload`), SIGTERM and SIGINT stop it. Exit status: 0 after a clean stop, "
		"2 if the\n"
		"command line or the configuration is wrong, 1 for any other failure.\n");
}

void hf_args_print_version(FILE *out)
{
	fprintf(out, "holdfastd %s\n", HF_VERSION);
}
