/* The inside of tls/: what its files share. */
#pragma once

#include <openssl/ssl.h>

#include "tls/tls.h"

struct hf_tls_keys {
	SSL_CTX *ctx;
	int64_t expires; /* Unix seconds */
};

/* offer.c: a session with the present keys, or NULL with -ENOTSUP or -ENOMEM in *errorp. */
SSL *hf_tls_begin(struct hf_tls *tls, int *errorp);

/* peer.c */
int hf_tls_peer_read(struct hf_tls_peer *peer, SSL *ssl);
