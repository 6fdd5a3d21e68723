/* Port 111: which program owns it, where it sends clients, and which other programs want it. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/addr.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "cli/doctor_ask.h"

/* Processes */

struct listener {
	unsigned long inode; /* of its socket; 0: no program listens */
	struct hf_addr addr;
};

/* The kernel prints an address as 32-bit words in this machine's byte order. */
static struct hf_addr address_of(const char *hex)
{
	struct hf_addr addr = { .family = strlen(hex) == 8 ? AF_INET : AF_INET6 };
	uint32_t word;

	for (size_t i = 0; i < 4 && sscanf(hex + 8 * i, "%8x", &word) == 1; i++) {
		memcpy(addr.ip + 4 * i, &word, sizeof(word));
		if (addr.family == AF_INET)
			break;
	}
	return addr;
}

/* Finds the program that listens on this port; one that listens on all addresses comes before others. */
static void look_for_listener(const char *table, unsigned int port, struct listener *listener)
{
	FILE *file = fopen(table, "re");
	char line[512];

	while (file && fgets(line, sizeof(line), file) &&
	       !(listener->inode && hf_addr_is_any(&listener->addr))) {
		unsigned int local, state;
		struct listener found;
		unsigned long inode;
		char hex[33];

		if (sscanf(line, " %*d: %32[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %*s %*s %lu", hex, &local,
			   &state, &inode) != 4 ||
		    local != port || state != 0x0a)
			continue;
		found = (struct listener){ inode, address_of(hex) };
		if (!listener->inode || hf_addr_is_any(&found.addr))
			*listener = found;
	}
	if (file)
		fclose(file);
}

static struct listener find_listener(unsigned int port)
{
	struct listener listener = { 0 };

	look_for_listener("/proc/net/tcp", port, &listener);
	if (!listener.inode)
		look_for_listener("/proc/net/tcp6", port, &listener);
	return listener;
}

static bool has_socket(const char *pid, unsigned long inode)
{
	char path[300], wanted[64], link[64];
	struct dirent *entry;
	bool is_found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
	snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
	dir = opendir(path);
	while (dir && !is_found && (entry = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, link, sizeof(link) - 1);

		if (n <= 0)
			continue;
		link[n] = '\0';
		is_found = strcmp(link, wanted) == 0;
	}
	if (dir)
		closedir(dir);
	return is_found;
}

