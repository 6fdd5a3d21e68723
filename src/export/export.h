/*
 * Exports: which directories are exported to which clients, and how a handle
 * leads to its file.
 *
 * hf_exports is the configured list, with the key that seals handles and the
 * cache of open files. hf_exports_load() replaces the list while others use the
 * old one: exports are reference-counted, and a directory that is in both lists
 * stays open. All functions may be called from every thread.
 *
 * An export is identified by its path and name. Its number, which is in every
 * handle, is a hash of these, so it does not change with the order of the list
 * or with a restart.
 *
 *	exports.c        the list: made from settings, replaced, searched
 *	export_table.c   exports by the numbers and names that locks have for them
 *	admit.c          which clients may use an export, and under which identity
 *	client_names.c   clients by host name and domain; client_names_system.c: as this host knows them
 *	groups.c         groups of users who are in more than a call has room for;
 *	                 groups_system.c: as this host knows them
 *	lookups.c        asks for names and groups on its threads, and remembers the answers
 *	handle.c         handles; seal.c, seal_key.c: their seal and its key
 *	path.c           the path of a handle's file on this host
 *	usage.c          counts calls by client and export
 *	local.c          local_locks: the lock table's "outside"
 *	local_file.c     the server's locks in one file in the kernel; local_ranges.c: their ranges
 *	local_closer.c   closes files on a thread that may wait
 *	sweeper.c        closes files that are no longer used
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/limit.h"
#include "tls/tls.h"
#include "vfs/file.h"
#include "vfs/identity.h"
#include "vfs/volume.h"

/* Settings: the configuration of one export; all members are borrowed. */

enum hf_client_rule_kind {
	HF_CLIENT_NETWORK,
	HF_CLIENT_HOST,    /* text is its name */
	HF_CLIENT_DOMAIN,  /* text is a pattern of names */
	HF_CLIENT_PRIVATE, /* hf_addr_is_private() */
	HF_CLIENT_ANY,
};

struct hf_client_rule {
	const char *text; /* as the operator wrote it, and as showmount -e shows it */
	enum hf_client_rule_kind kind;
	struct hf_network network;
};

enum hf_squash {
	HF_SQUASH_NONE,
	HF_SQUASH_ROOT,
	HF_SQUASH_ALL,
};

enum hf_local_locks {
	HF_LOCAL_LOCKS_AUTO,
	HF_LOCAL_LOCKS_ON,
	HF_LOCAL_LOCKS_OFF,
};

/* What NFS calls must come over */
enum hf_transport {
	HF_TRANSPORT_ANY,
	HF_TRANSPORT_TLS,
	HF_TRANSPORT_MTLS, /* TLS, and the client has a certificate */
};

/* What some of the clients of an export may do there */
struct hf_export_rule {
	const struct hf_client_rule *clients;
	size_t n_clients;
	bool has_names; /* a host or a domain is among the clients; the export knows, settings need not */
	bool read_only;
	enum hf_squash squash;
	uint32_t anon_uid;
	uint32_t anon_gid;
	bool secure; /* only callers with a port below 1024 */
};

struct hf_export_settings {
	const char *path;                   /* absolute, without a slash at the end */
	const char *name;                   /* the same form; the name that a client mounts */
	const struct hf_export_rule *rules; /* the first one that has the client applies */
	size_t n_rules;
	bool async; /* reply before names and attributes are on stable storage, against RFC 1813 */
	enum hf_local_locks local_locks;
	enum hf_transport transport;
	const char *const *identities; /* with MTLS: names in certificates that may use it; none: all */
	size_t n_identities;
};

/* An export; it never changes after its creation */

struct hf_export {
	_Atomic unsigned int n_refs;
	uint64_t id;
	struct hf_export_settings settings; /* its own copies */
	struct hf_client_names *names;      /* of hf_exports */
	struct hf_volume *volume;
};

struct hf_export *hf_export_ref(struct hf_export *export);
struct hf_export *hf_export_unref(struct hf_export *export);

HF_DEFINE_CLEANUP(struct hf_export *, hf_export_unref)

/* The effective setting. With AUTO it is OFF if asking the kernel for a lock on this file system may have to
 * wait for another host. */
enum hf_local_locks hf_export_local_locks(const struct hf_export *export);

/* All exports */

struct hf_exports;
struct hf_client_names;
struct hf_group_source;
struct hf_resolver;
struct hf_loop;
struct hf_seal_key;

