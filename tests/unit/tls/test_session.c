#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/ssl.h>

#include "base/macros.h"
#include "made.h"
#include "tls/tls.h"

/* A server's session and OpenSSL's client, at the two ends of a pair of sockets. */
struct bed {
	char folder[64];
	char certificate[PATH_MAX], key[PATH_MAX], client_ca[PATH_MAX];
	struct made ca, server;
	struct hf_tls *tls;
	int fds[2]; /* the server's, the client's */
	struct hf_tls_session *session;
	SSL_CTX *ctx;
	SSL *client;
};

static int load(const struct bed *bed, struct hf_tls_keys **keysp, char problem[HF_TLS_PROBLEM_SIZE])
{
	const struct hf_tls_files files = { bed->certificate, bed->key, bed->client_ca };

	return hf_tls_keys_load(keysp, &files, problem);
}

static void open_bed(struct bed *bed)
{
	struct hf_tls_keys *keys = NULL;
	char problem[HF_TLS_PROBLEM_SIZE];

	*bed = (struct bed){ .folder = "/tmp/hf-tls-XXXXXX", .fds = { -1, -1 } };
	signal(SIGPIPE, SIG_IGN);
	assert_non_null(mkdtemp(bed->folder));
	snprintf(bed->certificate, sizeof(bed->certificate), "%s/server.pem", bed->folder);
	snprintf(bed->key, sizeof(bed->key), "%s/server.key", bed->folder);
	snprintf(bed->client_ca, sizeof(bed->client_ca), "%s/ca.pem", bed->folder);
	bed->ca = make_certificate("ca", NULL, 30, NULL);
	bed->server = make_certificate("server", "DNS:server", 20, &bed->ca);
	write_certificate(&bed->server, bed->certificate);
	write_key(&bed->server, bed->key);
	write_certificate(&bed->ca, bed->client_ca);
	assert_int_equal(hf_tls_new(&bed->tls), 0);
	assert_int_equal(load(bed, &keys, problem), 0);
	hf_tls_set_keys(bed->tls, keys);
	bed->ctx = SSL_CTX_new(TLS_client_method());
}

static void hang_up(struct bed *bed)
{
	bed->session = hf_tls_session_free(bed->session);
	SSL_free(bed->client);
	bed->client = NULL;
	for (int i = 0; i < 2; i++) {
		if (bed->fds[i] >= 0)
			close(bed->fds[i]);
		bed->fds[i] = -1;
	}
}

static void close_bed(struct bed *bed)
{
	hang_up(bed);
	SSL_CTX_free(bed->ctx);
	hf_tls_free(bed->tls);
	made_free(&bed->ca);
	made_free(&bed->server);
	unlink(bed->certificate);
	unlink(bed->key);
	unlink(bed->client_ca);
	rmdir(bed->folder);
}

static void call(struct bed *bed)
{
	hang_up(bed);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, bed->fds), 0);
	assert_int_equal(hf_tls_session_new(&bed->session, bed->tls, bed->fds[0]), 0);
	bed->client = SSL_new(bed->ctx);
	SSL_set_fd(bed->client, bed->fds[1]);
	SSL_set_connect_state(bed->client);
}

/* What the server's handshake answers at last. */
static int shake_hands(struct bed *bed)
{
	int r = -EAGAIN;

	call(bed);
	for (int i = 0; i < 20 && r == -EAGAIN; i++) {
		SSL_do_handshake(bed->client);
		r = hf_tls_session_handshake(bed->session);
	}
	return r;
}

/* A certificate for the client. */
static void give(struct bed *bed, const struct made *made)
{
	assert_int_equal(SSL_CTX_use_certificate(bed->ctx, made->certificate), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(bed->ctx, made->key), 1);
}

/* Data */

