#include "daemon/call_log.h"

#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/config.h"
#include "loop/loop.h"
#include "proto/mount/mount.h"
#include "proto/nfs3/nfs3.h"

/* Of the audit log; NULL: it is off. */
static const char *path_of(const struct hf_call_log *log)
{
	return log && log->audit ? hf_audit_path(log->audit) : NULL;
}

/* A call costs one comparison if nothing is to be written about calls. */
void hf_call_log_serve(struct hf_call_log *log, const struct hf_config *config, struct hf_nfs3 *nfs,
		       struct hf_mount *mount)
{
	uint64_t slow_ns = (uint64_t)config->log.slow_ms * HF_NS_PER_MS;
	struct hf_audit *audit = path_of(log) ? log->audit : NULL;

	atomic_store_explicit(&log->recorder.slow_ns, slow_ns, memory_order_relaxed);
	atomic_store_explicit(&log->recorder.audit, audit, memory_order_release);
	atomic_store_explicit(&mount->audit, audit, memory_order_release);
	atomic_store_explicit(&nfs->recorder, slow_ns || audit ? &log->recorder : NULL, memory_order_release);
}

void hf_call_log_reopen(struct hf_call_log *log)
{
	if (log->audit)
		hf_audit_reopen(log->audit);
}

/* Another configuration */

int hf_call_log_open(const struct hf_call_log *log, const struct hf_config *config,
		     struct hf_call_log_change *change)
{
	const char *path = config->log.audit, *before = path_of(log);
	int r;

	*change = (struct hf_call_log_change){ .is_other_file = strcmp(path, before ? before : "") != 0 };
	if (!change->is_other_file || !*path)
		return 0;
	r = hf_audit_file_open(&change->file, path);
	if (r < 0)
		hf_log_error("cannot open the audit log", "file=%s error=%s", path, strerror(-r));
	return r;
}

int hf_call_log_start(struct hf_call_log *log, struct hf_call_log_change *change)
{
	int r = 0;

	if (change->file && !log->audit)
		r = hf_audit_new(&log->audit);
	return r == 0 && change->file ? hf_audit_file_start(change->file, log->audit) : r;
}

void hf_call_log_take(struct hf_call_log *log, struct hf_call_log_change *change)
{
	if (change->is_other_file)
		hf_audit_turn_to(log->audit, change->file);
	*change = (struct hf_call_log_change){ 0 };
}

void hf_call_log_drop(struct hf_call_log_change *change)
{
	hf_audit_file_close(change->file);
	*change = (struct hf_call_log_change){ 0 };
}

/* Making and freeing */

int hf_call_log_init(struct hf_call_log *log, const struct hf_config *config)
{
	hf_cleanup(hf_call_log_drop) struct hf_call_log_change change = { 0 };
	int r;

	hf_nfs3_recorder_init(&log->recorder);
	r = hf_call_log_open(log, config, &change);
	if (r == 0)
		r = hf_call_log_start(log, &change);
	if (r == 0)
		hf_call_log_take(log, &change);
	return r;
}

void hf_call_log_deinit(struct hf_call_log *log)
{
	hf_nfs3_recorder_deinit(&log->recorder);
	hf_audit_close(log->audit);
}
