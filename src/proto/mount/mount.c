/* The program's table, and the procedures that return lists. */
#include "proto/mount/mount.h"

#include <string.h>

#include "base/macros.h"
#include "proto/mount/mounted.h"
#include "proto/mount/procs.h"
#include "proto/mount/wire.h"

#define DUMP_PER_UNIT 16 /* entries that take as long as a short call */

/* A list must fit its transport, and a peer must not make the server store more than this. */
static size_t limit(const struct hf_rpc_call *call, size_t room)
{
	size_t most = hf_rpc_call_transport(call) == HF_RPC_UDP ? HF_MOUNT_MAX_UDP : HF_MOUNT_MAX_TCP;

	return HF_MIN(room, most);
}

static void proc_null(void *service, struct hf_rpc_call *call)
{
	hf_rpc_reply_void(call);
}

static void proc_dump(void *service, struct hf_rpc_call *call)
{
	struct hf_mount *mount = service;
	struct hf_xdr_out *out = hf_rpc_reply_begin(call, limit(call, hf_mounted_room(mount)));

	hf_rpc_call_spend(call, (uint32_t)(hf_mounted_put(mount, out) / DUMP_PER_UNIT));
	hf_rpc_reply_end(call);
}

static void proc_umnt(void *service, struct hf_rpc_call *call)
{
	struct hf_bytes path = hf_xdr_get_string(hf_rpc_call_args(call), MNTPATHLEN);
	char text[MNTPATHLEN + 1] = "";

	if (!hf_xdr_in_is_ok(hf_rpc_call_args(call))) {
		hf_rpc_reply_garbage(call);
		return;
	}
	if (path.len)
		memcpy(text, path.data, path.len);
	hf_mount_tidy(text);
	hf_mounted_remove(service, hf_rpc_call_peer(call), text);
	hf_rpc_reply_void(call);
}

static void proc_umntall(void *service, struct hf_rpc_call *call)
{
	hf_mounted_remove(service, hf_rpc_call_peer(call), NULL);
	hf_rpc_reply_void(call);
}

/* EXPORT */

static size_t text_room(const char *text)
{
	return 4 + HF_MIN((strlen(text) + 3) & ~(size_t)3, (size_t)MNTPATHLEN);
}

static size_t export_room(const struct hf_export *export)
{
	size_t room = 4 + text_room(export->settings.name) + 4;

	for (size_t i = 0; i < export->settings.n_rules; i++)
		for (size_t j = 0; j < export->settings.rules[i].n_clients; j++)
			room += 4 + text_room(export->settings.rules[i].clients[j].text);
	return room;
}

static void put_text(struct hf_xdr_out *out, const char *text, size_t max)
{
	hf_xdr_put_opaque(out, hf_bytes_of(text, (uint32_t)HF_MIN(strlen(text), max)));
}

/* showmount takes an empty list for "all clients". */
static bool is_for_all(const struct hf_export_settings *settings)
{
	for (size_t i = 0; i < settings->n_rules; i++)
		for (size_t j = 0; j < settings->rules[i].n_clients; j++)
			if (settings->rules[i].clients[j].kind == HF_CLIENT_ANY)
				return true;
	return false;
}

static void put_clients(struct hf_xdr_out *out, const struct hf_export_rule *rule)
{
	for (size_t i = 0; i < rule->n_clients; i++) {
		hf_xdr_put_bool(out, true);
		put_text(out, rule->clients[i].text, MNTNAMLEN);
	}
}

static void put_export(struct hf_xdr_out *out, const struct hf_export *export)
{
	const struct hf_export_settings *settings = &export->settings;

	hf_xdr_put_bool(out, true);
	put_text(out, settings->name, MNTPATHLEN);
	for (size_t i = 0; i < settings->n_rules && !is_for_all(settings); i++)
		put_clients(out, &settings->rules[i]);
	hf_xdr_put_bool(out, false);
}

static void proc_export(void *service, struct hf_rpc_call *call)
{
	hf_cleanup(hf_export_list_clear) struct hf_export_list list = { 0 };
	struct hf_mount *mount = service;
	struct hf_xdr_out *out;
	size_t room = 4;

	if (hf_exports_list(mount->exports, &list) < 0) {
		hf_rpc_reply_error(call, HF_RPC_SYSTEM_ERR);
		return;
	}
	for (size_t i = 0; i < list.n; i++)
		room += export_room(list.items[i]);
	out = hf_rpc_reply_begin(call, limit(call, room));
	for (size_t i = 0; i < list.n && hf_xdr_out_left(out) >= export_room(list.items[i]) + 4; i++)
		put_export(out, list.items[i]);
	hf_xdr_put_bool(out, false);
	hf_rpc_reply_end(call);
}

/* Tables */

static const struct hf_rpc_proc procs[] = {
	[MOUNTPROC_NULL] = { .name = "NULL", .handle = proc_null },
	[MOUNTPROC_MNT] = { .name = "MNT", .handle = hf_mount_proc_mnt },
	[MOUNTPROC_DUMP] = { .name = "DUMP", .handle = proc_dump, .is_list = true, .has_long_reply = true },
	[MOUNTPROC_UMNT] = { .name = "UMNT", .handle = proc_umnt },
	[MOUNTPROC_UMNTALL] = { .name = "UMNTALL", .handle = proc_umntall },
	[MOUNTPROC_EXPORT] = { .name = "EXPORT",
			       .handle = proc_export,
			       .is_list = true,
			       .has_long_reply = true },
	[MOUNTPROC_EXPORTALL] = { .name = "EXPORTALL",
				  .handle = proc_export,
				  .is_list = true,
				  .has_long_reply = true },
};

static const struct hf_rpc_version versions[] = {
	{ .version = 1, .n_procs = MOUNTPROC_EXPORTALL + 1, .procs = procs },
	/* The same as version 1, without PATHCONF, which clients do not use. Without version 2 rpcinfo would
	 * report a gap between the server's versions. */
	{ .version = 2, .n_procs = MOUNTPROC_EXPORTALL + 1, .procs = procs },
	{ .version = 3, .n_procs = MOUNTPROC_EXPORT + 1, .procs = procs },
};

const struct hf_rpc_program hf_mount_program = {
	.program = HF_MOUNT_PROGRAM,
	.name = "mountd",
	.n_versions = HF_ARRAY_SIZE(versions),
	.versions = versions,
	.max_request = HF_MOUNT_MAX_REQUEST,
	.at_home = false,
};

/* Making and freeing */

void hf_mount_init(struct hf_mount *mount, struct hf_exports *exports, struct hf_jobs *jobs)
{
	*mount = (struct hf_mount){ .exports = exports, .jobs = jobs };
	pthread_mutex_init(&mount->lock, NULL);
	hf_mounted_init(mount);
}

void hf_mount_deinit(struct hf_mount *mount)
{
	hf_mounted_deinit(mount);
	pthread_mutex_destroy(&mount->lock);
}
