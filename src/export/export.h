/*
 * What is shared with whom, and the way from a handle that a client sends to
 * the file it is for.
 *
 * hf_exports is the list as configured, together with the key that seals the
 * handles and the cache of open files. hf_exports_load() puts another list in
 * its place while others use the old one: an export is counted, and a directory
 * that is shared before and after stays open. All of it may be used from every
 * thread.
 *
 * An export is known by its path and name: its number, which is in every
 * handle, is a hash of these, so it does not change with the order of the list
 * or with a restart.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "vfs/file.h"
#include "vfs/identity.h"
#include "vfs/volume.h"

/* Settings: what the configuration says of one export; all borrowed. */

enum hf_client_rule_kind {
	HF_CLIENT_NETWORK,
	HF_CLIENT_PRIVATE, /* hf_addr_is_private() */
	HF_CLIENT_ANY,
};

struct hf_client_rule {
	const char *text; /* as the operator wrote it, and as a client sees it in showmount -e */
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

struct hf_export_settings {
	const char *path; /* absolute, without a slash at the end */
	const char *name; /* the same; what a client mounts */
	const struct hf_client_rule *clients;
	size_t n_clients;
	bool read_only;
	enum hf_squash squash;
	uint32_t anon_uid;
	uint32_t anon_gid;
	bool secure; /* only callers with a port below 1024 */
	bool async;  /* answer before names and attributes are on stable storage, against RFC 1813 */
	enum hf_local_locks local_locks;
};

/* An export, never changed once it is made */

struct hf_export {
	_Atomic unsigned int n_refs;
	uint64_t id;
	struct hf_export_settings settings; /* its own copies */
	struct hf_volume *volume;
};

struct hf_export *hf_export_ref(struct hf_export *export);
struct hf_export *hf_export_unref(struct hf_export *export);

HF_DEFINE_CLEANUP(struct hf_export *, hf_export_unref)

/* Where they are automatic: OFF where asking the kernel for a lock may have to wait for somebody else. */
enum hf_local_locks hf_export_local_locks(const struct hf_export *export);

/* All of them */

struct hf_exports;
struct hf_loop;

struct hf_exports_options {
	const char *state_dir; /* where the key is kept: handle.key, made at the first start */
	size_t max_open_fds;   /* of the cache; 0: half of what RLIMIT_NOFILE allows */
	struct hf_loop *loop;  /* its randomness makes the key */
};

/* An empty list. A key file that cannot be read or made, or is no key, is an error and in the log. */
int hf_exports_new(struct hf_exports **exportsp, const struct hf_exports_options *options);
struct hf_exports *hf_exports_free(struct hf_exports *exports);

HF_DEFINE_CLEANUP(struct hf_exports *, hf_exports_free)

/* About once a second, on a thread that may wait: closes files that nobody used for a while, and those of
 * what is no longer shared. */
void hf_exports_sweep(struct hf_exports *exports);
uint64_t hf_exports_key_print(const struct hf_exports *exports); /* of the key that seals handles; never 0 */
struct hf_files *hf_exports_files(struct hf_exports *exports);

/* A list as it is now, in the order of the configuration; each entry is a reference of the caller's. */
struct hf_export_list {
	size_t n;
	struct hf_export **items;
};

int hf_exports_list(struct hf_exports *exports, struct hf_export_list *listp);
void hf_export_list_clear(struct hf_export_list *list);

/* Another list, from settings: its directories are opened, or found open, which may have to wait for a disk.
 * One that cannot be opened is logged and left out; *n_failedp counts those. < 0: want of memory. */
int hf_exports_prepare(struct hf_exports *exports, const struct hf_export_settings *settings, size_t n,
		       struct hf_export_list *listp, size_t *n_failedp);
/* Shares this from now on, and nothing else; waits for nothing. @list is taken. < 0: want of memory, and the
 * old list stays. */
int hf_exports_share(struct hf_exports *exports, struct hf_export_list *list);
/* How often that was done: what was found out about an export before may not be true any more. */
uint64_t hf_exports_count_changes(const struct hf_exports *exports);
/* Both. */
int hf_exports_load(struct hf_exports *exports, const struct hf_export_settings *settings, size_t n,
		    size_t *n_failedp);

/* The export that @path is in by name or by path, the longest match; *restp is what is left, without slashes
 * around it, and "" for the export itself. NULL: none. */
struct hf_export *hf_exports_find(struct hf_exports *exports, const char *path, const char **restp);

/* Who may */

enum { /* answers of hf_export_admit(); what they mean to a client is the protocol's */
	HF_ADMITTED = 0,
	HF_REFUSED_ADDRESS, /* not in clients */
	HF_REFUSED_PORT,    /* secure, and the port is 1024 or above */
	HF_REFUSED_EXPORT,  /* of hf_exports_admit(): it is not shared */
};

int hf_export_admit(const struct hf_export *export, const struct hf_addr *peer);
/* The same for the export of a number, as it is shared now. Waits for nothing. */
int hf_exports_admit(struct hf_exports *exports, uint64_t export_id, const struct hf_addr *peer);
/* Writes a refusal to the log, with the rule, once in a while for one host, export and rule. @now is the
 * loop's. */
void hf_exports_log_refusal(struct hf_exports *exports, const struct hf_export *export,
			    const struct hf_addr *peer, int refusal, const char *program, uint64_t now);

/* Who a caller is here: NULL for one who does not say (AUTH_NONE). */
void hf_export_squash(const struct hf_export *export, const struct hf_identity *claimed,
		      struct hf_identity *identityp);

/* Handles */

#define HF_HANDLE_MAX 64

struct hf_handle {
	uint8_t len;
	uint8_t bytes[HF_HANDLE_MAX];
};

void hf_exports_make_handle(struct hf_exports *exports, const struct hf_export *export,
			    const struct hf_file_id *id, struct hf_handle *handlep);

/* Did we make it, and for which export? Asks nothing of the file, nor whether there still is one. */
bool hf_exports_read_handle(const struct hf_exports *exports, struct hf_bytes handle, uint64_t *export_idp);

/* The handle by which clients of another export know the same file. False: it is not one of ours. */
bool hf_exports_rehandle(const struct hf_exports *exports, struct hf_bytes handle, uint64_t export_id,
			 struct hf_handle *handlep);

/* The tree that the file of a handle is in, a reference, and the file's number there; NULL: it is not one of
 * ours, or its export is no more. Asks nothing of the file, either. */
struct hf_volume *hf_exports_volume_of(struct hf_exports *exports, struct hf_bytes handle, uint64_t *inodep);

enum { /* answers of hf_exports_resolve() */
	HF_RESOLVED = 0,
	HF_HANDLE_BAD,   /* not one of ours */
	HF_HANDLE_STALE, /* the export or the file is no more */
};

/* The export and the file of a handle. @cached: -EAGAIN where the file is not open already. */
int hf_exports_resolve(struct hf_exports *exports, struct hf_bytes handle, bool cached,
		       struct hf_export **exportp, struct hf_file **filep);

/* Watches the file of a handle: the number of the watch, or 0. May block. */
struct hf_watch;
int hf_exports_watch(struct hf_exports *exports, struct hf_bytes handle, struct hf_watch *watch);

/* For the lock manager: may this caller lock this file? */
enum {
	HF_CHECK_OK = 0,
	HF_CHECK_STALE,
	HF_CHECK_ACCESS,
	HF_CHECK_READ_ONLY,
	HF_CHECK_NOT_REGULAR,
};

/* May block. On HF_CHECK_OK *filep, if wanted, is a reference of the file: hf_file_pin() gives the open file
 * description that local locks belong to. *exportp likewise. < 0: -errno. */
int hf_export_check_handle(struct hf_exports *exports, struct hf_bytes handle, const struct hf_addr *peer,
			   const struct hf_identity *claimed, bool want_write, struct hf_export **exportp,
			   struct hf_file **filep);