struct hf_exports_options {
	const struct hf_seal_key *key;      /* that seals handles; NULL: that of state_dir */
	const char *state_dir;              /* the folder of handle.key, which the first start creates */
	size_t max_open_fds;                /* of the cache; 0: half of RLIMIT_NOFILE */
	struct hf_loop *loop;               /* its random bytes make the key */
	const struct hf_resolver *resolver; /* looks clients up by name; NULL: the system's */
	const struct hf_group_source
		*group_source; /* where groups of users are looked up; NULL: they are not */
};

/* Starts with an empty list. If the key file cannot be read or created, or is no key, logs the error and
 * fails. */
int hf_exports_new(struct hf_exports **exportsp, const struct hf_exports_options *options);
struct hf_exports *hf_exports_free(struct hf_exports *exports);

HF_DEFINE_CLEANUP(struct hf_exports *, hf_exports_free)

/* export/sweeper.c calls it about once a second: drops files that were not used for a while, and files of
 * former exports. hf_files_close() closes them. */
void hf_exports_sweep(struct hf_exports *exports);
/* Identifies the key that seals handles; never 0. */
uint64_t hf_exports_key_print(const struct hf_exports *exports);
void hf_exports_show_limits(struct hf_exports *exports,
			    struct hf_limit_use uses[HF_N_LIMITS]); /* of look-ups */
struct hf_files *hf_exports_files(struct hf_exports *exports);

/* A snapshot of the list, in the order of the configuration; the caller owns a reference to each entry. */
struct hf_export_list {
	size_t n;
	struct hf_export **items;
};

int hf_exports_list(struct hf_exports *exports, struct hf_export_list *listp);
void hf_export_list_clear(struct hf_export_list *list);

/* Makes another list from settings. Opens its directories, or finds them open, and may wait for a disk. A
 * directory that cannot be opened is logged and left out; *n_failedp counts these. < 0: out of memory. */
int hf_exports_prepare(struct hf_exports *exports, const struct hf_export_settings *settings, size_t n,
		       struct hf_export_list *listp, size_t *n_failedp);
/* Exports @list from now on and nothing else; does not block. Takes @list. < 0: out of memory, and the old
 * list stays. */
int hf_exports_publish(struct hf_exports *exports, struct hf_export_list *list);
/* So that groups of users can be looked up from @source, which outlives the threads that ask; it may come
 * before. < 0: out of memory. */
int hf_exports_prepare_groups(struct hf_exports *exports, const struct hf_group_source *source);
/* They are looked up from now on, if that was prepared, or not any more. Returns whether they were before. In
 * rights that were concluded before it changes nothing: publish a list after it. */
bool hf_exports_use_groups(struct hf_exports *exports, bool is_on);
/* The number of such changes. After a change, earlier conclusions about an export may be wrong. */
uint64_t hf_exports_count_changes(const struct hf_exports *exports);
/* hf_exports_prepare() and hf_exports_publish(). */
int hf_exports_load(struct hf_exports *exports, const struct hf_export_settings *settings, size_t n,
		    size_t *n_failedp);

/* Finds the export that contains @path, by name or by path; the longest match wins. *restp is the rest of
 * @path without surrounding slashes, "" for the export itself. NULL: none. */
struct hf_export *hf_exports_find(struct hf_exports *exports, const char *path, const char **restp);

/* Access */

enum { /* answers of hf_export_admit(); each protocol translates them for its clients */
	HF_ADMITTED = 0,
	HF_REFUSED_ADDRESS,   /* not in the clients of any rule */
	HF_REFUSED_PORT,      /* its rule is secure, and the port is 1024 or above */
	HF_REFUSED_TRANSPORT, /* of hf_export_admit_transport(): the call came over less than the export
				 demands */
	HF_REFUSED_IDENTITY,  /* the same: no name of the client's certificate is in identities */
	HF_REFUSED_UNKNOWN,   /* a name is being looked up: let the client try again */
	HF_REFUSED_EXPORT,    /* of hf_exports_admit(): there is no such export */
};

/* *rulep, if wanted, is the rule for this client; it belongs to the export, and is NULL if no rule has the
 * client. */
int hf_export_admit(const struct hf_export *export, const struct hf_addr *peer,
		    const struct hf_export_rule **rulep);
/* The same on a thread that may wait, and for the first call of a client: waits a moment for a look-up,
 * unless too many others do. */
int hf_exports_admit_patiently(struct hf_exports *exports, const struct hf_export *export,
			       const struct hf_addr *peer);
/* For calls that read or change files. @tls is NULL for a call in the clear. Ask hf_export_admit(), too. */
int hf_export_admit_transport(const struct hf_export *export, const struct hf_tls_peer *tls);
/* The same for the export with this number, as configured now. @name: in an export that demands a
 * certificate, the name by which it knows this one; else empty. Does not block. */
