/*
 * Handles: how clients refer to files.
 *
 *	 0  u8   version, 1
 *	 1  u8   kind of the id (enum hf_file_id_kind)
 *	 2  u8   type of the id, the kernel's
 *	 3  u8   length of the id, 0 to 36
 *	 4  u64  the export's number
 *	12  u64  inode number
 *	20  u64  seal over all the rest
 *	28  id
 *
 * Numbers are little endian. A file has the same handle as long as it exists,
 * whatever its name: clients and the lock manager compare handles.
 */
#include <errno.h>
#include <string.h>

#include "base/le.h"
#include "export/exports_internal.h"
#include "vfs/access.h"
#include "vfs/watch.h"

#define VERSION 1

struct wire {
	uint8_t version;
	uint8_t kind;
	uint8_t type;
	uint8_t len;
	uint8_t export[8];
	uint8_t inode[8];
	uint8_t seal[8];
	uint8_t id[HF_FILE_ID_MAX];
};

#define WIRE_HEAD offsetof(struct wire, id)

_Static_assert(sizeof(struct wire) == HF_HANDLE_MAX, "a handle of NFSv3");

static uint64_t seal_of(const struct hf_exports *exports, const struct wire *wire)
{
	struct wire copy = *wire;

	memset(copy.seal, 0, sizeof(copy.seal));
	return hf_seal(&exports->key, &copy, WIRE_HEAD + wire->len);
}

static void finish(const struct hf_exports *exports, struct wire *wire, uint64_t export_id,
		   struct hf_handle *handlep)
{
	hf_le_put64(wire->export, export_id);
	hf_le_put64(wire->seal, seal_of(exports, wire));
	handlep->len = (uint8_t)(WIRE_HEAD + wire->len);
	memcpy(handlep->bytes, wire, handlep->len);
}

void hf_exports_make_handle(struct hf_exports *exports, const struct hf_export *export,
			    const struct hf_file_id *id, struct hf_handle *handlep)
{
	struct wire wire = { .version = VERSION, .kind = id->kind, .type = id->type, .len = id->len };

	hf_le_put64(wire.inode, id->inode);
	memcpy(wire.id, id->bytes, id->len);
	finish(exports, &wire, export->id, handlep);
}

/* false: this server did not make it. */
static bool parse(const struct hf_exports *exports, struct hf_bytes handle, struct wire *wire)
{
	if (handle.len < WIRE_HEAD || handle.len > sizeof(*wire))
		return false;
	memset(wire, 0, sizeof(*wire));
	memcpy(wire, handle.data, handle.len);
	return wire->version == VERSION && handle.len == WIRE_HEAD + wire->len &&
	       hf_le_get64(wire->seal) == seal_of(exports, wire);
}

uint64_t hf_handle_spread(struct hf_bytes handle)
{
	return handle.len < WIRE_HEAD ? 0 : hf_le_get64(handle.data + offsetof(struct wire, seal));
}

uint64_t hf_exports_key_print(const struct hf_exports *exports)
{
	return hf_seal_key_print(&exports->key);
}

bool hf_exports_read_handle(const struct hf_exports *exports, struct hf_bytes handle, uint64_t *export_idp)
{
	struct wire wire;

	if (!parse(exports, handle, &wire))
		return false;
	*export_idp = hf_le_get64(wire.export);
	return true;
}

struct hf_volume *hf_exports_volume_of(struct hf_exports *exports, struct hf_bytes handle, uint64_t *inodep)
{
	hf_cleanup(hf_export_unrefp) struct hf_export *export = NULL;
	struct wire wire;

	if (parse(exports, handle, &wire))
		export = hf_exports_by_id(exports, hf_le_get64(wire.export));
	if (!export)
		return NULL;
	*inodep = hf_le_get64(wire.inode);
	return hf_volume_ref(export->volume);
}

bool hf_exports_rehandle(const struct hf_exports *exports, struct hf_bytes handle, uint64_t export_id,
			 struct hf_handle *handlep)
{
	struct wire wire;

	if (!parse(exports, handle, &wire))
		return false;
	finish(exports, &wire, export_id, handlep);
	return true;
}

int hf_exports_resolve(struct hf_exports *exports, struct hf_bytes handle, bool cached,
		       struct hf_export **exportp, struct hf_file **filep)
{
	hf_cleanup(hf_export_unrefp) struct hf_export *export = NULL;
	struct hf_file_id id = { 0 };
	struct wire wire;
	int r;

	if (!parse(exports, handle, &wire))
		return HF_HANDLE_BAD;
	export = hf_exports_by_id(exports, hf_le_get64(wire.export));
	if (!export)
		return HF_HANDLE_STALE;
	id.inode = hf_le_get64(wire.inode);
	id.kind = wire.kind;
	id.type = wire.type;
	id.len = wire.len;
	memcpy(id.bytes, wire.id, wire.len);
	r = hf_files_get(exports->files, export->volume, &id, cached, filep);
	if (r == -ESTALE)
		return HF_HANDLE_STALE;
	if (r < 0)
		return r;
	*exportp = export;
	export = NULL;
	return HF_RESOLVED;
}

int hf_exports_watch(struct hf_exports *exports, struct hf_bytes handle, struct hf_watch *watch)
{
	hf_cleanup(hf_export_unrefp) struct hf_export *export = NULL;
	hf_cleanup(hf_file_unrefp) struct hf_file *file = NULL;

	if (hf_exports_resolve(exports, handle, false, &export, &file) != HF_RESOLVED)
		return 0;
	return hf_watch_add(watch, file);
}

/* For the lock manager */

static int check_file(struct hf_file *file, const struct hf_identity *identity, bool want_write)
{
	struct stat st;
	int r;

	if (!S_ISREG(file->type))
		return HF_CHECK_NOT_REGULAR;
	r = hf_file_stat(file, &st);
	if (r < 0)
		return r == -ESTALE ? HF_CHECK_STALE : r;
	/* A client locks files that it has open. The right to read is enough for a shared lock, and as with
	 * READ and WRITE the owner always may. */
	r = hf_file_may(file, identity, &st, want_write ? W_OK : R_OK);
	if (r == -EACCES && !want_write)
		r = hf_file_may(file, identity, &st, W_OK);
	return r == -EACCES ? HF_CHECK_ACCESS : r;
}

int hf_export_check_handle(struct hf_exports *exports, struct hf_bytes handle, const struct hf_addr *peer,
			   const struct hf_identity *given, bool want_write, struct hf_export **exportp,
			   struct hf_file **filep)
{
	hf_cleanup(hf_export_unrefp) struct hf_export *export = NULL;
	hf_cleanup(hf_file_unrefp) struct hf_file *file = NULL;
	const struct hf_export_rule *rule;
	struct hf_identity identity;
	int r = hf_exports_resolve(exports, handle, false, &export, &file);

	if (r != HF_RESOLVED)
		return r < 0 ? r : HF_CHECK_STALE;
	r = hf_export_admit(export, peer, &rule);
	if (r != HF_ADMITTED)
		return r == HF_REFUSED_UNKNOWN ? HF_CHECK_UNKNOWN : HF_CHECK_ACCESS;
	if (want_write && rule->read_only)
		return HF_CHECK_READ_ONLY;
	if (hf_exports_identify(exports, rule, given, true, &identity) < 0)
		return HF_CHECK_UNKNOWN;
	r = check_file(file, &identity, want_write);
	if (r != HF_CHECK_OK)
		return r;
	if (exportp) {
		*exportp = export;
		export = NULL;
	}
	if (filep) {
		*filep = file;
		file = NULL;
	}
	return HF_CHECK_OK;
}
