#include "daemon/options.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/config.h"

#define DAY 86400

static const char *const portmap_words[] = { "auto", "embedded", "system", "off", NULL };
static const char *const access_words[] = { "rw", "ro", NULL };
static const char *const squash_words[] = { "none", "root", "all", NULL };
static const char *const local_locks_words[] = { "auto", "on", "off", NULL };
static const char *const transport_words[] = { "any", "tls", "mtls", NULL };
static const char *const backend_words[] = { "memory", "lmdb", "postgres", NULL };
static const char *const durability_words[] = { "none", "process", "machine", NULL };
static const char *const after_crash_words[] = { "reclaim", "continue", NULL };
static const char *const grace_words[] = { "auto", "always", "never", NULL };
static const char *const allow_mon_words[] = { "local", "exports", "any", NULL };
static const char *const log_level_words[] = { "error", "warn", "info", "debug", NULL };
static const char *const log_format_words[] = { "auto", "text", "json", NULL };

const struct hf_option_section hf_option_sections[] = {
	{ "server", "The server's name, addresses, ports, user and state directory." },
	{ "exports", "The exported directories and their clients; one entry for each directory." },
	{ "store", "Where registrations and locks are stored." },
	{ "recovery", "Recovery after a restart of the server or of a client." },
	{ "nsm", "The status monitor, which replaces rpc.statd." },
	{ "cluster", "Several nodes that serve one service in turn; only with store.backend: postgres." },
	{ "tls", "RPC-with-TLS (RFC 9289); off if certificate is empty." },
	{ "api", "REST, metrics and the dashboard." },
	{ "metrics", "Metrics for Prometheus." },
	{ "log", "The log, which goes to stderr." },
};

const size_t hf_n_option_sections = HF_ARRAY_SIZE(hf_option_sections);

#define AT(member)        .offset = offsetof(struct hf_config, member)
#define EXPORT_AT(member) .offset = offsetof(struct hf_config_export, member)
#define RULE_AT(member) \
	EXPORT_AT(member), .in_rules = true, .rule_offset = offsetof(struct hf_config_rule, member)

