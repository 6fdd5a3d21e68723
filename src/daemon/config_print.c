/* --print-config: every key with its value, and its help as a comment. */
#include <string.h>

#include "daemon/config.h"
#include "daemon/config_secret.h"
#include "daemon/config_value.h"
#include "daemon/options.h"

#define WIDTH 96

/* @text as comment lines of at most WIDTH columns */
static void print_comment(FILE *out, const char *indent, const char *text)
{
	size_t column = 0;

	while (*text) {
		size_t len = strcspn(text, " ");

		if (column && column + 1 + len > WIDTH) {
			putc('\n', out);
			column = 0;
		}
		if (column)
			column += (size_t)fprintf(out, " %.*s", (int)len, text);
		else
			column = (size_t)fprintf(out, "%s# %.*s", indent, (int)len, text);
		text += len;
		text += strspn(text, " ");
	}
	putc('\n', out);
}

static void print_help(FILE *out, const char *indent, const struct hf_option *option)
{
	char expected[HF_OPTION_TEXT_SIZE], help[768];

	/* For the other types the help is enough. */
	if (option->type == HF_OPTION_NUMBER || option->type == HF_OPTION_WORD)
		snprintf(help, sizeof(help), "%s Give %s.", option->help,
			 hf_option_expects(option, expected));
	else
		snprintf(help, sizeof(help), "%s", option->help);
	print_comment(out, indent, help);
}

/* Hide secrets: operators paste this output into tickets and chats. */
static void print_value(FILE *out, const void *field, const struct hf_option *option)
{
	char shown[8192]; /* room for the longest value with its stars */
	const char *text = shown;

	if (option->has_secrets && hf_config_hide_secrets(*(char *const *)field, shown, sizeof(shown))) {
		fprintf(out, "  # The password is hidden; put it back before you use this.\n");
		field = &text;
	}
	fprintf(out, "  %s: ", option->key);
	hf_config_value_print(field, option, out);
	putc('\n', out);
}

static void print_section(FILE *out, const struct hf_option_section *section, const struct hf_config *config)
{
	fprintf(out, "%s:\n", section->name);
	for (size_t i = 0; i < hf_n_options; i++) {
		const struct hf_option *option = &hf_options[i];

		if (!hf_option_in_section(option, section))
			continue;
		print_help(out, "  ", option);
		print_value(out, hf_config_field_const(config, option), option);
	}
}

static void print_export(FILE *out, const struct hf_config_export *export, bool with_help)
{
	const char *lead = "  - ";

	for (size_t i = 0; i < hf_n_options; i++) {
		const struct hf_option *option = &hf_options[i];

		if (!hf_option_is_per_export(option))
			continue;
		if (option->type == HF_OPTION_CLIENTS && export->rules.n)
			continue; /* the rules are in its place */
		if (with_help)
			print_help(out, "    ", option);
		fprintf(out, "%s%s: ", lead, option->key);
		hf_config_value_print(hf_config_field_const(export, option), option, out);
		putc('\n', out);
		lead = "    ";
	}
}

/* Without exports there are no values to print, but the keys still have defaults. */
static void print_no_exports(FILE *out)
{
	const char *lead = "  # - ";

	fprintf(out, "exports: []\n");
	print_comment(out, "  ",
		      "For the first export, remove the [] above and the # before each key that you set.");
	for (size_t i = 0; i < hf_n_options; i++) {
		const struct hf_option *option = &hf_options[i];

		if (!hf_option_is_per_export(option))
			continue;
		print_help(out, "  ", option);
		if (strcmp(option->key, "path") == 0)
			fprintf(out, "%s%s: /srv/data\n", lead, option->key);
		else if (hf_option_is_list(option))
			fprintf(out, "%s%s: [%s]\n", lead, option->key, option->preset);
		else
			fprintf(out, "%s%s: %s\n", lead, option->key,
				*option->preset ? option->preset : "\"\"");
		lead = "  #   ";
	}
}

void hf_config_print(const struct hf_config *config, FILE *out)
{
	for (size_t i = 0; i < hf_n_option_sections; i++) {
		const struct hf_option_section *section = &hf_option_sections[i];

		if (i)
			putc('\n', out);
		print_comment(out, "", section->help);
		if (strcmp(section->name, HF_OPTION_LIST) != 0) {
			print_section(out, section, config);
			continue;
		}
		if (config->exports.n == 0) {
			print_no_exports(out);
			continue;
		}
		fprintf(out, "%s:\n", section->name);
		for (size_t j = 0; j < config->exports.n; j++)
			print_export(out, &config->exports.items[j], j == 0);
	}
}
