#include "database_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <libpq-fe.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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

static int commit_row(PGconn *conn)
{
	static const char row[ROW_SIZE];
	const char *values[] = { row };
	const int lengths[] = { sizeof(row) }, formats[] = { 1 };
	PGresult *result = PQexecPrepared(conn, "put_row", 1, values, lengths, formats, 0);
	int r = PQresultStatus(result) == PGRES_COMMAND_OK ? 0 : -EIO;

	PQclear(result);
	return r;
}

static int commit_rows(PGconn *conn, double seconds, double *ratep)
{
	double began = clock_now(), now = began;
	uint64_t n = 0;

	while (now - began < seconds) {
		int r = commit_row(conn);

		if (r < 0)
			return r;
		n++;
		now = clock_now();
	}
	*ratep = (double)n / (now - began);
	return 0;
}

static const char *const statements[DATABASE_TARGETS] = {
	[DATABASE_ROWS] = "PREPARE put_row AS INSERT INTO bare_rows (row) VALUES ($1)",
	[DATABASE_LOG] =
		"PREPARE put_row AS INSERT INTO bare_log (server, number, row) VALUES ('bench', 1, $1)",
	[DATABASE_FENCED] =
		"PREPARE put_row AS INSERT INTO bare_view (server, number, row) VALUES ('bench', 1, $1)",
	[DATABASE_CHECKED] = "PREPARE put_row AS INSERT INTO bare_log (server, number, row)"
			     " SELECT 'bench', 1, $1 FROM (SELECT 1 FROM bare_owner"
			     " WHERE name = 'bench' AND owner = 'me' FOR SHARE) AS mine",
};

static PGconn *open_target(const struct database *database, enum database_target target)
{
	PGconn *conn = PQconnectdb(database->conninfo);
	int r = run(conn, "SET client_min_messages = error; SET synchronous_commit = off;"
			  "CREATE TABLE IF NOT EXISTS bare_rows (number bigserial PRIMARY KEY, row bytea);"
			  "CREATE TABLE IF NOT EXISTS bare_log (server text NOT NULL, number bigint NOT NULL,"
			  " row bytea NOT NULL);"
			  "CREATE OR REPLACE VIEW bare_view AS SELECT server, number, row FROM bare_log;"
			  "CREATE TABLE IF NOT EXISTS bare_owner (name text PRIMARY KEY, owner text);"
			  "INSERT INTO bare_owner VALUES ('bench', 'me') ON CONFLICT DO NOTHING");

	if (r == 0)
		r = run(conn, statements[target]);
	if (r == 0)
		return conn;
	PQfinish(conn);
	return NULL;
}

int database_commits(const struct database *database, enum database_target target, double seconds,
		     double *ratep)
{
	PGconn *conn = open_target(database, target);
	int r = conn ? run(conn, "TRUNCATE bare_rows, bare_log") : -EIO;

	if (r == 0)
		r = commit_rows(conn, seconds, ratep);
	PQfinish(conn);
	return r;
}

/* The bare server */

struct database_peer {
	pid_t pid;
};

/* A reply to NLM: mark, xid, reply, accepted, no verifier, success; a cookie of four bytes; granted. */
static bool answer(int fd, const uint8_t *call)
{
	uint32_t words[10] = { htonl(0x80000000u | 36), 0, htonl(1), 0, 0, 0, 0, htonl(4), 0, 0 };

	memcpy(&words[1], call + 4, 4);
	return send(fd, words, sizeof(words), MSG_NOSIGNAL) == sizeof(words);
}

static void serve(PGconn *conn, int listener)
{
	uint8_t call[4096];
	int fd, one = 1;

	while ((fd = accept(listener, NULL, NULL)) >= 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		while (recv(fd, call, sizeof(call), 0) >= 8)
			if (commit_row(conn) < 0 || !answer(fd, call))
				break;
		close(fd);
	}
}

static int listen_anywhere(uint16_t *portp)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(to);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&to, sizeof(to)) < 0 || listen(fd, 8) < 0 ||
	    getsockname(fd, (struct sockaddr *)&to, &len) < 0)
		return -errno;
	*portp = ntohs(to.sin_port);
	return fd;
}

int database_peer_start(struct database_peer **peerp, const struct database *database, uint16_t *portp)
{
	struct database_peer *peer = calloc(1, sizeof(*peer));
	int listener = listen_anywhere(portp);
	PGconn *conn;

	if (!peer || listener < 0) {
		free(peer);
		return listener < 0 ? listener : -ENOMEM;
	}
	peer->pid = fork();
	if (peer->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		conn = open_target(database, DATABASE_ROWS);
		if (conn)
			serve(conn, listener);
		_exit(1);
	}
	close(listener);
	*peerp = peer;
	return 0;
}

void database_peer_stop(struct database_peer *peer)
{
	kill(peer->pid, SIGKILL);
	waitpid(peer->pid, NULL, 0);
	free(peer);
}

pid_t database_peer_pid(const struct database_peer *peer)
{
	return peer->pid;
}

/* The fence */

int database_unfence(const struct database *database, const char *name)
{
	PGconn *conn = PQconnectdb(database->conninfo);
	char sql[512];
	int r;

	snprintf(sql, sizeof(sql),
		 "DO $body$ DECLARE term text; BEGIN"
		 " SELECT holdfast_term(epoch, owner) INTO STRICT term FROM holdfast_services WHERE service "
		 "= '%s';"
		 " EXECUTE format('DROP VIEW %%I', term);"
		 " EXECUTE format('CREATE TABLE %%I (LIKE holdfast_journal INCLUDING STORAGE)', term);"
		 " END $body$",
		 name);
	r = run(conn, sql);
	PQfinish(conn);
	return r;
}
