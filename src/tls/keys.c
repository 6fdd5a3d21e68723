#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "base/error.h"
#include "base/macros.h"
#include "tls/internal.h"

#define MAX_CHAIN_BYTES 32768 /* of a client's certificates */
#define MAX_CHAIN_DEPTH 8

static const unsigned char alpn[] = "\x06sunrpc";

/* A file is wrong */

static HF_PRINTF(2, 3) void explain(char problem[HF_TLS_PROBLEM_SIZE], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(problem, HF_TLS_PROBLEM_SIZE, format, args);
	va_end(args);
	ERR_clear_error();
}

/* What OpenSSL says about its last error */
static const char *reason(void)
{
	const char *text = ERR_reason_error_string(ERR_peek_last_error());

	return text ? text : "unknown error";
}

static bool is_readable(const char *path, const char *wanted, char problem[HF_TLS_PROBLEM_SIZE])
{
	hf_cleanup(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		explain(problem, "cannot be read (%s); give %s", strerror(errno), wanted);
	else if (!S_ISREG(st.st_mode))
		explain(problem, "is not a file; give %s", wanted);
	else
		return true;
	return false;
}

/* Loading */

/* Without this, OpenSSL asks for a passphrase on the terminal. */
static int no_passphrase(char *buf, int size, int rwflag, void *user)
{
	return 0;
}

static int load_certificate(struct hf_tls_keys *keys, const char *path, char problem[HF_TLS_PROBLEM_SIZE])
{
	static const char wanted[] = "a PEM file with the server's certificate";

	if (!is_readable(path, wanted, problem))
		return HF_TLS_E_CERTIFICATE;
	if (SSL_CTX_use_certificate_chain_file(keys->ctx, path) == 1)
		return 0;
	explain(problem, "has no usable certificate (%s); give %s", reason(), wanted);
	return HF_TLS_E_CERTIFICATE;
}

static int load_key(struct hf_tls_keys *keys, const char *path, char problem[HF_TLS_PROBLEM_SIZE])
{
	static const char wanted[] = "a PEM file with the private key of tls.certificate";
	unsigned long error;

	if (!is_readable(path, wanted, problem))
		return HF_TLS_E_KEY;
	if (SSL_CTX_use_PrivateKey_file(keys->ctx, path, SSL_FILETYPE_PEM) == 1 &&
	    SSL_CTX_check_private_key(keys->ctx) == 1)
		return 0;
	error = ERR_peek_last_error();
	if (ERR_GET_LIB(error) == ERR_LIB_X509)
		explain(problem, "is not the key of tls.certificate; give %s", wanted);
	else
		explain(problem, "has no key that can be read without a passphrase (%s); give %s", reason(),
			wanted);
	return HF_TLS_E_KEY;
}

struct authorities {
	size_t n_certificates;
	size_t n_revocations; /* lists of revoked certificates */
};

static void count(X509_STORE *store, struct authorities *authorities)
{
	STACK_OF(X509_OBJECT) *objects = X509_STORE_get0_objects(store);

	for (int i = 0; i < sk_X509_OBJECT_num(objects); i++) {
		X509_LOOKUP_TYPE type = X509_OBJECT_get_type(sk_X509_OBJECT_value(objects, i));

		authorities->n_certificates += type == X509_LU_X509;
		authorities->n_revocations += type == X509_LU_CRL;
	}
}

static bool read_authorities(X509_STORE *store, const char *path, struct authorities *authorities)
{
	X509_LOOKUP *lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file());

	if (!lookup || X509_load_cert_crl_file(lookup, path, X509_FILETYPE_PEM) < 1)
		return false;
	count(store, authorities);
	return authorities->n_certificates > 0;
}

/* If the file has a list of revoked certificates, each CA between a client and its root needs one, the root
 * included. A CA whose list is missing or outdated vouches for no client, and neither does a revoked CA. */
