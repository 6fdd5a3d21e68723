/*
 * A store whose server is stopped: check it, write it as JSON, copy it to another
 * backend, give it the tables or the format of an older version. A running server has
 * its store locked, and the command fails.
 */
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hex.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "lock/lock.h"
#include "recovery/reservation.h"
#include "store/offline.h"

#define NS_PER_S 1000000000

/* Opening */

static bool is_database(const char *text)
{
	return strchr(text, '=') || strncmp(text, "postgres://", 11) == 0 ||
	       strncmp(text, "postgresql://", 13) == 0;
}

/* Files that root makes in the folder of a server with a user of its own would lock that server out. */
static int become_owner(const char *folder)
{
	struct stat st;

	if (stat(folder, &st) < 0) {
		int code = errno == ENOENT ? CLI_NOT_FOUND : CLI_FAILED;

		fprintf(stderr, "holdfast: %s: %s\n", folder, strerror(errno));
		return code;
	}
	if (geteuid() != 0 || st.st_uid == 0)
		return CLI_OK;
	if (setgroups(0, NULL) < 0 || setresgid(st.st_gid, st.st_gid, st.st_gid) < 0 ||
	    setresuid(st.st_uid, st.st_uid, st.st_uid) < 0) {
		fprintf(stderr, "holdfast: cannot become the owner of %s: %s\n", folder, strerror(errno));
		return CLI_FAILED;
	}
	return CLI_OK;
}

/* @must_exist: it is read, so a server must have made it. */
static int prepare_folder(const char *folder, bool must_exist)
{
	char file[4096];
	int code = become_owner(folder);

	snprintf(file, sizeof(file), "%s/store.mdb", folder);
	if (code != CLI_OK || !must_exist || access(file, F_OK) == 0)
		return code;
	fprintf(stderr, "holdfast: there is no store in %s; give its folder, or a connection string\n",
		folder);
	return CLI_NOT_FOUND;
}

static int look_for_server(struct hf_offline *offline, const char *name)
{
	struct hf_store_state state;
	bool is_trusted;
	int r = hf_offline_look(offline, &state, &is_trusted);

	if (r < 0)
		fprintf(stderr, "holdfast: the store cannot be read: %s\n", strerror(-r));
	else if (r == 0)
		fprintf(stderr, "holdfast: no server named %s has used this store; see --name\n", name);
	return r > 0 ? CLI_OK : r ? CLI_FAILED : CLI_NOT_FOUND;
}

static int open_store(const struct cli *cli, const char *text, bool must_exist, struct hf_offline **offlinep)
{
	bool is_db = is_database(text);
	char host[256] = "";
	struct hf_offline_options options = { .path = is_db ? NULL : text,
					      .postgres = is_db ? text : NULL,
					      .server = cli->name ? cli->name : host };
	int code = CLI_OK, r;

	if (gethostname(host, sizeof(host) - 1) < 0 || !*host)
		snprintf(host, sizeof(host), "holdfast"); /* as the server does */
	if (!is_db)
		code = prepare_folder(text, must_exist);
	if (code != CLI_OK)
		return code;
	r = hf_offline_open(offlinep, &options);
	if (r < 0) {
		fprintf(stderr, "holdfast: the store cannot be used%s\n",
			r == -EBUSY ? "; stop holdfastd first" : "");
		return CLI_FAILED;
	}
	return must_exist ? look_for_server(*offlinep, options.server) : CLI_OK;
}

/* Facts as JSON */

/* Bytes that are not UTF-8 are shown as \xNN. */
static json_t *text_of(struct hf_bytes bytes)
{
	char *out = malloc(4 * (size_t)bytes.len + 1);
	size_t len = 0;
	json_t *json;

	if (!out)
		abort(); /* out of memory; a short-lived program may simply end */
	for (uint32_t i = 0; i < bytes.len;) {
		uint32_t code;
		size_t n = hf_utf8_decode((const char *)bytes.data + i, bytes.len - i, &code);

		if (n) {
			memcpy(out + len, bytes.data + i, n);
			len += n;
		} else {
			memcpy(out + len, "\\x", 2);
			len = (size_t)(hf_hex_put(out + len + 2, bytes.data + i, 1) - out);
		}
		i += n ? (uint32_t)n : 1;
	}
	json = json_stringn(out, len);
	free(out);
	return json ? json : json_null();
}

