/*
 * HTTPS: libmicrohttpd speaks TLS on its own thread, by GnuTLS. Each connection
 * gets the keys of the moment when it begins, and uses them to its end, so a
 * reload disturbs none.
 *
 * A caller that speaks HTTP in the clear is told so, in the clear, and its
 * connection ends.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <gnutls/abstract.h>

#include "api/internal.h"
#include "api/keys_internal.h"

/* Ciphers that browsers of the last ten years have: forward secrecy, authenticated encryption, cheap groups.
 */
const char hf_api_tls_priorities[] =
	"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA:-CIPHER-ALL:+AES-256-GCM:"
	"+CHACHA20-POLY1305:+AES-128-GCM:-MAC-ALL:+AEAD:-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:"
	"+GROUP-SECP384R1:%SERVER_PRECEDENCE";

#define HANDSHAKE_RECORD 0x16 /* what each TLS connection begins with */
#define MAX_SKIPPED      65536

static const char clear_text_answer[] =
	"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
	"{\"error\":{\"code\":\"needs_https\",\"message\":\"This port speaks HTTPS: use https:// in the "
	"address.\"}}\n";

/* The socket's side of GnuTLS */

/* What came in is read first: otherwise the end of the connection would destroy the answer on its way. */
static void answer_in_the_clear(int fd)
{
	char skipped[4096];

	for (size_t i = 0; i < MAX_SKIPPED / sizeof(skipped); i++)
		if (recv(fd, skipped, sizeof(skipped), MSG_DONTWAIT) <= 0)
			break;
	(void)send(fd, clear_text_answer, sizeof(clear_text_answer) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Passes on what recv() returned. */
static ssize_t note_end(struct hf_api_door *door, ssize_t n)
{
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		door->has_hung_up = true;
	return n;
}

/* The library reads on only if the caller's Finished was right. */
static void count_finished(struct hf_api_door *door)
{
	if (!door->has_finished || door->is_secure)
		return;
	door->is_secure = true;
	hf_metric_add(&door->api->handshakes[HF_TLS_DONE], 1);
}

static ssize_t pull(gnutls_transport_ptr_t user, void *data, size_t len)
{
	struct hf_api_door *door = user;
	unsigned char first;
	ssize_t n;

	count_finished(door);
	if (!door->has_begun) {
		n = recv(door->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
		if (n <= 0)
			return note_end(door, n);
		if (first != HANDSHAKE_RECORD) {
			answer_in_the_clear(door->fd);
			return 0;
		}
		door->has_begun = true;
	}
	return note_end(door, recv(door->fd, data, len, MSG_DONTWAIT));
}

static ssize_t push(gnutls_transport_ptr_t user, const void *data, size_t len)
{
	const struct hf_api_door *door = user;

	return send(door->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Called before the library checks the message. */
static int on_finished(gnutls_session_t session, unsigned int type, unsigned int when,
		       unsigned int is_incoming, const gnutls_datum_t *message)
{
	struct hf_api_door *door = gnutls_transport_get_ptr(session);

	if (is_incoming)
		door->has_finished = true;
	return 0;
}

/* Connections */

bool hf_api_is_https(const struct hf_api *api)
{
	return api->is_https;
}

/* On the HTTP thread, before the handshake. A connection without a door gets no keys, so it ends there. */
void hf_api_secure_door(struct hf_api *api, struct MHD_Connection *connection, struct hf_api_door *door)
{
	static const gnutls_datum_t protocols[] = { { (unsigned char *)(uintptr_t) "http/1.1", 8 } };
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	gnutls_session_t session = info ? info->tls_session : NULL;

	if (!api->is_https || !session)
		return;
	pthread_mutex_lock(&api->lock);
	door->keys = hf_api_keys_ref(api->keys);
	pthread_mutex_unlock(&api->lock);
	gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, door->keys->credentials);
	/* A caller that wants another protocol was led here by an attacker. */
	gnutls_alpn_set_protocols(session, protocols, HF_ARRAY_SIZE(protocols), GNUTLS_ALPN_MANDATORY);
	gnutls_transport_set_ptr(session, door);
	gnutls_transport_set_pull_function(session, pull);
	gnutls_transport_set_push_function(session, push);
	gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_FINISHED, GNUTLS_HOOK_POST, on_finished);
}

void hf_api_end_handshake(const struct hf_api_door *door, bool is_shut)
{
	enum hf_tls_result result = HF_TLS_BROKEN;

	if (!door->keys || door->is_secure)
		return;
	if (is_shut)
		result = door->shut;
	else if (door->has_hung_up)
		result = HF_TLS_GONE;
	hf_metric_add(&door->api->handshakes[result], 1);
}

static int refuse(gnutls_session_t session, const gnutls_datum_t *names, int n_names,
		  const gnutls_pk_algorithm_t *algorithms, int n_algorithms, gnutls_pcert_st **certificates,
		  unsigned int *n_certificates, gnutls_privkey_t *key)
{
	return -1;
}

/* The library wants a source of certificates. It gives none: hf_api_secure_door() does. */
void *hf_api_no_certificate(void)
{
	return (void *)(uintptr_t)refuse;
}

/* The present keys */

void hf_api_set_keys(struct hf_api *api, struct hf_api_keys *keys)
{
	struct hf_api_keys *before;

	pthread_mutex_lock(&api->lock);
	before = api->keys;
	api->keys = keys;
	pthread_mutex_unlock(&api->lock);
	hf_api_keys_unref(before);
}

bool hf_api_expires(struct hf_api *api, int64_t *unixp)
{
	pthread_mutex_lock(&api->lock);
	if (api->keys)
		*unixp = hf_api_keys_expire(api->keys);
	pthread_mutex_unlock(&api->lock);
	return api->is_https;
}

void hf_api_pin(struct hf_api *api, char *out)
{
	*out = '\0';
	pthread_mutex_lock(&api->lock);
	if (api->keys)
		memcpy(out, hf_api_keys_pin(api->keys), HF_API_PIN_TEXT);
	pthread_mutex_unlock(&api->lock);
}
