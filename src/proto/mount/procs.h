/* Procedures of MOUNT in files of their own. */
#pragma once

#include "rpc/call.h"

void hf_mount_proc_mnt(void *service, struct hf_rpc_call *call);
