/* A store under test: a loop to run it, its events, and a model of what it should hold. */
#pragma once

#include "../test.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "loop/loop.h"
#include "store/record.h"
#include "store/store.h"

struct kit;

/* What differs between backends. */
struct kit_backend {
	const char *name;
	bool is_volatile;
	int (*open)(struct kit *kit);          /* fills kit->store from kit->options */
	void (*prepare)(struct kit *kit);      /* once: a fresh place to store things */
	void (*clean_up)(struct kit *kit);     /* the place goes */
	void (*break_medium)(struct kit *kit); /* from now on nothing can be written */
	void (*repair_medium)(struct kit *kit);
	void (*lose_machine)(
		struct kit *kit); /* what the machine's death does to the medium; NULL: nothing */
};

/* The facts that should be stored: encoded records by type and key. */
struct kit_fact {
	enum hf_record_type type;
	uint64_t hash; /* of the key: tests with many thousand facts look for one of them at each step */
	char *key;
	uint8_t *bytes;
	size_t len;
};

struct kit_facts {
	struct kit_fact *facts;
	size_t n, capacity;
};

struct kit {
	const struct kit_backend *backend;
	struct hf_loop *loop;
	struct hf_store *store;
	struct hf_store_options options;
	struct hf_store_start start;
	char *path;
	struct kit_facts facts;
	uint64_t last_ticket;
	bool resync_nothing; /* on_resync puts nothing */

	uint64_t reached[2];
	uint64_t first_lost;
	int n_failed, n_resync, n_recovered, n_taken, n_commits;
};

/* Making and freeing */
void kit_init(struct kit *kit, const struct kit_backend *backend, enum hf_store_durability durability);
void kit_deinit(struct kit *kit);
void kit_open(struct kit *kit); /* and begins an epoch */
void kit_close(struct kit *kit);
void kit_reopen(struct kit *kit);

/* Waiting: fails the test after 30 s */
void kit_run_until(struct kit *kit, bool (*is_true)(struct kit *kit));
void kit_settle(struct kit *kit); /* until all that was written is reached */
void kit_turn(struct kit *kit);   /* one turn of the loop */

/* Facts: written to the store and to the model */
uint64_t kit_put_lock(struct kit *kit, uint64_t id, unsigned int seed);
void kit_delete_lock(struct kit *kit, uint64_t id);
uint64_t kit_put_reservation(struct kit *kit, uint64_t id, unsigned int seed);
void kit_delete_reservation(struct kit *kit, uint64_t id);
void kit_put_client(struct kit *kit, unsigned int n, unsigned int seed);
void kit_delete_client(struct kit *kit, unsigned int n);

/* What those are made of */
struct hf_store_lock kit_lock(uint64_t id, unsigned int seed);
struct hf_store_client kit_client(unsigned int n, unsigned int seed);

/* The model alone */
void kit_facts_set(struct kit_facts *facts, const struct hf_record *record);
void kit_facts_delete(struct kit_facts *facts, enum hf_record_type type, const char *key);
void kit_facts_drop(struct kit_facts *facts, bool locks, bool clients);
void kit_facts_free(struct kit_facts *facts);

/* The store holds exactly what the model says. */
void kit_load(struct kit *kit, struct kit_facts *facts);
void kit_expect_facts(struct kit *kit, struct kit_facts *expected);
void kit_expect(struct kit *kit);

/* Backends */
extern const struct kit_backend kit_memory;
extern const struct kit_backend kit_lmdb;
extern const struct kit_backend kit_postgres;

void kit_remove_tree(const char *path);
char *kit_temporary(void); /* a fresh folder */
