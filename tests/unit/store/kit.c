#include "kit.h"

#include <assert.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

#include "base/siphash.h"
#include "loop/timer.h"

/* Events */

static void on_reached(void *user, enum hf_store_kind kind, uint64_t ticket)
{
	struct kit *kit = user;

	assert_true(kind < HF_STORE_ALL);
	assert_true(ticket >= kit->reached[kind]);
	assert_int_equal(ticket, hf_store_reached(kit->store, kind));
	kit->reached[kind] = ticket;
}

static void on_failed(void *user, uint64_t first_lost)
{
	struct kit *kit = user;

	kit->n_failed++;
	kit->first_lost = first_lost;
	assert_false(hf_store_is_healthy(kit->store));
}

static void resync_fact(struct kit *kit, const struct kit_fact *fact)
{
	struct hf_bytes bytes = hf_bytes_of(fact->bytes, (uint32_t)fact->len);
	struct hf_record record;

	assert_int_equal(hf_record_next(&record, &bytes), 1);
	switch (record.type) {
	case HF_RECORD_LOCK:
		assert_int_equal(hf_store_resync_lock(kit->store, &record.lock), 0);
		break;
	case HF_RECORD_RESERVATION:
		assert_int_equal(hf_store_resync_reservation(kit->store, &record.reservation), 0);
		break;
	default:
		assert_int_equal(hf_store_resync_client(kit->store, &record.client), 0);
	}
}

static void on_resync(void *user)
{
	struct kit *kit = user;

	kit->n_resync++;
	for (size_t i = 0; i < kit->facts.n && !kit->resync_nothing; i++)
		resync_fact(kit, &kit->facts.facts[i]);
}

static void on_recovered(void *user)
{
	struct kit *kit = user;

	kit->n_recovered++;
	assert_true(hf_store_is_healthy(kit->store));
}

static void on_taken(void *user)
{
	struct kit *kit = user;

	kit->n_taken++;
}

static void on_commit(void *user, enum hf_store_kind kind, uint64_t ns)
{
	struct kit *kit = user;

	kit->n_commits++;
}

static const struct hf_store_events events = {
	.on_reached = on_reached,
	.on_failed = on_failed,
	.on_resync = on_resync,
	.on_recovered = on_recovered,
	.on_taken = on_taken,
	.on_commit = on_commit,
};

/* Making and freeing */

void kit_init(struct kit *kit, const struct kit_backend *backend, enum hf_store_durability durability)
{
	*kit = (struct kit){ .backend = backend };
	kit->options = (struct hf_store_options){
		.durability = durability,
		.boot_id = "boot-1",
		.server = "server-1",
		.events = &events,
		.user = kit,
	};
	assert_int_equal(hf_loop_new(&kit->loop), 0);
	if (backend->prepare)
		backend->prepare(kit);
}

void kit_deinit(struct kit *kit)
{
	kit_close(kit);
	hf_loop_free(kit->loop);
	if (kit->backend->clean_up)
		kit->backend->clean_up(kit);
	kit_facts_free(&kit->facts);
}

void kit_open(struct kit *kit)
{
	assert_int_equal(kit->backend->open(kit), 0);
	kit->reached[0] = kit->reached[1] = kit->last_ticket = 0;
	assert_int_equal(hf_store_begin_epoch(kit->store, &kit->start), 0);
}

void kit_close(struct kit *kit)
{
	kit->store = hf_store_free(kit->store);
}

void kit_reopen(struct kit *kit)
{
	kit_close(kit);
	kit_open(kit);
}

/* Waiting */

struct waiting {
	struct hf_timer timer;
	struct kit *kit;
	bool (*is_true)(struct kit *kit);
	uint64_t deadline;
};

static void look(struct hf_timer *timer)
{
	struct waiting *waiting = hf_container_of(timer, struct waiting, timer);

	if (waiting->is_true(waiting->kit) || hf_loop_now(waiting->kit->loop) > waiting->deadline)
		hf_loop_stop(waiting->kit->loop);
	else
		assert_int_equal(hf_timer_start(timer, HF_NS_PER_MS / 4), 0);
}

void kit_run_until(struct kit *kit, bool (*is_true)(struct kit *kit))
{
	struct waiting waiting = { .kit = kit, .is_true = is_true };

	waiting.deadline = hf_loop_now(kit->loop) + 30 * HF_NS_PER_S;
	hf_timer_init(&waiting.timer, kit->loop, look);
	assert_int_equal(hf_timer_start(&waiting.timer, 0), 0);
	assert_int_equal(hf_loop_run(kit->loop), 0);
	assert_true(is_true(kit));
}

