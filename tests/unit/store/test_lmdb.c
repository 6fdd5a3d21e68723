/* The embedded store's own promises: what it syncs, and which files it refuses. */
#include "kit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <lmdb.h>

#include "base/log.h"
#include "base/macros.h"
#include "loop/backend.h"
#include "loop/work.h"
#include "store/checksum.h"
#include "store/lmdb/check.h"
#include "store/lmdb/internal.h"

/* Helpers */

static uint8_t *read_file(const char *folder, const char *name, size_t *sizep)
{
	char path[512];
	struct stat st;
	uint8_t *data;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	data = malloc((size_t)st.st_size + 1);
	assert_non_null(data);
	assert_int_equal(read(fd, data, (size_t)st.st_size), st.st_size);
	close(fd);
	*sizep = (size_t)st.st_size;
	return data;
}

static void write_file(const char *folder, const char *name, const void *data, size_t size)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, size), size);
	close(fd);
}

static void expect_refused(struct kit *kit, const char *name)
{
	size_t before_size, after_size;
	uint8_t *before = read_file(kit->path, name, &before_size), *after;

	assert_true(hf_store_open_lmdb(&kit->store, kit->loop, &kit->options) < 0);
	after = read_file(kit->path, name, &after_size);
	assert_int_equal(after_size, before_size);
	assert_memory_equal(after, before, before_size);
	free(before);
	free(after);
}

static void fill(struct kit *kit)
{
	kit_open(kit);
	for (unsigned int i = 0; i < 300; i++) {
		kit_put_lock(kit, hf_store_new_id(kit->store), i);
		if (i % 5 == 0)
			kit_put_client(kit, i, i);
		if (i % 7 == 0)
			kit_put_reservation(kit, hf_store_new_id(kit->store), i);
	}
	kit_settle(kit);
}

/* Syncing: the test's fdatasync() stands before libc's, for the server's code and for LMDB's. */

static _Atomic int n_syncs;

int fdatasync(int fd)
{
	n_syncs++;
	return (int)syscall(SYS_fdatasync, fd);
}

static void test_what_is_synced(void **state)
{
	struct kit kit;
	int before;

	for (int machine = 0; machine < 2; machine++) {
		kit_init(&kit, &kit_lmdb, machine ? HF_STORE_MACHINE : HF_STORE_PROCESS);
		kit_open(&kit);
		before = n_syncs;
		kit_put_lock(&kit, hf_store_new_id(kit.store), 1);
		kit_settle(&kit);
		assert_int_equal(n_syncs - before, machine);
		before = n_syncs;
		kit_put_client(&kit, 1, 1);
		kit_settle(&kit);
		assert_true(n_syncs > before);
		before = n_syncs;
		kit_delete_client(&kit, 1);
		kit_settle(&kit);
		assert_true(n_syncs > before);
		before = n_syncs;
		assert_int_equal(hf_store_mark_clean(kit.store), 0);
		assert_true(n_syncs > before);
		kit_close(&kit);
		before = n_syncs;
		kit_open(&kit); /* raises epoch and state number */
		assert_true(n_syncs > before);
		kit_deinit(&kit);
	}
}

/* Refusing */

static void test_foreign_files_are_refused(void **state)
{
	static const char text[] = "this is a letter, and not a store at all\n";
	char zeros[8192] = { 0 };
	struct kit kit;

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	write_file(kit.path, "store.mdb", text, sizeof(text));
	expect_refused(&kit, "store.mdb");
	write_file(kit.path, "store.mdb", zeros, sizeof(zeros));
	expect_refused(&kit, "store.mdb");
	write_file(kit.path, "store.mdb", "", 0);
	expect_refused(&kit, "store.mdb");
	kit_deinit(&kit);
}

/* LMDB's file has the byte order and the word size of the machine that wrote it: the first number after a
 * page's head tells. */