static json_t *hex_of(struct hf_bytes bytes)
{
	char *out = malloc(2 * (size_t)bytes.len + 1);
	json_t *json;

	if (!out)
		abort();
	json = json_stringn(out, (size_t)(hf_hex_put(out, bytes.data, bytes.len) - out));
	free(out);
	return json;
}

static json_t *address_of(const struct hf_addr *address)
{
	char text[HF_ADDR_TEXT];

	return json_string(hf_addr_format(address, text, sizeof(text)));
}

static json_t *state_of(const struct hf_store_state *state, bool is_trusted)
{
	static const char *const durabilities[] = { "none", "process", "machine" };

	return json_pack("{s:I,s:i,s:b,s:b,s:b,s:s,s:b}", "epoch", (json_int_t)state->epoch, "sm_state",
			 state->sm_state, "clean_stop", state->is_clean, "complete", state->is_complete,
			 "settled", state->is_settled, "lock_durability", durabilities[state->durability],
			 "locks_trusted", is_trusted);
}

static json_t *client_of(const struct hf_store_client *client)
{
	json_t *callback = json_null(), *json;

	if (client->has_callback)
		callback = json_pack("{s:o,s:I,s:I,s:I}", "host", text_of(client->callback_host), "program",
				     (json_int_t)client->callback_program, "version",
				     (json_int_t)client->callback_version, "procedure",
				     (json_int_t)client->callback_procedure);
	json = json_pack("{s:o,s:o,s:o,s:o,s:o,s:i,s:b,s:i,s:I,s:I}", "id", text_of(client->id), "protocol",
			 text_of(client->protocol), "mon_name", text_of(client->mon_name), "address",
			 address_of(&client->address), "callback", callback, "sm_state", client->sm_state,
			 "sm_state_proven", !client->is_state_unproven, "told_state", client->told_state,
			 "registered_at", (json_int_t)(client->registered_at / NS_PER_S), "last_seen",
			 (json_int_t)(client->last_seen / NS_PER_S));
	json_object_set_new(json, "local", address_of(&client->local));
	json_object_set_new(json, "other_locals",
			    client->has_callback ? json_null() : text_of(client->callback_host));
	json_object_set_new(json, "priv", hex_of(hf_bytes_of(client->priv, sizeof(client->priv))));
	json_object_set_new(json, "privileged", json_boolean(client->is_privileged));
	json_object_set_new(json, "secured", json_boolean(client->is_secured));
	json_object_set_new(json, "identity", text_of(client->identity));
	return json;
}

static json_t *lock_of(const struct hf_store_lock *lock)
{
	struct hf_range range = { lock->start, lock->end };

	return json_pack("{s:I,s:o,s:o,s:o,s:I,s:o,s:I,s:I,s:s,s:I,s:i,s:I}", "id", (json_int_t)lock->id,
			 "share", text_of(lock->export), "handle", hex_of(lock->handle), "client",
			 text_of(lock->client), "svid", (json_int_t)lock->owner, "oh", hex_of(lock->oh),
			 "offset", (json_int_t)lock->start, "length", (json_int_t)hf_range_len(range), "mode",
			 lock->mode == HF_LOCK_EXCLUSIVE ? "exclusive" : "shared", "epoch",
			 (json_int_t)lock->epoch, "client_state", lock->client_state, "flags",
			 (json_int_t)lock->flags);
}

static json_t *waiter_of(const struct hf_store_waiter *waiter)
{
	json_t *json = lock_of(&waiter->wants);

	json_object_set_new(json, "granted", json_boolean(waiter->is_granted));
	json_object_set_new(json, "route", hex_of(waiter->route));
	return json;
}