static void data_goes_both_ways(void **state)
{
	static uint8_t sent[300000], got[300000];
	struct iovec iov[3] = { { sent, 100000 }, { sent + 100000, 1 }, { sent + 100001, 199999 } };
	size_t n_sent = 0, n_got = 0;
	struct bed bed;
	ssize_t n;

	for (size_t i = 0; i < sizeof(sent); i++)
		sent[i] = (uint8_t)(i * 7 + i / 251);
	open_bed(&bed);
	assert_int_equal(shake_hands(&bed), HF_TLS_DONE);
	assert_false(hf_tls_session_peer(bed.session)->is_authenticated);
	assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), -EAGAIN);
	assert_int_equal(SSL_write(bed.client, sent, 40000), 40000);
	assert_int_equal(hf_tls_session_read(bed.session, got, 1000), 1000);
	assert_true(hf_tls_session_has_input(bed.session)); /* the kernel may not tell of it */
	assert_int_equal(hf_tls_session_read(bed.session, got + 1000, sizeof(got) - 1000), 39000);
	assert_false(hf_tls_session_has_input(bed.session));
	assert_memory_equal(sent, got, 40000);
	/* The socket takes only some of it at a time. */
	while (n_sent < sizeof(sent)) {
		n = hf_tls_session_write(bed.session, iov, 3);
		for (int i = 0; i < 3 && n > 0; i++) {
			size_t here = HF_MIN(iov[i].iov_len, (size_t)n);

			iov[i].iov_base = (uint8_t *)iov[i].iov_base + here;
			iov[i].iov_len -= here;
			n_sent += here;
			n -= (ssize_t)here;
		}
		assert_true(n == 0 || n == -EAGAIN);
		while ((n = SSL_read(bed.client, got + n_got, (int)(sizeof(got) - n_got))) > 0)
			n_got += (size_t)n;
	}
	assert_int_equal(n_got, sizeof(sent));
	assert_memory_equal(sent, got, sizeof(sent));
	close_bed(&bed);
}

static void part_of_a_record_is_no_input(void **state)
{
	struct bed bed;
	uint8_t got[100];
	BIO *held;

	open_bed(&bed);
	assert_int_equal(shake_hands(&bed), HF_TLS_DONE);
	held = BIO_new(BIO_s_mem());
	SSL_set0_wbio(bed.client, held);
	assert_int_equal(SSL_write(bed.client, "0123456789", 10), 10);
	assert_int_equal(BIO_read(held, got, 20), 20);
	assert_int_equal(write(bed.fds[1], got, 20), 20);
	assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), -EAGAIN);
	assert_false(hf_tls_session_has_input(bed.session)); /* or the loop would never sleep */
	close_bed(&bed);
}

static void an_announced_end_is_an_end(void **state)
{
	struct bed bed;
	uint8_t got[100];

	open_bed(&bed);
	assert_int_equal(shake_hands(&bed), HF_TLS_DONE);
	SSL_write(bed.client, "last", 4);
	SSL_shutdown(bed.client);
	assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), 4);
	assert_true(hf_tls_session_has_input(bed.session));
	assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), 0);
	close_bed(&bed);
}

static void an_end_that_was_not_announced_is_an_error(void **state)
{
	struct bed bed;
	uint8_t got[100];

	open_bed(&bed);
	assert_int_equal(shake_hands(&bed), HF_TLS_DONE);
	SSL_write(bed.client, "last", 4);
	shutdown(bed.fds[1], SHUT_WR);
	assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), 4);
	assert_true(hf_tls_session_has_input(bed.session));
	assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), -EPROTO);
	assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), -EPROTO);
	close_bed(&bed);
}

static void clear_text_is_an_error(void **state)
{
	static const uint8_t text[] = { 0x80, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2 };
	struct iovec iov = { (void *)(uintptr_t)text, sizeof(text) };
	struct bed bed;
	uint8_t got[100];

	open_bed(&bed);
	assert_int_equal(shake_hands(&bed), HF_TLS_DONE);
	assert_int_equal(write(bed.fds[1], text, sizeof(text)), sizeof(text));
	assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), -EPROTO);
	assert_int_equal(hf_tls_session_write(bed.session, &iov, 1), -EPROTO);
	close_bed(&bed);
}

