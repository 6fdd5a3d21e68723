/* The gate to TLS: whose handshake makes room for another, what many records cost, what waits for a full
 * socket, and what leaves without the lease. */
#include "../test.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "../tls/made.h"
#include "rig.h"
#include "tls/tls.h"

#define HOME     "127.0.0.1"
#define AUTH_TLS 7

static struct rig rig;
static struct hf_tls *tls;
static SSL_CTX *ctx;
static struct hf_lease lease;

static void set_tls(struct rig *of, void *arg)
{
	hf_rpc_server_set_tls(of->server, tls);
}

static void start(size_t max_handshakes, size_t max_handshakes_per_host)
{
	struct hf_rpc_limits limits = rig_limits;

	limits.max_handshakes = max_handshakes;
	limits.max_handshakes_per_host = max_handshakes_per_host;
	limits.handshake_ns = 600 * HF_NS_PER_S;
	rig_start(&rig, &limits, 1, HOME);
	rig_run_on(&rig, 0, set_tls, NULL);
}

static int set_up_keys(void **state)
{
	char folder[] = "/tmp/hf-secure-XXXXXX", certificate[64], key[64], problem[HF_TLS_PROBLEM_SIZE];
	struct made ca = make_certificate("ca", NULL, 30, NULL);
	const struct hf_tls_files files = { certificate, key, "" };
	struct hf_tls_keys *keys = NULL;

	signal(SIGPIPE, SIG_IGN); /* the server may hang up before the client writes */
	assert_non_null(mkdtemp(folder));
	snprintf(certificate, sizeof(certificate), "%s/ca.pem", folder);
	snprintf(key, sizeof(key), "%s/ca.key", folder);
	write_certificate(&ca, certificate);
	write_key(&ca, key);
	assert_int_equal(hf_tls_new(&tls), 0);
	assert_int_equal(hf_tls_keys_load(&keys, &files, problem), 0);
	hf_tls_set_keys(tls, keys);
	ctx = SSL_CTX_new(TLS_client_method());
	unlink(certificate);
	unlink(key);
	rmdir(folder);
	made_free(&ca);
	return 0;
}

static int forget_keys(void **state)
{
	SSL_CTX_free(ctx);
	hf_tls_free(tls);
	return 0;
}

/* A connection from @from that has got STARTTLS */
static int ask(const char *from)
{
	static const uint32_t starttls[] = { 1, 1, 0, 0, 8, 0x53544152, 0x54544c53, 0 };
	int fd = rig_connect(HOME, rig.tcp, from);
	uint8_t call[64];
	size_t len = rig_call(call, 1, RIG_PROGRAM, RIG_VOID, NULL, 0);

	rig_put(call + 24, AUTH_TLS);
	rig_send_record(fd, call, len);
	rig_expect_words(fd, starttls, 8);
	return fd;
}

static bool is_open(int fd)
{
	struct pollfd asked = { .fd = fd, .events = POLLIN };

	return poll(&asked, 1, 0) == 0;
}

static void show_limits(struct rig *of, void *uses)
{
	hf_rpc_server_show_limits(of->server, uses);
}

static void expect_use(enum hf_limit limit, uint64_t used, uint64_t max, uint64_t refused)
{
	struct hf_limit_use uses[HF_N_LIMITS] = { 0 };

	rig_run_on(&rig, 0, show_limits, uses);
	assert_int_equal(uses[limit].used, used);
	assert_int_equal(uses[limit].max, max);
	assert_int_equal(uses[limit].refused, refused);
}

/* Handshakes */

static void the_address_with_the_most_makes_room(void **state)
{
	int honest, many[4], others[8];

	start(6, 4);
	honest = ask("127.0.0.2"); /* the oldest of all */
	for (int i = 0; i < 4; i++)
		many[i] = ask("127.0.0.3");
	others[0] = ask("127.0.0.4");
	others[1] = ask("127.0.0.5"); /* the seventh */
	assert_true(rig_is_closed(many[0]));
	others[2] = ask("127.0.0.6");
	assert_true(rig_is_closed(many[1]));
	others[3] = ask("127.0.0.6"); /* it has two, too: its own goes rather than one of others */
	assert_true(is_open(honest));
	assert_true(rig_is_closed(others[2]));
	assert_true(is_open(many[2]) && is_open(many[3]));
	others[4] = ask("127.0.0.7");
	assert_true(rig_is_closed(many[2]));
	/* Now each has one, and the oldest of all goes. */
	others[5] = ask("127.0.0.8");
	assert_true(rig_is_closed(honest));
	expect_use(HF_LIMIT_HANDSHAKES, 6, 6, 5);
	close(honest);
	for (int i = 0; i < 4; i++)
		close(many[i]);
	for (int i = 0; i < 6; i++)
		close(others[i]);
	rig_stop(&rig);
}