const struct hf_option hf_options[] = {
	{ "server", "name", HF_OPTION_TEXT, HF_OPTION_HOST_NAME, "", 0, 255, AT(server.name),
	  .help = "The server's name in SM_NOTIFY and to peers; empty: the host's name, in a cluster the "
		  "service's." },
	{ "server", "listen", HF_OPTION_ADDRESSES, .preset = "0.0.0.0,::", .min = 1,
	  .max = HF_CONFIG_MAX_ITEMS, AT(server.listen), .help = "The addresses to serve on." },
	{ "server", "port", HF_OPTION_NUMBER, .preset = "2049", .min = 0, .max = 65535, AT(server.port),
	  .help = "The one port of NFS, MOUNT, NLM and NSM, on TCP and UDP; 0: any free port." },
	{ "server", "portmap", HF_OPTION_WORD, .preset = "auto", .words = portmap_words, AT(server.portmap),
	  .help = "Which program answers port look-ups: a running rpcbind (system), holdfastd (embedded) or "
		  "none (off); auto: register with a running rpcbind, otherwise serve portmap_port." },
	{ "server", "portmap_port", HF_OPTION_NUMBER, .preset = "111", .min = 0, .max = 65535,
	  AT(server.portmap_port), .help = "The port of the embedded port mapper; 0: any free port." },
	{ "server", "state_dir", HF_OPTION_PATH, .preset = "/var/lib/holdfast", .min = 1, .max = 1024,
	  AT(server.state_dir),
	  .help = "The directory for all data that must survive a restart; created if it is missing." },
	{ "server", "user", HF_OPTION_TEXT, .preset = "", .min = 0, .max = 255, AT(server.user),
	  .help = "The user to run as, with no privilege but to use ports below 1024. All file access then "
		  "runs as this user, for every caller. Empty: do not change the user." },
	{ "server", "threads", HF_OPTION_NUMBER, .preset = "0", .min = 0, .max = 1000, AT(server.threads),
	  .help = "The number of workers for file I/O; 0: one for each core." },
	{ "server", "manage_gids", HF_OPTION_BOOL, .preset = "false", AT(server.manage_gids), .is_live = true,
	  .help = "Look up the groups of each caller on this host, in place of those that the client names "
		  "beside its gid: a call has room for 16. Users that this host does not know have none. "
		  "If a look-up fails, calls of the user are to be repeated until it succeeds. Group 0 "
		  "is never looked up." },

	{ "exports", "path", HF_OPTION_PATH, .preset = "", .min = 1, .max = 1024, EXPORT_AT(path),
	  .is_live = true, .help = "The directory to export, which must exist; required." },
	{ "exports", "name", HF_OPTION_TEXT, HF_OPTION_EXPORT_NAME, "", 0, 1024, EXPORT_AT(name),
	  .is_live = true,
	  .help = "The name that a client mounts; empty: the path. The path can always be mounted, too." },
	{ "exports", "clients", HF_OPTION_CLIENTS, .preset = "private", .min = 1, .max = HF_CONFIG_MAX_ITEMS,
	  RULE_AT(clients), .is_live = true,
	  .help = "Which clients may use it: addresses, networks, host names, domains like *.example.org, or "
		  "the words private (loopback, RFC 1918, unique local) and any. Names are looked up while "
		  "the "
		  "server runs." },
	{ "exports", "access", HF_OPTION_WORD, .preset = "rw", .words = access_words, RULE_AT(access),
	  .is_live = true, .help = "Whether clients may write (rw) or only read (ro)." },
	{ "exports", "squash", HF_OPTION_WORD, .preset = "root", .words = squash_words, RULE_AT(squash),
	  .is_live = true, .help = "Which callers become the anonymous user: none, root, or all." },
	{ "exports", "anon_uid", HF_OPTION_NUMBER, .preset = "65534", .min = 0, .max = UINT32_MAX - 1,
	  RULE_AT(anon_uid), .is_live = true, .help = "The user id of the anonymous user." },
	{ "exports", "anon_gid", HF_OPTION_NUMBER, .preset = "65534", .min = 0, .max = UINT32_MAX - 1,
	  RULE_AT(anon_gid), .is_live = true, .help = "The group id of the anonymous user." },
	{ "exports", "secure", HF_OPTION_BOOL, .preset = "false", RULE_AT(secure), .is_live = true,
	  .help = "Serve only calls that come from a reserved source port (below 1024)." },
	{ "exports", "rules", HF_OPTION_RULES, .preset = "[]", .max = HF_CONFIG_MAX_ITEMS, EXPORT_AT(rules),
	  .is_live = true,
	  .help = "Different rights for different clients, in place of clients: a list, each entry with its "
		  "own clients and, where they differ from the export's, access, squash, anon_uid, anon_gid "
		  "and secure. The first entry that has the client applies to it." },
	{ "exports", "local_locks", HF_OPTION_WORD, .preset = "auto", .words = local_locks_words,
	  EXPORT_AT(local_locks), .is_live = true,
	  .help = "Take locks in the kernel, too, so that they conflict with the locks of local processes. "
		  "auto: if the file system is local; on: always, and refuse a lock that the kernel cannot "
		  "take; off: never. With recovery.after_crash: continue, and in a cluster, auto is off." },
	{ "exports", "sync", HF_OPTION_BOOL, .preset = "true", EXPORT_AT(sync), .is_live = true,
	  .help = "false: answer a change of names or attributes (CREATE, REMOVE, RENAME, SETATTR and their "
		  "like) before it is on the disk, as async in /etc/exports does. When the machine crashes, "
		  "changes of the last seconds are lost although clients were told that they are done, and "
		  "no client hears of it. Stable WRITEs and COMMIT wait for the disk all the same." },

	{ "exports", "transport", HF_OPTION_WORD, .preset = "any", .words = transport_words,
	  EXPORT_AT(transport), .is_live = true,
	  .help = "What NFS calls on this export must come over: any; tls (mount with xprtsec=tls); or mtls: "
		  "TLS, and a client certificate of tls.client_ca (xprtsec=mtls). Other NFS calls are "
		  "refused with "
		  "AUTH_TOOWEAK. MOUNT is served in the clear, because Linux asks for the root handle before "
		  "it has a "
		  "TLS connection." },
	{ "exports", "identities", HF_OPTION_NAMES, .preset = "", .min = 0, .max = HF_CONFIG_MAX_ITEMS,
	  EXPORT_AT(identities), .is_live = true,
	  .help = "With transport: mtls, the names in client certificates that may use it: a subjectAltName "
		  "of the "
		  "kind DNS, or the common name of a certificate without one. Empty: every certificate of "
		  "tls.client_ca." },

	{ "store", "backend", HF_OPTION_WORD, .preset = "lmdb", .words = backend_words, AT(store.backend),
	  .help = "The store: memory (lost with the daemon), lmdb (a file in state_dir), postgres." },
	{ "store", "postgres", HF_OPTION_TEXT, .preset = "", .min = 0, .max = 4096, AT(store.postgres),
	  .has_secrets = true,
	  .help = "The libpq connection string; required if backend is postgres. Prefer a passfile for the "
		  "password." },
	{ "store", "lock_durability", HF_OPTION_WORD, .preset = "process", .words = durability_words,
	  AT(store.lock_durability),
	  .help = "What a granted lock survives: nothing (none), the death of the daemon (process), or power "
		  "loss (machine: reply only after fsync)." },

	{ "recovery", "window_seconds", HF_OPTION_NUMBER, .preset = "90", .min = 1, .max = DAY,
	  AT(recovery.window_seconds), .is_live = true,
	  .help = "How long clients may reclaim after a restart, the shared default of every protocol. A "
		  "grace period that is open keeps its end when a reload changes this." },
	{ "recovery", "nlm_grace_seconds", HF_OPTION_NUMBER, .preset = "-1", .min = -1, .max = DAY,
	  AT(recovery.nlm_grace_seconds), .is_live = true, .help = "The same for NLM; -1: window_seconds." },
	{ "recovery", "smb_durable_seconds", HF_OPTION_NUMBER, .preset = "-1", .min = -1, .max = DAY,
	  AT(recovery.smb_durable_seconds), .is_live = true,
	  .help = "The same for SMB; -1: window_seconds." },
	{ "recovery", "grace", HF_OPTION_WORD, .preset = "auto", .words = grace_words, AT(recovery.grace),
	  .help = "When a start begins with a grace period: auto (only if clients have something to "
		  "reclaim), always or never." },
	{ "recovery", "early_end", HF_OPTION_BOOL, .preset = "true", AT(recovery.early_end), .is_live = true,
	  .help = "End grace as soon as everything that could be reclaimed is accounted for, if that is "
		  "provably safe." },
	{ "recovery", "notify_timeout_ms", HF_OPTION_NUMBER, .preset = "5000", .min = 10, .max = 600000,
	  AT(recovery.notify_timeout_ms), .is_live = true,
	  .help = "The total time limit for notifying one client: port look-up, connect, send and reply." },
	{ "recovery", "notify_parallel", HF_OPTION_NUMBER, .preset = "1024", .min = 1, .max = 65536,
	  AT(recovery.notify_parallel), .is_live = true,
	  .help = "How many clients are notified at the same time." },
	{ "recovery", "notify_retry_seconds", HF_OPTION_NUMBER, .preset = "900", .min = 0, .max = 7 * DAY,
	  AT(recovery.notify_retry_seconds), .is_live = true,
	  .help = "How long the server repeats the notification of a client that does not answer; 0: send it "
		  "once." },
	{ "recovery", "max_clients", HF_OPTION_NUMBER, .preset = "10000", .min = 1, .max = 10000000,
	  AT(recovery.max_clients), .is_live = true, .help = "How many clients may be registered." },
	{ "recovery", "max_clients_per_address", HF_OPTION_NUMBER, .preset = "0", .min = 0, .max = 10000000,
	  AT(recovery.max_clients_per_address), .is_live = true,
	  .help = "How many of them may be at one address; 0: half of max_clients." },
	{ "recovery", "after_crash", HF_OPTION_WORD, .preset = "reclaim", .words = after_crash_words,
	  AT(recovery.after_crash),
	  .help = "What a start does if the stored list of locks is complete: clients reclaim their locks in "
		  "a grace period (reclaim), or the server goes on with all locks and waiters, and no client "
		  "hears of the restart (continue). The default in a cluster is continue." },
	{ "recovery", "release_silent_seconds", HF_OPTION_NUMBER, .preset = "0", .min = 0, .max = 365 * DAY,
	  AT(recovery.release_silent_seconds), .is_live = true,
	  .help = "Release the locks of a client that others wait for, after so many seconds without a sign "
		  "of life, if its host answered the server before and does not answer when it is asked; 0: "
		  "never. A client that is only cut off keeps believing that it has its locks." },

	{ "nsm", "allow_mon", HF_OPTION_WORD, .preset = "exports", .words = allow_mon_words,
	  AT(nsm.allow_mon), .is_live = true,
	  .help = "Which callers may use SM_MON, SM_UNMON and SM_UNMON_ALL: this host (local), the clients "
		  "of any export (exports), or any." },
	{ "nsm", "secure", HF_OPTION_BOOL, .preset = "false", AT(nsm.secure), .is_live = true,
	  .help = "true: a client can tell of its restart (SM_NOTIFY, and FREE_ALL of NLM) only from a port "
		  "below 1024, which ordinary users of its host do not have. The same for the other lock "
		  "calls: secure of each export." },

	{ "cluster", "service", HF_OPTION_TEXT, HF_OPTION_HOST_NAME, "", 0, 255, AT(cluster.service),
	  .help = "The name of the service, the same on all its nodes; empty: no cluster." },
	{ "cluster", "node", HF_OPTION_TEXT, HF_OPTION_HOST_NAME, "", 0, 255, AT(cluster.node),
	  .help = "The name of this node, different on each; empty: the host's name." },
	{ "cluster", "lease_seconds", HF_OPTION_NUMBER, .preset = "3", .min = 1, .max = 3600,
	  AT(cluster.lease_seconds),
	  .help = "How long the active node serves without an answer of the database. Another node takes "
		  "over after four thirds of it. The same on all nodes; 2 or more is better with "
		  "cluster.addresses." },
	{ "cluster", "addresses", HF_OPTION_SERVICE_ADDRESSES, .preset = "", .min = 0,
	  .max = HF_CONFIG_MAX_ITEMS, AT(cluster.addresses),
	  .help = "The service's addresses, as ADDRESS/PREFIX%INTERFACE, which this node holds while it "
		  "serves; empty: another program moves them." },
	{ "cluster", "fence", HF_OPTION_TEXT, HF_OPTION_COMMAND, "", 0, 4096, AT(cluster.fence),
	  .help = "The command that stops another node for good. It runs with that node's name as its last "
		  "argument, before a takeover that the node did not agree to. Exit status 0 means that the "
		  "node cannot write any more. Empty: take over without it. A change needs a start: the "
		  "process that runs the command is made before the server gives up the right to make any." },
	{ "cluster", "automatic", HF_OPTION_BOOL, .preset = "true", AT(cluster.automatic), .is_live = true,
	  .help = "Take over when the active node is gone; false: only on the order of an operator." },

	{ "tls", "certificate", HF_OPTION_PATH, .preset = "", .min = 0, .max = 1024, AT(tls.certificate),
	  .is_live = true,
	  .help = "The PEM file with the server's certificate, followed by those between it and its CA; "
		  "empty: no "
		  "TLS. A reload reads the three files again; connections go on with what they have." },
	{ "tls", "key", HF_OPTION_PATH, .preset = "", .min = 0, .max = 1024, AT(tls.key), .is_live = true,
	  .help = "The PEM file with the certificate's private key, without passphrase. The server's user "
		  "must be "
		  "able to read it." },
	{ "tls", "client_ca", HF_OPTION_PATH, .preset = "", .min = 0, .max = 1024, AT(tls.client_ca),
	  .is_live = true,
	  .help = "The PEM file with the CAs of client certificates. If it has lists of revoked "
		  "certificates, too, "
		  "each of these CAs needs a valid one. Empty: clients are not asked for a certificate." },
	{ "tls", "grace_seconds", HF_OPTION_NUMBER, .preset = "60", .min = 0, .max = DAY,
	  AT(tls.grace_seconds), .is_live = true,
	  .help = "How long after its last TLS connection a client's NLM calls in the clear are still served "
		  "on "
		  "exports that demand TLS." },

	{ "api", "listen", HF_OPTION_TEXT, HF_OPTION_ENDPOINT, "127.0.0.1:8049", 0, 255, AT(api.listen),
	  .help = "Where HTTP is served, as address:port or unix:/path; port 0: any free port; empty: off." },
	{ "api", "certificate", HF_OPTION_PATH, .preset = "", .min = 0, .max = 1024, AT(api.certificate),
	  .is_live = true,
	  .help = "The PEM file with the certificate of the API, followed by those between it and its CA: "
		  "the API speaks HTTPS (TLS 1.2 or 1.3). Empty: plain HTTP. A reload reads both files "
		  "again; a change between HTTP and HTTPS waits for the next start." },
	{ "api", "key", HF_OPTION_PATH, .preset = "", .min = 0, .max = 1024, AT(api.key), .is_live = true,
	  .help = "The PEM file with the private key of api.certificate, without passphrase. The server's "
		  "user must be able to read it." },
	{ "api", "token_file", HF_OPTION_PATH, .preset = "", .min = 0, .max = 1024, AT(api.token_file),
	  .is_live = true,
	  .help = "The file with the bearer token for every call that changes something, and for all calls "
		  "if listen is not loopback; empty: api.token in state_dir. Created if it is missing; a "
		  "reload reads it again, and the token of before is worth nothing then." },
	{ "api", "view_token_file", HF_OPTION_PATH, .preset = "", .min = 0, .max = 1024,
	  AT(api.view_token_file), .is_live = true,
	  .help = "The file with a second bearer token that may only look: calls that change something "
		  "answer 403. Created and read as the first; empty: there is no such token." },

	{ "metrics", "enabled", HF_OPTION_BOOL, .preset = "true", AT(metrics.enabled),
	  .help = "Count and time requests; false: the hot path does no metrics work at all." },
	{ "metrics", "per_client", HF_OPTION_BOOL, .preset = "false", AT(metrics.per_client), .is_live = true,
	  .help = "Count calls, bytes and errors for each client address and export, 4096 pairs at most: "
		  "holdfast "
		  "usage, holdfast top, GET /api/v1/usage. It needs enabled." },

	{ "log", "level", HF_OPTION_WORD, .preset = "info", .words = log_level_words, AT(log.level),
	  .is_live = true, .help = "The least urgent level that is logged." },
	{ "log", "format", HF_OPTION_WORD, .preset = "auto", .words = log_format_words, AT(log.format),
	  .is_live = true,
	  .help = "The format of log lines: text, json (one object a line), or auto: text, without the time "
		  "if the systemd journal adds its own. In a cluster, the processes that watch this one and "
		  "run cluster.fence keep the format of the start." },
	{ "log", "slow_ms", HF_OPTION_NUMBER, .preset = "0", .min = 0, .max = 3600000, AT(log.slow_ms),
	  .is_live = true,
	  .help = "Log each call that takes at least so many milliseconds, with its client and procedure, "
		  "and for NFS its file; 0: off." },
	{ "log", "audit", HF_OPTION_PATH, .preset = "", .min = 0, .max = 1024, AT(log.audit), .is_live = true,
	  .help = "The file for the audit log: one JSON object a line for each change of names and rights by "
		  "a "
		  "client, and for each refused call; opened again at each reload; empty: none." },
};