static bool is_settled(struct kit *kit)
{
	return hf_store_is_idle(kit->store) && hf_store_reached(kit->store, HF_STORE_ALL) >= kit->last_ticket;
}

void kit_settle(struct kit *kit)
{
	kit_run_until(kit, is_settled);
}

static bool is_always_true(struct kit *kit)
{
	return true;
}

void kit_turn(struct kit *kit)
{
	kit_run_until(kit, is_always_true);
}

/* Facts: every field differs with the seed; lengths from nothing to the bound. */

static struct hf_bytes filler(unsigned int seed, uint32_t max)
{
	static uint8_t bytes[4096 + 256];
	static bool is_filled;

	for (size_t i = 0; i < sizeof(bytes) && !is_filled; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 256);
	is_filled = true;
	return hf_bytes_of(bytes + seed % 251, seed % 97 == 0 ? max : seed * 13 % (max > 40 ? 40 : max));
}

struct hf_store_lock kit_lock(uint64_t id, unsigned int seed)
{
	return (struct hf_store_lock){
		.id = id,
		.export = hf_bytes_of_str(seed % 2 ? "/data" : "/srv/other"),
		.handle = filler(seed, HF_STORE_MAX_HANDLE),
		.client = hf_bytes_of_str("nlm:192.0.2.1:host"),
		.oh = filler(seed + 1, HF_STORE_MAX_OH),
		.owner = seed * UINT64_C(0x9e3779b97f4a7c15),
		.start = seed,
		.end = seed % 3 ? UINT64_MAX : seed + 10,
		.epoch = seed / 2,
		.client_state = -(int32_t)seed,
		.flags = seed ^ 0x80000001u,
		.kind = (uint8_t)seed,
		.mode = seed % 2,
	};
}

static char client_id[HF_STORE_MAX_ID + 1];

static void name_client(unsigned int n)
{
	int len = snprintf(client_id, sizeof(client_id), "nlm:192.0.2.%u:host-%u", n % 256, n);

	if (n % 10 == 0) { /* as long as can be, and not for people */
		memset(client_id + len, 'x', sizeof(client_id) - 1 - (size_t)len);
		client_id[len] = '\\';
		client_id[len + 1] = '\xff';
		client_id[len + 2] = '\'';
		client_id[sizeof(client_id) - 1] = '\0';
	}
}

struct hf_store_client kit_client(unsigned int n, unsigned int seed)
{
	struct hf_store_client client = {
		.protocol = hf_bytes_of_str(n % 2 ? "nlm" : "nsm"),
		.mon_name = filler(seed, HF_STORE_MAX_NAME),
		.has_callback = seed % 2,
		.is_privileged = seed / 2 % 2,
		.is_secured = seed / 3 % 2,
		.identity = seed / 3 % 2 ? filler(seed + 3, HF_STORE_MAX_IDENTITY) : (struct hf_bytes){ 0 },
		.callback_host = filler(seed + 2, HF_STORE_MAX_NAME),
		.callback_program = seed * 3,
		.callback_version = UINT32_MAX - seed,
		.callback_procedure = seed,
		.sm_state = (int32_t)seed - 5,
		.is_state_unproven = seed / 4 % 2,
		.told_state = (int32_t)(seed % 7),
		.registered_at = UINT64_C(1700000000123456000) +
				 seed * UINT64_C(1000), /* PostgreSQL keeps microseconds */
		.last_seen = UINT64_C(1800000000987654000) + seed * UINT64_C(1000),
	};

	name_client(n);
	client.id = hf_bytes_of_str(client_id);
	assert_true(hf_addr_parse(&client.address, seed % 2 ? "192.0.2.7" : "2001:db8::7"));
	if (seed % 3) {
		assert_true(hf_addr_parse(&client.local, "198.51.100.1"));
		client.local.port = (uint16_t)seed;
	}
	memset(client.priv, (int)(seed & 0xff), sizeof(client.priv));
	return client;
}

static void key_of(char key[2 * HF_STORE_MAX_ID], const struct hf_record *record)
{
	if (record->type == HF_RECORD_LOCK)
		snprintf(key, 2 * HF_STORE_MAX_ID, "%020llu", (unsigned long long)record->lock.id);
	else if (record->type == HF_RECORD_RESERVATION)
		snprintf(key, 2 * HF_STORE_MAX_ID, "%020llu", (unsigned long long)record->reservation.id);
	else
		snprintf(key, 2 * HF_STORE_MAX_ID, "%.*s", (int)record->client.id.len,
			 (const char *)record->client.id.data);
}

