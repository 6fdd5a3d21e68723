/*
 * What is written about single calls, if the operator wants it: slow calls in the log; in the audit log
 * changes of names and rights, and calls that were refused. Without that, hf_nfs3 has no recorder, and a call
 * costs one comparison.
 *
 * All loops use one recorder.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/log.h"

struct hf_audit;
struct hf_nfs3_op;

struct hf_nfs3_recorder {
	/* Home sets these. */
	_Atomic(struct hf_audit *) audit; /* NULL: there is no audit log */
	_Atomic(uint64_t) slow_ns;        /* 0: slow calls are not logged */
	pthread_mutex_t lock;             /* of what follows */
	struct hf_log_limit slow_log;
};

void hf_nfs3_recorder_init(struct hf_nfs3_recorder *recorder);
void hf_nfs3_recorder_deinit(struct hf_nfs3_recorder *recorder);

/* On the loop, when the call is done, and before its reply leaves. */
void hf_nfs3_record(struct hf_nfs3_recorder *recorder, struct hf_nfs3_op *op);