const size_t hf_n_options = HF_ARRAY_SIZE(hf_options);

static_assert(HF_ARRAY_SIZE(hf_options) <= HF_OPTION_MAX, "make HF_OPTION_MAX larger");

const struct hf_option *hf_option_find(const char *section, const char *key)
{
	for (size_t i = 0; i < hf_n_options; i++)
		if (strcmp(hf_options[i].section, section) == 0 && strcmp(hf_options[i].key, key) == 0)
			return &hf_options[i];
	return NULL;
}

const struct hf_option *hf_option_find_by_name(const char *name)
{
	char own[HF_OPTION_NAME_SIZE];

	for (size_t i = 0; i < hf_n_options; i++)
		if (strcmp(hf_option_name(&hf_options[i], own), name) == 0)
			return &hf_options[i];
	return NULL;
}

bool hf_option_is_section(const char *name)
{
	for (size_t i = 0; i < hf_n_option_sections; i++)
		if (strcmp(hf_option_sections[i].name, name) == 0)
			return true;
	return false;
}

bool hf_option_is_list(const struct hf_option *option)
{
	return option->type == HF_OPTION_ADDRESSES || option->type == HF_OPTION_CLIENTS ||
	       option->type == HF_OPTION_SERVICE_ADDRESSES || option->type == HF_OPTION_NAMES;
}

