/*
 * The configuration: typed values of every key. It is made once, from the
 * embedded defaults, then a YAML file, then --set and --export; each overrides
 * the one before. A hf_config that exists is valid: every value is within its
 * bounds, every list entry is parsed, and every exported directory existed.
 *
 * options.c has the one table of keys, types, defaults, bounds and texts. The
 * type decides how a value is stored: a whole number as int64_t, a word as its
 * enum, true or false as bool, a text as char * that is never NULL.
 *
 * A reload loads a second hf_config beside the first, takes over the values that
 * may change while the server runs, and logs hf_config_list_fixed_changes().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "cluster/address.h"

struct hf_args;

#define HF_CONFIG_ERROR_SIZE  1024    /* room for any message below */
#define HF_CONFIG_MAX_BYTES   1048576 /* of a file */
#define HF_CONFIG_MAX_EXPORTS 1000
#define HF_CONFIG_MAX_ITEMS   256 /* of a list such as server.listen or exports.clients */

enum hf_config_portmap {
	HF_CONFIG_PORTMAP_AUTO,
	HF_CONFIG_PORTMAP_EMBEDDED,
	HF_CONFIG_PORTMAP_SYSTEM,
	HF_CONFIG_PORTMAP_OFF,
};

enum hf_config_access {
	HF_CONFIG_ACCESS_RW,
	HF_CONFIG_ACCESS_RO,
};

enum hf_config_squash {
	HF_CONFIG_SQUASH_NONE,
	HF_CONFIG_SQUASH_ROOT,
	HF_CONFIG_SQUASH_ALL,
};

enum hf_config_local_locks {
	HF_CONFIG_LOCAL_LOCKS_AUTO,
	HF_CONFIG_LOCAL_LOCKS_ON,
	HF_CONFIG_LOCAL_LOCKS_OFF,
};

enum hf_config_transport {
	HF_CONFIG_TRANSPORT_ANY,
	HF_CONFIG_TRANSPORT_TLS,
	HF_CONFIG_TRANSPORT_MTLS,
};

enum hf_config_backend {
	HF_CONFIG_BACKEND_MEMORY,
	HF_CONFIG_BACKEND_LMDB,
	HF_CONFIG_BACKEND_POSTGRES,
};

enum hf_config_durability {
	HF_CONFIG_DURABILITY_NONE,
	HF_CONFIG_DURABILITY_PROCESS,
	HF_CONFIG_DURABILITY_MACHINE,
};

enum hf_config_after_crash {
	HF_CONFIG_AFTER_CRASH_RECLAIM,
	HF_CONFIG_AFTER_CRASH_CONTINUE,
};

enum hf_config_grace {
	HF_CONFIG_GRACE_AUTO,
	HF_CONFIG_GRACE_ALWAYS,
	HF_CONFIG_GRACE_NEVER,
};

enum hf_config_allow_mon {
	HF_CONFIG_ALLOW_MON_LOCAL,
	HF_CONFIG_ALLOW_MON_EXPORTS,
	HF_CONFIG_ALLOW_MON_ANY,
};

/* An address to listen on */
struct hf_config_address {
	char *text; /* as the operator wrote it */
	struct hf_addr addr;
};

struct hf_config_addresses {
	struct hf_config_address *items;
	size_t n;
};

/* Which clients may use an export */
enum hf_config_client_kind {
	HF_CONFIG_CLIENT_NETWORK,
	HF_CONFIG_CLIENT_HOST,    /* by name */
	HF_CONFIG_CLIENT_DOMAIN,  /* by a pattern of names */
	HF_CONFIG_CLIENT_PRIVATE, /* hf_addr_is_private() */
	HF_CONFIG_CLIENT_ANY,
};

struct hf_config_client {
	char *text; /* as the operator wrote it */
	enum hf_config_client_kind kind;
	struct hf_network network; /* of HF_CONFIG_CLIENT_NETWORK */
};

struct hf_config_clients {
	struct hf_config_client *items;
	size_t n;
};

/* What some of the clients of an export may do there; see struct hf_config_export */
struct hf_config_rule {
	struct hf_config_clients clients;
	enum hf_config_access access;
	enum hf_config_squash squash;
	int64_t anon_uid;
	int64_t anon_gid;
	bool secure;
};

struct hf_config_rules {
	struct hf_config_rule *items;
	size_t n;
};

/* An address of the service, which a node of the cluster holds while it serves */
struct hf_config_service_address {
	char *text; /* as the operator wrote it */
	struct hf_service_address address;
};

struct hf_config_service_addresses {
	struct hf_config_service_address *items;
	size_t n;
};

/* A name in a client's certificate */
struct hf_config_name {
	char *text;
};

struct hf_config_names {
	struct hf_config_name *items;
	size_t n;
};

