/*
 * Prints holdfast-metrics(7) from the table of metrics, at build time:
 *
 *	gen_metrics_doc VERSION > holdfast-metrics.7
 */
#include <stdio.h>

#include "base/metric.h"

static void print_text(const char *text)
{
	for (; *text; text++) {
		if (*text == '-')
			fputs("\\-", stdout);
		else if (*text == '\'')
			fputs("\\(aq", stdout);
		else
			putchar(*text);
	}
}

int main(int argc, char **argv)
{
	static const char *const kinds[] = { "counter", "gauge", "histogram" };

	printf(".TH HOLDFAST\\-METRICS 7 \"\" \"Holdfast %s\" \"Holdfast\"\n", argc > 1 ? argv[1] : "");
	fputs(".SH NAME\nholdfast\\-metrics \\- what holdfastd counts\n.SH DESCRIPTION\n"
	      ".BR holdfastd (8)\nshows these at\n.I /metrics\nof its API, in the text format of Prometheus, "
	      "where\n"
	      ".B metrics.enabled\nis true. A procedure is named as its protocol does (LOCK, MON, READ), and "
	      "so is a "
	      "result\n(GRANTED, DENIED, NOENT); beside these there are OK, FAIL, REPLAYED (a repeated call "
	      "that got "
	      "the first\nreply again), DROPPED (not answered), GARBAGE_ARGS and RPC_ERROR.\n.PP\n"
	      "A procedure that was not called since the start is not shown. Histograms are in seconds; "
	      "their buckets "
	      "end\nat",
	      stdout);
	for (size_t i = 0; i < HF_METRIC_N_BOUNDS; i++)
		printf("%s %g", i ? "," : "", (double)hf_metric_bounds_ns[i] / 1e9);
	fputs(".\n.SH METRICS\n", stdout);
	for (size_t i = 0; i < HF_N_METRICS; i++) {
		const struct hf_metric_row *row = &hf_metrics[i];

		printf(".TP\n.B %s\n(%s%s%s) ", row->name, kinds[row->kind], *row->labels ? "; labels " : "",
		       row->labels);
		print_text(row->help);
		putchar('\n');
	}
	fputs(".SH SEE ALSO\n.BR holdfast (1),\n.BR holdfastd (8),\n.BR holdfast.yaml (5)\n", stdout);
	return 0;
}