bool hf_option_is_per_export(const struct hf_option *option)
{
	return strcmp(option->section, HF_OPTION_LIST) == 0;
}

bool hf_option_in_section(const struct hf_option *option, const struct hf_option_section *section)
{
	return strcmp(option->section, section->name) == 0;
}

size_t hf_option_index(const struct hf_option *option)
{
	assert(option >= hf_options && option < hf_options + hf_n_options);
	return (size_t)(option - hf_options);
}

const char *hf_option_name(const struct hf_option *option, char out[HF_OPTION_NAME_SIZE])
{
	snprintf(out, HF_OPTION_NAME_SIZE, "%s.%s", option->section, option->key);
	return out;
}

/* "auto, embedded, system or off" */
static void list_words(const char *const *words, char out[HF_OPTION_TEXT_SIZE])
{
	size_t used = 0;

	for (size_t i = 0; words[i]; i++) {
		const char *join = i == 0 ? "" : words[i + 1] ? ", " : " or ";

		used += (size_t)snprintf(out + used, HF_OPTION_TEXT_SIZE - used, "%s%s", join, words[i]);
		assert(used < HF_OPTION_TEXT_SIZE);
	}
}

static const char *expected_text(const struct hf_option *option)
{
	switch (option->check) {
	case HF_OPTION_HOST_NAME:
		return "a host name or nothing";
	case HF_OPTION_ENDPOINT:
		return "an address with its port, like 127.0.0.1:8049 or [::1]:8049, unix:/path of at most "
		       "107 "
		       "bytes, or nothing";
	case HF_OPTION_EXPORT_NAME:
		return "a name that starts with '/', or nothing";
	case HF_OPTION_COMMAND:
		return "a program by its absolute path, with its arguments behind it, or nothing";
	case HF_OPTION_ANY_TEXT:
		break;
	}
	return "a text";
}

