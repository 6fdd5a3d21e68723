/*
 * A PostgreSQL of the benchmark's own, as its package configures it, reached by
 * a socket in a temporary directory; and a bare loop that commits rows in it.
 */
#pragma once

#include <stdbool.h>

struct database;
int database_start(struct database **databasep); /* -ENOENT: it is not installed */
void database_stop(struct database *database);
const char *database_conninfo(const struct database *database);
double database_cpu(const struct database *database); /* CPU seconds of all its processes so far */

/*
 * Commits a second that one connection makes of one small row each, one after the other, as durable as locks
 * are by default. With @is_fenced, each transaction checks and locks a row first, as those of the store do.
 */
int database_commits(const struct database *database, bool is_fenced, double seconds, double *ratep);