static int load_client_ca(struct hf_tls_keys *keys, const char *path, char problem[HF_TLS_PROBLEM_SIZE])
{
	static const char wanted[] = "a PEM file with the CA of the clients' certificates";
	X509_STORE *store = SSL_CTX_get_cert_store(keys->ctx);
	struct authorities authorities = { 0 };
	STACK_OF(X509_NAME) * names;

	if (!is_readable(path, wanted, problem))
		return HF_TLS_E_CLIENT_CA;
	names = read_authorities(store, path, &authorities) ? SSL_load_client_CA_file(path) : NULL;
	if (!names) {
		explain(problem, "has no usable certificate (%s); give %s", reason(), wanted);
		return HF_TLS_E_CLIENT_CA;
	}
	SSL_CTX_set_client_CA_list(keys->ctx, names);
	if (authorities.n_revocations)
		X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
	/* A client without a certificate may use exports that do not ask for one. */
	SSL_CTX_set_verify(keys->ctx, SSL_VERIFY_PEER, NULL);
	return 0;
}

/* When the certificates end */

static int64_t end_of(const X509 *certificate)
{
	struct tm tm;

	if (!ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &tm))
		return 0;
	return timegm(&tm);
}

static void note_end(struct hf_tls_keys *keys)
{
	STACK_OF(X509) *chain = NULL;

	keys->expires = end_of(SSL_CTX_get0_certificate(keys->ctx));
	SSL_CTX_get0_chain_certs(keys->ctx, &chain);
	for (int i = 0; chain && i < sk_X509_num(chain); i++)
		keys->expires = HF_MIN(keys->expires, end_of(sk_X509_value(chain, i)));
}

int64_t hf_tls_keys_expire(const struct hf_tls_keys *keys)
{
	return keys->expires;
}

/* The rules of RFC 9289 */

/* A client need not name a protocol. One that names others wants to speak to another server. */
static int choose_protocol(SSL *ssl, const unsigned char **outp, unsigned char *out_lenp,
			   const unsigned char *in, unsigned int in_len, void *user)
{
	unsigned char *out;

	if (SSL_select_next_proto(&out, out_lenp, alpn, sizeof(alpn) - 1, in, in_len) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*outp = out;
	return SSL_TLSEXT_ERR_OK;
}

static bool set_rules(SSL_CTX *ctx)
{
	/* The client chooses the group, and the server pays for it: with ffdhe8192 one answer takes 170 ms.
	 * All clients know one of these, which take less than 1 ms. */
	char groups[] = "X25519:P-256:P-384";
	uint64_t options = SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION;

#ifdef SSL_OP_ENABLE_KTLS
	options |= SSL_OP_ENABLE_KTLS;
#endif
	SSL_CTX_set_options(ctx, options);
	SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY); /* a read takes one message that is not data, at most */
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				      SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_read_ahead(ctx, 1);
	/* A session that goes on from an earlier one would have an identity after its certificate has
	 * ended. */
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_max_cert_list(ctx, MAX_CHAIN_BYTES);
	SSL_CTX_set_verify_depth(ctx, MAX_CHAIN_DEPTH);
	SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
	SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
	return SSL_CTX_set_num_tickets(ctx, 0) == 1 && SSL_CTX_set1_groups_list(ctx, groups) == 1 &&
	       SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
	       SSL_CTX_set_session_id_context(ctx, alpn, sizeof(alpn) - 1) == 1;
}

/* Making and freeing */

int hf_tls_keys_load(struct hf_tls_keys **keysp, const struct hf_tls_files *files,
		     char problem[HF_TLS_PROBLEM_SIZE])
{
	hf_cleanup(hf_tls_keys_freep) struct hf_tls_keys *keys = calloc(1, sizeof(*keys));
	int r;

	ERR_clear_error();
	if (!keys)
		return hf_trace(-ENOMEM);
	keys->ctx = SSL_CTX_new(TLS_server_method());
	if (!keys->ctx || !set_rules(keys->ctx)) {
		ERR_clear_error();
		return hf_trace(-ENOMEM);
	}
	r = load_certificate(keys, files->certificate, problem);
	if (r == 0)
		r = load_key(keys, files->key, problem);
	if (r == 0 && *files->client_ca)
		r = load_client_ca(keys, files->client_ca, problem);
	if (r)
		return r;
	note_end(keys);
	ERR_clear_error();
	*keysp = keys;
	keys = NULL;
	return 0;
}

struct hf_tls_keys *hf_tls_keys_free(struct hf_tls_keys *keys)
{
	if (!keys)
		return NULL;
	SSL_CTX_free(keys->ctx);
	free(keys);
	return NULL;
}
