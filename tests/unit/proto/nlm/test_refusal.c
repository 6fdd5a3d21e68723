/*
 * Calls that are refused. A client that waits polls, and there is no memory to look at
 * the file with: two functions fail when told to (ld --wrap). It is refused, and waits
 * no more. A client reclaims, and the store fails.
 *
 * The lock manager is called over a socket, about a file of a real export.
 */
#include "../../rpc/rig.h"
#include "../../recovery/world.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../daemon/config_fixture.h"
#include "../../turn.h"
#include "daemon/files.h"
#include "export/local.h"
#include "proto/nlm/internal.h"
#include "vfs/fair.h"

#define OWNER 2u

static struct {
	struct world world;
	char base[32];
	struct hf_config *config;
	struct hf_file_service *files;
	struct hf_nlm *nlm;
	struct hf_rpc_server *server;
	struct hf_rpc_lane *lane;
	int fd; /* the client's */
	uint32_t xid;
	struct hf_handle handle;
	bool ask_fails, adopt_fails;
	void (*meanwhile)(void); /* before it fails */
} bed;

int __real_hf_fair_ask(struct hf_fair *fair, uint64_t disk, struct hf_question *question,
		       const struct hf_addr *from, void (*run)(struct hf_question *question),
		       void (*done)(struct hf_question *question));
int __wrap_hf_fair_ask(struct hf_fair *fair, uint64_t disk, struct hf_question *question,
		       const struct hf_addr *from, void (*run)(struct hf_question *question),
		       void (*done)(struct hf_question *question));
int __wrap_hf_fair_ask(struct hf_fair *fair, uint64_t disk, struct hf_question *question,
		       const struct hf_addr *from, void (*run)(struct hf_question *question),
		       void (*done)(struct hf_question *question))
{
	return bed.ask_fails ? -ENOMEM : __real_hf_fair_ask(fair, disk, question, from, run, done);
}

int __real_hf_local_adopt(struct hf_local *local, struct hf_bytes key, struct hf_local_opened opened);
int __wrap_hf_local_adopt(struct hf_local *local, struct hf_bytes key, struct hf_local_opened opened);
int __wrap_hf_local_adopt(struct hf_local *local, struct hf_bytes key, struct hf_local_opened opened)
{
	if (!bed.adopt_fails)
		return __real_hf_local_adopt(local, key, opened);
	if (opened.file)
		hf_file_unpin(opened.file);
	if (bed.meanwhile)
		bed.meanwhile();
	return -ENOMEM;
}

/* Life */

static void make_file(void)
{
	struct hf_exports *exports = hf_file_service_nlm(bed.files).exports;
	struct hf_export_list list;
	struct hf_file_id id;
	struct stat st;
	int fd;

	assert_int_equal(hf_exports_list(exports, &list), 0);
	fd = openat(list.items[0]->volume->mount, "f", O_CREAT | O_RDWR, 0600);
	assert_int_equal(fchmod(fd, 0666), 0);
	assert_int_equal(hf_volume_identify(list.items[0]->volume, fd, &id, &st), 0);
	hf_exports_make_handle(exports, list.items[0], &id, &bed.handle);
	close(fd);
	hf_export_list_clear(&list);
}

static void make_files(void)
{
	char text[256];

	strcpy(bed.base, "/tmp/hf-refusal-XXXXXX");
	assert_non_null(mkdtemp(bed.base));
	assert_int_equal(chmod(bed.base, 0755), 0);
	snprintf(text, sizeof(text),
		 "server: {state_dir: %s, threads: 1}\nexports: [{path: %s, local_locks: on}]\n", bed.base,
		 bed.base);
	bed.config = load_good(text);
	assert_int_equal(hf_file_service_new(&bed.files, bed.world.loop, bed.config, NULL), 0);
	hf_file_service_set_locks(bed.files, hf_recovery_locks(bed.world.recovery));
	make_file();
}

static void make_server(void)
{
	struct hf_addr addr;
	uint16_t port = 0;

	assert_true(hf_addr_parse(&addr, "127.0.0.1"));
	assert_int_equal(hf_rpc_server_new(&bed.server, &rig_limits), 0);
	assert_int_equal(hf_rpc_server_add_program(bed.server, &hf_nlm_program, bed.nlm), 0);
	assert_int_equal(hf_rpc_server_add_lane(bed.server, bed.world.loop, &bed.lane), 0);
	assert_int_equal(hf_rpc_server_listen_tcp(bed.server, &addr, &port), 0);
	bed.fd = rig_connect("127.0.0.1", port, NULL);
}

