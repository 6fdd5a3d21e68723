/*
 * TLS for RPC connections (RFC 9289), by OpenSSL, and the client's end for
 * holdfast(1). No other folder includes OpenSSL.
 *
 * Keys are what the operator configured, loaded from files: they never change. hf_tls is what
 * the server offers now. A reload gives it other keys. Sessions that have begun use theirs to the end.
 *
 * A session reads and writes the connection's own socket. It decrypts into the buffer of the
 * reader and encrypts from the queue of replies. It never waits: what cannot go on answers
 * -EAGAIN. Where OpenSSL and the kernel agree, the kernel encrypts (kTLS); the session is used
 * in the same way.
 *
 *	keys.c      certificate, key and client CA: loaded from files, and checked
 *	offer.c     hf_tls: the keys of new sessions, and what became of the handshakes
 *	session.c   one connection: handshake, reading, writing, its end
 *	peer.c      the names in a client's certificate
 *	client.c    the client's end, for a program that may wait
 *	inspect.c   what is wrong, or soon will be, with the files of a certificate
 *
 * Any thread may use keys and hf_tls. One thread at a time may use a session.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/cleanup.h"

/* Keys */

struct hf_tls_keys;

struct hf_tls_files {
	const char *certificate; /* PEM: the server's certificate, then those between it and its CA */
	const char *key;         /* PEM, without passphrase */
	const char *client_ca; /* PEM: CAs of client certificates, and their CRLs; empty: clients have none */
};

enum { /* answers of hf_tls_keys_load(): which file is wrong */
	HF_TLS_KEYS_OK = 0,
	HF_TLS_E_CERTIFICATE,
	HF_TLS_E_KEY,
	HF_TLS_E_CLIENT_CA,
};

#define HF_TLS_PROBLEM_SIZE 512

/* May wait for a disk. If a file is wrong, @problem says what is wrong and what would be right, to follow the
 * file's name. */
int hf_tls_keys_load(struct hf_tls_keys **keysp, const struct hf_tls_files *files,
		     char problem[HF_TLS_PROBLEM_SIZE]);
struct hf_tls_keys *hf_tls_keys_free(struct hf_tls_keys *keys);

HF_DEFINE_CLEANUP(struct hf_tls_keys *, hf_tls_keys_free)

/* When the first certificate of the server's chain ends, in Unix seconds. */
int64_t hf_tls_keys_expire(const struct hf_tls_keys *keys);

/* What the server offers */

struct hf_tls;

int hf_tls_new(struct hf_tls **tlsp); /* without keys: it offers nothing */
struct hf_tls *hf_tls_free(struct hf_tls *tls);

HF_DEFINE_CLEANUP(struct hf_tls *, hf_tls_free)

/* New sessions get these keys. Takes @keys; NULL: none begins any more. */
void hf_tls_set_keys(struct hf_tls *tls, struct hf_tls_keys *keys);
bool hf_tls_is_on(const struct hf_tls *tls);
/* As hf_tls_keys_expire(). False: there are no keys. */
bool hf_tls_expires(struct hf_tls *tls, int64_t *unixp);

/* What became of a handshake */
enum hf_tls_result {
	HF_TLS_DONE = 0,
	HF_TLS_REFUSED_CERTIFICATE, /* the client's: unknown CA, expired, revoked, ... */
	HF_TLS_BROKEN,              /* it is no TLS 1.3, or breaks its rules */
	HF_TLS_GONE,                /* the client closed the connection */
	HF_TLS_LATE,                /* the client did not finish in time */
	HF_TLS_CROWDED,             /* it made room for a newer one */
	HF_TLS_N_RESULTS,
};

extern const char *const hf_tls_result_names[HF_TLS_N_RESULTS];

void hf_tls_count(struct hf_tls *tls, enum hf_tls_result result);
uint64_t hf_tls_counted(const struct hf_tls *tls, enum hf_tls_result result);

/* The other end of a session */

#define HF_TLS_MAX_NAMES 32
#define HF_TLS_MAX_NAME  255

struct hf_tls_peer {
	bool is_authenticated; /* it has a certificate of client_ca */
	size_t n_names;        /* of that certificate: subjectAltName DNS, else the common name */
	char *names[HF_TLS_MAX_NAMES];
};

bool hf_tls_peer_has_name(const struct hf_tls_peer *peer, const char *name);
/* The same names in the same order, as two connections with one certificate have them. */
bool hf_tls_peer_equal(const struct hf_tls_peer *a, const struct hf_tls_peer *b);
int hf_tls_peer_copy(struct hf_tls_peer *to, const struct hf_tls_peer *from); /* @to is clear before */
void hf_tls_peer_clear(struct hf_tls_peer *peer);

/* Sessions */

#define HF_TLS_FREE_KEYS 16 /* of the peer, without data between them */

struct hf_tls_session;