static json_t *reservation_of(const struct hf_store_reservation *stored)
{
	struct hf_reservation reservation;

	if (!hf_reservation_decode(&reservation, stored->blob))
		return json_pack("{s:I,s:o}", "id", (json_int_t)stored->id, "damaged", hex_of(stored->blob));
	return json_pack("{s:I,s:o,s:o,s:o,s:o,s:i,s:i,s:I,s:i}", "id", (json_int_t)stored->id, "share",
			 text_of(reservation.export), "handle", hex_of(reservation.handle), "client",
			 text_of(reservation.client), "oh", hex_of(reservation.oh), "access",
			 reservation.access, "deny", reservation.deny, "count", (json_int_t)reservation.count,
			 "client_state", reservation.state);
}

/* Dump: one fact a line, so that a million of them need no memory. */

static void put_fact(size_t *np, json_t *json)
{
	fputs((*np)++ ? ",\n    " : "\n    ", stdout);
	json_dumpf(json, stdout, JSON_COMPACT | cli_json_flags());
	json_decref(json);
}

static int dump_client(void *user, const struct hf_store_client *client)
{
	put_fact(user, client_of(client));
	return 0;
}

static int dump_lock(void *user, const struct hf_store_lock *lock)
{
	put_fact(user, lock_of(lock));
	return 0;
}

static int dump_reservation(void *user, const struct hf_store_reservation *reservation)
{
	put_fact(user, reservation_of(reservation));
	return 0;
}

static int dump_waiter(void *user, const struct hf_store_waiter *waiter)
{
	put_fact(user, waiter_of(waiter));
	return 0;
}

static void put_state(const struct hf_store_state *state, bool is_trusted)
{
	json_t *json = state_of(state, is_trusted);

	fputs("{\n  \"format\": \"holdfast store 1\",\n  \"state\": ", stdout);
	json_dumpf(json, stdout, cli_json_flags());
	json_decref(json);
}

static int dump(struct hf_offline *offline)
{
	struct hf_store *store = hf_offline_store(offline);
	size_t n[4] = { 0 };
	struct hf_store_state state;
	bool is_trusted;
	int r = hf_offline_look(offline, &state, &is_trusted);

	if (r <= 0)
		return r;
	put_state(&state, is_trusted);
	fputs(",\n  \"clients\": [", stdout);
	r = hf_store_load_clients(store, dump_client, &n[0]);
	fputs("],\n  \"locks\": [", stdout);
	r = r ? r : hf_store_load_locks(store, dump_lock, &n[1]);
	fputs("],\n  \"reservations\": [", stdout);
	r = r ? r : hf_store_load_reservations(store, dump_reservation, &n[2]);
	fputs("],\n  \"waiters\": [", stdout);
	r = r ? r : hf_store_load_waiters(store, dump_waiter, &n[3]);
	fputs("]\n}\n", stdout);
	return r;
}

/* Check: to open the store has checked its pages and checksums. Here each fact must make sense, and so must
 * all locks together. */

struct key { /* of a file, or of an owner */
	size_t len;
	uint8_t *data;
};

struct held {
	struct key file, owner;
	struct hf_range range;
	bool is_exclusive;
};

struct checking {
	size_t n_clients, n_locks, n_reservations, n_waiters, n_faults;
	struct held *held; /* all locks */
	size_t room;
	json_t *faults; /* the first ones */
};

#define MAX_FAULTS 20

/* Takes the reference to @fact. */
static void add_fault(struct checking *checking, const char *what, json_t *fact)
{
	checking->n_faults++;
	if (json_array_size(checking->faults) < MAX_FAULTS)
		json_array_append_new(checking->faults, json_pack("{s:s,s:O}", "fault", what, "fact", fact));
	json_decref(fact);
}

