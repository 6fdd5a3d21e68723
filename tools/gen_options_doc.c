/*
 * Prints holdfast.yaml(5) from the table of options, at build time:
 *
 *	gen_options_doc VERSION > holdfast.yaml.5
 */
#include <stdio.h>
#include <string.h>

#include "daemon/config.h"
#include "daemon/options.h"

/* Text as roff wants it: no line starts with a control character, hyphens and quotes are what they look like.
 */
static void print_text(const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", stdout);
	for (; *text; text++) {
		if (*text == '\\')
			fputs("\\e", stdout);
		else if (*text == '-')
			fputs("\\-", stdout);
		else if (*text == '\'')
			fputs("\\(aq", stdout);
		else
			putchar(*text);
	}
}

static void print_default(const struct hf_option *option)
{
	if (option->type == HF_OPTION_PATH && option->min && *option->preset == '\0')
		return; /* required */
	fputs(" Default: ", stdout);
	if (hf_option_is_list(option)) {
		putchar('[');
		for (const char *p = option->preset; *p; p += *p == ',') {
			size_t len = strcspn(p, ",");

			printf("%s\"%.*s\"", p == option->preset ? "" : ", ", (int)len, p);
			p += len;
		}
		putchar(']');
	} else {
		print_text(*option->preset ? option->preset : "\"\"");
	}
	fputs(".", stdout);
}

static void print_option(const struct hf_option *option)
{
	char expected[HF_OPTION_TEXT_SIZE];

	printf(".TP\n.B %s\n", option->key);
	print_text(option->help);
	fputs("\nGive ", stdout);
	print_text(hf_option_expects(option, expected));
	fputs(".", stdout);
	print_default(option);
	putchar('\n');
}

static void print_section(const struct hf_option_section *section)
{
	printf(".SS %s\n", section->name);
	print_text(section->help);
	putchar('\n');
	for (size_t i = 0; i < hf_n_options; i++)
		if (hf_option_in_section(&hf_options[i], section))
			print_option(&hf_options[i]);
}

static void print_head(const char *version)
{
	printf(".\\\" Made from src/daemon/options.c by tools/gen_options_doc.c; do not edit.\n"
	       ".TH HOLDFAST.YAML 5 \"\" \"Holdfast %s\" \"Holdfast manual\"\n"
	       ".SH NAME\n"
	       "holdfast.yaml \\- configuration of the Holdfast NFS server\n"
	       ".SH SYNOPSIS\n"
	       ".B holdfastd \\-\\-config\n"
	       ".I FILE\n"
	       ".SH DESCRIPTION\n",
	       version);
	printf("The configuration is one YAML document of sections with keys, in UTF\\-8.\n"
	       "Every key may be left out; then its default applies.\n"
	       ".B holdfastd \\-\\-print\\-config\n"
	       "prints the effective configuration, with every key explained. Its output is a valid\n"
	       "configuration.\n"
	       ".PP\n"
	       "The file is overridden by\n"
	       ".B \\-\\-set\n"
	       ".IR SECTION . KEY = VALUE ,\n"
	       "and\n"
	       ".B \\-\\-export\n"
	       ".IR DIR [: NAME ]\n"
	       "adds an export. Lists are written with commas there: \\-\\-set server.listen=192.0.2.1,::1.\n"
	       "A relative path on the command line starts at the current directory; in the file, paths "
	       "are\n"
	       "absolute.\n");
}

static void print_tail(void)
{
	printf(".SH RELOADING\n"
	       "SIGHUP, or \\fBholdfast reload\\fR, reads the file again. These keys change while the server "
	       "runs; a change of any "
	       "other\n"
	       "waits for the next start, and the log says so:\n");
	printf(".B exports\n(all of it)");
	for (size_t i = 0; i < hf_n_options; i++)
		if (hf_options[i].is_live && !hf_option_is_per_export(&hf_options[i]))
			printf(",\n.B %s.%s", hf_options[i].section, hf_options[i].key);
	printf("\n.PP\nThe others decide what the server makes once, at its start: sockets, threads, "
	       "processes, the "
	       "paths of the API,\nthe connection to its database, and the names by which clients, nodes and "
	       "stores know it.\n"
	       ".PP\nA wrong file changes nothing.\n"
	       ".SH ERRORS\n"
	       "Unknown keys, wrong types and impossible values are refused before anything is opened or "
	       "changed,\n"
	       "with one line on stderr and exit status 2:\n"
	       ".PP\n.RS\n.EX\n"
	       "holdfastd: holdfast.yaml:3: unknown key server.prot; did you mean server.port?\n"
	       ".EE\n.RE\n.PP\n"
	       "A file has at most 1 MiB and %d exports. Anchors and aliases work; tags and a second "
	       "document are\n"
	       "refused. Numbers are decimal, without quotes.\n",
	       HF_CONFIG_MAX_EXPORTS);
	printf(".SH EXAMPLE\n"
	       ".EX\n"
	       "server:\n"
	       "  state_dir: /var/lib/holdfast\n"
	       "exports:\n"
	       "  \\- path: /srv/data\n"
	       "    name: /data\n"
	       "    clients: [10.0.0.0/8, \"2001:db8::/32\"]\n"
	       "  \\- path: /srv/archive\n"
	       "    access: ro\n"
	       "    squash: all\n"
	       "  \\- path: /srv/projects\n"
	       "    access: ro\n"
	       "    rules:\n"
	       "      \\- clients: [192.0.2.7]\n"
	       "        access: rw\n"
	       "        squash: none\n"
	       "      \\- clients: [any]\n"
	       "recovery:\n"
	       "  window_seconds: 60\n"
	       ".EE\n"
	       ".SH SEE ALSO\n"
	       ".BR holdfastd (8),\n"
	       ".BR holdfast (1),\n"
	       ".BR holdfast\\-metrics (7)\n");
}

int main(int argc, char **argv)
{
	print_head(argc > 1 ? argv[1] : "");
	printf(".SH OPTIONS\n");
	for (size_t i = 0; i < hf_n_option_sections; i++)
		print_section(&hf_option_sections[i]);
	print_tail();
	return ferror(stdout) || fflush(stdout) ? 1 : 0;
}