const char *hf_option_expects(const struct hf_option *option, char out[HF_OPTION_TEXT_SIZE])
{
	switch (option->type) {
	case HF_OPTION_TEXT:
		snprintf(out, HF_OPTION_TEXT_SIZE, "%s", expected_text(option));
		break;
	case HF_OPTION_PATH:
		snprintf(out, HF_OPTION_TEXT_SIZE, "an absolute path%s", option->min ? "" : " or nothing");
		break;
	case HF_OPTION_NUMBER:
		snprintf(out, HF_OPTION_TEXT_SIZE, "a whole number from %" PRId64 " to %" PRId64, option->min,
			 option->max);
		break;
	case HF_OPTION_BOOL:
		snprintf(out, HF_OPTION_TEXT_SIZE, "true or false");
		break;
	case HF_OPTION_WORD:
		list_words(option->words, out);
		break;
	case HF_OPTION_ADDRESSES:
		snprintf(out, HF_OPTION_TEXT_SIZE, "a list of addresses, like [\"0.0.0.0\", \"::\"]");
		break;
	case HF_OPTION_CLIENTS:
		snprintf(out, HF_OPTION_TEXT_SIZE, "a list, like [private] or [192.0.2.7, 10.0.0.0/8]");
		break;
	case HF_OPTION_SERVICE_ADDRESSES:
		snprintf(out, HF_OPTION_TEXT_SIZE, "a list, like [192.0.2.10/24%%eth0]");
		break;
	case HF_OPTION_NAMES:
		snprintf(out, HF_OPTION_TEXT_SIZE, "a list of names, like [client1.example.com]");
		break;
	case HF_OPTION_RULES:
		snprintf(out, HF_OPTION_TEXT_SIZE,
			 "a list of rules, like [{clients: [192.0.2.7]}, {clients: [private], access: ro}]");
		break;
	}
	return out;
}