static void test_files_of_other_machines_are_refused(void **state)
{
	static const char *const foreign = "it was written on a machine of another byte order or word size";
	const uint32_t magic = 0xbeefc0de, swapped = __builtin_bswap32(magic);
	const size_t ours = sizeof(size_t) + 8, other = sizeof(size_t) == 8 ? 12 : 16;
	const struct {
		size_t at;
		uint32_t magic;
		const char *answer;
	} heads[] = {
		{ ours, swapped, foreign },
		{ other, magic, foreign },
		{ other, swapped, foreign },
		{ ours + 8, magic, "it is not an LMDB file" },
		{ other + 8, swapped, "it is not an LMDB file" },
	};
	uint8_t file[8192];
	struct kit kit;

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	for (size_t i = 0; i < HF_ARRAY_SIZE(heads); i++) {
		memset(file, 0, sizeof(file));
		memcpy(file + heads[i].at, &heads[i].magic, sizeof(heads[i].magic));
		assert_string_equal(hf_lmdb_check(file, sizeof(file), NULL, NULL), heads[i].answer);
		write_file(kit.path, "store.mdb", file, sizeof(file));
		expect_refused(&kit, "store.mdb");
	}
	kit_deinit(&kit);
}

static void put_raw(struct kit *kit, const char *key, const char *value)
{
	MDB_val k = { strlen(key), (void *)(uintptr_t)key }, v = { strlen(value), (void *)(uintptr_t)value };
	char path[512];
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	snprintf(path, sizeof(path), "%s/store.mdb", kit->path);
	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_open(env, path, MDB_NOSUBDIR, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
	assert_int_equal(mdb_put(txn, dbi, &k, &v, 0), 0);
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
}

static void test_other_databases_are_refused(void **state)
{
	struct kit kit;

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	put_raw(&kit, "mail:1", "a letter"); /* LMDB, but of another program */
	expect_refused(&kit, "store.mdb");
	kit_deinit(&kit);

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	fill(&kit);
	kit_close(&kit);
	put_raw(&kit, "lock:AAAAAAAA", "no record"); /* the store's own key, with a rotten value */
	expect_refused(&kit, "store.mdb");
	kit_deinit(&kit);

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	fill(&kit);
	kit_close(&kit);
	put_raw(&kit, "server:format", "holdfast store 3 12345678"); /* newer */
	put_raw(&kit, "brand:new", "of the future");
	expect_refused(&kit, "store.mdb");
	kit_deinit(&kit);
}

static void expect_format(const struct kit *kit, const char *expected)
{
	char path[512];
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;
	MDB_val k = { 13, (void *)(uintptr_t) "server:format" }, v;

	snprintf(path, sizeof(path), "%s/store.mdb", kit->path);
	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_RDONLY, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
	assert_int_equal(mdb_get(txn, dbi, &k, &v), 0);
	assert_int_equal(v.mv_size, strlen(expected) + 8); /* a checksum follows */
	assert_memory_equal(v.mv_data, expected, strlen(expected));
	mdb_txn_abort(txn);
	mdb_env_close(env);
}

/* A program that knows format 1 must take the file for newer, and not for damaged. */
static void test_a_record_that_is_new_raises_the_format(void **state)
{
	struct kit kit;

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	kit_open(&kit);
	kit_put_client(&kit, 1, 1);
	kit_settle(&kit);
	kit_close(&kit);
	expect_format(&kit, "holdfast store 1");
	kit_open(&kit);
	kit_put_client(&kit, 2, 3); /* is_secured */
	kit_settle(&kit);
	kit_close(&kit);
	expect_format(&kit, "holdfast store 2");
	kit_open(&kit);
	kit_put_client(&kit, 1, 2); /* the other one stays */
	kit_settle(&kit);
	kit_close(&kit);
	expect_format(&kit, "holdfast store 2");
	kit_deinit(&kit);
}

/* The file as a program of format 1 would have written it; nothing else changes. */
static void test_back_to_the_first_format(void **state)
{
	struct hf_record record = { .type = HF_RECORD_CLIENT };
	struct kit kit;

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	fill(&kit);
	kit_reopen(&kit);
	expect_format(&kit, "holdfast store 2");
	assert_int_equal(hf_store_downgrade_lmdb(kit.store, 3), -EINVAL);
	expect_format(&kit, "holdfast store 2");
	assert_int_equal(hf_store_downgrade_lmdb(kit.store, 2), 0); /* it has that */
	kit_expect(&kit);
	assert_int_equal(hf_store_downgrade_lmdb(kit.store, 1), 0);
	expect_format(&kit, "holdfast store 1");
	for (unsigned int i = 0; i < 300; i += 5) {
		record.client = kit_client(i, i);
		record.client.is_secured = false;
		record.client.identity = hf_bytes_of(NULL, 0);
		kit_facts_set(&kit.facts, &record);
	}
	kit_reopen(&kit);
	kit_expect(&kit);
	expect_format(&kit, "holdfast store 1");
	kit_put_client(&kit, 5, 3); /* is_secured again; its old name leaves the index */
	kit_settle(&kit);
	kit_reopen(&kit);
	kit_expect(&kit);
	expect_format(&kit, "holdfast store 2");
	kit_deinit(&kit);
}

static void test_journals_of_others_are_refused(void **state)
{
	struct kit one, two;
	size_t size;
	uint8_t *data;

	kit_init(&one, &kit_lmdb, HF_STORE_PROCESS);
	kit_init(&two, &kit_lmdb, HF_STORE_PROCESS);
	fill(&one);
	fill(&two);
	kit_close(&one);
	kit_close(&two);
	data = read_file(one.path, "journal.0", &size);
	write_file(two.path, "journal.0", data, size);
	expect_refused(&two, "journal.0");
	write_file(two.path, "journal.0", "letter", 6);
	expect_refused(&two, "journal.0");
	data[16] = 9; /* a newer version */
	write_file(one.path, "journal.0", data, size);
	expect_refused(&one, "journal.0");
	free(data);
	kit_deinit(&one);
	kit_deinit(&two);
}

static void test_the_second_daemon_is_refused(void **state)
{
	struct hf_store *second = NULL;
	struct kit kit;

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	fill(&kit);
	assert_int_equal(hf_store_open_lmdb(&second, kit.loop, &kit.options), -EBUSY);
	assert_null(second);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 5); /* the first goes on */
	kit_settle(&kit);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

/* Every single byte of the file may rot: whatever the store makes of it, it neither crashes nor touches the
 * file. */
static void test_rotten_files_are_refused_unchanged(void **state)
{
	size_t size, n_refused = 0;
	unsigned int seed = 12345;
	struct kit kit;
	uint8_t *data;

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	fill(&kit);
	assert_int_equal(hf_store_mark_clean(kit.store), 0);
	kit_close(&kit);
	data = read_file(kit.path, "store.mdb", &size);
	for (unsigned int i = 0; i < 2000; i++) {
		size_t at = (size_t)rand_r(&seed) % size;
		uint8_t old;

		/* Pages may be large, and most of them zeros that are never read. */
		while (i % 2 && !data[at])
			at = (size_t)rand_r(&seed) % size;
		old = data[at];
		data[at] ^= (uint8_t)(1u << rand_r(&seed) % 8);
		write_file(kit.path, "store.mdb", data, size);
		if (hf_store_open_lmdb(&kit.store, kit.loop, &kit.options) < 0) {
			size_t after_size;
			uint8_t *after = read_file(kit.path, "store.mdb", &after_size);

			n_refused++;
			assert_int_equal(after_size, size);
			assert_memory_equal(after, data, size);
			free(after);
		} else { /* the changed byte is one that is never read: then all is there */
			struct kit_facts found = { 0 };

			kit_load(&kit, &found);
			assert_int_equal(found.n, kit.facts.n);
			kit_facts_free(&found);
		}
		kit_close(&kit);
		data[at] = old;
	}
	assert_true(n_refused > 500);
	for (size_t cut = 1; cut < size; cut += size / 20) { /* cut short: refused, if that page was in use */
		write_file(kit.path, "store.mdb", data, size - cut);
		(void)hf_store_open_lmdb(&kit.store, kit.loop, &kit.options);
		kit_close(&kit);
	}
	free(data);
	kit_deinit(&kit);
}

/* Keys, as others may look for them */

static void expect_key(struct kit *kit, const char *key, bool is_there)
{
	MDB_val k = { strlen(key), (void *)(uintptr_t)key }, v;
	char path[512];
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	snprintf(path, sizeof(path), "%s/store.mdb", kit->path);
	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_RDONLY, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
	assert_int_equal(mdb_get(txn, dbi, &k, &v), is_there ? 0 : MDB_NOTFOUND);
	mdb_txn_abort(txn);
	mdb_env_close(env);
}

static void put_named(struct kit *kit, const char *name)
{
	struct hf_store_client client = kit_client(3, 3);

	client.id = hf_bytes_of_str("nlm:192.0.2.3:one");
	client.mon_name = hf_bytes_of_str(name);
	assert_int_equal(hf_store_put_client(kit->store, &client, &kit->last_ticket), 0);
	kit_settle(kit);
	kit_close(kit);
}

static void test_keys_of_registrations(void **state)
{
	struct kit kit;

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	kit_open(&kit);
	put_named(&kit, "one.example");
	expect_key(&kit, "nsm:client:nlm:192.0.2.3:one", true);
	expect_key(&kit, "nsm:monname:one.example:nlm:192.0.2.3:one", true);
	kit_open(&kit);
	put_named(&kit, "two.example");
	expect_key(&kit, "nsm:monname:one.example:nlm:192.0.2.3:one", false);
	expect_key(&kit, "nsm:monname:two.example:nlm:192.0.2.3:one", true);
	kit_open(&kit);
	assert_int_equal(hf_store_delete_client(kit.store, hf_bytes_of_str("nlm:192.0.2.3:one"),
						&kit.last_ticket),
			 0);
	kit_settle(&kit);
	kit_close(&kit);
	expect_key(&kit, "nsm:client:nlm:192.0.2.3:one", false);
	expect_key(&kit, "nsm:monname:two.example:nlm:192.0.2.3:one", false);
	kit_deinit(&kit);
}

/* The journal */

static void test_torn_tail_is_dropped(void **state)
{
	size_t size, whole;
	struct kit kit;
	uint8_t *data;

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	kit_open(&kit);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 1);
	kit_settle(&kit);
	data = read_file(kit.path, "journal.0", &whole);
	free(data);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 2);
	kit_settle(&kit);
	kit_close(&kit);
	data = read_file(kit.path, "journal.0", &size);
	assert_true(size > whole);
	write_file(kit.path, "journal.0", data, size - 8); /* as if killed within the last write */
	kit_facts_delete(&kit.facts, HF_RECORD_LOCK, kit.facts.facts[1].key);
	kit_open(&kit);
	kit_expect(&kit);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 3);
	kit_settle(&kit);
	kit_reopen(&kit);
	kit_expect(&kit);
	free(data);
	kit_deinit(&kit);
}