static void the_server_announces_its_end(void **state)
{
	struct bed bed;
	uint8_t got[100];

	open_bed(&bed);
	assert_int_equal(shake_hands(&bed), HF_TLS_DONE);
	hf_tls_session_end(bed.session, true);
	assert_int_equal(SSL_read(bed.client, got, sizeof(got)), 0);
	assert_int_equal(SSL_get_shutdown(bed.client) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN);
	assert_false(hf_tls_session_peer(bed.session)->is_authenticated);
	close_bed(&bed);
}

/* Many records */

/* Sends what @send writes in one piece. */
static void send_together(struct bed *bed, void (*send)(struct bed *bed, int i), int n)
{
	BIO *socket = SSL_get_wbio(bed->client), *held = BIO_new(BIO_s_mem());
	char *data;
	long len;

	BIO_up_ref(socket);
	SSL_set0_wbio(bed->client, held);
	for (int i = 0; i < n; i++)
		send(bed, i);
	len = BIO_get_mem_data(held, &data);
	assert_int_equal(write(bed->fds[1], data, (size_t)len), len);
	SSL_set0_wbio(bed->client, socket);
}

static void send_byte(struct bed *bed, int i)
{
	assert_int_equal(SSL_write(bed->client, "x", 1), 1);
}

static void a_read_takes_a_bounded_number_of_records(void **state)
{
	size_t total = 0;
	uint8_t got[5000];
	struct bed bed;

	open_bed(&bed);
	assert_int_equal(shake_hands(&bed), HF_TLS_DONE);
	send_together(&bed, send_byte, 2000);
	for (int i = 0; total < 2000; i++) {
		uint64_t n_before = hf_tls_session_count_records(bed.session);
		ssize_t n = hf_tls_session_read(bed.session, got, sizeof(got));

		assert_in_range(n, 1, HF_TLS_READ_RECORDS);
		assert_int_equal(hf_tls_session_count_records(bed.session) - n_before, n);
		total += (size_t)n;
		assert_in_range(i, 0, 2000 / HF_TLS_READ_RECORDS + 1);
	}
	assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), -EAGAIN);
	assert_false(hf_tls_session_has_input(bed.session));
	close_bed(&bed);
}

/* Records that OpenSSL's client does not send. They are sealed with its own key, which it logs. */

static struct {
	uint8_t key[16], iv[12];
	uint64_t n_sealed;
	uint8_t sent[20000];
	size_t len;
} seal;

/* HKDF-Expand-Label of RFC 8446, with SHA-256 and without a context */
static void expand(const uint8_t secret[32], const char *label, uint8_t *out, size_t len)
{
	uint8_t info[64] = { 0, (uint8_t)len };
	size_t n = 3 + (size_t)snprintf((char *)info + 3, sizeof(info) - 3, "tls13 %s", label);
	EVP_PKEY_CTX *hkdf = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, NULL);

	info[2] = (uint8_t)(n - 3);
	assert_true(EVP_PKEY_derive_init(hkdf) == 1 &&
		    EVP_PKEY_CTX_set_hkdf_mode(hkdf, EVP_PKEY_HKDEF_MODE_EXPAND_ONLY) == 1 &&
		    EVP_PKEY_CTX_set_hkdf_md(hkdf, EVP_sha256()) == 1 &&
		    EVP_PKEY_CTX_set1_hkdf_key(hkdf, secret, 32) == 1 &&
		    EVP_PKEY_CTX_add1_hkdf_info(hkdf, info, (int)n + 1) == 1 &&
		    EVP_PKEY_derive(hkdf, out, &len) == 1);
	EVP_PKEY_CTX_free(hkdf);
}

static void on_secret(const SSL *ssl, const char *line)
{
	const char *hex = strrchr(line, ' ') + 1;
	uint8_t secret[32];

	if (strncmp(line, "CLIENT_TRAFFIC_SECRET_0", 23) != 0)
		return;
	for (int i = 0; i < 32; i++)
		assert_int_equal(sscanf(hex + 2 * i, "%2hhx", &secret[i]), 1);
	expand(secret, "key", seal.key, sizeof(seal.key));
	expand(secret, "iv", seal.iv, sizeof(seal.iv));
	seal.n_sealed = 0;
}

