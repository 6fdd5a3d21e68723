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
	struct hf_audit *audit; /* NULL: it was off in all of this run. It stays when it is turned off: a call
				   on another loop may still use it */
};

/* What a reload changes there. */
struct hf_call_log_change {
	bool is_other_file; /* than the one in use, or none where there was one */
	struct hf_audit_file *file;
};

/* Opens the audit log, if there is one. An operator who wants it does not want a server without it: -errno,
 * and the server's log says why. */
int hf_call_log_init(struct hf_call_log *log, const struct hf_config *config);
void hf_call_log_deinit(struct hf_call_log *log);
/* The service's calls are written there from now on. */
void hf_call_log_serve(struct hf_call_log *log, const struct hf_config *config, struct hf_nfs3 *nfs,
		       struct hf_mount *mount);
void hf_call_log_reopen(struct hf_call_log *log); /* its file may have been moved away */

/* Another configuration. open() runs on any thread; -errno: its file cannot be opened, and the server's log
 * says why.
 * @log: NULL where no calls are served yet. start() and take() run on the home loop; start() is the last step
 * that may fail. take() leaves nothing in @change; without it, drop() frees what is there. */
int hf_call_log_open(const struct hf_call_log *log, const struct hf_config *config,
		     struct hf_call_log_change *change);
int hf_call_log_start(struct hf_call_log *log, struct hf_call_log_change *change);
void hf_call_log_take(struct hf_call_log *log, struct hf_call_log_change *change);
void hf_call_log_drop(struct hf_call_log_change *change);
