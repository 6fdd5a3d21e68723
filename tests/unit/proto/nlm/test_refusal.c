/*
 * Calls that are refused. A client that waits polls, and there is no memory to look at
 * the file with: two functions fail when told to (ld --wrap). It is refused, and waits
 * no more. A client reclaims, and the store fails. An export demands TLS (transport.c), and the
 * client has no connection, or the wrong one.
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
#include "../../tls/made.h"
#include "../../turn.h"
#include "daemon/files.h"
#include "export/local.h"
#include "proto/nlm/internal.h"
#include "recovery/internal.h"
#include "rpc/presence.h"
#include "tls/tls.h"
#include "vfs/disk_queue.h"

#define OWNER    2u
#define GRACE_NS HF_NS_PER_S /* what happens within it does so on a busy machine, too */
#define MANY     17000       /* identities: more than are remembered without a connection */

static struct {
	struct world world;
	char base[32];
	struct hf_config *config;
	struct hf_file_service *files;
	struct hf_rpc_presence *presence;
	struct hf_nlm *nlm;
	struct hf_rpc_server *server;
	struct hf_rpc_lane *lane;
	int fd; /* the client's */
	struct hf_rpc_presence_link *link;
	uint32_t xid;
	uint32_t owner; /* that locks: each a range of its own */
	struct hf_handle handle;
	bool ask_fails, adopt_fails;
	void (*meanwhile)(void); /* before it fails */
} bed;

int __real_hf_disk_queue_ask(struct hf_disk_queue *fair, uint64_t disk, struct hf_question *question,
			     const struct hf_addr *from, void (*run)(struct hf_question *question),
			     void (*done)(struct hf_question *question));
int __wrap_hf_disk_queue_ask(struct hf_disk_queue *fair, uint64_t disk, struct hf_question *question,
			     const struct hf_addr *from, void (*run)(struct hf_question *question),
			     void (*done)(struct hf_question *question));
