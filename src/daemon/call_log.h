/*
 * What is written about single NFS and MOUNT calls, as the configuration has it: slow calls (log.slow_ms) and
 * the audit log (log.audit). A reload changes both.
 */
#pragma once

#include "base/audit.h"
#include "proto/nfs3/record.h"

struct hf_config;
struct hf_mount;
struct hf_nfs3;

struct hf_call_log {
	struct hf_nfs3_recorder recorder;
	struct hf_audit *audit; /* NULL: there was none in this run. It stays when it is turned off: a call on
				   another loop may still use it */
	char *path;             /* of the file in use; NULL: none */
};

/* What a reload changes there. */
struct hf_call_log_change {
	bool is_other_file;        /* than the one in use */
	struct hf_audit *audit;    /* the first one of this run */
	struct hf_audit_file file; /* a further one */
	char *path;                /* NULL: none from now on */
};

/* Opens the audit log, if there is one. An operator who wants it does not want a server without it: -errno,
 * and the server's log says why. */
int hf_call_log_init(struct hf_call_log *log, const struct hf_config *config);
void hf_call_log_deinit(struct hf_call_log *log);
/* The service's calls are written there from now on. */
void hf_call_log_serve(struct hf_call_log *log, const struct hf_config *config, struct hf_nfs3 *nfs,
		       struct hf_mount *mount);
void hf_call_log_reopen(struct hf_call_log *log); /* its file may have been moved away */

/* Another configuration. prepare() runs on any thread, and opens its file; -errno: it cannot, and the
 * server's log says why. take() runs on the home loop and leaves nothing in @change; without it, drop() frees
 * what is there. */
int hf_call_log_prepare(struct hf_call_log *log, const struct hf_config *config,
			struct hf_call_log_change *change);
void hf_call_log_take(struct hf_call_log *log, struct hf_call_log_change *change);
void hf_call_log_drop(struct hf_call_log_change *change);
