#include "plain.h"

#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void must(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "plain reading: %s\n", mdb_strerror(rc));
	exit(1);
}

static uint64_t add_up(const MDB_val *value)
{
	uint64_t sum = 0, word;

	for (size_t i = 0; i + 8 <= value->mv_size; i += 8) {
		memcpy(&word, (const uint8_t *)value->mv_data + i, 8);
		sum += word;
	}
	return sum;
}

double plain_reading(const char *folder, uint64_t *np)
{
	double began = now();
	volatile uint64_t sum = 0;
	MDB_cursor *cursor;
	MDB_val k, v;
	char path[512];
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	*np = 0;
	snprintf(path, sizeof(path), "%s/store.mdb", folder);
	must(mdb_env_create(&env));
	must(mdb_env_set_maxdbs(env, 1));
	must(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_RDONLY, 0600));
	must(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
	must(mdb_dbi_open(txn, "locks", 0, &dbi));
	must(mdb_cursor_open(txn, dbi, &cursor));
	while (mdb_cursor_get(cursor, &k, &v, MDB_NEXT) == 0) {
		sum += add_up(&v);
		++*np;
	}
	mdb_cursor_close(cursor);
	mdb_txn_abort(txn);
	mdb_env_close(env);
	return now() - began;
}