static int begin(bool in_grace)
{
	struct hf_nlm_options options = { .server_name = "server" };
	struct hf_nlm_files files;

	memset(&bed, 0, sizeof(bed));
	world_init(&bed.world);
	bed.world.options.continues = in_grace;
	bed.world.options.grace = in_grace ? HF_RECOVERY_GRACE_ALWAYS : HF_RECOVERY_GRACE_AUTO;
	world_up(&bed.world);
	world_turn(&bed.world);
	make_files();
	files = hf_file_service_nlm(bed.files);
	options.loop = bed.world.loop;
	options.recovery = bed.world.recovery;
	options.files = &files;
	assert_int_equal(hf_nlm_new(&bed.nlm, &options), 0);
	make_server();
	return 0;
}

static int setup(void **state)
{
	return begin(false);
}

/* The next run may go on from this one. */
static int setup_in_grace(void **state)
{
	return begin(true);
}

static int teardown(void **state)
{
	char command[128];

	close(bed.fd);
	hf_rpc_lane_close(bed.lane);
	hf_file_service_wait(bed.files);
	while (hf_loop_drain(bed.world.loop))
		;
	hf_nlm_free(bed.nlm);
	world_kill(&bed.world);
	hf_rpc_server_free(bed.server);
	hf_file_service_free(bed.files);
	world_deinit(&bed.world);
	hf_config_free(bed.config);
	snprintf(command, sizeof(command), "rm -r %s", bed.base);
	return system(command);
}

/* The play */

static struct hf_client *waiting_client(void)
{
	return world_client(&bed.world, "127.0.0.1", "waiter");
}

static int acquire(struct hf_client *client, bool wait)
{
	struct hf_lock_request request = world_request(client, OWNER, "", 0, 9);
	struct hf_handle room;

	assert_true(hf_nlm_find_key(bed.nlm, hf_bytes_of(bed.handle.bytes, bed.handle.len),
				    &request.who.export, &request.who.handle, &room));
	request.wait = wait;
	return hf_lock_acquire(bed.nlm->locks, &request, NULL);
}

/* Another client holds all of the file, and the client waits for it. */
static void begin_wait(void)
{
	assert_int_equal(acquire(world_client(&bed.world, "10.0.0.1", "holder"), false), HF_LOCK_OK);
	assert_int_equal(acquire(waiting_client(), true), HF_LOCK_E_QUEUED);
}

static size_t n_waiters(void)
{
	struct hf_lock_counters n;

	hf_lock_count(bed.nlm->locks, &n);
	assert_int_equal(n.locks, 1);
	return n.waiters;
}

static bool has_reply(void)
{
	struct pollfd wanted = { .fd = bed.fd, .events = POLLIN };

	return poll(&wanted, 1, 0) > 0;
}

/* In the fourth version. */
static void send_call(enum hf_nlm_proc proc, const struct hf_xdr_out *args, const uint8_t *from)
{
	uint8_t message[1024];
	size_t len = rig_call(message, ++bed.xid, HF_NLM_PROGRAM, proc, from, (size_t)(args->p - from));

	rig_send_record(bed.fd, message, len);
}

/* What the lock manager says. */
static enum hf_nlm_stat hear(void)
{
	uint8_t results[64];
	size_t len;

	turn_until(bed.world.loop, has_reply());
	len = rig_expect_success(bed.fd, bed.xid, results, sizeof(results));
	assert_in_range(len, 8, sizeof(results)); /* no cookie was given */
	return (enum hf_nlm_stat)rig_get(results + 4);
}

static enum hf_nlm_stat ask(enum hf_nlm_proc proc, const struct hf_xdr_out *args, const uint8_t *from)
{
	send_call(proc, args, from);
	return hear();
}

static void put_owner(struct hf_xdr_out *out)
{
	hf_xdr_put_opaque(out, hf_bytes_of_str("waiter"));
	hf_xdr_put_opaque(out, hf_bytes_of(bed.handle.bytes, bed.handle.len));
	hf_xdr_put_opaque(out, hf_bytes_of_str("oh"));
}

static void put_lock(struct hf_xdr_out *out, enum hf_nlm_proc proc, bool block, bool reclaim)
{
	hf_xdr_put_u32(out, 0);
	if (proc != HF_NLM_TEST)
		hf_xdr_put_u32(out, block);
	hf_xdr_put_u32(out, true); /* exclusive */
	put_owner(out);
	hf_xdr_put_u32(out, OWNER);
	hf_xdr_put_u64(out, 0);
	hf_xdr_put_u64(out, 10);
	if (proc != HF_NLM_TEST) {
		hf_xdr_put_u32(out, reclaim);
		hf_xdr_put_u32(out, 0);
	}
}

static enum hf_nlm_stat lock_or_test(enum hf_nlm_proc proc, bool block)
{
	uint8_t args[512];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, args, sizeof(args));
	put_lock(&out, proc, block, false);
	return ask(proc, &out, args);
}

static void send_lock(bool reclaim)
{
	uint8_t args[512];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, args, sizeof(args));
	put_lock(&out, HF_NLM_LOCK, false, reclaim);
	send_call(HF_NLM_LOCK, &out, args);
}