/* Each in a frame of its own. */
static void open_with_ten_locks(struct kit *kit)
{
	kit_init(kit, &kit_lmdb, HF_STORE_PROCESS);
	kit_open(kit);
	for (unsigned int i = 0; i < 10; i++) {
		kit_put_lock(kit, hf_store_new_id(kit->store), i);
		kit_settle(kit);
	}
}

/* Behind the torn frame of a segment that is used again lie frames of its earlier use, whole and folded. */
static void test_torn_frame_before_old_ones(void **state)
{
	struct kit kit;
	uint8_t *data;
	size_t size;

	open_with_ten_locks(&kit);
	kit_reopen(&kit); /* folded: the segment starts anew */
	kit_put_lock(&kit, hf_store_new_id(kit.store), 20);
	kit_settle(&kit);
	kit_close(&kit);
	data = read_file(kit.path, "journal.0", &size);
	data[64 + 40] ^= 1;
	write_file(kit.path, "journal.0", data, size);
	free(data);
	kit_facts_delete(&kit.facts, HF_RECORD_LOCK, kit.facts.facts[10].key);
	kit_open(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

static void remove_segment(struct kit *kit, int number)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/journal.%d", kit->path, number);
	assert_int_equal(unlink(path), 0);
}

/* The one that was written, and one that never was: which it is cannot be known any more. */
static void test_missing_segment_is_refused(void **state)
{
	static const int numbers[] = { 0, 1, HF_JOURNAL_SEGMENTS - 1 };

	for (size_t i = 0; i < HF_ARRAY_SIZE(numbers); i++) {
		struct kit kit;
		char name[32];
		int r;

		open_with_ten_locks(&kit);
		kit_close(&kit);
		remove_segment(&kit, numbers[i]);
		for (int round = 0; round < 2; round++) { /* the refusal has not made it */
			r = hf_store_open_lmdb(&kit.store, kit.loop, &kit.options);
			assert_int_equal(r, -EBADMSG);
			snprintf(name, sizeof(name), "%s/journal.%d", kit.path, numbers[i]);
			assert_int_not_equal(access(name, F_OK), 0);
		}
		kit.options.gives_up = true; /* and then all is cleared */
		kit_open(&kit);
		assert_int_equal(kit.start.epoch, 2);
		assert_int_equal(hf_store_clear(kit.store), 0);
		kit_facts_drop(&kit.facts, true, true);
		kit.options.gives_up = false;
		kit_reopen(&kit);
		kit_expect(&kit);
		kit_put_lock(&kit, hf_store_new_id(kit.store), 3);
		kit_settle(&kit);
		kit_reopen(&kit);
		kit_expect(&kit);
		kit_deinit(&kit);
	}
}

/* Nothing that counts is in the journal after a clean stop, nor after a crash of the machine. */
static void test_missing_segment_without_loss(void **state)
{
	struct kit kit;

	open_with_ten_locks(&kit);
	assert_int_equal(hf_store_mark_clean(kit.store), 0);
	kit_close(&kit);
	remove_segment(&kit, 0);
	kit_open(&kit);
	kit_expect(&kit);
	kit_close(&kit);
	remove_segment(&kit, 0);
	kit.options.boot_id = "boot-2";
	kit_open(&kit);
	kit_facts_drop(&kit.facts, true, false);
	kit_expect(&kit);
	kit_deinit(&kit);
}

/* Two frames in a segment; the second one of the first segment goes. */
static void test_segment_that_ends_early(void **state)
{
	const uint32_t size = 3u << 20;
	char *path = kit_temporary();
	hf_cleanup(hf_closep) int dir = open(path, O_RDONLY | O_DIRECTORY);
	uint8_t *records = calloc(1, size);
	struct hf_journal journal;
	const char *wrong = NULL;
	unsigned int segment = 99;

	assert_int_equal(hf_journal_open(&journal, dir, 7, 0, HF_JOURNAL_AT_REST, &wrong, &segment), 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(hf_journal_append(&journal, hf_bytes_of(records, size)), 0);
	assert_int_equal(ftruncate(journal.segments[0].fd, 64 + 32 + size), 0);
	hf_journal_close(&journal);
	assert_int_equal(hf_journal_open(&journal, dir, 7, 0, HF_JOURNAL_WHOLE, &wrong, &segment), -EBADMSG);
	assert_int_equal(segment, 0);
	assert_string_equal(wrong, "its end is missing");
	hf_journal_close(&journal);
	free(records);
	kit_remove_tree(path);
	free(path);
}

static void test_damage_in_the_middle_is_refused(void **state)
{
	struct kit kit;
	uint8_t *data;
	size_t size;

	open_with_ten_locks(&kit);
	kit_close(&kit);
	data = read_file(kit.path, "journal.0", &size);
	data[size / 2] ^= 1;
	write_file(kit.path, "journal.0", data, size);
	expect_refused(&kit, "journal.0");
	/* After a crash of the machine that is what must be expected: it was not synced. */
	kit.options.boot_id = "boot-2";
	kit_open(&kit);
	assert_true(kit.start.dropped_locks);
	kit_facts_drop(&kit.facts, true, false);
	kit_expect(&kit);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 3);
	kit_settle(&kit);
	kit_reopen(&kit);
	kit_expect(&kit);
	free(data);
	kit_deinit(&kit);
}

/* More than all segments hold: they are folded, and used again. */
static void test_many_segments(void **state)
{
	const size_t n_live = 3000;
	uint64_t *live = calloc(n_live, sizeof(*live));
	struct kit kit;
	size_t n = 0;

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	kit_open(&kit);
	for (size_t i = 0; i < 3 * HF_JOURNAL_SEGMENTS * HF_JOURNAL_SIZE / 160; i++) {
		struct hf_store_lock lock = kit_lock(hf_store_new_id(kit.store), i % 96 + 1);
		uint64_t *slot = &live[i % n_live];

		if (*slot)
			assert_int_equal(hf_store_delete_lock(kit.store, *slot, NULL), 0);
		*slot = lock.id;
		assert_int_equal(hf_store_put_lock(kit.store, &lock, &kit.last_ticket), 0);
		if (i % 5000 == 0)
			kit_settle(&kit);
	}
	kit_settle(&kit);
	kit_reopen(&kit);
	for (size_t i = 0; i < n_live; i++)
		n += live[i] != 0;
	kit_load(&kit, &kit.facts);
	assert_int_equal(kit.facts.n, n);
	kit_reopen(&kit);
	kit_expect(&kit);
	free(live);
	kit_deinit(&kit);
}

static off_t size_of_first(struct kit *kit)
{
	char path[512];
	struct stat st;

	snprintf(path, sizeof(path), "%s/journal.0", kit->path);
	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

static bool is_first_small(struct kit *kit)
{
	return size_of_first(kit) <= (off_t)HF_JOURNAL_SIZE;
}

/* One batch that is larger than a segment. Once it is folded, its segment is as large as the others. */
static void test_segment_shrinks_after_a_large_frame(void **state)
{
	struct kit kit;

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	kit_open(&kit);
	for (size_t i = 0; i < HF_JOURNAL_SIZE / HF_STORE_MAX_OH + 100; i++)
		kit_put_lock(&kit, hf_store_new_id(kit.store),
			     97 - 1); /* with the longest handle of an owner */
	kit_settle(&kit);
	assert_false(is_first_small(&kit));
	kit_put_lock(&kit, hf_store_new_id(kit.store), 1); /* goes to the next segment */
	kit_run_until(&kit, is_first_small);
	assert_int_equal(kit.n_failed, 0);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

/* A segment that is used again has old frames behind the new ones. They are not read. */
static void test_read_ends_with_the_frames_of_this_use(void **state)
{
	const uint32_t size = 3u << 20;
	char *path = kit_temporary();
	hf_cleanup(hf_closep) int dir = open(path, O_RDONLY | O_DIRECTORY);
	uint8_t *records = calloc(1, size);
	struct hf_journal_frames frames;
	struct hf_journal journal;
	struct hf_bytes found;
	const char *wrong = NULL;
	unsigned int segment;

	assert_int_equal(hf_journal_open(&journal, dir, 7, 0, HF_JOURNAL_AT_REST, &wrong, &segment), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(hf_journal_append(&journal, hf_bytes_of(records, size)), 0);
	hf_journal_release(&journal, 0);
	assert_int_equal(hf_journal_append(&journal, hf_bytes_of(records, 1000)), 0);
	assert_int_equal(hf_journal_read(&frames, &journal, 0, journal.segments[0].end), 0);
	assert_int_equal(frames.size, journal.segments[0].end);
	assert_int_equal(hf_journal_next(&frames, &found), 1);
	assert_int_equal(found.len, 1000);
	assert_int_equal(frames.sequence, 3);
	assert_int_equal(hf_journal_next(&frames, &found), 0);
	hf_journal_read_end(&frames);
	hf_journal_close(&journal);
	free(records);
	kit_remove_tree(path);
	free(path);
}

/* No memory to have a full segment folded: that is a failure as any other, and passes. */

static int no_work(struct hf_loop *loop, struct hf_work *work)
{
	return -ENOMEM;
}

static bool has_failed(struct kit *kit)
{
	return kit->n_failed > 0;
}

static bool has_recovered(struct kit *kit)
{
	return kit->n_recovered > 0;
}

static void test_no_memory_to_fold(void **state)
{
	const struct hf_loop_ops *ops;
	struct hf_loop_ops poor;
	struct hf_store *second = NULL;
	struct kit kit;

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	kit_open(&kit);
	ops = kit.loop->ops;
	poor = *ops;
	poor.work_submit = no_work;
	kit.resync_nothing = true;
	kit.loop->ops = &poor;
	for (size_t i = 0; i < HF_JOURNAL_SIZE / 64; i++)
		assert_int_equal(hf_store_put_lock(kit.store,
						   &(struct hf_store_lock){
							   .id = hf_store_new_id(kit.store),
							   .handle = hf_bytes_of_str("h"),
							   .client = hf_bytes_of_str("c"),
							   .oh = hf_bytes_of_str("some bytes"),
							   .end = i },
						   &kit.last_ticket),
				 0);
	kit_turn(&kit);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 1); /* goes to the next segment */
	kit_run_until(&kit, has_failed);
	kit.loop->ops = ops;
	kit_run_until(&kit, has_recovered);
	assert_int_equal(hf_store_open_lmdb(&second, kit.loop, &kit.options), -EBUSY); /* as ever */
	assert_null(second);
	kit_facts_drop(&kit.facts, true, false);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 2);
	kit_settle(&kit);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

/* The disk hangs while a registration is written, so that no segment is folded, and locks fill all of them.
 * Then the registration fails. No fold follows a failure: the locks that wait for a segment must not wait for
 * it. */

static struct hf_work *held;

static int hold_work(struct hf_loop *loop, struct hf_work *work)
{
	assert_null(held);
	held = work;
	work->request = &held;
	return 0;
}

static void fail_db(struct hf_work *work)
{
	hf_container_of(work, struct hf_lmdb, db_work)->db_result = -EIO;
}

static void put_large_lock(struct kit *kit)
{
	static const uint8_t oh[1000];
	struct hf_store_lock lock = kit_lock(hf_store_new_id(kit->store), 1);

	lock.oh = hf_bytes_of(oh, sizeof(oh));
	assert_int_equal(hf_store_put_lock(kit->store, &lock, &kit->last_ticket), 0);
}

static void test_a_failure_while_locks_wait_for_a_segment(void **state)
{
	const struct hf_loop_ops *ops;
	struct hf_loop_ops hung;
	struct kit kit;

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	kit_open(&kit);
	kit_settle(&kit);
	ops = kit.loop->ops;
	hung = *ops;
	hung.work_submit = hold_work;
	kit.resync_nothing = true;
	kit.loop->ops = &hung;
	kit_put_client(&kit, 1, 1);
	kit_turn(&kit);
	assert_non_null(held);
	for (size_t i = 0; i < HF_JOURNAL_SEGMENTS * HF_JOURNAL_SIZE / 1000; i++) {
		put_large_lock(&kit);
		if (i % 4000 == 0)
			kit_turn(&kit);
	}
	kit_turn(&kit);
	kit.loop->ops = ops;
	held->request = NULL;
	held->run = fail_db;
	assert_int_equal(ops->work_submit(kit.loop, held), 0);
	kit_run_until(&kit, has_failed);
	kit_run_until(&kit, has_recovered);
	kit_facts_drop(&kit.facts, true, true);
	kit_put_lock(&kit, hf_store_new_id(kit.store), 2);
	kit_settle(&kit);
	kit_reopen(&kit);
	kit_expect(&kit);
	kit_deinit(&kit);
}

/* Known answers */

/* Locks come back file by file, in the order in which the files appeared, and those of a file in the order in
 * which they were taken. */

enum {
	ORDER_FILES = 3000,
	ORDER_LOCKS = 4 * ORDER_FILES,
};

struct order {
	unsigned int file; /* the last one seen */
	uint64_t last_id;
	size_t n;
};

/* Of the lock that is the @i-th: the files appear in the order of their numbers. */
static unsigned int order_file(unsigned int i)
{
	return i < ORDER_FILES ? i : i * 7 % ORDER_FILES;
}

static int look_at_order(void *user, const struct hf_store_lock *lock)
{
	struct order *order = user;
	unsigned int file = (unsigned int)(lock->handle.data[0] | lock->handle.data[1] << 8);

	if (order->n && file != order->file) {
		assert_int_equal(file, order->file + 1);
		order->last_id = 0;
	}
	assert_true(lock->id > order->last_id);
	order->file = file;
	order->last_id = lock->id;
	order->n++;
	return 0;
}

static void test_locks_are_loaded_by_file(void **state)
{
	struct order order = { 0 };
	struct kit kit;

	kit_init(&kit, &kit_lmdb, HF_STORE_PROCESS);
	kit_open(&kit);
	for (unsigned int i = 0; i < ORDER_LOCKS; i++) {
		struct hf_store_lock lock = kit_lock(hf_store_new_id(kit.store), i);
		uint8_t handle[2] = { (uint8_t)order_file(i), (uint8_t)(order_file(i) >> 8) };

		lock.handle = hf_bytes_of(handle, sizeof(handle));
		assert_int_equal(hf_store_put_lock(kit.store, &lock, &kit.last_ticket), 0);
	}
	kit_settle(&kit);
	kit_reopen(&kit);
	assert_int_equal(hf_store_load_locks(kit.store, look_at_order, &order), 0);
	assert_int_equal(order.n, ORDER_LOCKS);
	kit_close(&kit);
	kit_deinit(&kit);
}

static void test_checksum(void **state)
{
	static const char text[] = "Nobody inspects the spammish repetition";

	assert_true(hf_checksum("", 0) == UINT64_C(0xef46db3751d8e999));
	assert_true(hf_checksum("a", 1) == UINT64_C(0xd24ec4f1a98c6e5b));
	assert_true(hf_checksum("abc", 3) == UINT64_C(0x44bc2cf5ad770999));
	assert_true(hf_checksum(text, strlen(text)) == UINT64_C(0xfbcea83c8a378bf1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_checksum),
		cmocka_unit_test(test_what_is_synced),
		cmocka_unit_test(test_foreign_files_are_refused),
		cmocka_unit_test(test_files_of_other_machines_are_refused),
		cmocka_unit_test(test_other_databases_are_refused),
		cmocka_unit_test(test_a_record_that_is_new_raises_the_format),
		cmocka_unit_test(test_back_to_the_first_format),
		cmocka_unit_test(test_journals_of_others_are_refused),
		cmocka_unit_test(test_the_second_daemon_is_refused),
		cmocka_unit_test(test_keys_of_registrations),
		cmocka_unit_test(test_torn_tail_is_dropped),
		cmocka_unit_test(test_torn_frame_before_old_ones),
		cmocka_unit_test(test_missing_segment_is_refused),
		cmocka_unit_test(test_missing_segment_without_loss),
		cmocka_unit_test(test_segment_that_ends_early),
		cmocka_unit_test(test_damage_in_the_middle_is_refused),
		cmocka_unit_test(test_many_segments),
		cmocka_unit_test(test_segment_shrinks_after_a_large_frame),
		cmocka_unit_test(test_read_ends_with_the_frames_of_this_use),
		cmocka_unit_test(test_no_memory_to_fold),
		cmocka_unit_test(test_a_failure_while_locks_wait_for_a_segment),
		cmocka_unit_test(test_locks_are_loaded_by_file),
		cmocka_unit_test(test_rotten_files_are_refused_unchanged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