/* The first process for which @test is true: its name in @out, and its number. */
static long find_process(bool (*test)(const char *pid, const char *name, const void *user), const void *user,
			 char out[64])
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	long found = 0;

	while (dir && !found && (entry = readdir(dir))) {
		char path[300];
		FILE *file;

		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%.20s/comm", entry->d_name);
		file = fopen(path, "re");
		if (file && fgets(out, 64, file)) {
			out[strcspn(out, "\n")] = '\0';
			if (test(entry->d_name, out, user))
				found = strtol(entry->d_name, NULL, 10);
		}
		if (file)
			fclose(file);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* Programs in other network namespaces do not compete with the server. */
static bool is_in_our_network(const char *pid)
{
	char path[300], ours[64] = "", theirs[64] = "";

	snprintf(path, sizeof(path), "/proc/%.20s/ns/net", pid);
	return readlink("/proc/self/ns/net", ours, sizeof(ours) - 1) < 0 ||
	       readlink(path, theirs, sizeof(theirs) - 1) < 0 || strcmp(ours, theirs) == 0;
}

static bool owns_socket(const char *pid, const char *name, const void *user)
{
	return has_socket(pid, *(const unsigned long *)user);
}

static bool has_name(const char *pid, const char *name, const void *user)
{
	return strcmp(name, user) == 0 && is_in_our_network(pid);
}

/* Port 111 */

static void check_owner(struct cli_findings *findings)
{
	unsigned long inode = find_listener(CLI_PORTMAP_PORT).inode;
	char name[64] = "", what[256];
	long pid;

	if (!inode) {
		cli_find(findings, CLI_BAD, "no program listens on port 111",
			 "clients cannot find the lock manager and the status monitor",
			 "start holdfastd as root with server.portmap: auto, or start rpcbind");
		return;
	}
	pid = find_process(owns_socket, &inode, name);
	if (pid)
		snprintf(what, sizeof(what), "port 111 belongs to %s (pid %ld)", name, pid);
	else
		snprintf(what, sizeof(what), "port 111 belongs to a process that this user may not see");
	cli_find(findings, CLI_FINE, what, NULL, NULL);
}

struct hf_addr cli_address_of_server(uint16_t port)
{
	struct listener listener = find_listener(port);
	struct hf_addr addr = listener.addr;

	if (!listener.inode)
		hf_addr_parse(&addr, "127.0.0.1");
	else if (hf_addr_is_any(&addr))
		hf_addr_parse(&addr, addr.family == AF_INET6 ? "::1" : "127.0.0.1");
	return addr;
}

/* Checks what rpcbind tells clients that look for the server. @port: its port; 0: unknown. */
static void check_registrations(struct cli_findings *findings, uint16_t port)
{
	static const char breaks_nlm[] =
		"clients get no locks from holdfastd, or get them from another lock manager";
	static const char breaks_nsm[] = "restarted clients notify another status monitor, or none";
	struct cli_question questions[] = {
		{ "the lock manager", 100021, 4, 0, HF_RPC_UDP_ONLY },
		{ "the lock manager", 100021, 4, 0, HF_RPC_TCP_ONLY },
		{ "the status monitor", 100024, 1, 0, HF_RPC_UDP_ONLY },
		{ "the status monitor", 100024, 1, 0, HF_RPC_TCP_ONLY },
	};
	struct hf_addr here = cli_address_of_server(port);
	size_t n_bad = 0;
	char what[512];

	if (cli_doctor_ask(questions, HF_ARRAY_SIZE(questions), &here) < 0)
		return;
	for (size_t i = 0; i < HF_ARRAY_SIZE(questions); i++) {
		const struct cli_question *q = &questions[i];
		const char *transport = q->path == HF_RPC_UDP_ONLY ? "UDP" : "TCP";
		bool is_elsewhere = q->outcome == HF_RPC_OUTCOME_OK && port && q->remote.port != port;

		if (q->outcome == HF_RPC_OUTCOME_OK && !is_elsewhere)
			continue;
		if (is_elsewhere)
			snprintf(what, sizeof(what),
				 "port 111 sends clients of %s over %s to port %u, not to the server's, %u",
				 q->service, transport, q->remote.port, port);
		else
			snprintf(what, sizeof(what), "clients do not find %s over %s: %s: %s", q->service,
				 transport, hf_rpc_stage_text(q->stage), hf_rpc_outcome_text(q->outcome));
		cli_find(findings, CLI_BAD, what, q->program == 100021 ? breaks_nlm : breaks_nsm,
			 is_elsewhere
				 ? "stop the program there (`rpcinfo -p` names it), and restart holdfastd"
				 : "restart holdfastd, so that it registers again");
		n_bad++;
	}
	if (n_bad == 0)
		cli_find(findings, CLI_FINE,
			 "port 111 sends clients of the lock manager and the status monitor to holdfastd",
			 NULL, NULL);
}

/* Programs that do the same */

static void check_rivals(struct cli_findings *findings)
{
	static const struct {
		const char *name, *breaks, *mend;
	} rivals[] = {
		{ "rpc.statd",
		  "two status monitors fight for one registration; reboots of clients may be missed",
		  "systemctl disable --now rpc-statd.service" },
		{ "lockd",
		  "the kernel's lock manager may replace holdfastd at the port mapper, and grants locks of "
		  "its own",
		  "unmount NFS mounts without -o nolock, and stop nfs-server.service" },
		{ "nfsd", "the kernel's NFS server holds port 2049",
		  "systemctl disable --now nfs-server.service" },
	};
	size_t n = 0;

	for (size_t i = 0; i < sizeof(rivals) / sizeof(rivals[0]); i++) {
		char name[64], what[128];
		long pid = find_process(has_name, rivals[i].name, name);

		if (!pid)
			continue;
		snprintf(what, sizeof(what), "%s runs here (pid %ld)", rivals[i].name, pid);
		cli_find(findings, CLI_BAD, what, rivals[i].breaks, rivals[i].mend);
		n++;
	}
	if (n == 0)
		cli_find(findings, CLI_FINE, "no rpc.statd, lockd or nfsd runs beside holdfastd", NULL, NULL);
}

void cli_doctor_port(struct cli_findings *findings, uint16_t port)
{
	check_owner(findings);
	check_registrations(findings, port);
	check_rivals(findings);
}
