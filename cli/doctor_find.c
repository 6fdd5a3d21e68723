/* One finding of doctor: how it is counted and shown. */
#include "cli/cli.h"

void cli_find(struct cli_findings *findings, enum cli_finding kind, const char *what, const char *breaks,
	      const char *mend)
{
	static const char *const words[] = { "ok", "note", "BAD" };
	struct cli *cli = findings->cli;
	const char *colour = kind == CLI_FINE   ? cli_green(cli)
			     : kind == CLI_NOTE ? cli_yellow(cli)
						: cli_red(cli);
	char clean[1024];

	findings->n_bad += kind == CLI_BAD;
	json_array_append_new(findings->items,
			      json_pack("{s:s,s:s,s:s?,s:s?}", "level", kind == CLI_BAD ? "bad" : words[kind],
					"what", what, "breaks", breaks, "mend", mend));
	if (cli->is_json)
		return;
	printf("%s%-4s%s  %s\n", colour, words[kind], cli_plain(cli), cli_clean(clean, sizeof(clean), what));
	if (breaks)
		printf("      breaks: %s\n", cli_clean(clean, sizeof(clean), breaks));
	if (mend)
		printf("      fix:    %s\n", cli_clean(clean, sizeof(clean), mend));
}
