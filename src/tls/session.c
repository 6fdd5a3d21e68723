#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <openssl/err.h>

#include "base/error.h"
#include "base/macros.h"
#include "tls/internal.h"

/* Each new key of the client costs as much as some pages of data. */
#define BYTES_PER_UPDATE (1u << 20)

struct hf_tls_session {
	SSL *ssl; /* NULL: it has ended */
	struct hf_tls_peer peer;
	uint64_t n_read;    /* bytes of data */
	uint64_t n_records; /* of any kind */
	uint64_t n_updates; /* messages that changed the client's key */
	int error;          /* what every further read answers; 0: none */
	char problem[96];
	bool wants_write; /* the handshake, or the last read */
	bool is_open;     /* the handshake is done */
	bool is_flooded;  /* by new keys */
	bool is_drained;  /* the last read took all that was complete */
};

/* Nothing but new keys may come after the handshake. */
static void note_update(struct hf_tls_session *session)
{
	session->n_updates++;
	session->is_flooded = session->n_updates > HF_TLS_FREE_KEYS + session->n_read / BYTES_PER_UPDATE;
	/* One SSL_read_ex() takes any number of such messages, if they came together. To OpenSSL the peer has
	 * ended the session now, so it takes no more. */
	if (session->is_flooded)
		SSL_set_shutdown(session->ssl, SSL_RECEIVED_SHUTDOWN);
}

/* Counts what the client sends after its handshake. */
static void on_message(int write_p, int version, int content_type, const void *buf, size_t len, SSL *ssl,
		       void *arg)
{
	struct hf_tls_session *session = SSL_get_app_data(ssl);

	if (write_p || !session || !session->is_open)
		return;
	if (content_type == SSL3_RT_HEADER)
		session->n_records++;
	else if (content_type == SSL3_RT_HANDSHAKE && len)
		note_update(session);
}

int hf_tls_session_new(struct hf_tls_session **sessionp, struct hf_tls *tls, int fd)
{
	struct hf_tls_session *session = calloc(1, sizeof(*session));
	int r = -ENOMEM;

	ERR_clear_error();
	if (session)
		session->ssl = hf_tls_begin(tls, &r);
	if (session && session->ssl && SSL_set_fd(session->ssl, fd) == 1) {
		SSL_set_app_data(session->ssl, session);
		SSL_set_msg_callback(session->ssl, on_message);
		SSL_set_accept_state(session->ssl);
		*sessionp = session;
		return 0;
	}
	ERR_clear_error();
	hf_tls_session_free(session);
	return r == 0 ? -ENOMEM : r;
}

void hf_tls_session_end(struct hf_tls_session *session, bool may_tell)
{
	if (!session->ssl)
		return;
	ERR_clear_error();
	if (may_tell && session->is_open && !session->error)
		(void)SSL_shutdown(session->ssl);
	SSL_free(session->ssl);
	ERR_clear_error();
	session->ssl = NULL;
}

struct hf_tls_session *hf_tls_session_free(struct hf_tls_session *session)
{
	if (!session)
		return NULL;
	hf_tls_session_end(session, false);
	hf_tls_peer_clear(&session->peer);
	free(session);
	return NULL;
}

const struct hf_tls_peer *hf_tls_session_peer(const struct hf_tls_session *session)
{
	return &session->peer;
}

/* Handshake */

bool hf_tls_session_wants_write(const struct hf_tls_session *session)
{
	return session->wants_write;
}

const char *hf_tls_session_problem(const struct hf_tls_session *session)
{
	return *session->problem ? session->problem : "none";
}

/* As one word, for the log. */
static void note_problem(struct hf_tls_session *session, const char *text)
{
	snprintf(session->problem, sizeof(session->problem), "%s", text ? text : "unknown");
	for (char *p = session->problem; *p; p++)
		if (*p == ' ')
			*p = '-';
}

/* Why the handshake has ended */
static int end_handshake(struct hf_tls_session *session, int error)
{
	long verified = SSL_get_verify_result(session->ssl);
	unsigned long last = ERR_peek_last_error();
	bool is_gone = error == SSL_ERROR_SYSCALL || error == SSL_ERROR_ZERO_RETURN ||
		       ERR_GET_REASON(last) == SSL_R_UNEXPECTED_EOF_WHILE_READING;

	session->error = -EPROTO;
	if (verified != X509_V_OK) {
		note_problem(session, X509_verify_cert_error_string(verified));
		return HF_TLS_REFUSED_CERTIFICATE;
	}
	note_problem(session, is_gone ? "the client closed the connection" : ERR_reason_error_string(last));
	return is_gone ? HF_TLS_GONE : HF_TLS_BROKEN;
}

