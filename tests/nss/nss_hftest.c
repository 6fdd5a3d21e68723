/*
 * A directory service that can be away: "hftest" in nsswitch.conf.
 *
 * It has the user walt (5002), and group 6100 with walt and late. The environment's HF_TEST_NSS names a file
 * that says what it answers instead, while the file is there. A line for each question: "passwd STATUS
 * ERRNO", "group STATUS ERRNO" (one group) or "groups STATUS ERRNO" (those of a user), with a number of enum
 * nss_status, and -1 for an errno that stays as it is.
 */
#include <errno.h>
#include <grp.h>
#include <nss.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WALT  5002
#define GROUP 6100

nss_getpwuid_r _nss_hftest_getpwuid_r;
nss_getgrgid_r _nss_hftest_getgrgid_r;
nss_initgroups_dyn _nss_hftest_initgroups_dyn;

/* What the file says to @question, if it says anything. */
static bool is_told(const char *question, enum nss_status *statusp, int *errnop)
{
	const char *path = getenv("HF_TEST_NSS");
	FILE *file = path ? fopen(path, "re") : NULL;
	bool found = false;
	int status, error;
	char word[16];

	while (file && !found && fscanf(file, "%15s %d %d", word, &status, &error) == 3)
		found = strcmp(word, question) == 0;
	if (file)
		fclose(file);
	if (!found)
		return false;
	*statusp = (enum nss_status)status;
	if (error >= 0)
		*errnop = error;
	return true;
}

enum nss_status _nss_hftest_getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t size,
				       int *errnop)
{
	static char name[] = "walt", none[] = "";
	int before = errno;
	enum nss_status status;

	if (is_told("passwd", &status, &before)) {
		*errnop = before;
		return status;
	}
	if (uid != WALT)
		return NSS_STATUS_NOTFOUND;
	*entry = (struct passwd){ .pw_name = name,
				  .pw_passwd = none,
				  .pw_uid = WALT,
				  .pw_gid = WALT,
				  .pw_gecos = none,
				  .pw_dir = none,
				  .pw_shell = none };
	return NSS_STATUS_SUCCESS;
}

enum nss_status _nss_hftest_getgrgid_r(gid_t gid, struct group *entry, char *buffer, size_t size, int *errnop)
{
	int before = errno;
	enum nss_status status;

	if (!is_told("group", &status, &before))
		return NSS_STATUS_NOTFOUND;
	*errnop = before;
	return status;
}

enum nss_status _nss_hftest_initgroups_dyn(const char *user, gid_t gid, long int *np, long int *sizep,
					   gid_t **gidsp, long int limit, int *errnop)
{
	int before = errno;
	enum nss_status status;

	if (is_told("groups", &status, &before)) {
		*errnop = before;
		return status;
	}
	if (strcmp(user, "walt") != 0 && strcmp(user, "late") != 0)
		return NSS_STATUS_NOTFOUND;
	if (*np >= *sizep)
		return NSS_STATUS_TRYAGAIN; /* the tests have room for it */
	(*gidsp)[(*np)++] = GROUP;
	return NSS_STATUS_SUCCESS;
}