struct hf_config_export {
	char *path; /* absolute, without empty, "." or ".." parts, without a slash at the end */
	char *name; /* the same form; the path if no name was given, never empty */
	struct hf_config_clients clients; /* of an export without rules */
	enum hf_config_access access;     /* this and the next four: also the defaults of the rules */
	enum hf_config_squash squash;
	int64_t anon_uid;
	int64_t anon_gid;
	bool secure;
	struct hf_config_rules rules; /* the first one that has the client applies; none: the keys above */
	enum hf_config_local_locks local_locks;
	bool sync;
	enum hf_config_transport transport;
	struct hf_config_names identities;
};

struct hf_config_exports {
	struct hf_config_export *items;
	size_t n;
};

struct hf_config {
	struct {
		char *name; /* empty: the service's name in a cluster, otherwise the host's */
		struct hf_config_addresses listen;
		int64_t port;
		enum hf_config_portmap portmap;
		int64_t portmap_port;
		char *state_dir; /* absolute */
		char *user;      /* empty: do not change the user */
		int64_t threads; /* 0: number of cores */
		bool manage_gids;
	} server;
	struct hf_config_exports exports;
	struct {
		enum hf_config_backend backend;
		char *postgres;
		enum hf_config_durability lock_durability;
	} store;
	struct {
		int64_t window_seconds;
		int64_t nlm_grace_seconds;   /* -1: window_seconds */
		int64_t smb_durable_seconds; /* -1: window_seconds */
		enum hf_config_grace grace;
		bool early_end;
		int64_t notify_timeout_ms;
		int64_t notify_parallel;
		int64_t notify_retry_seconds;
		int64_t max_clients;
		int64_t max_clients_per_address;
		enum hf_config_after_crash after_crash;
		int64_t release_silent_seconds; /* 0: never */
	} recovery;
	struct {
		enum hf_config_allow_mon allow_mon;
		bool secure;
	} nsm;
	struct {
		char *service; /* empty: no cluster; hf_config_has_cluster() asks */
		char *node;    /* empty: the host's name */
		int64_t lease_seconds;
		struct hf_config_service_addresses addresses; /* empty: another program moves them */
		char *fence;                                  /* empty: none */
		bool automatic;
	} cluster;
	struct {
		char *certificate; /* empty: no TLS */
		char *key;
		char *client_ca; /* empty: clients have no certificates */
		int64_t grace_seconds;
	} tls;
	struct {
		char *listen;      /* hf_endpoint_parse() reads it */
		char *certificate; /* empty: plain HTTP */
		char *key;
		char *token_file;
		char *view_token_file; /* empty: none */
	} api;
	struct {
		bool enabled;
		bool per_client;
	} metrics;
	struct {
		enum hf_log_level level;
		enum hf_log_format format;
		int64_t slow_ms; /* 0: off */
		char *audit;     /* empty: none */
	} log;
};

enum { /* answers of the loaders */
	HF_CONFIG_OK = 0,
	HF_CONFIG_E_WRONG, /* @error says in one line where and what is wrong, and what would be right */
};

enum {                      /* flags of hf_config_load_text() */
	HF_CONFIG_PURE = 1, /* do not examine this host: directories and users may be missing */
};

/* Making and freeing. The loaders give a new hf_config, or leave *configp alone and fill @error, without
 * newline and without the program's name. They open only the file and change nothing. */
int hf_config_load(struct hf_config **configp, const struct hf_args *args, char *error, size_t error_size);
int hf_config_load_text(struct hf_config **configp, const char *file, const void *text, size_t len, int flags,
			char *error, size_t error_size);
void hf_config_free(struct hf_config *config);
HF_DEFINE_CLEANUP(struct hf_config *, hf_config_free)

static inline bool hf_config_has_cluster(const struct hf_config *config)
{
	return *config->cluster.service != '\0';
}

/* The keys of an export without rules, as its only rule; the clients are borrowed. */
static inline struct hf_config_rule hf_config_own_rule(const struct hf_config_export *export)
{
	return (struct hf_config_rule){
		.clients = export->clients,
		.access = export->access,
		.squash = export->squash,
		.anon_uid = export->anon_uid,
		.anon_gid = export->anon_gid,
		.secure = export->secure,
	};
}

/* Output: YAML that loads to the same configuration. */
void hf_config_print(const struct hf_config *config, FILE *out);

/* Reload: takes the values that may change while the server runs, but for those of exports. @reloaded has the
 * texts of before. */
void hf_config_take_live(struct hf_config *config, struct hf_config *reloaded);
/* Reload: the keys that differ but cannot change while the server runs, as "server.port,server.user" for the
 * log. Returns their number; @out is cut if it does not fit. */
size_t hf_config_list_fixed_changes(char *out, size_t size, const struct hf_config *old,
				    const struct hf_config *new);
