/*
 * A PostgreSQL of the benchmark's own, as its package configures it, reached by
 * a socket in a temporary directory; and a bare loop that commits rows in it.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct database;
int database_start(struct database **databasep); /* -ENOENT: it is not installed */
void database_stop(struct database *database);
const char *database_conninfo(const struct database *database);
double database_cpu(const struct database *database); /* CPU seconds of all its processes so far */

/* What a bare loop writes each of its rows to, and through. */
enum database_target {
	DATABASE_ROWS,    /* a table with a primary key */
	DATABASE_LOG,     /* a table without index, as the journal */
	DATABASE_FENCED,  /* the same through a view, as the store writes */
	DATABASE_CHECKED, /* the same, and each transaction looks at a row and locks it: a fence that the
			     store does not have */
	DATABASE_TARGETS
};

/* Commits a second that one connection makes of one small row each, one after the other, as durable as locks
 * are by default. */
int database_commits(const struct database *database, enum database_target target, double seconds,
		     double *ratep);

/* A bare server in a process of its own: it receives a record, commits a row to DATABASE_ROWS, and answers
 * with the status of a granted lock. One connection at a time. */
struct database_peer;
int database_peer_start(struct database_peer **peerp, const struct database *database, uint16_t *portp);
void database_peer_stop(struct database_peer *peer);
pid_t database_peer_pid(const struct database_peer *peer);

/* Takes the fence of the server @name away: a plain table of the same name replaces the view of its term. */
int database_unfence(const struct database *database, const char *name);