static void add_sealed(uint8_t kind, const void *data, int len)
{
	uint8_t *record = seal.sent + seal.len, *at = record + 5, iv[12];
	uint8_t head[] = { SSL3_RT_APPLICATION_DATA, 3, 3, (uint8_t)((len + 17) >> 8), (uint8_t)(len + 17) };
	EVP_CIPHER_CTX *gcm = EVP_CIPHER_CTX_new();
	int n;

	assert_true(seal.len + (size_t)len + 22 <= sizeof(seal.sent));
	memcpy(record, head, sizeof(head));
	memcpy(iv, seal.iv, sizeof(iv));
	for (int i = 0; i < 8; i++)
		iv[11 - i] ^= (uint8_t)(seal.n_sealed >> 8 * i);
	seal.n_sealed++;
	assert_true(EVP_EncryptInit_ex(gcm, EVP_aes_128_gcm(), NULL, seal.key, iv) == 1 &&
		    EVP_EncryptUpdate(gcm, NULL, &n, head, sizeof(head)) == 1 &&
		    EVP_EncryptUpdate(gcm, at, &n, data, len) == 1 &&
		    EVP_EncryptUpdate(gcm, at + len, &n, &kind, 1) == 1 &&
		    EVP_EncryptFinal_ex(gcm, at + len + 1, &n) == 1 &&
		    EVP_CIPHER_CTX_ctrl(gcm, EVP_CTRL_GCM_GET_TAG, 16, at + len + 1) == 1);
	EVP_CIPHER_CTX_free(gcm);
	seal.len += (size_t)len + 22;
}

static void send_sealed(const struct bed *bed)
{
	assert_int_equal(write(bed->fds[1], seal.sent, seal.len), seal.len);
	seal.len = 0;
}

static void shake_hands_for_seal(struct bed *bed)
{
	SSL_CTX_set_keylog_callback(bed->ctx, on_secret);
	assert_int_equal(SSL_CTX_set_ciphersuites(bed->ctx, "TLS_AES_128_GCM_SHA256"), 1);
	assert_int_equal(shake_hands(bed), HF_TLS_DONE);
}

static void empty_records_count_as_others(void **state)
{
	uint8_t got[5000];
	ssize_t n;
	struct bed bed;

	open_bed(&bed);
	shake_hands_for_seal(&bed);
	for (int i = 0; i < 500; i++)
		add_sealed(SSL3_RT_APPLICATION_DATA, "x", i % 20 == 19);
	send_sealed(&bed);
	do {
		uint64_t n_before = hf_tls_session_count_records(bed.session);

		n = hf_tls_session_read(bed.session, got, sizeof(got));
		assert_in_range(hf_tls_session_count_records(bed.session) - n_before, 0,
				HF_TLS_READ_RECORDS + 32);
		assert_true(n == -EAGAIN || (n > 0 && n <= 5));
	} while (n > 0);
	assert_int_equal(hf_tls_session_count_records(bed.session), 500);
	/* More of them in a row are an attack. */
	for (int i = 0; i < 40; i++)
		add_sealed(SSL3_RT_APPLICATION_DATA, "", 0);
	send_sealed(&bed);
	assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), -EPROTO);
	close_bed(&bed);
}

/* The first message of a new client of @ctx, without the header of its record. Returns its length. */
static int make_hello(SSL_CTX *ctx, uint8_t *hello, int size)
{
	SSL *other = SSL_new(ctx);
	BIO *held = BIO_new(BIO_s_mem());
	uint8_t head[5];
	int len;

	SSL_set_bio(other, BIO_new(BIO_s_mem()), held);
	SSL_set_connect_state(other);
	SSL_do_handshake(other);
	assert_int_equal(BIO_read(held, head, sizeof(head)), sizeof(head));
	assert_int_equal(head[0], SSL3_RT_HANDSHAKE);
	len = BIO_read(held, hello, size);
	assert_int_equal(len, head[3] << 8 | head[4]);
	assert_int_equal(hello[0], SSL3_MT_CLIENT_HELLO);
	SSL_free(other);
	return len;
}

