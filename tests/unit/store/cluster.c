#include "cluster.h"

#include "../../until.h"
#include "../test.h"

#include <errno.h>
#include <glob.h>
#include <grp.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit.h"

static struct cluster the_cluster; /* there is one a program, so that initdb runs once */

/* PostgreSQL refuses to run as root. */
static void drop_root(const char *path)
{
	struct passwd *pw = getuid() == 0 ? getpwnam("postgres") : NULL;

	if (getuid() == 0 && !pw)
		pw = getpwnam("nobody");
	if (pw && (setgroups(0, NULL) < 0 || setgid(pw->pw_gid) < 0 || setuid(pw->pw_uid) < 0))
		_exit(127);
	if (chdir(path) < 0)
		_exit(127);
}

static pid_t spawn(struct cluster *cluster, const char *program, const char *arguments)
{
	char command[1024];
	pid_t pid;

	snprintf(command, sizeof(command), "exec %s/%s -D %s/data %s >>log 2>&1", cluster->bin, program,
		 cluster->path, arguments);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		setpgid(0, 0);
		drop_root(cluster->path);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	return pid;
}

static char *find_programs(void)
{
	glob_t found;
	char *bin = NULL;

	if (glob("/usr/lib/postgresql/*/bin", 0, NULL, &found) == 0)
		bin = strdup(found.gl_pathv[found.gl_pathc - 1]);
	globfree(&found);
	return bin;
}

bool cluster_is_possible(void)
{
	char *bin = find_programs();

	free(bin);
	return bin;
}

static void make_folder(struct cluster *cluster)
{
	struct passwd *pw = getuid() == 0 ? getpwnam("postgres") : NULL;

	if (getuid() == 0 && !pw)
		pw = getpwnam("nobody");
	cluster->path = kit_temporary();
	if (pw)
		assert_int_equal(chown(cluster->path, pw->pw_uid, pw->pw_gid), 0);
}

static void end_cluster(void)
{
	if (!the_cluster.path)
		return;
	cluster_kill(&the_cluster);
	kit_remove_tree(the_cluster.path);
	free(the_cluster.path);
	free(the_cluster.bin);
	the_cluster = (struct cluster){ 0 };
}

struct cluster *cluster_get(void)
{
	struct cluster *cluster = &the_cluster;
	int status;
	pid_t pid;

	if (cluster->path)
		return cluster;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	cluster->bin = find_programs();
	assert_non_null(cluster->bin);
	make_folder(cluster);
	atexit(end_cluster);
	pid = spawn(cluster, "initdb", "-A trust -U postgres -N --locale=C -E UTF8");
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	cluster_start(cluster);
	return cluster;
}

/* Until it answers. One that was killed may leave helpers behind for a moment, so it may need several tries.
 */
void cluster_start(struct cluster *cluster)
{
	struct until until = until_begin(3 * UNTIL_PATIENCE);
	char arguments[512], conninfo[512];

	snprintf(arguments, sizeof(arguments),
		 "-k %s -c listen_addresses= -c fsync=off -c max_connections=20 -c shared_buffers=32MB",
		 cluster->path);
	snprintf(conninfo, sizeof(conninfo), "host=%s user=postgres dbname=postgres", cluster->path);
	do {
		if (cluster->pid == 0)
			cluster->pid = spawn(cluster, "postgres", arguments);
		if (PQping(conninfo) == PQPING_OK)
			return;
		if (waitpid(cluster->pid, NULL, WNOHANG) == cluster->pid)
			cluster->pid = 0;
	} while (until_again(&until));
	fail_msg("PostgreSQL does not start");
}

/* Its helpers and sessions, too: they would live on for a moment, and even commit. Once their parent is gone,
 * they are children of the test, which can wait for them. */
void cluster_kill(struct cluster *cluster)
{
	char path[64];
	FILE *children;
	int pid;

	if (cluster->pid == 0)
		return;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)cluster->pid, (int)cluster->pid);
	kill(cluster->pid, SIGSTOP); /* so that the list stays true */
	children = fopen(path, "r");
	while (children && fscanf(children, "%d", &pid) == 1)
		kill(pid, SIGKILL);
	if (children)
		fclose(children);
	kill(cluster->pid, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	cluster->pid = 0;
}

void cluster_query(const char *conninfo, const char *sql, char *out, size_t size)
{
	PGconn *conn = PQconnectdb(conninfo);
	PGresult *result;

	if (PQstatus(conn) != CONNECTION_OK)
		fail_msg("%s: %s", conninfo, PQerrorMessage(conn));
	result = PQexec(conn, sql);
	if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK)
		fail_msg("%s: %s", sql, PQerrorMessage(conn));
	if (out)
		snprintf(out, size, "%s", PQntuples(result) ? PQgetvalue(result, 0, 0) : "");
	PQclear(result);
	PQfinish(conn);
}

char *cluster_new_database(struct cluster *cluster)
{
	char conninfo[512], sql[64];

	snprintf(conninfo, sizeof(conninfo), "host=%s user=postgres dbname=postgres", cluster->path);
	snprintf(sql, sizeof(sql), "CREATE DATABASE t%u", ++cluster->n_databases);
	cluster_query(conninfo, sql, NULL, 0);
	snprintf(conninfo, sizeof(conninfo), "host=%s user=postgres dbname=t%u", cluster->path,
		 cluster->n_databases);
	return strdup(conninfo);
}