static void an_address_has_its_part(void **state)
{
	int many[5];

	start(6, 4);
	for (int i = 0; i < 5; i++)
		many[i] = ask("127.0.0.3");
	assert_true(rig_is_closed(many[0]));
	expect_use(HF_LIMIT_HANDSHAKES, 4, 6, 0);
	expect_use(HF_LIMIT_HANDSHAKES_PER_ADDRESS, 4, 4, 1);
	for (int i = 0; i < 5; i++)
		close(many[i]);
	rig_stop(&rig);
}

/* Records */

static SSL *secure(int fd)
{
	SSL *client = SSL_new(ctx);

	SSL_set_fd(client, fd);
	assert_int_equal(SSL_connect(client), 1);
	return client;
}

static void add_call_in_bytes(SSL *client, uint32_t xid)
{
	uint8_t call[64];
	size_t len = rig_call_word(call + 4, xid, RIG_PROGRAM, RIG_WORK, 0);

	rig_put(call, 0x80000000u | (uint32_t)len);
	for (size_t i = 0; i < 4 + len; i++)
		assert_int_equal(SSL_write(client, call + i, 1), 1);
}

/* A call whose bytes come in records of their own costs as much as the records. */
static void calls_in_tiny_records_are_charged(void **state)
{
	BIO *held = BIO_new(BIO_s_mem());
	uint8_t reply[64];
	SSL *client;
	char *data;
	long len;
	int fd;

	start(6, 4);
	fd = ask(NULL);
	client = secure(fd);
	SSL_set0_wbio(client, held);
	for (uint32_t i = 0; i < 200; i++)
		add_call_in_bytes(client, i);
	len = BIO_get_mem_data(held, &data);
	rig_send_all(fd, data, (size_t)len);
	for (uint32_t i = 0; i < 200; i++) {
		assert_int_equal(SSL_read(client, reply, 28), 28);
		assert_int_equal(rig_get(reply + 4), i);
	}
	/* 1024 units are served of one address, and each call has 48 records. */
	assert_in_range(atomic_load(&rig.most_in_turn), 1, 1024 / 48 + 16);
	SSL_free(client);
	close(fd);
	rig_stop(&rig);
}

/* A full socket */

static void send_call(SSL *client, uint32_t xid, uint32_t proc)
{
	uint8_t call[64];
	size_t len = rig_call_word(call + 4, xid, RIG_PROGRAM, proc, 0);

	rig_put(call, 0x80000000u | (uint32_t)len);
	assert_int_equal(SSL_write(client, call, (int)(4 + len)), 4 + len);
}

static _Atomic bool is_full;
static _Atomic unsigned int n_refused;

static bool is_servers(int fd)
{
	struct sockaddr_in here = { 0 };
	socklen_t len = sizeof(here);

	return getsockname(fd, (struct sockaddr *)&here, &len) == 0 && here.sin_family == AF_INET &&
	       ntohs(here.sin_port) == rig.tcp;
}

/* In the place of libc's, for OpenSSL */
ssize_t write(int fd, const void *data, size_t len)
{
	if (atomic_load(&is_full) && is_servers(fd)) {
		atomic_fetch_add(&n_refused, 1);
		errno = EAGAIN;
		return -1;
	}
	return syscall(SYS_write, fd, data, len);
}

static bool was_refused_often(void *arg)
{
	return atomic_load(&n_refused) >= 20;
}

/* One read takes some of the calls. The first reply begins with the answer to the new key. While the socket
 * does not take it, OpenSSL does not give the other calls, and has them already: the kernel does not tell of
 * them. */
static void calls_behind_a_new_key_are_served_when_the_socket_takes_more(void **state)
{
	const uint32_t n_calls = HF_TLS_READ_RECORDS + 36;
	struct timeval patience = { .tv_sec = 20 };
	BIO *held = BIO_new(BIO_s_mem());
	uint8_t reply[64];
	SSL *client;
	char *data;
	long len;
	int fd;

	start(6, 4);
	fd = ask(NULL);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	client = secure(fd);
	atomic_store(&is_full, true);
	SSL_set0_wbio(client, held);
	assert_int_equal(SSL_key_update(client, SSL_KEY_UPDATE_REQUESTED), 1);
	for (uint32_t i = 0; i < n_calls; i++)
		send_call(client, i, RIG_WORK);
	len = BIO_get_mem_data(held, &data);
	rig_send_all(fd, data, (size_t)len);
	rig_wait(was_refused_often, NULL, "the socket refuses the answer to the new key");
	atomic_store(&is_full, false);
	for (uint32_t i = 0; i < n_calls; i++) {
		assert_int_equal(SSL_read(client, reply, 28), 28);
		assert_int_equal(rig_get(reply + 4), i);
	}
	SSL_free(client);
	close(fd);
	rig_stop(&rig);
}

/* The lease */

static void use_lease(struct rig *of, void *arg)
{
	hf_loop_set_lease(of->loops[0], &lease);
}