static enum hf_nlm_stat poll_lock(void)
{
	return lock_or_test(HF_NLM_LOCK, true);
}

static enum hf_nlm_stat reserve(void)
{
	uint8_t args[512];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, args, sizeof(args));
	hf_xdr_put_u32(&out, 0);
	put_owner(&out);
	hf_xdr_put_u32(&out, 0);
	hf_xdr_put_u32(&out, 1);
	hf_xdr_put_u32(&out, false);
	return ask(HF_NLM_SHARE, &out, args);
}

static void test_a_poll_finds_its_place(void **state)
{
	begin_wait();
	assert_int_equal(poll_lock(), HF_NLM_BLOCKED);
	assert_int_equal(n_waiters(), 1);
}

/* The question cannot be put. */
static void test_a_poll_that_cannot_be_asked_for(void **state)
{
	begin_wait();
	bed.ask_fails = true;
	assert_int_equal(poll_lock(), HF_NLM_DENIED_NOLOCKS);
	assert_int_equal(n_waiters(), 0);
	bed.ask_fails = false;
	assert_int_equal(poll_lock(), HF_NLM_BLOCKED); /* asked anew, it waits anew */
	assert_int_equal(n_waiters(), 1);
}

/* There is an answer, and the file is open, but there is no memory to note that. */
static void test_a_poll_whose_file_cannot_be_kept_open(void **state)
{
	begin_wait();
	bed.adopt_fails = true;
	assert_int_equal(poll_lock(), HF_NLM_DENIED_NOLOCKS);
	assert_int_equal(n_waiters(), 0);
}

static void restart_client(void)
{
	hf_recovery_client_state(bed.world.recovery, waiting_client(), 7);
	assert_int_equal(n_waiters(), 0);
	assert_int_equal(acquire(waiting_client(), true), HF_LOCK_E_QUEUED);
}

/* The client was restarted since, and its new life waits: a poll of the old one ends nothing. */
static void test_a_poll_from_before_a_restart(void **state)
{
	hf_recovery_client_state(bed.world.recovery, waiting_client(), 5);
	begin_wait();
	bed.adopt_fails = true;
	bed.meanwhile = restart_client;
	assert_int_equal(poll_lock(), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(n_waiters(), 1);
}

/* Other calls of the same owner are refused as well, and are no polls. */
static void test_the_wait_is_not_ended_by_others(void **state)
{
	begin_wait();
	bed.ask_fails = true;
	assert_int_equal(lock_or_test(HF_NLM_LOCK, false), HF_NLM_DENIED_NOLOCKS);
	assert_int_equal(lock_or_test(HF_NLM_TEST, false), HF_NLM_DENIED_NOLOCKS);
	assert_int_equal(reserve(), HF_NLM_DENIED_NOLOCKS);
	assert_int_equal(n_waiters(), 1);
}

static uint64_t n_locks(void)
{
	struct hf_lock_counters n;

	hf_lock_count(bed.nlm->locks, &n);
	return n.locks;
}

static void fail_store(void)
{
	bed.world.disk.is_broken = true;
	disk_let_go(&bed.world.disk);
}

/* The client does not repeat a reclaim that is answered as in grace. Grace is over when the store fails. */
static void test_a_reclaim_that_cannot_be_stored(void **state)
{
	waiting_client();
	world_turn(&bed.world);
	assert_true(world_in_grace(&bed.world));
	bed.world.disk.is_slow = true;
	send_lock(true);
	turn_until(bed.world.loop, n_locks() == 1 && bed.world.disk.n_held);
	assert_int_equal(hf_recovery_end_grace(bed.world.recovery), 0);
	fail_store();
	assert_int_equal(hear(), HF_NLM_DENIED_NOLOCKS);
	assert_int_equal(n_locks(), 1); /* the client had it before */
}

/* The store may have it all the same: the client is to ask again. */
static void test_a_lock_that_cannot_be_stored(void **state)
{
	waiting_client();
	assert_int_equal(hf_recovery_end_grace(bed.world.recovery), 0);
	world_turn(&bed.world);
	bed.world.disk.is_slow = true;
	send_lock(false);
	turn_until(bed.world.loop, n_locks() == 1 && bed.world.disk.n_held);
	fail_store();
	assert_int_equal(hear(), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(n_locks(), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_poll_finds_its_place),
		T(test_a_poll_that_cannot_be_asked_for),
		T(test_a_poll_whose_file_cannot_be_kept_open),
		T(test_a_poll_from_before_a_restart),
		T(test_the_wait_is_not_ended_by_others),
		cmocka_unit_test_setup_teardown(test_a_reclaim_that_cannot_be_stored, setup_in_grace,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_lock_that_cannot_be_stored, setup_in_grace, teardown),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
