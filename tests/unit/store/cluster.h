/*
 * A PostgreSQL server of the test's own: in a temporary folder, reachable by a
 * socket in there only, and gone at the end of the program.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct cluster {
	char *path;
	char *bin; /* folder of its programs */
	pid_t pid; /* of the server; 0: not running */
	unsigned int n_databases;
};

bool cluster_is_possible(void);    /* are the programs there? */
struct cluster *cluster_get(void); /* the one of this program, started when first asked for */
void cluster_start(struct cluster *cluster);
void cluster_kill(struct cluster *cluster);                                        /* by SIGKILL */
char *cluster_new_database(struct cluster *cluster);                               /* its connection string */
void cluster_query(const char *conninfo, const char *sql, char *out, size_t size); /* the first value */