int hf_tls_session_handshake(struct hf_tls_session *session)
{
	int r, error;

	ERR_clear_error();
	session->wants_write = false;
	r = SSL_do_handshake(session->ssl);
	if (r == 1) {
		session->is_open = true;
		return hf_tls_peer_read(&session->peer, session->ssl);
	}
	error = SSL_get_error(session->ssl, r);
	session->wants_write = error == SSL_ERROR_WANT_WRITE;
	if (session->wants_write || error == SSL_ERROR_WANT_READ)
		return -EAGAIN;
	r = end_handshake(session, error);
	ERR_clear_error();
	return r;
}

/* Data */

uint64_t hf_tls_session_count_records(const struct hf_tls_session *session)
{
	return session->n_records;
}

size_t hf_tls_session_count_keys(const struct hf_tls_session *session)
{
	uint64_t n_paid = session->n_read / BYTES_PER_UPDATE;

	return session->n_updates > n_paid ? HF_MIN(session->n_updates - n_paid, HF_TLS_FREE_KEYS) : 0;
}

bool hf_tls_session_is_flooded(const struct hf_tls_session *session)
{
	return session->is_flooded;
}

/* What a failed read or write answers, now and from now on. */
static int fail(struct hf_tls_session *session, int error)
{
	/* The kernel says why, if OpenSSL does not. */
	session->error = error == SSL_ERROR_SYSCALL && !ERR_peek_error() && errno ? -errno : -EPROTO;
	ERR_clear_error();
	return session->error;
}

/* 1: read some; 0: the peer has ended the session; -EAGAIN: the socket has no more, or must first
 * take the answer to a new key that a write began; or the error. */
static int read_record(struct hf_tls_session *session, void *data, size_t len, size_t *np)
{
	uint64_t n_updates = session->n_updates;
	int error;

	for (;;) {
		int is_read;

		ERR_clear_error();
		errno = 0;
		is_read = SSL_read_ex(session->ssl, data, len, np);
		if (session->is_flooded)
			return session->error = -EPROTO;
		if (is_read)
			return 1;
		error = SSL_get_error(session->ssl, 0);
		if (error == SSL_ERROR_ZERO_RETURN)
			return 0;
		if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
			return fail(session, error);
		session->wants_write = error == SSL_ERROR_WANT_WRITE;
		if (session->wants_write || n_updates == session->n_updates)
			return -EAGAIN;
		/* It was another message: there may be data behind it. */
		n_updates = session->n_updates;
	}
}

ssize_t hf_tls_session_read(struct hf_tls_session *session, void *data, size_t len)
{
	uint64_t n_before = session->n_records;
	size_t total = 0, n;
	int r = 1;

	if (session->error)
		return session->error;
	session->wants_write = false;
	/* With a record that has data come 32 empty ones at most. OpenSSL sees to that. */
	for (uint64_t i = 0; total < len && HF_MAX(i, session->n_records - n_before) < HF_TLS_READ_RECORDS;
	     i++) {
		r = read_record(session, (uint8_t *)data + total, len - total, &n);
		if (r <= 0)
			break;
		total += n;
		session->n_read += n;
	}
	session->is_drained = r == -EAGAIN;
	/* An end or an error is told by the next read. */
	return total ? (ssize_t)total : r;
}

bool hf_tls_session_has_input(const struct hf_tls_session *session)
{
	/* OpenSSL also counts the beginning of a record whose rest has not come. */
	return session->error || (!session->is_drained && SSL_has_pending(session->ssl)) ||
	       (SSL_get_shutdown(session->ssl) & SSL_RECEIVED_SHUTDOWN);
}

static int write_piece(struct hf_tls_session *session, const struct iovec *piece, size_t *np)
{
	int error;

	ERR_clear_error();
	errno = 0;
	if (SSL_write_ex(session->ssl, piece->iov_base, piece->iov_len, np))
		return 0;
	error = SSL_get_error(session->ssl, 0);
	if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
		return -EAGAIN;
	return fail(session, error);
}

/* A record that the socket did not take stays in OpenSSL. The next write begins with the same bytes. */
ssize_t hf_tls_session_write(struct hf_tls_session *session, const struct iovec *iov, int n_iov)
{
	size_t total = 0, n;

	if (session->error)
		return session->error;
	for (int i = 0; i < n_iov; i++) {
		struct iovec piece = iov[i];

		while (piece.iov_len) {
			int r = write_piece(session, &piece, &n);

			if (r < 0)
				return total ? (ssize_t)total : r;
			piece.iov_base = (uint8_t *)piece.iov_base + n;
			piece.iov_len -= n;
			total += n;
		}
	}
	return (ssize_t)total;
}