static void start_with_lease(void)
{
	hf_lease_set(&lease, UINT64_MAX, 1);
	start(6, 4);
	rig_run_on(&rig, 0, use_lease, NULL);
}

static void end_lease(void)
{
	hf_lease_set(&lease, 1, 1);
}

/* A session with a server that has the lease, and has answered a call */
static SSL *served(int *fdp)
{
	uint8_t reply[64];
	SSL *client;

	start_with_lease();
	*fdp = ask(NULL);
	client = secure(*fdp);
	send_call(client, 1, RIG_WORK);
	assert_int_equal(SSL_read(client, reply, 28), 28);
	return client;
}

static void a_reply_does_not_leave_without_the_lease(void **state)
{
	int fd;
	SSL *client = served(&fd);

	send_call(client, 2, RIG_SUSPEND);
	rig_wait_suspended(&rig, 1);
	end_lease();
	rig_release(&rig, 1);
	assert_true(rig_is_closed(fd)); /* without a byte: neither the reply nor an end of the session */
	SSL_free(client);
	close(fd);
	rig_stop(&rig);
}

static void the_answer_to_a_new_key_does_not_leave_without_the_lease(void **state)
{
	int fd;
	SSL *client = served(&fd);

	end_lease();
	assert_int_equal(SSL_key_update(client, SSL_KEY_UPDATE_REQUESTED), 1);
	assert_int_equal(SSL_do_handshake(client), 1); /* sends it */
	assert_true(rig_is_closed(fd));
	SSL_free(client);
	close(fd);
	rig_stop(&rig);
}

static void a_client_that_changes_its_key_all_the_time_is_counted(void **state)
{
	int fd;
	SSL *client = served(&fd);

	for (int i = 0; i < 100 && SSL_key_update(client, SSL_KEY_UPDATE_NOT_REQUESTED) == 1; i++)
		if (SSL_do_handshake(client) != 1) /* sends it */
			break;
	assert_true(rig_is_closed(fd));
	expect_use(HF_LIMIT_TLS_KEYS, 0, HF_TLS_FREE_KEYS, 1);
	SSL_free(client);
	close(fd);
	rig_stop(&rig);
}

static bool is_forgotten(void *arg)
{
	struct hf_limit_use uses[HF_N_LIMITS] = { 0 };

	rig_run_on(&rig, 0, show_limits, uses);
	return uses[HF_LIMIT_TLS_KEYS].used == 0;
}

static void new_keys_are_counted_while_the_session_is_open(void **state)
{
	uint8_t reply[64];
	int fd;
	SSL *client = served(&fd);

	expect_use(HF_LIMIT_TLS_KEYS, 0, HF_TLS_FREE_KEYS, 0);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(SSL_key_update(client, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
		assert_int_equal(SSL_do_handshake(client), 1);
	}
	send_call(client, 2, RIG_WORK);
	assert_int_equal(SSL_read(client, reply, 28), 28);
	expect_use(HF_LIMIT_TLS_KEYS, 5, HF_TLS_FREE_KEYS, 0);
	SSL_free(client);
	close(fd);
	rig_wait(is_forgotten, NULL, "the session's keys are not counted any more");
	rig_stop(&rig);
}

static void no_handshake_is_answered_without_the_lease(void **state)
{
	SSL *client = SSL_new(ctx);
	int fd;

	start_with_lease();
	fd = ask(NULL);
	end_lease();
	SSL_set_fd(client, fd);
	assert_int_not_equal(SSL_connect(client), 1);
	assert_int_equal(BIO_number_read(SSL_get_rbio(client)), 0);
	assert_true(rig_is_closed(fd));
	SSL_free(client);
	close(fd);
	rig_stop(&rig);
}

static void the_end_of_a_session_is_not_told_without_the_lease(void **state)
{
	int fd;
	SSL *client = served(&fd);

	end_lease();
	rig_stop(&rig);
	assert_true(rig_is_closed(fd));
	SSL_free(client);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_address_with_the_most_makes_room),
		cmocka_unit_test(an_address_has_its_part),
		cmocka_unit_test(calls_in_tiny_records_are_charged),
		cmocka_unit_test(calls_behind_a_new_key_are_served_when_the_socket_takes_more),
		cmocka_unit_test(a_reply_does_not_leave_without_the_lease),
		cmocka_unit_test(the_answer_to_a_new_key_does_not_leave_without_the_lease),
		cmocka_unit_test(a_client_that_changes_its_key_all_the_time_is_counted),
		cmocka_unit_test(new_keys_are_counted_while_the_session_is_open),
		cmocka_unit_test(no_handshake_is_answered_without_the_lease),
		cmocka_unit_test(the_end_of_a_session_is_not_told_without_the_lease),
	};

	return cmocka_run_group_tests(tests, set_up_keys, forget_keys);
}