static struct key key_of(struct hf_bytes bytes, const void *more, size_t more_len)
{
	struct key key = { .len = bytes.len + more_len, .data = malloc(bytes.len + more_len + 1) };

	if (!key.data)
		abort();
	if (bytes.len)
		memcpy(key.data, bytes.data, bytes.len);
	if (more_len)
		memcpy(key.data + bytes.len, more, more_len);
	return key;
}

static int compare_keys(const struct key *a, const struct key *b)
{
	int r = memcmp(a->data, b->data, HF_MIN(a->len, b->len));

	return r ? r : (a->len > b->len) - (a->len < b->len);
}

static void remember(struct checking *checking, const struct hf_store_lock *lock)
{
	if (checking->n_locks == checking->room) {
		checking->room = 2 * checking->room + 1024;
		checking->held = realloc(checking->held, checking->room * sizeof(*checking->held));
		if (!checking->held)
			abort();
	}
	checking->held[checking->n_locks++] = (struct held){
		.file = key_of(lock->handle, NULL, 0),
		.owner = key_of(lock->client, &lock->owner, sizeof(lock->owner)),
		.range = { lock->start, lock->end },
		.is_exclusive = lock->mode == HF_LOCK_EXCLUSIVE,
	};
}

static const char *find_fault(const struct hf_store_lock *lock)
{
	if (!hf_range_is_valid((struct hf_range){ lock->start, lock->end }))
		return "the range is not possible";
	if (lock->mode != HF_LOCK_SHARED && lock->mode != HF_LOCK_EXCLUSIVE)
		return "the mode is not possible";
	return lock->handle.len == 0 || lock->client.len == 0 ? "it has no file or no client" : NULL;
}

static int check_client(void *user, const struct hf_store_client *client)
{
	struct checking *checking = user;

	checking->n_clients++;
	if (client->protocol.len == 0 || client->mon_name.len == 0)
		add_fault(checking, "a registration has no protocol or no name", client_of(client));
	return 0;
}

static int check_lock(void *user, const struct hf_store_lock *lock)
{
	const char *fault = find_fault(lock);

	if (fault)
		add_fault(user, fault, lock_of(lock));
	remember(user, lock);
	return 0;
}

static int check_reservation(void *user, const struct hf_store_reservation *stored)
{
	struct checking *checking = user;
	struct hf_reservation reservation;

	checking->n_reservations++;
	if (!hf_reservation_decode(&reservation, stored->blob))
		add_fault(checking, "a reservation is damaged", reservation_of(stored));
	return 0;
}

static int check_waiter(void *user, const struct hf_store_waiter *waiter)
{
	struct checking *checking = user;
	const char *fault = find_fault(&waiter->wants);

	checking->n_waiters++;
	if (fault)
		add_fault(checking, fault, waiter_of(waiter));
	return 0;
}

static int compare_held(const void *a, const void *b)
{
	const struct held *x = a, *y = b;
	int r = compare_keys(&x->file, &y->file);

	return r ? r : (x->range.start > y->range.start) - (x->range.start < y->range.start);
}

/* Of the locks of a file so far, the two of different owners that reach farthest. At least one of them is of
 * another owner than the next lock. */
struct farthest {
	const struct held *first, *second;
};

static void reach(struct farthest *far, const struct held *held)
{
	bool is_same = far->first && compare_keys(&far->first->owner, &held->owner) == 0;

	if (!far->first || held->range.end > far->first->range.end) {
		if (far->first && !is_same)
			far->second = far->first;
		far->first = held;
	} else if (!is_same && (!far->second || held->range.end > far->second->range.end)) {
		far->second = held;
	}
}

static bool is_in_the_way(const struct held *held, const struct held *next)
{
	return held && held->range.end >= next->range.start && compare_keys(&held->owner, &next->owner) != 0;
}

