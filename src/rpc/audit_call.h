/* The beginning of each line of the audit log that is about a call. */
#pragma once

#include "base/audit.h"
#include "rpc/call.h"

/* The time and @op, a constant, then the caller: "client", and "uid" and "gid" if it names a user. */
void hf_audit_call_begin(struct hf_audit_line *line, const char *op, const struct hf_rpc_call *call);