static uint64_t note(struct kit *kit, uint64_t ticket)
{
	assert_true(ticket > kit->last_ticket);
	kit->last_ticket = ticket;
	return ticket;
}

uint64_t kit_put_lock(struct kit *kit, uint64_t id, unsigned int seed)
{
	struct hf_record record = { .type = HF_RECORD_LOCK, .lock = kit_lock(id, seed) };
	uint64_t ticket;

	assert_int_equal(hf_store_put_lock(kit->store, &record.lock, &ticket), 0);
	kit_facts_set(&kit->facts, &record);
	return note(kit, ticket);
}

void kit_delete_lock(struct kit *kit, uint64_t id)
{
	char key[32];
	uint64_t ticket;

	assert_int_equal(hf_store_delete_lock(kit->store, id, &ticket), 0);
	snprintf(key, sizeof(key), "%020llu", (unsigned long long)id);
	kit_facts_delete(&kit->facts, HF_RECORD_LOCK, key);
	note(kit, ticket);
}

uint64_t kit_put_reservation(struct kit *kit, uint64_t id, unsigned int seed)
{
	struct hf_record record = { .type = HF_RECORD_RESERVATION,
				    .reservation = { .id = id, .blob = filler(seed, HF_STORE_MAX_BLOB) } };
	uint64_t ticket;

	assert_int_equal(hf_store_put_reservation(kit->store, &record.reservation, &ticket), 0);
	kit_facts_set(&kit->facts, &record);
	return note(kit, ticket);
}

void kit_delete_reservation(struct kit *kit, uint64_t id)
{
	char key[32];
	uint64_t ticket;

	assert_int_equal(hf_store_delete_reservation(kit->store, id, &ticket), 0);
	snprintf(key, sizeof(key), "%020llu", (unsigned long long)id);
	kit_facts_delete(&kit->facts, HF_RECORD_RESERVATION, key);
	note(kit, ticket);
}

void kit_put_client(struct kit *kit, unsigned int n, unsigned int seed)
{
	struct hf_record record = { .type = HF_RECORD_CLIENT, .client = kit_client(n, seed) };
	uint64_t ticket;

	assert_int_equal(hf_store_put_client(kit->store, &record.client, &ticket), 0);
	kit_facts_set(&kit->facts, &record);
	note(kit, ticket);
}

void kit_delete_client(struct kit *kit, unsigned int n)
{
	uint64_t ticket;

	name_client(n);
	assert_int_equal(hf_store_delete_client(kit->store, hf_bytes_of_str(client_id), &ticket), 0);
	kit_facts_delete(&kit->facts, HF_RECORD_CLIENT, client_id);
	note(kit, ticket);
}

/* Model */

static uint64_t hash_of(const char *key)
{
	return hf_siphash(&(struct hf_siphash_key){ 0 }, key, strlen(key));
}

static struct kit_fact *find_fact(struct kit_facts *facts, enum hf_record_type type, const char *key)
{
	uint64_t hash = hash_of(key);

	for (size_t i = facts->n; i-- > 0;) {
		struct kit_fact *fact = &facts->facts[i];

		if (fact->hash == hash && fact->type == type && strcmp(fact->key, key) == 0)
			return fact;
	}
	return NULL;
}

/* The last one takes its place. */
static void remove_fact(struct kit_facts *facts, struct kit_fact *fact)
{
	free(fact->key);
	free(fact->bytes);
	*fact = facts->facts[--facts->n];
}

static void append_fact(struct kit_facts *facts, const struct hf_record *record, const char *key)
{
	struct kit_fact *fact = NULL;
	uint8_t bytes[HF_RECORD_MAX];
	int len;

	if (record->type == HF_RECORD_LOCK)
		len = hf_record_encode_lock(bytes, &record->lock);
	else if (record->type == HF_RECORD_RESERVATION)
		len = hf_record_encode_reservation(bytes, &record->reservation);
	else
		len = hf_record_encode_client(bytes, &record->client);
	assert_true(len > 0);
	if (facts->n == facts->capacity) {
		facts->capacity = facts->capacity ? facts->capacity * 2 : 64;
		facts->facts = realloc(facts->facts, facts->capacity * sizeof(*facts->facts));
		assert_non_null(facts->facts);
	}
	fact = &facts->facts[facts->n++];
	*fact = (struct kit_fact){ .type = record->type,
				   .hash = hash_of(key),
				   .key = strdup(key),
				   .len = (size_t)len,
				   .bytes = malloc((size_t)len) };
	assert_non_null(fact->key);
	assert_non_null(fact->bytes);
	memcpy(fact->bytes, bytes, fact->len);
}