static void check_conflicts(struct checking *checking)
{
	struct farthest all = { 0 }, exclusive = { 0 };

	if (checking->n_locks)
		qsort(checking->held, checking->n_locks, sizeof(*checking->held), compare_held);
	for (size_t i = 0; i < checking->n_locks; i++) {
		const struct held *held = &checking->held[i];
		const struct farthest *far = held->is_exclusive ? &all : &exclusive;

		if (i == 0 || compare_keys(&held->file, &held[-1].file) != 0)
			all = exclusive = (struct farthest){ 0 };
		if (is_in_the_way(far->first, held) || is_in_the_way(far->second, held))
			add_fault(checking, "two owners hold the same bytes",
				  json_pack("{s:o,s:I,s:I}", "handle",
					    hex_of(hf_bytes_of(held->file.data, (uint32_t)held->file.len)),
					    "offset", (json_int_t)held->range.start, "length",
					    (json_int_t)hf_range_len(held->range)));
		reach(&all, held);
		if (held->is_exclusive)
			reach(&exclusive, held);
	}
}

static void checking_deinit(struct checking *checking)
{
	for (size_t i = 0; i < checking->n_locks; i++) {
		free(checking->held[i].file.data);
		free(checking->held[i].owner.data);
	}
	free(checking->held);
	json_decref(checking->faults);
}

static void print_checked_json(const struct checking *checking, json_t *state)
{
	json_t *json = json_pack("{s:O,s:I,s:I,s:I,s:I,s:I,s:O}", "state", state, "clients",
				 (json_int_t)checking->n_clients, "locks", (json_int_t)checking->n_locks,
				 "reservations", (json_int_t)checking->n_reservations, "waiters",
				 (json_int_t)checking->n_waiters, "faults", (json_int_t)checking->n_faults,
				 "first_faults", checking->faults);

	cli_print_json(json);
	json_decref(json);
}

static void print_checked(const struct cli *cli, const struct checking *checking, const json_t *state)
{
	const json_t *fault;
	size_t i;

	printf("epoch        %lld, state number %lld, %s\n",
	       (long long)json_integer_value(json_object_get(state, "epoch")),
	       (long long)json_integer_value(json_object_get(state, "sm_state")),
	       json_is_true(json_object_get(state, "clean_stop")) ? "stopped in order"
								  : "not stopped in order");
	printf("clients      %zu\nlocks        %zu%s\nreservations %zu\nwaiters      %zu\n",
	       checking->n_clients, checking->n_locks,
	       json_is_true(json_object_get(state, "locks_trusted"))
		       ? ""
		       : ", which a start does not trust: the machine or the database was started since",
	       checking->n_reservations, checking->n_waiters);
	json_array_foreach(checking->faults, i, fault)
	{
		char *fact = json_dumps(json_object_get(fault, "fact"), JSON_COMPACT | JSON_ENSURE_ASCII);

		printf("%sfault%s        %s: %s\n", cli_red(cli), cli_plain(cli),
		       json_string_value(json_object_get(fault, "fault")), fact);
		free(fact);
	}
	printf("faults       %zu\n", checking->n_faults);
}

static int check_facts(struct checking *checking, struct hf_store *store)
{
	int r = hf_store_load_clients(store, check_client, checking);

	if (r == 0)
		r = hf_store_load_locks(store, check_lock, checking);
	if (r == 0)
		r = hf_store_load_reservations(store, check_reservation, checking);
	if (r == 0)
		r = hf_store_load_waiters(store, check_waiter, checking);
	if (r == 0)
		check_conflicts(checking);
	return r;
}

static int check(const struct cli *cli, struct hf_offline *offline, size_t *n_faultsp)
{
	hf_cleanup(checking_deinit) struct checking checking = { .faults = json_array() };
	struct hf_store_state state;
	bool is_trusted;
	json_t *shown;
	int r = hf_offline_look(offline, &state, &is_trusted);

	if (r > 0)
		r = check_facts(&checking, hf_offline_store(offline));
	if (r < 0)
		return r;
	shown = state_of(&state, is_trusted);
	if (cli->is_json)
		print_checked_json(&checking, shown);
	else
		print_checked(cli, &checking, shown);
	json_decref(shown);
	*n_faultsp = checking.n_faults;
	return 0;
}

