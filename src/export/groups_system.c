/*
 * Users and groups as the host knows them: /etc/passwd, /etc/group, and what else nsswitch.conf has.
 *
 * glibc asks the services of nsswitch.conf in turn, and gives what the last one said that it asked. 0 without
 * an entry: there is no such user. An error: the service could not answer, whatever the number says. ENOENT
 * is that of a service whose daemon is not there, and must not count as an answer.
 *
 * What glibc does not give: any failure of getgrouplist(), and the outage of a service that is not the last.
 * nsswitch.conf can end the search at such a service, with [UNAVAIL=return TRYAGAIN=return].
 *
 * The files are read through the caller's buffer: the longest line must fit, whatever entry is asked for.
 */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "export/groups.h"

#define MIN_BUFFER ((size_t)64 << 10)
#define MAX_BUFFER ((size_t)16 << 20)
#define NO_GROUP   UINT32_C(4294967293) /* in no database */

struct buffer {
	char *data;
	size_t size;
};

static void buffer_deinit(struct buffer *buffer)
{
	free(buffer->data);
}

/* What was in the buffer is lost. */
static int grow(struct buffer *buffer)
{
	size_t size = buffer->size ? 4 * buffer->size : MIN_BUFFER;

	if (size > MAX_BUFFER)
		return -ERANGE;
	free(buffer->data);
	buffer->data = malloc(size);
	buffer->size = size;
	return buffer->data ? 0 : -ENOMEM;
}

static int find_entry(uint32_t uid, struct passwd *entry, struct buffer *buffer)
{
	struct passwd *found;
	int code, r;

	do {
		r = grow(buffer);
		if (r < 0)
			return r;
		errno = EIO; /* glibc returns what is here if a service fails and sets nothing */
		code = getpwuid_r(uid, entry, buffer->data, buffer->size, &found);
	} while (code == ERANGE);
	if (code)
		return -code;
	return found ? 0 : HF_GROUPS_NO_USER;
}

/* Do the services answer that getgrouplist() asked? All of them are asked for a group that none has. What is
 * not seen is an outage that ended in between, and, if nsswitch.conf has a line "initgroups", one of a
 * service that only that line names: then the list lacks groups until it is asked anew. */
static int check_group_services(struct buffer *buffer)
{
	struct group entry, *found;
	int code, r;

	for (;;) {
		errno = EIO;
		code = getgrgid_r(NO_GROUP, &entry, buffer->data, buffer->size, &found);
		if (code != ERANGE)
			return -code;
		r = grow(buffer);
		if (r < 0)
			return r;
	}
}

static int find(void *user, uint32_t uid, uint32_t *gids, size_t max, size_t *np)
{
	hf_cleanup(buffer_deinit) struct buffer buffer = { 0 };
	struct passwd entry;
	int n = (int)max, r;

	_Static_assert(sizeof(gid_t) == sizeof(*gids), "group ids have 32 bits");
	r = find_entry(uid, &entry, &buffer);
	if (r)
		return r;
	if (getgrouplist(entry.pw_name, entry.pw_gid, gids, &n) < 0) {
		if ((size_t)n <= max)
			return -ENOMEM;
		n = (int)max; /* of more groups than fit, the first ones */
	}
	*np = (size_t)n;
	return check_group_services(&buffer);
}

const struct hf_group_source hf_system_groups = { .find = find };