/* Renegotiation, which TLS 1.3 does not have. What came before it is served. */
static void a_hello_inside_the_session_ends_it(void **state)
{
	struct iovec iov = { (void *)(uintptr_t) "reply", 5 };
	uint8_t hello[2000], got[100];
	struct bed bed;
	int len;

	open_bed(&bed);
	shake_hands_for_seal(&bed);
	len = make_hello(bed.ctx, hello, sizeof(hello));
	add_sealed(SSL3_RT_APPLICATION_DATA, "call", 4);
	add_sealed(SSL3_RT_HANDSHAKE, hello, len);
	add_sealed(SSL3_RT_APPLICATION_DATA, "more", 4);
	send_sealed(&bed);
	assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), 4);
	assert_memory_equal(got, "call", 4);
	for (int i = 0; i < 2; i++)
		assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), -EPROTO);
	assert_int_equal(hf_tls_session_write(bed.session, &iov, 1), -EPROTO);
	/* The client is told why. */
	ERR_clear_error();
	assert_true(SSL_read(bed.client, got, sizeof(got)) <= 0);
	assert_int_equal(ERR_GET_REASON(ERR_peek_error()), SSL_R_SSLV3_ALERT_UNEXPECTED_MESSAGE);
	close_bed(&bed);
}

/* Groups */

static void only_groups_that_cost_little_are_used(void **state)
{
	static const struct {
		const char *name;
		int result;
	} groups[] = {
		{ "X25519", HF_TLS_DONE },      { "P-256", HF_TLS_DONE },
		{ "P-384", HF_TLS_DONE },       { "ffdhe8192", HF_TLS_BROKEN },
		{ "ffdhe2048", HF_TLS_BROKEN }, { "P-521", HF_TLS_BROKEN },
		{ "X448", HF_TLS_BROKEN },      { "ffdhe8192:X25519", HF_TLS_DONE },
	};
	struct bed bed;

	open_bed(&bed);
	for (size_t i = 0; i < HF_ARRAY_SIZE(groups); i++) {
		assert_int_equal(SSL_CTX_set1_groups_list(bed.ctx, groups[i].name), 1);
		assert_int_equal(shake_hands(&bed), groups[i].result);
	}
	close_bed(&bed);
}

/* Keys that change */

static void change_key(struct bed *bed, int how)
{
	assert_int_equal(SSL_key_update(bed->client, how), 1);
	assert_int_equal(SSL_do_handshake(bed->client), 1);
}

static void a_client_may_change_its_key(void **state)
{
	struct iovec iov = { (void *)(uintptr_t) "reply", 5 };
	struct bed bed;
	uint8_t got[100];

	open_bed(&bed);
	assert_int_equal(shake_hands(&bed), HF_TLS_DONE);
	for (int i = 0; i < 8; i++) {
		change_key(&bed, i % 2 ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED);
		assert_int_equal(SSL_write(bed.client, "call", 4), 4);
		assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), 4);
		assert_int_equal(hf_tls_session_write(bed.session, &iov, 1), 5);
		assert_int_equal(SSL_read(bed.client, got, sizeof(got)), 5);
	}
	close_bed(&bed);
}

/* From now on the client's records gather in the memory that is returned. */
static BIO *hold_back(struct bed *bed)
{
	BIO *held = BIO_new(BIO_s_mem());

	SSL_set0_wbio(bed->client, held);
	return held;
}

static size_t fill_socket(struct bed *bed)
{
	static const uint8_t zeros[4096];
	size_t n_filled = 0;
	ssize_t n;

	while ((n = send(bed->fds[0], zeros, sizeof(zeros), 0)) > 0)
		n_filled += (size_t)n;
	return n_filled;
}

