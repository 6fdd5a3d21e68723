#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <openssl/x509v3.h>

#include "base/error.h"
#include "tls/internal.h"

bool hf_tls_peer_has_name(const struct hf_tls_peer *peer, const char *name)
{
	for (size_t i = 0; i < peer->n_names; i++)
		if (strcasecmp(peer->names[i], name) == 0)
			return true;
	return false;
}

void hf_tls_peer_clear(struct hf_tls_peer *peer)
{
	for (size_t i = 0; i < peer->n_names; i++)
		free(peer->names[i]);
	*peer = (struct hf_tls_peer){ 0 };
}

bool hf_tls_peer_equal(const struct hf_tls_peer *a, const struct hf_tls_peer *b)
{
	if (a->is_authenticated != b->is_authenticated || a->n_names != b->n_names)
		return false;
	for (size_t i = 0; i < a->n_names; i++)
		if (strcasecmp(a->names[i], b->names[i]) != 0)
			return false;
	return true;
}

int hf_tls_peer_copy(struct hf_tls_peer *to, const struct hf_tls_peer *from)
{
	to->is_authenticated = from->is_authenticated;
	while (to->n_names < from->n_names) {
		char *copy = strdup(from->names[to->n_names]);

		if (!copy) {
			hf_tls_peer_clear(to);
			return hf_trace(-ENOMEM);
		}
		to->names[to->n_names++] = copy;
	}
	return 0;
}

/* A NUL in the middle would make one name look like another: only visible characters are a name. */
static bool is_name(const unsigned char *text, int len)
{
	if (len < 1 || len > HF_TLS_MAX_NAME)
		return false;
	for (int i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return false;
	return true;
}

/* A text that is no name is left out, and so are names beyond the limit: a client may do less then, not
 * more. */
static int add_name(struct hf_tls_peer *peer, const ASN1_STRING *string)
{
	const unsigned char *text = ASN1_STRING_get0_data(string);
	int len = ASN1_STRING_length(string);
	char *copy;

	if (peer->n_names == HF_TLS_MAX_NAMES || !is_name(text, len))
		return 0;
	copy = strndup((const char *)text, (size_t)len);
	if (!copy)
		return hf_trace(-ENOMEM);
	peer->names[peer->n_names++] = copy;
	return 0;
}

/* Answers whether the certificate has any such name, valid or not: then the common name does not count. */
static int add_alternatives(struct hf_tls_peer *peer, X509 *certificate, bool *has_anyp)
{
	GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
	int r = 0;

	*has_anyp = false;
	for (int i = 0; names && i < sk_GENERAL_NAME_num(names) && r == 0; i++) {
		const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);

		if (name->type != GEN_DNS)
			continue;
		*has_anyp = true;
		r = add_name(peer, name->d.dNSName);
	}
	GENERAL_NAMES_free(names);
	return r;
}

/* The last one is the most specific. */
static int add_common_name(struct hf_tls_peer *peer, X509 *certificate)
{
	const X509_NAME *subject = X509_get_subject_name(certificate);
	unsigned char *text = NULL;
	ASN1_STRING *string;
	int at = -1, next, len, r = 0;

	while ((next = X509_NAME_get_index_by_NID((X509_NAME *)(uintptr_t)subject, NID_commonName, at)) >= 0)
		at = next;
	if (at < 0)
		return 0;
	len = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
	if (len < 0)
		return 0;
	string = ASN1_STRING_new();
	if (!string || !ASN1_STRING_set(string, text, len))
		r = hf_trace(-ENOMEM);
	else
		r = add_name(peer, string);
	ASN1_STRING_free(string);
	OPENSSL_free(text);
	return r;
}

int hf_tls_peer_read(struct hf_tls_peer *peer, SSL *ssl)
{
	X509 *certificate = SSL_get0_peer_certificate(ssl);
	bool has_any;
	int r;

	/* Without client_ca the server asks for no certificate. */
	if (!certificate || SSL_get_verify_mode(ssl) == SSL_VERIFY_NONE ||
	    SSL_get_verify_result(ssl) != X509_V_OK)
		return 0;
	peer->is_authenticated = true;
	r = add_alternatives(peer, certificate, &has_any);
	if (r == 0 && !has_any)
		r = add_common_name(peer, certificate);
	return r;
}
