/* Keys and certificates for tests, made on the spot. Aborts if OpenSSL fails. */
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

struct made {
	EVP_PKEY *key;
	X509 *certificate;
};

/* Signed by @issuer, or by itself (NULL: a CA). @alternatives as "DNS:a,DNS:b" or NULL; @days from now until
 * it ends, which may be in the past. */
struct made make_certificate(const char *name, const char *alternatives, int days, const struct made *issuer);
/* The same, with these bytes as the only subjectAltName of the kind DNS. */
struct made make_with_name(const char *name, const void *alternative, int len, const struct made *issuer);
void made_free(struct made *made);

void write_certificate(const struct made *made, const char *path);
void write_key(const struct made *made, const char *path);