static void empty_socket(struct bed *bed, size_t n_filled)
{
	uint8_t zeros[4096];

	while (n_filled) {
		ssize_t n = recv(bed->fds[1], zeros, HF_MIN(n_filled, sizeof(zeros)), 0);

		assert_true(n > 0);
		n_filled -= (size_t)n;
	}
}

/* A write begins with the answer to a new key. While the socket does not take it, OpenSSL reads nothing, not
 * even what came with the new key. */
static void a_read_waits_for_the_answer_to_a_new_key(void **state)
{
	struct iovec iov = { (void *)(uintptr_t) "reply", 5 };
	uint8_t got[100];
	size_t n_filled;
	struct bed bed;
	BIO *held;
	char *data;
	long len;

	open_bed(&bed);
	for (int writes_first = 0; writes_first < 2; writes_first++) {
		assert_int_equal(shake_hands(&bed), HF_TLS_DONE);
		assert_false(hf_tls_session_wants_write(bed.session));
		n_filled = fill_socket(&bed);
		held = hold_back(&bed);
		change_key(&bed, SSL_KEY_UPDATE_REQUESTED);
		assert_int_equal(SSL_write(bed.client, "call", 4), 4);
		assert_int_equal(SSL_write(bed.client, "more", 4), 4);
		len = BIO_get_mem_data(held, &data);
		assert_int_equal(send(bed.fds[1], data, (size_t)len, 0), len);
		assert_int_equal(hf_tls_session_read(bed.session, got, 4), 4);
		assert_false(hf_tls_session_wants_write(bed.session));
		assert_true(hf_tls_session_has_input(bed.session));
		assert_int_equal(hf_tls_session_write(bed.session, &iov, 1), -EAGAIN);
		assert_int_equal(hf_tls_session_read(bed.session, got, 4), -EAGAIN);
		assert_true(hf_tls_session_wants_write(bed.session));
		assert_false(hf_tls_session_has_input(bed.session)); /* else it would be read again at once */
		empty_socket(&bed, n_filled);
		if (writes_first)
			assert_int_equal(hf_tls_session_write(bed.session, &iov, 1), 5);
		assert_int_equal(hf_tls_session_read(bed.session, got, 4), 4);
		assert_memory_equal(got, "more", 4);
		assert_false(hf_tls_session_wants_write(bed.session));
		if (!writes_first)
			assert_int_equal(hf_tls_session_write(bed.session, &iov, 1), 5);
		assert_int_equal(SSL_read(bed.client, got, sizeof(got)), 5);
	}
	close_bed(&bed);
}

/* What a client that sends data all the time may do for days. */
static void a_client_may_change_its_key_with_its_data(void **state)
{
	static uint8_t data[1 << 16], got[1 << 16];
	struct bed bed;

	open_bed(&bed);
	assert_int_equal(shake_hands(&bed), HF_TLS_DONE);
	for (int i = 0; i < 40 * 17; i++) {
		if (i % 17 == 0)
			change_key(&bed, SSL_KEY_UPDATE_NOT_REQUESTED);
		assert_int_equal(SSL_write(bed.client, data, sizeof(data)), sizeof(data));
		assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), sizeof(got));
	}
	close_bed(&bed);
}

static void a_flood_of_new_keys_ends_the_session(void **state)
{
	struct bed bed;
	uint8_t got[100];
	ssize_t r = -EAGAIN;
	int n = 0;

	open_bed(&bed);
	assert_int_equal(shake_hands(&bed), HF_TLS_DONE);
	while (r == -EAGAIN && n < 1000) {
		change_key(&bed, SSL_KEY_UPDATE_NOT_REQUESTED);
		n++;
		r = hf_tls_session_read(bed.session, got, sizeof(got));
	}
	assert_int_equal(r, -EPROTO);
	assert_in_range(n, 10, 32);
	close_bed(&bed);
}

static void send_byte_with_new_key(struct bed *bed, int i)
{
	change_key(bed, SSL_KEY_UPDATE_NOT_REQUESTED);
	send_byte(bed, i);
}

