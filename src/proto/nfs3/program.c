/* The tables of procedures: how each is served, and which replies are cached because the call must not run
 * twice. */
#include "base/macros.h"
#include "loop/loop.h"
#include "proto/nfs3/nfs3.h"
#include "proto/nfs3/op.h"

static const struct hf_nfs3_proc procs[HF_N_NFSPROC3] = {
	[NFSPROC3_GETATTR] = { "GETATTR", hf_nfs3_proc_getattr, .on_loop = true },
	[NFSPROC3_SETATTR] = { "SETATTR", hf_nfs3_proc_setattr, .n_unknown = 2 },
	[NFSPROC3_LOOKUP] = { "LOOKUP", hf_nfs3_proc_lookup, .on_loop = true },
	[NFSPROC3_ACCESS] = { "ACCESS", hf_nfs3_proc_access, .on_loop = true },
	[NFSPROC3_READLINK] = { "READLINK", hf_nfs3_proc_readlink },
	[NFSPROC3_READ] = { "READ", hf_nfs3_proc_read, .on_loop = true },
	[NFSPROC3_WRITE] = { "WRITE", hf_nfs3_proc_write },
	[NFSPROC3_CREATE] = { "CREATE", hf_nfs3_proc_create, .n_unknown = 2 },
	[NFSPROC3_MKDIR] = { "MKDIR", hf_nfs3_proc_mkdir, .n_unknown = 2 },
	[NFSPROC3_SYMLINK] = { "SYMLINK", hf_nfs3_proc_symlink, .n_unknown = 2 },
	[NFSPROC3_MKNOD] = { "MKNOD", hf_nfs3_proc_mknod, .n_unknown = 2 },
	[NFSPROC3_REMOVE] = { "REMOVE", hf_nfs3_proc_remove, .n_unknown = 2 },
	[NFSPROC3_RMDIR] = { "RMDIR", hf_nfs3_proc_rmdir, .n_unknown = 2 },
	[NFSPROC3_RENAME] = { "RENAME", hf_nfs3_proc_rename, .n_unknown = 4 },
	[NFSPROC3_LINK] = { "LINK", hf_nfs3_proc_link, .n_unknown = 3 },
	[NFSPROC3_READDIR] = { "READDIR", hf_nfs3_proc_readdir, .on_loop = true },
	[NFSPROC3_READDIRPLUS] = { "READDIRPLUS", hf_nfs3_proc_readdirplus, .on_loop = true },
	[NFSPROC3_FSSTAT] = { "FSSTAT", hf_nfs3_proc_fsstat },
	[NFSPROC3_FSINFO] = { "FSINFO", hf_nfs3_proc_fsinfo, .on_loop = true },
	[NFSPROC3_PATHCONF] = { "PATHCONF", hf_nfs3_proc_pathconf },
	[NFSPROC3_COMMIT] = { "COMMIT", hf_nfs3_proc_commit },
};

static void handle_null(void *service, struct hf_rpc_call *call)
{
	hf_rpc_reply_void(call);
}

static void handle_call(void *service, struct hf_rpc_call *call)
{
	hf_nfs3_serve(service, call, &procs[hf_rpc_call_header(call)->procedure]);
}

static const struct hf_rpc_proc procs3[] = {
	[NFSPROC3_NULL] = { "NULL", handle_null },
	[NFSPROC3_GETATTR] = { "GETATTR", handle_call },
	[NFSPROC3_SETATTR] = { "SETATTR", handle_call, HF_RPC_REPLAY_ALWAYS },
	[NFSPROC3_LOOKUP] = { "LOOKUP", handle_call },
	[NFSPROC3_ACCESS] = { "ACCESS", handle_call },
	[NFSPROC3_READLINK] = { "READLINK", handle_call },
	[NFSPROC3_READ] = { "READ", handle_call, .has_long_reply = true },
	[NFSPROC3_WRITE] = { "WRITE", handle_call },
	[NFSPROC3_CREATE] = { "CREATE", handle_call, HF_RPC_REPLAY_ALWAYS },
	[NFSPROC3_MKDIR] = { "MKDIR", handle_call, HF_RPC_REPLAY_ALWAYS },
	[NFSPROC3_SYMLINK] = { "SYMLINK", handle_call, HF_RPC_REPLAY_ALWAYS },
	[NFSPROC3_MKNOD] = { "MKNOD", handle_call, HF_RPC_REPLAY_ALWAYS },
	[NFSPROC3_REMOVE] = { "REMOVE", handle_call, HF_RPC_REPLAY_ALWAYS },
	[NFSPROC3_RMDIR] = { "RMDIR", handle_call, HF_RPC_REPLAY_ALWAYS },
	[NFSPROC3_RENAME] = { "RENAME", handle_call, HF_RPC_REPLAY_ALWAYS },
	[NFSPROC3_LINK] = { "LINK", handle_call, HF_RPC_REPLAY_ALWAYS },
	[NFSPROC3_READDIR] = { "READDIR", handle_call, .has_long_reply = true },
	[NFSPROC3_READDIRPLUS] = { "READDIRPLUS", handle_call, .has_long_reply = true },
	[NFSPROC3_FSSTAT] = { "FSSTAT", handle_call },
	[NFSPROC3_FSINFO] = { "FSINFO", handle_call },
	[NFSPROC3_PATHCONF] = { "PATHCONF", handle_call },
	[NFSPROC3_COMMIT] = { "COMMIT", handle_call },
};

static const struct hf_rpc_version versions[] = {
	{ .version = 3, .n_procs = HF_ARRAY_SIZE(procs3), .procs = procs3 },
};

const struct hf_rpc_program hf_nfs3_program = {
	.program = HF_NFS_PROGRAM,
	.name = "nfs",
	.n_versions = HF_ARRAY_SIZE(versions),
	.versions = versions,
	.max_request = HF_NFS3_MAX_REQUEST,
	.at_home = false,
	.logs_slow_calls = true,
};

void hf_nfs3_init(struct hf_nfs3 *nfs, struct hf_exports *exports, struct hf_jobs *jobs, struct hf_loop *loop)
{
	uint64_t verifier;

	hf_loop_random(loop, &verifier, sizeof(verifier));
	*nfs = (struct hf_nfs3){ .exports = exports, .jobs = jobs, .first_verifier = verifier };
}
