#include "database_server.h"

#include <errno.h>
#include <fcntl.h>
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
#include <time.h>
#include <unistd.h>

#include "load.h"

#define N_TRIES  600 /* of 50 ms */
#define ROW_SIZE 150 /* bytes of one lock, about */

struct database {
	char dir[64];
	char bin[256];
	char conninfo[128];
	pid_t pid;
};

/* PostgreSQL refuses to run as root. */
static struct passwd *user(void)
{
	return geteuid() == 0 ? getpwnam("postgres") : NULL;
}

static pid_t spawn(const struct database *database, const char *program, const char *arguments)
{
	char command[512];
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGINT);
	snprintf(command, sizeof(command), "exec %s/%s -D data %s >>log 2>&1", database->bin, program,
		 arguments);
	if (user() && (setgroups(0, NULL) < 0 || setgid(user()->pw_gid) < 0 || setuid(user()->pw_uid) < 0))
		_exit(127);
	if (chdir(database->dir) == 0)
		execl("/bin/sh", "sh", "-c", command, NULL);
	_exit(127);
}

static int find_programs(struct database *database)
{
	glob_t found;
	int r = -ENOENT;

	if (glob("/usr/lib/postgresql/*/bin", 0, NULL, &found) == 0) {
		snprintf(database->bin, sizeof(database->bin), "%s", found.gl_pathv[found.gl_pathc - 1]);
		r = 0;
	}
	globfree(&found);
	return r;
}

static int await(const struct database *database)
{
	struct timespec tick = { .tv_nsec = 50000000 };

	for (int i = 0; i < N_TRIES; i++) {
		if (PQping(database->conninfo) == PQPING_OK)
			return 0;
		nanosleep(&tick, NULL);
	}
	return -ETIMEDOUT;
}

static int create(struct database *database)
{
	char arguments[128];
	int status;
	pid_t pid;

	if (user() && chown(database->dir, user()->pw_uid, user()->pw_gid) < 0)
		return -errno;
	pid = spawn(database, "initdb", "-A trust -U postgres --locale=C -E UTF8");
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
		return -EIO;
	snprintf(arguments, sizeof(arguments), "-k %s -c listen_addresses=", database->dir);
	database->pid = spawn(database, "postgres", arguments);
	return database->pid < 0 ? -errno : await(database);
}

int database_start(struct database **databasep)
{
	struct database *database = calloc(1, sizeof(*database));
	int r;

	if (!database)
		return -ENOMEM;
	strcpy(database->dir, "/tmp/holdfast-bench-XXXXXX");
	r = find_programs(database);
	if (r < 0 || !mkdtemp(database->dir)) {
		free(database);
		return r < 0 ? r : -errno;
	}
	snprintf(database->conninfo, sizeof(database->conninfo), "host=%s user=postgres dbname=postgres",
		 database->dir);
	r = create(database);
	if (r < 0) {
		database_stop(database);
		return r;
	}
	*databasep = database;
	return 0;
}

void database_stop(struct database *database)
{
	char command[96];

	if (database->pid > 0) {
		kill(database->pid, SIGINT);
		waitpid(database->pid, NULL, 0);
	}
	snprintf(command, sizeof(command), "rm -rf '%s'", database->dir);
	if (system(command) != 0)
		fprintf(stderr, "could not remove %s\n", database->dir);
	free(database);
}

const char *database_conninfo(const struct database *database)
{
	return database->conninfo;
}

/* CPU seconds of the processes that have ended. */
static double ended_cpu(pid_t pid)
{
	long user = 0, system = 0;
	char path[64];
	FILE *stat;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	stat = fopen(path, "r");
	if (stat && fscanf(stat, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %ld %ld",
			   &user, &system) != 2)
		user = system = 0;
	if (stat)
		fclose(stat);
	return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

double database_cpu(const struct database *database)
{
	double seconds = load_cpu(database->pid) + ended_cpu(database->pid);
	char path[64];
	FILE *children;
	int pid;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)database->pid, (int)database->pid);
	children = fopen(path, "r");
	while (children && fscanf(children, "%d", &pid) == 1)
		seconds += load_cpu(pid);
	if (children)
		fclose(children);
	return seconds;
}

/* The bare loop */

static int run(PGconn *conn, const char *sql)
{
	PGresult *result = PQexec(conn, sql);
	int r = PQresultStatus(result) == PGRES_COMMAND_OK ? 0 : -EIO;

	if (r < 0)
		fprintf(stderr, "%s: %s", sql, PQerrorMessage(conn));
	PQclear(result);
	return r;
}

static double clock_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int commit_rows(PGconn *conn, double seconds, double *ratep)
{
	static const char row[ROW_SIZE];
	const char *values[] = { row };
	const int lengths[] = { sizeof(row) }, formats[] = { 1 };
	double began = clock_now(), now = began;
	uint64_t n = 0;

	while (now - began < seconds) {
		PGresult *result = PQexecPrepared(conn, "put_row", 1, values, lengths, formats, 0);
		int r = PQresultStatus(result) == PGRES_COMMAND_OK ? 0 : -EIO;

		PQclear(result);
		if (r < 0)
			return r;
		n++;
		now = clock_now();
	}
	*ratep = (double)n / (now - began);
	return 0;
}

int database_commits(const struct database *database, bool is_fenced, double seconds, double *ratep)
{
	PGconn *conn = PQconnectdb(database->conninfo);
	int r = run(conn, "SET client_min_messages = error; SET synchronous_commit = off;"
			  "CREATE TABLE IF NOT EXISTS bare_rows (number bigserial PRIMARY KEY, row bytea);"
			  "CREATE TABLE IF NOT EXISTS bare_owner (name text PRIMARY KEY, owner text);"
			  "INSERT INTO bare_owner VALUES ('bench', 'me') ON CONFLICT DO NOTHING;"
			  "TRUNCATE bare_rows");

	if (r == 0)
		r = run(conn, is_fenced ? "PREPARE put_row AS INSERT INTO bare_rows (row) SELECT $1 FROM"
					  " (SELECT 1 FROM bare_owner WHERE name = 'bench' AND owner = 'me'"
					  " FOR SHARE) AS mine"
					: "PREPARE put_row AS INSERT INTO bare_rows (row) VALUES ($1)");
	if (r == 0)
		r = commit_rows(conn, seconds, ratep);
	PQfinish(conn);
	return r;
}