int __wrap_hf_disk_queue_ask(struct hf_disk_queue *fair, uint64_t disk, struct hf_question *question,
			     const struct hf_addr *from, void (*run)(struct hf_question *question),
			     void (*done)(struct hf_question *question))
{
	return bed.ask_fails ? -ENOMEM : __real_hf_disk_queue_ask(fair, disk, question, from, run, done);
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

/* Making and freeing */

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

/* Any that can be loaded: no handshake is made here. */
static void make_keys(void)
{
	struct made made = make_certificate("ca", NULL, 30, NULL);
	char path[64];

	snprintf(path, sizeof(path), "%s/pem", bed.base);
	write_certificate(&made, path);
	snprintf(path, sizeof(path), "%s/key", bed.base);
	write_key(&made, path);
	made_free(&made);
}

/* @demand: of the export, as in the configuration; NULL: none. */
static void make_files(const char *demand)
{
	char text[512];
	int len;

	strcpy(bed.base, "/tmp/hf-refusal-XXXXXX");
	assert_non_null(mkdtemp(bed.base));
	assert_int_equal(chmod(bed.base, 0755), 0);
	len = snprintf(text, sizeof(text),
		       "server: {state_dir: %s, threads: 1}\nexports: [{path: %s, local_locks: on%s}]\n",
		       bed.base, bed.base, demand ? demand : "");
	if (demand) {
		make_keys();
		snprintf(text + len, sizeof(text) - (size_t)len,
			 "tls: {certificate: %s/pem, key: %s/key, client_ca: %s/pem}\n", bed.base, bed.base,
			 bed.base);
	}
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

static int begin(bool in_grace, const char *demand, uint64_t grace_ns)
{
	struct hf_nlm_options options = { .server_name = "server" };
	struct hf_nlm_files files;

	memset(&bed, 0, sizeof(bed));
	bed.owner = OWNER;
	world_init(&bed.world);
	bed.world.options.continues = in_grace;
	bed.world.options.grace = in_grace ? HF_RECOVERY_GRACE_ALWAYS : HF_RECOVERY_GRACE_AUTO;
	world_up(&bed.world);
	world_turn(&bed.world);
	make_files(demand);
	assert_int_equal(hf_rpc_presence_new(&bed.presence, bed.world.loop, grace_ns), 0);
	options.presence = bed.presence;
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
	return begin(false, NULL, GRACE_NS);
}

/* The export demands a certificate of one of two names. */
static int setup_mtls(void **state)
{
	return begin(false, ", transport: mtls, identities: [alpha, beta]", GRACE_NS);
}

static int setup_tls(void **state)
{
	return begin(false, ", transport: tls", GRACE_NS);
}

/* Grace lasts for the whole test. */
static int setup_long_grace(void **state)
{
	return begin(false, ", transport: tls", 3600 * HF_NS_PER_S);
}

static int setup_mtls_long_grace(void **state)
{
	return begin(false, ", transport: mtls", 3600 * HF_NS_PER_S);
}

/* The next run may go on from this one. */
static int setup_in_grace(void **state)
{
	return begin(true, NULL, GRACE_NS);
}

static int teardown(void **state)
{
	char command[128];

	close(bed.fd);
	if (bed.link)
		hf_rpc_presence_end(bed.link);
	hf_rpc_lane_close(bed.lane);
	hf_file_service_wait(bed.files);
	while (hf_loop_drain(bed.world.loop))
		;
	hf_nlm_free(bed.nlm);
	world_kill(&bed.world);
	hf_rpc_server_free(bed.server);
	hf_file_service_free(bed.files);
	world_deinit(&bed.world);
	hf_rpc_presence_free(bed.presence);
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

/* What the lock manager says next: to the call with this xid. */
static enum hf_nlm_stat hear_of(uint32_t xid)
{
	uint8_t results[64];
	size_t len;

	turn_until(bed.world.loop, has_reply());
	len = rig_expect_success(bed.fd, xid, results, sizeof(results));
	assert_in_range(len, 8, sizeof(results)); /* no cookie was given */
	return (enum hf_nlm_stat)rig_get(results + 4);
}

static enum hf_nlm_stat hear(void)
{
	return hear_of(bed.xid);
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
	hf_xdr_put_u32(out, bed.owner);
	hf_xdr_put_u64(out, 10 * (bed.owner - OWNER));
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

static void send_lock(bool block, bool reclaim)
{
	uint8_t args[512];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, args, sizeof(args));
	put_lock(&out, HF_NLM_LOCK, block, reclaim);
	send_call(HF_NLM_LOCK, &out, args);
}

static void send_lock_of(uint32_t owner)
{
	bed.owner = owner;
	send_lock(false, false);
	bed.owner = OWNER;
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

static enum hf_nlm_stat give_up(enum hf_nlm_proc proc)
{
	uint8_t args[512];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, args, sizeof(args));
	hf_xdr_put_u32(&out, 0);
	if (proc == HF_NLM_CANCEL) {
		hf_xdr_put_u32(&out, true); /* block */
		hf_xdr_put_u32(&out, true); /* exclusive */
	}
	put_owner(&out);
	hf_xdr_put_u32(&out, OWNER);
	hf_xdr_put_u64(&out, 0);
	hf_xdr_put_u64(&out, 10);
	return ask(proc, &out, args);
}

/* Exports are gone, so the run starts over. Until that is stored, the next run may still go on with all that
 * is stored: no call is refused for good, and nothing is given up. */
static void test_calls_before_a_start_over_is_stored(void **state)
{
	enum hf_recovery_phase *phase = &bed.world.recovery->phase.now;
	uint32_t xid;

	*phase = HF_PHASE_LOADING;
	assert_int_equal(poll_lock(), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(reserve(), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(give_up(HF_NLM_UNLOCK), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(give_up(HF_NLM_CANCEL), HF_NLM_DENIED_GRACE_PERIOD);
	send_lock(false, true); /* a client takes that status for a final no: it gets none */
	xid = bed.xid;
	assert_int_equal(give_up(HF_NLM_UNLOCK), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(bed.xid, xid + 1); /* the first reply since then */
	*phase = HF_PHASE_SERVING;
	assert_int_equal(give_up(HF_NLM_UNLOCK), HF_NLM_GRANTED_STAT);
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

/* The client does not repeat a reclaim that is refused, in whatever words. It repeats one that is not
 * answered. Grace is over when the store fails. */
static void test_a_reclaim_that_cannot_be_stored(void **state)
{
	waiting_client();
	world_turn(&bed.world);
	assert_true(world_in_grace(&bed.world));
	bed.world.disk.is_slow = true;
	send_lock(false, true);
	turn_until(bed.world.loop, n_locks() == 1 && bed.world.disk.n_held);
	assert_int_equal(hf_recovery_end_grace(bed.world.recovery), 0);
	fail_store();
	turn_until(bed.world.loop, !hf_recovery_can_promise(bed.world.recovery));
	send_lock(false, true); /* when the store has failed */
	assert_int_equal(lock_or_test(HF_NLM_TEST, false), HF_NLM_GRANTED_STAT); /* and nothing before that */
	assert_int_equal(n_locks(), 1); /* the client had it before */
	bed.world.disk.is_slow = bed.world.disk.is_broken = false;
	turn_until(bed.world.loop, hf_recovery_can_promise(bed.world.recovery));
	send_lock(false, true);
	assert_int_equal(hear(), HF_NLM_GRANTED_STAT);
	assert_int_equal(n_locks(), 1);
}

/* The store may have it all the same: the client is to ask again. */
static void test_a_lock_that_cannot_be_stored(void **state)
{
	waiting_client();
	assert_int_equal(hf_recovery_end_grace(bed.world.recovery), 0);
	world_turn(&bed.world);
	bed.world.disk.is_slow = true;
	send_lock(false, false);
	turn_until(bed.world.loop, n_locks() == 1 && bed.world.disk.n_held);
	fail_store();
	assert_int_equal(hear(), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(n_locks(), 0);
}

/* The client waits, and the next run may go on. The poll is refused, and the end of the wait is being
 * stored. */
static void begin_refusal(void)
{
	assert_int_equal(hf_recovery_end_grace(bed.world.recovery), 0);
	begin_wait();
	world_until(&bed.world, disk_count(&bed.world.disk, HF_RECORD_WAITER) == 1);
	bed.world.disk.is_slow = true;
	bed.ask_fails = true;
	send_lock(true, false);
	turn_until(bed.world.loop, bed.world.disk.n_held);
	assert_int_equal(n_waiters(), 0);
	assert_false(has_reply());
}

/* Answered before, the wait would be back after a crash. */
static void test_a_refused_poll_is_answered_when_that_is_stored(void **state)
{
	begin_refusal();
	bed.world.disk.is_slow = false;
	disk_let_go(&bed.world.disk);
	assert_int_equal(hear(), HF_NLM_DENIED_NOLOCKS);
	assert_int_equal(disk_count(&bed.world.disk, HF_RECORD_WAITER), 0);
}

/* The wait is still stored when the client asks again. */
static void test_a_refused_poll_that_cannot_be_stored(void **state)
{
	begin_refusal();
	fail_store();
	assert_int_equal(hear(), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(poll_lock(), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(n_waiters(), 0);
}

/* Exports that demand TLS */

static void connected(const char *name)
{
	char text[16];
	struct hf_tls_peer peer = { .is_authenticated = name, .n_names = name != NULL, .names = { text } };
	struct hf_addr address;

	snprintf(text, sizeof(text), "%s", name ? name : "");
	assert_true(hf_addr_parse(&address, "127.0.0.1"));
	if (bed.link)
		hf_rpc_presence_end(bed.link);
	bed.link = hf_rpc_presence_begin(bed.presence, &address, &peer);
	assert_non_null(bed.link);
}

/* For longer than grace. */
static void disconnected(void)
{
	hf_rpc_presence_end(bed.link);
	bed.link = NULL;
	turn_for(bed.world.loop, 2 * GRACE_NS);
}

static enum hf_nlm_stat lock(void)
{
	return lock_or_test(HF_NLM_LOCK, false);
}

static enum hf_nlm_stat unlock(void)
{
	uint8_t args[512];
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, args, sizeof(args));
	hf_xdr_put_u32(&out, 0);
	put_owner(&out);
	hf_xdr_put_u32(&out, OWNER);
	hf_xdr_put_u64(&out, 0);
	hf_xdr_put_u64(&out, 10);
	return ask(HF_NLM_UNLOCK, &out, args);
}

static uint64_t n_refused(enum hf_client_refusal refusal)
{
	return hf_clients_count_refused(hf_recovery_clients(bed.world.recovery), refusal);
}

static void test_no_call_without_a_connection(void **state)
{
	assert_int_equal(lock(), HF_NLM_FAILED);
	assert_int_equal(lock_or_test(HF_NLM_TEST, false), HF_NLM_FAILED);
	assert_int_equal(reserve(), HF_NLM_FAILED);
	assert_int_equal(unlock(), HF_NLM_FAILED);
	assert_int_equal(n_refused(HF_CLIENT_NO_CONNECTION), 4);
	assert_int_equal(n_locks(), 0);
}

static void test_a_connection_and_its_grace(void **state)
{
	connected(NULL);
	assert_int_equal(lock(), HF_NLM_GRANTED_STAT);
	assert_true(waiting_client()->is_secured);
	assert_null(waiting_client()->identity);
	hf_rpc_presence_end(bed.link);
	bed.link = NULL;
	assert_int_equal(lock(), HF_NLM_GRANTED_STAT); /* just now */
	turn_for(bed.world.loop, 2 * GRACE_NS);
	assert_int_equal(unlock(), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(n_locks(), 1);
	assert_int_equal(waiting_client()->n_refused, 1);
	connected(NULL);
	assert_int_equal(unlock(), HF_NLM_GRANTED_STAT);
	assert_int_equal(n_locks(), 0);
}

static void test_certificates(void **state)
{
	connected(NULL);
	assert_int_equal(lock(), HF_NLM_FAILED);
	assert_int_equal(n_refused(HF_CLIENT_NO_CONNECTION), 1);
	disconnected();
	connected("gamma");
	assert_int_equal(lock(), HF_NLM_FAILED);
	assert_int_equal(n_refused(HF_CLIENT_NOT_NAMED), 1);
	disconnected();
	connected("Alpha");
	assert_int_equal(lock(), HF_NLM_GRANTED_STAT);
	assert_string_equal(waiting_client()->identity, "Alpha"); /* as in the certificate */
}

static void test_a_name_belongs_to_its_certificate(void **state)
{
	connected("alpha");
	assert_int_equal(lock(), HF_NLM_GRANTED_STAT);
	disconnected();
	connected("beta");
	assert_int_equal(unlock(), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(lock(),
			 HF_NLM_DENIED_GRACE_PERIOD); /* the client has it, and the call may be its own */
	bed.owner++;
	assert_int_equal(lock(), HF_NLM_FAILED);
	bed.owner--;
	assert_int_equal(n_refused(HF_CLIENT_NAME_TAKEN), 3);
	assert_int_equal(n_locks(), 1);
	disconnected();
	connected("alpha");
	assert_int_equal(unlock(), HF_NLM_GRANTED_STAT);
	disconnected();
	connected("beta"); /* the client has nothing left */
	assert_int_equal(lock(), HF_NLM_GRANTED_STAT);
	assert_string_equal(waiting_client()->identity, "beta");
}

/* Each from an address of its own, with this certificate. */
static void strangers_come_and_go(const struct hf_tls_peer *peer)
{
	for (unsigned int i = 0; i < MANY; i++) {
		struct hf_addr address;
		char text[32];

		snprintf(text, sizeof(text), "10.1.%u.%u", i / 250, i % 250);
		assert_true(hf_addr_parse(&address, text));
		hf_rpc_presence_end(hf_rpc_presence_begin(bed.presence, &address, peer));
	}
}

/* The client holds a lock, and its idle connection has ended. */
static void test_strangers_do_not_end_its_grace(void **state)
{
	connected(NULL);
	assert_int_equal(lock(), HF_NLM_GRANTED_STAT);
	hf_rpc_presence_end(bed.link);
	bed.link = NULL;
	strangers_come_and_go(&(struct hf_tls_peer){ 0 });
	assert_int_equal(unlock(), HF_NLM_GRANTED_STAT);
	assert_int_equal(n_locks(), 0);
}

static void test_nor_do_strangers_with_certificates(void **state)
{
	char name[] = "gamma";
	struct hf_tls_peer gamma = { .is_authenticated = true, .n_names = 1, .names = { name } };

	connected("alpha");
	assert_int_equal(lock(), HF_NLM_GRANTED_STAT);
	hf_rpc_presence_end(bed.link);
	bed.link = NULL;
	strangers_come_and_go(&gamma);
	assert_int_equal(unlock(), HF_NLM_GRANTED_STAT);
	assert_int_equal(n_locks(), 0);
}

/* A poll without TLS may be forged. Or the client still waits: it asks again. */
static void test_a_poll_without_a_connection_is_put_off(void **state)
{
	begin_wait();
	assert_int_equal(poll_lock(), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(n_refused(HF_CLIENT_NO_CONNECTION), 1);
	assert_int_equal(n_waiters(), 1);
}

/* The reply to a LOCK without a connection waits behind one that the store holds back. The client connects,
 * and its copy of the LOCK is served. A refusal would be the first answer that the client hears. */
static void test_a_held_answer_is_no_refusal(void **state)
{
	uint32_t first;

	connected(NULL);
	assert_int_equal(lock(), HF_NLM_GRANTED_STAT);
	bed.world.disk.is_slow = true;
	send_lock_of(OWNER + 1);
	first = bed.xid;
	turn_until(bed.world.loop, n_locks() == 2 && bed.world.disk.n_held);
	disconnected();
	send_lock_of(OWNER + 2);
	turn_until(bed.world.loop, n_refused(HF_CLIENT_NO_CONNECTION) == 1);
	connected(NULL);
	bed.xid--; /* the same call */
	send_lock_of(OWNER + 2);
	turn_until(bed.world.loop, n_locks() == 3);
	assert_false(has_reply());
	bed.world.disk.is_slow = false;
	disk_let_go(&bed.world.disk);
	assert_int_equal(hear_of(first), HF_NLM_GRANTED_STAT);
	assert_int_equal(hear_of(first + 1), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(hear_of(first + 1), HF_NLM_GRANTED_STAT);
}

/* The client locked before the export demanded TLS. */
static void test_what_was_locked_before(void **state)
{
	assert_int_equal(acquire(waiting_client(), false), HF_LOCK_OK);
	assert_int_equal(lock(), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(unlock(), HF_NLM_GRANTED_STAT);
	assert_int_equal(lock(), HF_NLM_FAILED);
	assert_int_equal(n_locks(), 0);
}

/* The last run bound the client, and the client has not connected since. */
static void test_a_stored_binding(void **state)
{
	struct hf_client *client = waiting_client();

	assert_int_equal(acquire(client, false), HF_LOCK_OK);
	client->met_at = 0;
	assert_int_equal(hf_client_restore_binding(client, hf_bytes_of_str("alpha")), 0);
	assert_int_equal(lock(), HF_NLM_GRANTED_STAT);
	turn_for(bed.world.loop, 2 * GRACE_NS);
	assert_int_equal(unlock(), HF_NLM_DENIED_GRACE_PERIOD);
	assert_int_equal(n_locks(), 1);
}

#define AS(how, f) cmocka_unit_test_setup_teardown(f, how, teardown)
#define T(f)       AS(setup, f)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_poll_finds_its_place),
		T(test_a_poll_that_cannot_be_asked_for),
		T(test_a_poll_whose_file_cannot_be_kept_open),
		T(test_a_poll_from_before_a_restart),
		T(test_the_wait_is_not_ended_by_others),
		T(test_calls_before_a_start_over_is_stored),
		AS(setup_in_grace, test_a_reclaim_that_cannot_be_stored),
		AS(setup_in_grace, test_a_lock_that_cannot_be_stored),
		AS(setup_in_grace, test_a_refused_poll_is_answered_when_that_is_stored),
		AS(setup_in_grace, test_a_refused_poll_that_cannot_be_stored),
		AS(setup_tls, test_no_call_without_a_connection),
		AS(setup_tls, test_a_connection_and_its_grace),
		AS(setup_long_grace, test_strangers_do_not_end_its_grace),
		AS(setup_mtls_long_grace, test_nor_do_strangers_with_certificates),
		AS(setup_mtls, test_certificates),
		AS(setup_mtls, test_a_name_belongs_to_its_certificate),
		AS(setup_mtls, test_a_poll_without_a_connection_is_put_off),
		AS(setup_tls, test_a_held_answer_is_no_refusal),
		AS(setup_mtls, test_what_was_locked_before),
		AS(setup_mtls, test_a_stored_binding),
	};

	hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
