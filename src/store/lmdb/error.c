/* LMDB's codes as -errno. */
#include <errno.h>

#include "store/lmdb/internal.h"

int hf_lmdb_error(int rc)
{
	switch (rc) {
	case 0:
		return 0;
	case MDB_MAP_FULL:
	case MDB_TXN_FULL:
		return -ENOSPC;
	case MDB_INVALID:
	case MDB_VERSION_MISMATCH:
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
		return -EBADMSG;
	default:
		return rc > 0 ? -rc : -EIO;
	}
}