/* The server's end, on the connected socket @fd, which stays the caller's. -ENOTSUP: nothing is offered. */
int hf_tls_session_new(struct hf_tls_session **sessionp, struct hf_tls *tls, int fd);
struct hf_tls_session *hf_tls_session_free(struct hf_tls_session *session);

/* Goes on as far as it can: HF_TLS_DONE, -EAGAIN, or why it has ended. */
int hf_tls_session_handshake(struct hf_tls_session *session);
/* After -EAGAIN of the handshake or a read: does it wait until it can write? Otherwise it waits for input. A
 * write in between does not change the answer. */
bool hf_tls_session_wants_write(const struct hf_tls_session *session);
/* Why the handshake has ended, as one word for the log. */
const char *hf_tls_session_problem(const struct hf_tls_session *session);

/* After the handshake, as hf_socket_read() and hf_socket_write(). What breaks the rules of TLS answers
 * -EPROTO; so does an end that the peer did not announce. A read ends after HF_TLS_READ_RECORDS records or a
 * few more, although there may be input left: each of them costs time, and may contain a single byte or none.
 */
#define HF_TLS_READ_RECORDS 64
ssize_t hf_tls_session_read(struct hf_tls_session *session, void *data, size_t len);
ssize_t hf_tls_session_write(struct hf_tls_session *session, const struct iovec *iov, int n_iov);
/* How many records of the peer has the session read since its handshake? */
uint64_t hf_tls_session_count_records(const struct hf_tls_session *session);
/* How many of HF_TLS_FREE_KEYS are used up, at most all. */
size_t hf_tls_session_count_keys(const struct hf_tls_session *session);
/* Did a read end it because the peer changed its key too often? */
bool hf_tls_session_is_flooded(const struct hf_tls_session *session);
/* Would a read answer something other than -EAGAIN, although the socket has nothing to read? */
bool hf_tls_session_has_input(const struct hf_tls_session *session);

/* Forgets the keys of the session. Only the peer remains. The socket is still open. With @may_tell it first
 * tells the peer that the connection ends, if that needs no waiting. */
void hf_tls_session_end(struct hf_tls_session *session, bool may_tell);

/* After the handshake, until the session is freed; any thread may read it. */
const struct hf_tls_peer *hf_tls_session_peer(const struct hf_tls_session *session);

/* The client's end: on a socket that waits, for a program that may */

struct hf_tls_client;

#define HF_TLS_PIN_TEXT 65 /* room for the SHA-256 of a certificate in hexadecimal digits, and its NUL */

struct hf_tls_client_options {
	const char *host;        /* the certificate must have this name or address; NULL: any */
	const char *ca;          /* PEM file of the CAs that count; NULL: those of the system */
	const char *const *pins; /* the certificate must be one of these, whatever its CA and names */
	size_t n_pins;           /* 0: CA and names count */
	const char *protocol;    /* for ALPN; NULL: none */
	bool is_unchecked;       /* any certificate will do */
};

enum { /* answers of hf_tls_client_new() */
	HF_TLS_CLIENT_OK = 0,
	HF_TLS_E_REFUSED, /* the server, or what it shows; @problem says why, to follow its name */
};

/* Makes the handshake on the connected socket @fd, which stays the caller's. */
int hf_tls_client_new(struct hf_tls_client **clientp, int fd, const struct hf_tls_client_options *options,
		      char problem[static HF_TLS_PROBLEM_SIZE]);
struct hf_tls_client *hf_tls_client_free(struct hf_tls_client *client);

HF_DEFINE_CLEANUP(struct hf_tls_client *, hf_tls_client_free)

const char *hf_tls_client_version(const struct hf_tls_client *client); /* "TLSv1.3" */
const char *hf_tls_client_pin(const struct hf_tls_client *client);     /* of the server's certificate */
/* As read(2) and write(2), but -errno. An end that the server did not announce is -ECONNRESET. */
ssize_t hf_tls_client_read(struct hf_tls_client *client, void *data, size_t len);
ssize_t hf_tls_client_write(struct hf_tls_client *client, const void *data, size_t len);

/* Files, examined: for a program that reports, not for one that uses them */

#define HF_TLS_MAX_FAULTS 16

struct hf_tls_fault {
	bool is_bad; /* false: worth knowing */
	char what[HF_TLS_PROBLEM_SIZE];
};

struct hf_tls_report {
	char pin[HF_TLS_PIN_TEXT]; /* of the first certificate; empty: there is none */
	int64_t expires;           /* of the first certificate of the chain to end */
	size_t n_faults;
	struct hf_tls_fault faults[HF_TLS_MAX_FAULTS];
};

/* @now: Unix seconds. Dates, the order of the chain, and whether the certificate may be a server's. */
void hf_tls_inspect_certificate(struct hf_tls_report *report, const char *path, int64_t now);
/* Dates of CAs and of their lists of revoked certificates; whether each CA has a list, if one has. */
void hf_tls_inspect_client_ca(struct hf_tls_report *report, const char *path, int64_t now);
