/* The tables of procedures, for the versions 2 to 4 of the program. */
#include "base/macros.h"
#include "proto/portmap/rpcbind.h"
#include "proto/portmap/rpcbind_procs.h"

static const struct hf_rpc_proc procs2[] = {
	[HF_PMAPPROC_NULL] = { .name = "NULL", .handle = hf_pmap_proc_null },
	[HF_PMAPPROC_SET] = { .name = "SET", .handle = hf_pmap_proc_set },
	[HF_PMAPPROC_UNSET] = { .name = "UNSET", .handle = hf_pmap_proc_unset },
	[HF_PMAPPROC_GETPORT] = { .name = "GETPORT", .handle = hf_pmap_proc_getport },
	[HF_PMAPPROC_DUMP] = { .name = "DUMP", .handle = hf_pmap_proc_dump, .is_list = true },
	/* no CALLIT */
};

static const struct hf_rpc_proc procs34[] = {
	[HF_RPCBPROC_NULL] = { .name = "NULL", .handle = hf_pmap_proc_null },
	[HF_RPCBPROC_SET] = { .name = "SET", .handle = hf_rpcb_proc_set },
	[HF_RPCBPROC_UNSET] = { .name = "UNSET", .handle = hf_rpcb_proc_unset },
	[HF_RPCBPROC_GETADDR] = { .name = "GETADDR", .handle = hf_rpcb_proc_getaddr },
	[HF_RPCBPROC_DUMP] = { .name = "DUMP", .handle = hf_rpcb_proc_dump, .is_list = true },
	/* no CALLIT or BCAST */
	[HF_RPCBPROC_GETTIME] = { .name = "GETTIME", .handle = hf_rpcb_proc_gettime },
	[HF_RPCBPROC_UADDR2TADDR] = { .name = "UADDR2TADDR", .handle = hf_rpcb_proc_uaddr2taddr },
	[HF_RPCBPROC_TADDR2UADDR] = { .name = "TADDR2UADDR", .handle = hf_rpcb_proc_taddr2uaddr },
	[HF_RPCBPROC_GETVERSADDR] = { .name = "GETVERSADDR", .handle = hf_rpcb_proc_getversaddr },
	/* no INDIRECT */
	[HF_RPCBPROC_GETADDRLIST] = { .name = "GETADDRLIST",
				      .handle = hf_rpcb_proc_getaddrlist,
				      .is_list = true },
	[HF_RPCBPROC_GETSTAT] = { .name = "GETSTAT", .handle = hf_rpcb_proc_getstat, .is_list = true },
};

static const struct hf_rpc_version versions[] = {
	{ .version = 2, .n_procs = HF_ARRAY_SIZE(procs2), .procs = procs2 },
	{ .version = 3, .n_procs = HF_N_RPCB3PROCS, .procs = procs34 },
	{ .version = 4, .n_procs = HF_ARRAY_SIZE(procs34), .procs = procs34 },
};

const struct hf_rpc_program hf_rpcbind_program = {
	.program = HF_PORTMAP_PROGRAM,
	.name = "portmap",
	.n_versions = HF_ARRAY_SIZE(versions),
	.versions = versions,
	.max_request = HF_RPCBIND_MAX_REQUEST,
	.at_home = true,
};
