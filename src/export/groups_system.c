/* Users and groups as the host knows them: /etc/passwd, /etc/group, and what else nsswitch.conf has. */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "export/groups.h"

#define BUFFER 65536 /* for an entry of the database of users */

/* What a database says of a user that it does not have; see getpwnam(3). */
static int error_of(int code)
{
	return code == ENOENT || code == ESRCH || code == EBADF || code == EPERM ? -ENOENT : -code;
}

static int find(void *user, uint32_t uid, uint32_t *gids, size_t max, size_t *np)
{
	hf_cleanup(hf_freep) char *buffer = malloc(BUFFER);
	struct passwd entry, *found = NULL;
	int n = (int)max, code;

	_Static_assert(sizeof(gid_t) == sizeof(*gids), "group ids have 32 bits");
	if (!buffer)
		return -ENOMEM;
	code = getpwuid_r(uid, &entry, buffer, BUFFER, &found);
	if (code)
		return error_of(code);
	if (!found)
		return -ENOENT;
	/* Of more groups than fit, the first ones. */
	*np = getgrouplist(entry.pw_name, entry.pw_gid, gids, &n) < 0 ? max : (size_t)n;
	return 0;
}

const struct hf_group_source hf_system_groups = { .find = find };