void kit_facts_set(struct kit_facts *facts, const struct hf_record *record)
{
	char key[2 * HF_STORE_MAX_ID];

	key_of(key, record);
	kit_facts_delete(facts, record->type, key);
	append_fact(facts, record, key);
}

void kit_facts_delete(struct kit_facts *facts, enum hf_record_type type, const char *key)
{
	struct kit_fact *fact = find_fact(facts, type, key);

	if (fact)
		remove_fact(facts, fact);
}

void kit_facts_drop(struct kit_facts *facts, bool locks, bool clients)
{
	for (size_t i = facts->n; i-- > 0;) {
		if (facts->facts[i].type == HF_RECORD_CLIENT ? clients : locks)
			remove_fact(facts, &facts->facts[i]);
	}
}

void kit_facts_free(struct kit_facts *facts)
{
	kit_facts_drop(facts, true, true);
	free(facts->facts);
	*facts = (struct kit_facts){ 0 };
}

/* Comparing */

static int load_lock(void *user, const struct hf_store_lock *lock)
{
	struct hf_record record = { .type = HF_RECORD_LOCK, .lock = *lock };
	char key[2 * HF_STORE_MAX_ID];

	key_of(key, &record);
	append_fact(user, &record, key);
	return 0;
}

static int load_reservation(void *user, const struct hf_store_reservation *reservation)
{
	struct hf_record record = { .type = HF_RECORD_RESERVATION, .reservation = *reservation };
	char key[2 * HF_STORE_MAX_ID];

	key_of(key, &record);
	append_fact(user, &record, key);
	return 0;
}

static int load_client(void *user, const struct hf_store_client *client)
{
	struct hf_record record = { .type = HF_RECORD_CLIENT, .client = *client };
	char key[2 * HF_STORE_MAX_ID];

	key_of(key, &record);
	append_fact(user, &record, key);
	return 0;
}

void kit_load(struct kit *kit, struct kit_facts *facts)
{
	assert_int_equal(hf_store_load_clients(kit->store, load_client, facts), 0);
	assert_int_equal(hf_store_load_locks(kit->store, load_lock, facts), 0);
	assert_int_equal(hf_store_load_reservations(kit->store, load_reservation, facts), 0);
}

static int compare_facts(const void *a, const void *b)
{
	const struct kit_fact *x = a, *y = b;

	return x->type != y->type ? (int)x->type - (int)y->type : strcmp(x->key, y->key);
}

void kit_expect_facts(struct kit *kit, struct kit_facts *expected)
{
	struct kit_facts found = { 0 };

	kit_load(kit, &found);
	assert_int_equal(found.n, expected->n);
	if (found.n) {
		qsort(found.facts, found.n, sizeof(*found.facts), compare_facts);
		qsort(expected->facts, expected->n, sizeof(*expected->facts), compare_facts);
	}
	for (size_t i = 0; i < found.n; i++) {
		assert_string_equal(found.facts[i].key, expected->facts[i].key);
		assert_int_equal(found.facts[i].len, expected->facts[i].len);
		assert_memory_equal(found.facts[i].bytes, expected->facts[i].bytes, found.facts[i].len);
	}
	kit_facts_free(&found);
}

void kit_expect(struct kit *kit)
{
	struct kit_facts none = { 0 };

	kit_expect_facts(kit, kit->backend->is_volatile ? &none : &kit->facts);
}

/* Folders */

char *kit_temporary(void)
{
	const char *base = getenv("TMPDIR");
	char path[256];

	snprintf(path, sizeof(path), "%s/hf-store-XXXXXX", base ? base : "/tmp");
	assert_non_null(mkdtemp(path));
	return strdup(path);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

void kit_remove_tree(const char *path)
{
	assert_int_equal(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* Backends */

static int open_memory(struct kit *kit)
{
	return hf_store_open_memory(&kit->store, kit->loop, &kit->options);
}

const struct kit_backend kit_memory = {
	.name = "memory",
	.is_volatile = true,
	.open = open_memory,
};
