/* Finds problems on this host. Each finding says what it breaks and how to fix it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "base/addr.h"
#include "cli/cli.h"

#define MIN_FILES     4096
#define MIN_FREE      (64u << 20)
#define CLOCK_SLACK_S 60

/* The server */

static json_t *ports_of(const struct cli *cli)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/ports.json", cli->state_dir);
	return json_load_file(path, 0, NULL);
}

/* Another program has the address, or a server with another state directory. */
static void tell_of_stranger(struct cli_findings *findings)
{
	char what[8192];

	snprintf(what, sizeof(what),
		 "no server runs with the state directory %s; another program answers at %s",
		 findings->cli->state_dir, findings->cli->endpoint);
	cli_find(findings, CLI_NOTE, what, "its answers may be wrong; the token is not sent to it",
		 "start holdfastd, or give the --state-dir of the server that runs");
}

/* Puts the server's name into @name, if it answers. Returns whether it is a standby. */
static bool check_server(struct cli_findings *findings, char *name, size_t size)
{
	struct cli_response response;
	const json_t *healthy;
	const char *called;
	char what[1024];
	json_t *status = NULL;
	bool is_standby;
	int r = cli_request(findings->cli, "GET", "/api/v1/status", &response);

	if (r == 0)
		status = json_loadb(response.body, response.len, 0, NULL);
	healthy = json_object_get(json_object_get(status, "store"), "healthy");
	is_standby = json_is_null(healthy);
	if (r < 0 || response.status != 200) {
		snprintf(what, sizeof(what), "no server answers at %s: %s", findings->cli->endpoint,
			 r == -EKEYREJECTED ? findings->cli->problem
			 : r < 0            ? strerror(-r)
					    : "it refuses");
		cli_find(findings, CLI_BAD, what,
			 "clients are not served, or the server's state cannot be seen",
			 "start holdfastd, or name the right one with --server or --state-dir");
	} else if (is_standby) {
		cli_find(findings, CLI_FINE, "the server answers; it is a standby, and serves no client",
			 NULL, NULL);
	} else if (!json_is_true(healthy)) {
		cli_find(findings, CLI_BAD, "the store is failing",
			 "no lock is granted, because it would not survive a restart",
			 "look for `store` in the server's log: most often a full or failed disk");
	} else {
		cli_find(findings, CLI_FINE, "the server answers, and its store is healthy", NULL, NULL);
	}
	if (r == 0 && *findings->cli->token && !cli_may_send_token(findings->cli))
		tell_of_stranger(findings);
	called = cli_text(status, "name");
	snprintf(name, size, "%s", called ? called : "");
	json_decref(status);
	free(response.body);
	return is_standby;
}

/* The host */

/* @name: the server's name; empty: no server answers, so the host's name is used. */
static void check_name(struct cli_findings *findings, char name[static 256])
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
	char what[512], text[HF_ADDR_TEXT];
	struct hf_addr addr;
	int r;

	if (!*name)
		gethostname(name, 255);
	r = getaddrinfo(name, NULL, &hints, &found);
	if (r != 0 || !hf_addr_from_sockaddr(&addr, found->ai_addr)) {
		snprintf(what, sizeof(what), "the server's name %s cannot be resolved: %s", name,
			 gai_strerror(r));
		cli_find(findings, CLI_BAD, what,
			 "clients that resolve the name in SM_NOTIFY will not reclaim their locks",
			 "add it to DNS or to /etc/hosts, there and here, or set server.name");
	} else if (hf_addr_is_loopback(&addr)) {
		snprintf(what, sizeof(what), "the server's name %s resolves to %s", name,
			 hf_addr_format(&addr, text, sizeof(text)));
		cli_find(findings, CLI_NOTE, what,
			 "nothing here; clients must resolve it to the server's real address",
			 "check with `getent hosts NAME` on a client");
	} else {
		snprintf(what, sizeof(what), "the server's name %s resolves to %s", name,
			 hf_addr_format(&addr, text, sizeof(text)));
		cli_find(findings, CLI_FINE, what, NULL, NULL);
	}
	if (found)
		freeaddrinfo(found);
}

