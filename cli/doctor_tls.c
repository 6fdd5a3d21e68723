/*
 * TLS of the RPC port and of the API: the files that the running server's
 * configuration names, and what the server shows on the wire.
 */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "cli/doctor_wire.h"
#include "daemon/args.h"
#include "daemon/certificates.h"
#include "daemon/config.h"
#include "daemon/config_endpoint.h"
#include "tls/tls.h"

#define DAY       86400
#define WARN_DAYS 30

/* The configuration of the running server, by its command line */

struct command_line {
	char *text; /* words, each with its NUL */
	char *words[512];
	int n_words;
	char config_file[4096];
};

static void command_line_clear(struct command_line *line)
{
	free(line->text);
}

static bool is_holdfastd(long pid)
{
	char path[64], name[32] = "";
	FILE *file;
	bool is_read;

	snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
	file = fopen(path, "re");
	is_read = file && fgets(name, sizeof(name), file);
	if (file)
		fclose(file);
	return is_read && strncmp(name, "holdfastd", 9) == 0;
}

static bool read_command_line(struct command_line *line, long pid)
{
	char path[64];
	size_t size = 0;
	FILE *file;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%ld/cmdline", pid);
	file = is_holdfastd(pid) ? fopen(path, "re") : NULL;
	n = file ? getdelim(&line->text, &size, EOF, file) : -1;
	if (file)
		fclose(file);
	if (n <= 0)
		return false;
	for (char *word = line->text; word < line->text + n; word += strlen(word) + 1) {
		if ((size_t)line->n_words == HF_ARRAY_SIZE(line->words) - 1)
			return false;
		line->words[line->n_words++] = word;
	}
	return true;
}

/* NULL: there is no server here, or it cannot be seen; or the finding is told. */
static struct hf_config *load_config(struct cli_findings *findings, long pid)
{
	hf_cleanup(command_line_clear) struct command_line line = { 0 };
	char error[HF_CONFIG_ERROR_SIZE] = "", what[HF_CONFIG_ERROR_SIZE + 64];
	struct hf_config *config = NULL;
	struct hf_args args;
	int r;

	if (!pid || !read_command_line(&line, pid))
		return NULL;
	r = hf_args_init(&args, line.n_words, line.words, error, sizeof(error));
	if (r == 0 && args.config_file && *args.config_file != '/') {
		snprintf(line.config_file, sizeof(line.config_file), "/proc/%ld/cwd/%s", pid,
			 args.config_file);
		args.config_file = line.config_file;
	}
	if (r == 0)
		r = hf_config_load(&config, &args, error, sizeof(error));
	hf_args_deinit(&args);
	if (r == 0)
		return config;
	snprintf(what, sizeof(what), "the configuration is refused as it is now: %s",
		 r < 0 ? strerror(-r) : error);
	cli_find(findings, CLI_BAD, what, "a reload changes nothing, and the next start fails",
		 "correct it; `holdfastd --check` with the server's options tells whether it is right");
	return NULL;
}

/* Files */

struct examined {
	const char *what;        /* "the RPC port" */
	const char *certificate; /* empty: no TLS */
	const char *key;
	const char *user; /* whose rights the server has; empty: root's, or those of its start */
};

static bool is_in_group(const struct passwd *user, gid_t gid)
{
	gid_t groups[256];
	int n = HF_ARRAY_SIZE(groups);

	if (getgrouplist(user->pw_name, user->pw_gid, groups, &n) < 0)
		return true; /* too many to tell */
	for (int i = 0; i < n; i++)
		if (groups[i] == gid)
			return true;
	return false;
}

static bool may_read(const char *name, const struct stat *st)
{
	const struct passwd *user = *name ? getpwnam(name) : NULL;

	if (!user || user->pw_uid == 0)
		return true;
	if (user->pw_uid == st->st_uid)
		return st->st_mode & S_IRUSR;
	return is_in_group(user, st->st_gid) ? st->st_mode & S_IRGRP : st->st_mode & S_IROTH;
}

static void check_key_file(struct cli_findings *findings, const struct examined *examined)
{
	char what[1200], mend[1200];
	struct stat st;

	if (stat(examined->key, &st) < 0)
		return; /* the configuration was refused */
	if (hf_certificates_expose(st.st_mode)) {
		snprintf(what, sizeof(what), "other users can read or write the key of %s, %s",
			 examined->what, examined->key);
		snprintf(mend, sizeof(mend), "chmod 600 %s; with server.user, 640 and that user's group",
			 examined->key);
		cli_find(findings, CLI_BAD, what, "they can pretend to be the server", mend);
	}
	if (!may_read(examined->user, &st)) {
		snprintf(what, sizeof(what), "the server's user %s cannot read the key of %s, %s",
			 examined->user, examined->what, examined->key);
		snprintf(mend, sizeof(mend), "chgrp %s %s; chmod 640 %s", examined->user, examined->key,
			 examined->key);
		cli_find(findings, CLI_BAD, what, "the next reload changes nothing, and the next start fails",
			 mend);
	}
}

