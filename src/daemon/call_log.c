#include "daemon/call_log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/config.h"
#include "loop/loop.h"
#include "proto/mount/mount.h"
#include "proto/nfs3/nfs3.h"

static int failed(const char *path, int r)
{
	hf_log_error("cannot open the audit log", "file=%s error=%s", path, strerror(-r));
	return r;
}

static const char *wanted(const struct hf_config *config)
{
	return *config->log.audit ? config->log.audit : NULL;
}

/* A call costs one comparison if nothing is to be written about calls. */
void hf_call_log_serve(struct hf_call_log *log, const struct hf_config *config, struct hf_nfs3 *nfs,
		       struct hf_mount *mount)
{
	uint64_t slow_ns = (uint64_t)config->log.slow_ms * HF_NS_PER_MS;
	struct hf_audit *audit = log->path ? log->audit : NULL;

	atomic_store_explicit(&log->recorder.slow_ns, slow_ns, memory_order_relaxed);
	atomic_store_explicit(&log->recorder.audit, audit, memory_order_release);
	atomic_store_explicit(&mount->audit, audit, memory_order_release);
	atomic_store_explicit(&nfs->recorder, slow_ns || audit ? &log->recorder : NULL, memory_order_release);
}

void hf_call_log_reopen(struct hf_call_log *log)
{
	if (log->path)
		hf_audit_reopen(log->audit);
}

/* Another configuration */

static bool is_other(const char *one, const char *other)
{
	return one && other ? strcmp(one, other) != 0 : one != other;
}

static int open_file(struct hf_call_log *log, const char *path, struct hf_call_log_change *change)
{
	int r;

	change->path = strdup(path);
	if (!change->path)
		r = -ENOMEM;
	else if (log->audit)
		r = hf_audit_file_open(&change->file, path);
	else
		r = hf_audit_open(&change->audit, path);
	return r < 0 ? failed(path, r) : 0;
}

int hf_call_log_prepare(struct hf_call_log *log, const struct hf_config *config,
			struct hf_call_log_change *change)
{
	const char *path = wanted(config);

	*change = (struct hf_call_log_change){ .is_other_file = is_other(log->path, path), .file.fd = -1 };
	return change->is_other_file && path ? open_file(log, path, change) : 0;
}

void hf_call_log_take(struct hf_call_log *log, struct hf_call_log_change *change)
{
	if (change->is_other_file) {
		if (change->audit)
			log->audit = change->audit;
		else
			hf_audit_turn_to(log->audit, &change->file);
		free(log->path);
		log->path = change->path;
	}
	*change = (struct hf_call_log_change){ .file.fd = -1 };
}

void hf_call_log_drop(struct hf_call_log_change *change)
{
	hf_audit_close(change->audit);
	hf_audit_file_close(&change->file);
	free(change->path);
	*change = (struct hf_call_log_change){ .file.fd = -1 };
}

/* Life */

int hf_call_log_init(struct hf_call_log *log, const struct hf_config *config)
{
	struct hf_call_log_change change;
	int r;

	hf_nfs3_recorder_init(&log->recorder);
	r = hf_call_log_prepare(log, config, &change);
	if (r == 0)
		hf_call_log_take(log, &change);
	else
		hf_call_log_drop(&change);
	return r;
}

void hf_call_log_deinit(struct hf_call_log *log)
{
	hf_nfs3_recorder_deinit(&log->recorder);
	hf_audit_close(log->audit);
	free(log->path);
}
