/* The procedures of MOUNT that have a file of their own. */
#pragma once

#include "rpc/call.h"

void hf_mount_proc_mnt(void *service, struct hf_rpc_call *call);