static void tell_faults(struct cli_findings *findings, const struct hf_tls_report *report, const char *path,
			const char *breaks)
{
	char what[HF_TLS_PROBLEM_SIZE + 1100];

	for (size_t i = 0; i < report->n_faults; i++) {
		const struct hf_tls_fault *fault = &report->faults[i];

		snprintf(what, sizeof(what), "%s: %s", path, fault->what);
		cli_find(findings, fault->is_bad ? CLI_BAD : CLI_NOTE, what, breaks,
			 "renew the file, and reload (`systemctl reload holdfastd`)");
	}
}

static void tell_days(struct cli_findings *findings, const char *what_ends, int64_t expires, int64_t now,
		      const char *breaks)
{
	long long days = (expires - now) / DAY;
	char what[512], then[256];

	if (expires <= now)
		return; /* told as a fault */
	snprintf(what, sizeof(what), "%s is valid for %lld more days", what_ends, days);
	snprintf(then, sizeof(then), "after that %s", breaks);
	if (days < WARN_DAYS)
		cli_find(findings, CLI_NOTE, what, then, "renew it in time, and reload");
	else
		cli_find(findings, CLI_FINE, what, NULL, NULL);
}

static void check_certificate(struct cli_findings *findings, const struct examined *examined,
			      struct hf_tls_report *report)
{
	static const char breaks[] = "clients that check the certificate refuse the server";
	int64_t now = time(NULL);
	char what[128];

	hf_tls_inspect_certificate(report, examined->certificate, now);
	tell_faults(findings, report, examined->certificate, breaks);
	snprintf(what, sizeof(what), "the certificate of %s", examined->what);
	tell_days(findings, what, report->expires, now, breaks);
	check_key_file(findings, examined);
}

static void check_client_ca(struct cli_findings *findings, const char *path)
{
	static const char breaks[] = "clients with certificates of that CA are refused";
	int64_t now = time(NULL);
	struct hf_tls_report report;

	if (*path == '\0')
		return;
	hf_tls_inspect_client_ca(&report, path, now);
	tell_faults(findings, &report, path, breaks);
	tell_days(findings, "what tls.client_ca contains", report.expires, now, breaks);
}

/* The wire */

static void tell_of_wire(struct cli_findings *findings, const struct examined *examined,
			 const struct hf_tls_report *report, const struct cli_seen *seen)
{
	char what[HF_TLS_PROBLEM_SIZE + 128];

	if (*seen->problem) {
		snprintf(what, sizeof(what), "%s offers no TLS: %s", examined->what, seen->problem);
		cli_find(findings, CLI_BAD, what, "clients that demand TLS are not served",
			 "look at the server's log, and restart it");
	} else if (*report->pin && strcmp(report->pin, seen->pin) != 0) {
		snprintf(what, sizeof(what), "%s shows another certificate than %s contains", examined->what,
			 examined->certificate);
		cli_find(findings, CLI_BAD, what, "the old certificate ends one day, and clients refuse it",
			 "reload (`systemctl reload holdfastd`), and look for errors in the log");
	} else {
		snprintf(what, sizeof(what), "%s speaks %s", examined->what, seen->version);
		cli_find(findings, CLI_FINE, what, NULL, NULL);
	}
}

/* Both */

static void check_rpc(struct cli_findings *findings, const struct hf_config *config, uint16_t port)
{
	const struct examined examined = { "the RPC port", config->tls.certificate, config->tls.key,
					   config->server.user };
	struct hf_tls_report report;
	struct cli_seen seen;

	if (*examined.certificate == '\0')
		return;
	check_certificate(findings, &examined, &report);
	check_client_ca(findings, config->tls.client_ca);
	if (!port)
		return; /* a standby */
	cli_see_rpc(&seen, port);
	tell_of_wire(findings, &examined, &report, &seen);
}

static void check_api(struct cli_findings *findings, const struct hf_config *config)
{
	const struct examined examined = { "the API", config->api.certificate, config->api.key,
					   config->server.user };
	struct hf_endpoint endpoint;
	struct hf_tls_report report;
	struct cli_seen seen;

	if (!hf_endpoint_parse(&endpoint, config->api.listen) || endpoint.kind != HF_ENDPOINT_TCP)
		return;
	if (*examined.certificate == '\0') {
		if (!hf_addr_is_loopback(&endpoint.addr))
			cli_find(findings, CLI_NOTE, "the API is reachable from other hosts without TLS",
				 "the network can read its tokens, and use them",
				 "set api.certificate and api.key, or let api.listen be loopback");
		return;
	}
	check_certificate(findings, &examined, &report);
	cli_see_api(&seen, findings->cli);
	tell_of_wire(findings, &examined, &report, &seen);
}

void cli_doctor_tls(struct cli_findings *findings, long pid, uint16_t port)
{
	hf_cleanup(hf_config_freep) struct hf_config *config = load_config(findings, pid);

	if (!config)
		return;
	check_rpc(findings, config, port);
	check_api(findings, config);
}
