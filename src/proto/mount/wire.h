/* Numbers of the MOUNT protocol, as RFC 1813 names them. */
#pragma once

#define MNTPATHLEN 1024
#define MNTNAMLEN  255
#define FHSIZE     32 /* of version 1 */

enum mountproc {
	MOUNTPROC_NULL,
	MOUNTPROC_MNT,
	MOUNTPROC_DUMP,
	MOUNTPROC_UMNT,
	MOUNTPROC_UMNTALL,
	MOUNTPROC_EXPORT,
	MOUNTPROC_EXPORTALL, /* version 1: the same as EXPORT */
};

/* Version 1 uses the same numbers for the errors that it has. */
enum mountstat3 {
	MNT3_OK = 0,
	MNT3ERR_PERM = 1,
	MNT3ERR_NOENT = 2,
	MNT3ERR_IO = 5,
	MNT3ERR_ACCES = 13,
	MNT3ERR_NOTDIR = 20,
	MNT3ERR_INVAL = 22,
	MNT3ERR_NAMETOOLONG = 63,
	MNT3ERR_NOTSUPP = 10004,
	MNT3ERR_SERVERFAULT = 10006,
};