int hf_exports_admit_transport(struct hf_exports *exports, uint64_t export_id, const struct hf_tls_peer *tls,
			       char name[static HF_TLS_MAX_NAME + 1]);
/* Logs as hf_exports_log_refusal() does, if there is such an export. */
void hf_exports_log_refusal_in(struct hf_exports *exports, uint64_t export_id, const struct hf_addr *peer,
			       int refusal, const char *program, uint64_t now);
/* The same as hf_export_admit() for the export with this number, as configured now. Does not block. */
int hf_exports_admit(struct hf_exports *exports, uint64_t export_id, const struct hf_addr *peer);
/* Logs a refusal and its rule, at most once in a while for each host, export and rule. @now is the loop's
 * time. */
void hf_exports_log_refusal(struct hf_exports *exports, const struct hf_export *export,
			    const struct hf_addr *peer, int refusal, const char *program, uint64_t now);

/* The identity of a caller under the rule for its client. @given is NULL for a caller with AUTH_NONE. */
void hf_export_squash(const struct hf_export_rule *rule, const struct hf_identity *given,
		      struct hf_identity *identityp);

/* The same, with the groups that are looked up for the caller, if they are. -EAGAIN: they are being looked
 * up; with @may_wait, this lasts for a while. *identityp is for this thread, until the next call. */
int hf_exports_identify(struct hf_exports *exports, const struct hf_export_rule *rule,
			const struct hf_identity *given, bool may_wait, struct hf_identity *identityp);

/* Handles */

#define HF_HANDLE_MAX 64

struct hf_handle {
	uint8_t len;
	uint8_t bytes[HF_HANDLE_MAX];
};

/* Spreads handles over a table: a number of each, its seal. 0: it is too short to be one. */
uint64_t hf_handle_spread(struct hf_bytes handle);
void hf_exports_make_handle(struct hf_exports *exports, const struct hf_export *export,
			    const struct hf_file_id *id, struct hf_handle *handlep);

/* Did this server make the handle, and for which export? Does not look at the file; neither file nor export
 * need exist. */
bool hf_exports_read_handle(const struct hf_exports *exports, struct hf_bytes handle, uint64_t *export_idp);

/* Makes the handle under which clients of another export know the same file. false: this server did not make
 * @handle. */
bool hf_exports_rehandle(const struct hf_exports *exports, struct hf_bytes handle, uint64_t export_id,
			 struct hf_handle *handlep);

/* The volume of a handle's file (a reference), and the file's inode number. NULL: this server did not make
 * the handle, or its export is gone. Does not look at the file. */
struct hf_volume *hf_exports_volume_of(struct hf_exports *exports, struct hf_bytes handle, uint64_t *inodep);

enum { /* answers of hf_exports_resolve() */
	HF_RESOLVED = 0,
	HF_HANDLE_BAD,   /* this server did not make it */
	HF_HANDLE_STALE, /* the export or the file is gone */
};

/* The export and the file of a handle. With @cached: -EAGAIN if the file is not already open. */
int hf_exports_resolve(struct hf_exports *exports, struct hf_bytes handle, bool cached,
		       struct hf_export **exportp, struct hf_file **filep);

#define HF_EXPORT_MAX_PATH 4096

/* The path of a file on this host; it need not be UTF-8. False: unknown. With @may_wait false it does not
 * wait for a disk, and gives the last path of a directory that was removed. */
bool hf_export_path_of(const struct hf_export *export, const struct hf_file *file, bool may_wait, char *out,
		       size_t size);

/* Watches the file of a handle. Returns the number of the watch, or 0. May block. */
struct hf_watch;
int hf_exports_watch(struct hf_exports *exports, struct hf_bytes handle, struct hf_watch *watch);

/* For the lock manager: may this caller lock this file? */
enum {
	HF_CHECK_OK = 0,
	HF_CHECK_STALE,
	HF_CHECK_ACCESS,
	HF_CHECK_READ_ONLY,
	HF_CHECK_NOT_REGULAR,
	HF_CHECK_UNKNOWN, /* a name, or groups, are being looked up: let the client try again */
};

/* May block. On HF_CHECK_OK *filep, if wanted, is a reference to the file: hf_file_pin() gives the open file
 * description that owns local locks. *exportp likewise. < 0: -errno. */
int hf_export_check_handle(struct hf_exports *exports, struct hf_bytes handle, const struct hf_addr *peer,
			   const struct hf_identity *given, bool want_write, struct hf_export **exportp,
			   struct hf_file **filep);