/* OpenSSL takes new keys and the data behind them in one go. */
static void a_flood_of_new_keys_between_data_ends_the_session(void **state)
{
	struct bed bed;
	uint8_t got[1000];
	ssize_t n, total = 0;

	open_bed(&bed);
	assert_int_equal(shake_hands(&bed), HF_TLS_DONE);
	send_together(&bed, send_byte_with_new_key, 200);
	for (int i = 0; (n = hf_tls_session_read(bed.session, got, sizeof(got))) > 0 && i < 1000; i++)
		total += n;
	assert_int_equal(n, -EPROTO);
	assert_in_range(total, 10, 32);
	close_bed(&bed);
}

static void only_change_key(struct bed *bed, int i)
{
	change_key(bed, SSL_KEY_UPDATE_NOT_REQUESTED);
}

static void a_flood_of_new_keys_in_one_piece_ends_early(void **state)
{
	struct bed bed;
	uint8_t got[1000];

	open_bed(&bed);
	assert_int_equal(shake_hands(&bed), HF_TLS_DONE);
	send_together(&bed, only_change_key, 1000);
	assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), -EPROTO);
	assert_in_range(hf_tls_session_count_records(bed.session), 10, 32);
	close_bed(&bed);
}

/* Identities */

static void expect_names(struct bed *bed, const struct made *made, const char *first, size_t n)
{
	const struct hf_tls_peer *peer;

	give(bed, made);
	assert_int_equal(shake_hands(bed), HF_TLS_DONE);
	peer = hf_tls_session_peer(bed->session);
	assert_true(peer->is_authenticated);
	assert_int_equal(peer->n_names, n);
	if (n)
		assert_string_equal(peer->names[0], first);
}

static void names_are_alternatives_or_else_the_common_name(void **state)
{
	struct made plain, both, address;
	struct bed bed;

	open_bed(&bed);
	plain = make_certificate("plain.example", NULL, 30, &bed.ca);
	both = make_certificate("common", "DNS:one.example,DNS:two.example,IP:192.0.2.1", 30, &bed.ca);
	address = make_certificate("common", "IP:192.0.2.1", 30, &bed.ca);
	expect_names(&bed, &plain, "plain.example", 1);
	expect_names(&bed, &both, "one.example", 2);
	assert_true(hf_tls_peer_has_name(hf_tls_session_peer(bed.session), "TWO.example"));
	assert_false(hf_tls_peer_has_name(hf_tls_session_peer(bed.session), "common"));
	assert_false(hf_tls_peer_has_name(hf_tls_session_peer(bed.session), "one"));
	expect_names(&bed, &address, "common", 1);
	made_free(&plain);
	made_free(&both);
	made_free(&address);
	close_bed(&bed);
}

static void a_name_with_a_hole_is_no_name(void **state)
{
	static const char *const texts[] = { "good.example\0.evil.example", "good.example ", "\ngood.example",
					     "" };
	static const int lens[] = { 26, 13, 13, 0 };
	struct bed bed;

	open_bed(&bed);
	for (size_t i = 0; i < HF_ARRAY_SIZE(texts); i++) {
		struct made made = make_with_name("good.example", texts[i], lens[i], &bed.ca);

		expect_names(&bed, &made, NULL, 0);
		made_free(&made);
	}
	close_bed(&bed);
}

static void expect_refusal(struct bed *bed, struct made made, const char *why)
{
	give(bed, &made);
	assert_int_equal(shake_hands(bed), HF_TLS_REFUSED_CERTIFICATE);
	assert_string_equal(hf_tls_session_problem(bed->session), why);
	made_free(&made);
}

static void bad_certificates_are_refused(void **state)
{
	struct made other;
	struct bed bed;

	open_bed(&bed);
	other = make_certificate("ca", NULL, 30, NULL); /* the same name, another key */
	expect_refusal(&bed, make_certificate("old", NULL, -1, &bed.ca), "certificate-has-expired");
	expect_refusal(&bed, make_certificate("lonely", NULL, 30, NULL), "self-signed-certificate");
	expect_refusal(&bed, make_certificate("stranger", NULL, 30, &other), "certificate-signature-failure");
	made_free(&other);
	close_bed(&bed);
}

