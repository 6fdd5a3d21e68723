#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "base/error.h"
#include "base/hex.h"
#include "tls/internal.h"

struct hf_tls_client {
	SSL_CTX *ctx;
	SSL *ssl;
	char pin[HF_TLS_PIN_TEXT];
};

struct hf_tls_client *hf_tls_client_free(struct hf_tls_client *client)
{
	if (!client)
		return NULL;
	SSL_free(client->ssl);
	SSL_CTX_free(client->ctx);
	ERR_clear_error();
	free(client);
	return NULL;
}

/* Before the handshake */

static bool set_host(SSL *ssl, const char *host)
{
	struct in6_addr any;
	X509_VERIFY_PARAM *param = SSL_get0_param(ssl);

	/* A server name that is an address is not sent (RFC 6066). */
	if (inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1;
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	/* As SSL_set_tlsext_host_name(), whose cast drops the const. */
	return SSL_set1_host(ssl, host) == 1 &&
	       SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
			(void *)(uintptr_t)host) == 1;
}

/* "http/1.1" -> "\x08http/1.1" */
static bool set_protocol(SSL *ssl, const char *protocol)
{
	unsigned char wire[64];
	size_t len = strlen(protocol);

	if (len >= sizeof(wire))
		return false;
	wire[0] = (unsigned char)len;
	memcpy(wire + 1, protocol, len);
	return SSL_set_alpn_protos(ssl, wire, (unsigned int)len + 1) == 0;
}

static bool load_ca(SSL_CTX *ctx, const char *path, char problem[static HF_TLS_PROBLEM_SIZE])
{
	const char *reason = NULL;

	if (path ? SSL_CTX_load_verify_file(ctx, path) == 1 : SSL_CTX_set_default_verify_paths(ctx) == 1)
		return true;
	if (path && access(path, R_OK) < 0)
		reason = strerror(errno);
	else
		reason = ERR_reason_error_string(ERR_peek_last_error());
	snprintf(problem, HF_TLS_PROBLEM_SIZE, "no CA can be read from %s (%s)",
		 path ? path : "the system's directory", reason ? reason : "unknown error");
	return false;
}

static bool prepare(struct hf_tls_client *client, int fd, const struct hf_tls_client_options *options,
		    char problem[static HF_TLS_PROBLEM_SIZE])
{
	bool checks = !options->n_pins && !options->is_unchecked;

	client->ctx = SSL_CTX_new(TLS_client_method());
	if (!client->ctx || SSL_CTX_set_min_proto_version(client->ctx, TLS1_2_VERSION) != 1)
		return false;
	SSL_CTX_set_mode(client->ctx, SSL_MODE_AUTO_RETRY);
	SSL_CTX_set_verify(client->ctx, checks ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
	if (checks && !load_ca(client->ctx, options->ca, problem))
		return false;
	client->ssl = SSL_new(client->ctx);
	return client->ssl && (!options->host || set_host(client->ssl, options->host)) &&
	       (!options->protocol || set_protocol(client->ssl, options->protocol)) &&
	       SSL_set_fd(client->ssl, fd) == 1;
}

/* The handshake */

static void explain_failure(SSL *ssl, int error, char problem[static HF_TLS_PROBLEM_SIZE])
{
	long verified = SSL_get_verify_result(ssl);
	unsigned long last = ERR_peek_last_error();
	const char *text = ERR_reason_error_string(last);

	if (ERR_GET_REASON(last) == SSL_R_CERTIFICATE_VERIFY_FAILED && verified != X509_V_OK)
		snprintf(problem, HF_TLS_PROBLEM_SIZE, "its certificate is refused: %s",
			 X509_verify_cert_error_string(verified));
	else if (ERR_GET_REASON(last) == SSL_R_WRONG_VERSION_NUMBER)
		snprintf(problem, HF_TLS_PROBLEM_SIZE, "it does not speak TLS");
	else if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
		snprintf(problem, HF_TLS_PROBLEM_SIZE, "the TLS handshake takes too long");
	else if (error == SSL_ERROR_SYSCALL || ERR_GET_REASON(last) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
		snprintf(problem, HF_TLS_PROBLEM_SIZE,
			 "it ended the TLS handshake: perhaps it does not speak TLS");
	else
		snprintf(problem, HF_TLS_PROBLEM_SIZE, "the TLS handshake failed: %s",
			 text ? text : "unknown error");
}

static void note_pin(struct hf_tls_client *client)
{
	const X509 *certificate = SSL_get0_peer_certificate(client->ssl);
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int len = 0;

	if (certificate && X509_digest(certificate, EVP_sha256(), digest, &len) == 1 &&
	    2 * len < sizeof(client->pin))
		*hf_hex_put(client->pin, digest, len) = '\0';
}

static bool is_pinned(const struct hf_tls_client *client, const struct hf_tls_client_options *options)
{
	for (size_t i = 0; i < options->n_pins; i++)
		if (*client->pin && strcmp(client->pin, options->pins[i]) == 0)
			return true;
	return options->n_pins == 0;
}

int hf_tls_client_new(struct hf_tls_client **clientp, int fd, const struct hf_tls_client_options *options,
		      char problem[static HF_TLS_PROBLEM_SIZE])
{
	hf_cleanup(hf_tls_client_freep) struct hf_tls_client *client = calloc(1, sizeof(*client));
	int r;

	ERR_clear_error();
	snprintf(problem, HF_TLS_PROBLEM_SIZE, "there is not enough memory");
	if (!client)
		return hf_trace(-ENOMEM);
	if (!prepare(client, fd, options, problem))
		return HF_TLS_E_REFUSED;
	r = SSL_connect(client->ssl);
	if (r != 1) {
		explain_failure(client->ssl, SSL_get_error(client->ssl, r), problem);
		return HF_TLS_E_REFUSED;
	}
	note_pin(client);
	if (!is_pinned(client, options)) {
		snprintf(problem, HF_TLS_PROBLEM_SIZE,
			 "it shows another certificate than the server of the state directory");
		return HF_TLS_E_REFUSED;
	}
	*clientp = client;
	client = NULL;
	return 0;
}

const char *hf_tls_client_version(const struct hf_tls_client *client)
{
	return SSL_get_version(client->ssl);
}

const char *hf_tls_client_pin(const struct hf_tls_client *client)
{
	return client->pin;
}

/* Data */

static ssize_t fail(struct hf_tls_client *client)
{
	int error = SSL_get_error(client->ssl, 0);

	if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
		return -EAGAIN;
	/* The connection ended, and the server did not say so: the data may not be complete. */
	return error == SSL_ERROR_SYSCALL && errno ? -errno : -ECONNRESET;
}

ssize_t hf_tls_client_read(struct hf_tls_client *client, void *data, size_t len)
{
	size_t n;

	ERR_clear_error();
	errno = 0;
	if (SSL_read_ex(client->ssl, data, len, &n))
		return (ssize_t)n;
	return SSL_get_error(client->ssl, 0) == SSL_ERROR_ZERO_RETURN ? 0 : fail(client);
}

ssize_t hf_tls_client_write(struct hf_tls_client *client, const void *data, size_t len)
{
	size_t n;

	ERR_clear_error();
	errno = 0;
	return SSL_write_ex(client->ssl, data, len, &n) ? (ssize_t)n : fail(client);
}
