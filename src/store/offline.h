/*
 * A store without a server: to look into it, and to copy it to another medium.
 *
 * To open it locks it as a server does: while a server uses the store, the open
 * fails. A look begins no epoch and changes no fact.
 */
#pragma once

#include "store/state.h"
#include "store/store.h"

struct hf_offline;

struct hf_offline_options {
	const char *path;     /* lmdb: the folder of its files; NULL: see postgres */
	const char *postgres; /* libpq's connection string */
	const char *server;   /* postgres: the server name in the rows */
};

/* An open that fails has logged the reason. */
int hf_offline_open(struct hf_offline **offlinep, const struct hf_offline_options *options);
struct hf_offline *hf_offline_close(struct hf_offline *offline);

HF_DEFINE_CLEANUP(struct hf_offline *, hf_offline_close)

/* For hf_store_load_*(). */
struct hf_store *hf_offline_store(struct hf_offline *offline);

/* 1: *statep is the state of the last run, and *is_trustedp says whether a start would trust the locks that
 * it stored. 0: no run has used this store. */
int hf_offline_look(struct hf_offline *offline, struct hf_store_state *statep, bool *is_trustedp);

/*
 * Copies the state and every fact that a start would trust, with their ids; all of it is synced when it
 * returns 0. @to: a store that no run has used: -EEXIST otherwise. -ENOENT: no run has used @from. If the
 * copy fails in between, a start on @to takes its list of locks for incomplete.
 */
int hf_offline_copy(struct hf_offline *to, struct hf_offline *from);