/* Keys */

static void without_keys_nothing_is_offered(void **state)
{
	struct hf_tls_session *session = NULL;
	struct hf_tls *tls;
	int64_t end;

	assert_int_equal(hf_tls_new(&tls), 0);
	assert_false(hf_tls_is_on(tls));
	assert_false(hf_tls_expires(tls, &end));
	assert_int_equal(hf_tls_session_new(&session, tls, 0), -ENOTSUP);
	hf_tls_free(tls);
}

static void sessions_outlive_their_keys(void **state)
{
	struct bed bed;
	uint8_t got[100];
	int64_t end;

	open_bed(&bed);
	assert_true(hf_tls_expires(bed.tls, &end));
	assert_in_range(end - time(NULL), 20 * 86400 - 100, 20 * 86400 + 100);
	assert_int_equal(shake_hands(&bed), HF_TLS_DONE);
	hf_tls_set_keys(bed.tls, NULL);
	assert_int_equal(SSL_write(bed.client, "call", 4), 4);
	assert_int_equal(hf_tls_session_read(bed.session, got, sizeof(got)), 4);
	close_bed(&bed);
}

static void wrong_files_are_named(void **state)
{
	struct hf_tls_keys *keys = NULL;
	char problem[HF_TLS_PROBLEM_SIZE];
	struct made other;
	struct bed bed;

	open_bed(&bed);
	other = make_certificate("other", NULL, 30, &bed.ca);
	write_key(&other, bed.key);
	assert_int_equal(load(&bed, &keys, problem), HF_TLS_E_KEY);
	assert_non_null(strstr(problem, "is not the key of tls.certificate"));
	unlink(bed.key);
	assert_int_equal(load(&bed, &keys, problem), HF_TLS_E_KEY);
	assert_non_null(strstr(problem, "cannot be read (No such file or directory)"));
	write_key(&bed.server, bed.key);
	write_key(&bed.server, bed.client_ca);
	assert_int_equal(load(&bed, &keys, problem), HF_TLS_E_CLIENT_CA);
	write_key(&bed.server, bed.certificate);
	assert_int_equal(load(&bed, &keys, problem), HF_TLS_E_CERTIFICATE);
	assert_non_null(strstr(problem, "has no usable certificate"));
	assert_null(keys);
	made_free(&other);
	close_bed(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(data_goes_both_ways),
		cmocka_unit_test(part_of_a_record_is_no_input),
		cmocka_unit_test(an_announced_end_is_an_end),
		cmocka_unit_test(an_end_that_was_not_announced_is_an_error),
		cmocka_unit_test(clear_text_is_an_error),
		cmocka_unit_test(the_server_announces_its_end),
		cmocka_unit_test(a_client_may_change_its_key),
		cmocka_unit_test(a_read_waits_for_the_answer_to_a_new_key),
		cmocka_unit_test(a_client_may_change_its_key_with_its_data),
		cmocka_unit_test(a_flood_of_new_keys_ends_the_session),
		cmocka_unit_test(a_flood_of_new_keys_between_data_ends_the_session),
		cmocka_unit_test(a_flood_of_new_keys_in_one_piece_ends_early),
		cmocka_unit_test(a_read_takes_a_bounded_number_of_records),
		cmocka_unit_test(empty_records_count_as_others),
		cmocka_unit_test(a_hello_inside_the_session_ends_it),
		cmocka_unit_test(only_groups_that_cost_little_are_used),
		cmocka_unit_test(names_are_alternatives_or_else_the_common_name),
		cmocka_unit_test(a_name_with_a_hole_is_no_name),
		cmocka_unit_test(bad_certificates_are_refused),
		cmocka_unit_test(without_keys_nothing_is_offered),
		cmocka_unit_test(sessions_outlive_their_keys),
		cmocka_unit_test(wrong_files_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