/* Commands */

static int explain(int r)
{
	if (r < 0)
		fprintf(stderr, "holdfast: the store cannot be read: %s\n", strerror(-r));
	return r < 0 ? CLI_FAILED : CLI_OK;
}

static int run_check(struct cli *cli, const char *store)
{
	hf_cleanup(hf_offline_closep) struct hf_offline *offline = NULL;
	int code = open_store(cli, store, true, &offline);
	size_t n_faults = 0;

	if (code == CLI_OK)
		code = explain(check(cli, offline, &n_faults));
	return n_faults ? CLI_FAILED : code;
}

static int run_dump(struct cli *cli, const char *store)
{
	hf_cleanup(hf_offline_closep) struct hf_offline *offline = NULL;
	int code = open_store(cli, store, true, &offline);

	return code == CLI_OK ? explain(dump(offline)) : code;
}

static int run_copy(struct cli *cli, const char *from_text, const char *to_text)
{
	hf_cleanup(hf_offline_closep) struct hf_offline *from = NULL;
	hf_cleanup(hf_offline_closep) struct hf_offline *to = NULL;
	int code = open_store(cli, from_text, true, &from), r;

	if (code == CLI_OK)
		code = open_store(cli, to_text, false, &to);
	if (code != CLI_OK)
		return code;
	r = hf_offline_copy(to, from);
	if (r == -EEXIST)
		fprintf(stderr, "holdfast: a server has used %s already; copy to an empty store\n",
			is_database(to_text) ? "the database under this name" : to_text);
	else if (r < 0)
		fprintf(stderr, "holdfast: the copy failed: %s\n", strerror(-r));
	else
		puts("Copied. Change store.backend before holdfastd starts again.");
	return r < 0 ? CLI_FAILED : CLI_OK;
}

static int downgrade_files(const struct cli *cli, const char *folder, int format)
{
	hf_cleanup(hf_offline_closep) struct hf_offline *offline = NULL;
	int code = open_store(cli, folder, true, &offline);

	if (code == CLI_OK && hf_store_downgrade_lmdb(hf_offline_store(offline), format) < 0)
		code = CLI_FAILED;
	return code;
}

static int run_downgrade(const struct cli *cli, const char *store, const char *text)
{
	char *end;
	long version = strtol(text, &end, 10);
	int code;

	if (!*text || *end || version < 1 || version > INT_MAX) {
		fputs("holdfast: store downgrade takes a connection string and the number of a migration, or "
		      "a state directory and the number of a format\n",
		      stderr);
		return CLI_USAGE;
	}
	hf_log_configure(HF_LOG_INFO, HF_LOG_AUTO);
	if (is_database(store))
		code = hf_store_downgrade_postgres(store, (int)version) < 0 ? CLI_FAILED : CLI_OK;
	else
		code = downgrade_files(cli, store, (int)version);
	if (code == CLI_OK)
		puts("Done. Install the older version before holdfastd starts again.");
	return code;
}

int cli_store(struct cli *cli, const char *argument)
{
	const char *store = cli->object ? cli->object : cli->state_dir;
	const char *order = argument ? argument : "";

	hf_log_configure(HF_LOG_WARN, HF_LOG_AUTO);
	if (strcmp(order, "copy") == 0 && cli->target)
		return run_copy(cli, cli->object, cli->target);
	if (strcmp(order, "check") == 0 && !cli->target)
		return run_check(cli, store);
	if (strcmp(order, "dump") == 0 && !cli->target)
		return run_dump(cli, store);
	if (strcmp(order, "downgrade") == 0 && cli->target)
		return run_downgrade(cli, cli->object, cli->target);
	fputs("holdfast: store takes `check [STORE]`, `dump [STORE]`, `copy FROM TO` or `downgrade STORE "
	      "NUMBER`\n",
	      stderr);
	return CLI_USAGE;
}