static void check_state_dir(struct cli_findings *findings)
{
	const char *path = findings->cli->state_dir;
	char what[512], mend[512];
	struct statvfs fs;
	struct stat st;

	if (stat(path, &st) < 0) {
		snprintf(what, sizeof(what), "the state directory %s cannot be seen: %s", path,
			 strerror(errno));
		cli_find(findings, CLI_NOTE, what, NULL, "name it with --state-dir, and run this as root");
		return;
	}
	if (st.st_mode & 077) {
		snprintf(what, sizeof(what), "other users can read %s", path);
		snprintf(mend, sizeof(mend), "chmod 700 %s", path);
		cli_find(findings, CLI_BAD, what, "they can learn the API token and the key of file handles",
			 mend);
	} else if (statvfs(path, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < MIN_FREE) {
		snprintf(what, sizeof(what), "less than 64 MB are free at %s", path);
		cli_find(findings, CLI_BAD, what, "without room for the store no lock is granted",
			 "make room");
	} else {
		snprintf(what, sizeof(what), "the state directory %s is private to the server and has room",
			 path);
		cli_find(findings, CLI_FINE, what, NULL, NULL);
	}
}

/* When a file in the state directory was last written; 0: unknown. */
static time_t last_written(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	time_t last = 0;
	struct stat st;

	while (dir && (entry = readdir(dir)))
		if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mtime > last)
			last = st.st_mtime;
	if (dir)
		closedir(dir);
	return last;
}

static void check_clock(struct cli_findings *findings)
{
	static const char breaks[] = "times in lists and logs; locks and grace do not depend on it";
	struct timex timex = { 0 };

	if (last_written(findings->cli->state_dir) > time(NULL) + CLOCK_SLACK_S)
		cli_find(findings, CLI_NOTE,
			 "the clock went back: the server's state was written in the future", breaks,
			 "look at the clock (`timedatectl`), and run chrony or systemd-timesyncd");
	else if (adjtimex(&timex) == TIME_ERROR)
		cli_find(findings, CLI_NOTE, "the clock is not synchronised", breaks,
			 "run chrony or systemd-timesyncd");
	else
		cli_find(findings, CLI_FINE, "the clock is synchronised", NULL, NULL);
}

static void check_limits(struct cli_findings *findings, const json_t *ports)
{
	long pid = (long)json_integer_value(json_object_get(ports, "pid"));
	char path[64], line[256], what[256];
	unsigned long files = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%ld/limits", pid);
	file = pid ? fopen(path, "re") : NULL;
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Max open files %lu", &files) == 1)
			break;
	if (file)
		fclose(file);
	if (!files)
		return;
	snprintf(what, sizeof(what), "the server may open %lu files", files);
	cli_find(findings, files < MIN_FILES ? CLI_BAD : CLI_FINE, what,
		 files < MIN_FILES ? "connections beyond about that many clients are refused" : NULL,
		 files < MIN_FILES ? "LimitNOFILE=65536 in the service's unit" : NULL);
}

static void say_ports(struct cli_findings *findings, const json_t *ports)
{
	long long rpc = json_integer_value(json_object_get(ports, "rpc"));
	char what[256];

	snprintf(what, sizeof(what),
		 "a firewall must let in TCP and UDP %lld and 111, and let out to any port of the clients",
		 rpc ? rpc : 2049);
	cli_find(findings, CLI_NOTE, what, NULL, NULL);
}

int cli_doctor(struct cli *cli, const char *argument)
{
	struct cli_findings findings = { .cli = cli, .items = json_array() };
	json_t *ports = ports_of(cli);
	char name[256] = "";

	if (argument) {
		cli_doctor_host(&findings, argument);
	} else {
		/* A standby does not have port 111. */
		if (!check_server(&findings, name, sizeof(name)))
			cli_doctor_port(&findings,
					(uint16_t)json_integer_value(json_object_get(ports, "rpc")));
		cli_doctor_cluster(&findings);
		cli_doctor_tls(&findings, (long)json_integer_value(json_object_get(ports, "pid")),
			       (uint16_t)json_integer_value(json_object_get(ports, "rpc")));
		check_name(&findings, name);
		check_state_dir(&findings);
		check_clock(&findings);
		check_limits(&findings, ports);
		say_ports(&findings, ports);
	}
	if (cli->is_json)
		cli_print_json(findings.items);
	json_decref(ports);
	json_decref(findings.items);
	return findings.n_bad ? CLI_FAILED : CLI_OK;
}
