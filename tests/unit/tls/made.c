#include "made.h"

#include <stdio.h>
#include <stdlib.h>

#include <openssl/pem.h>
#include <openssl/x509v3.h>

static void must(int ok)
{
	if (!ok)
		abort();
}

static void add(X509 *certificate, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX context;
	X509_EXTENSION *extension;

	X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
	must(extension != NULL && X509_add_ext(certificate, extension, -1));
	X509_EXTENSION_free(extension);
}

static X509 *begin(const char *name, int days, EVP_PKEY *key, const struct made *issuer)
{
	static long serial;
	X509 *certificate = X509_new();
	X509_NAME *subject = certificate ? X509_get_subject_name(certificate) : NULL;

	must(certificate && key && X509_set_version(certificate, 2));
	must(ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial));
	must(X509_gmtime_adj(X509_getm_notBefore(certificate), -1000L * 86400) != NULL);
	must(X509_gmtime_adj(X509_getm_notAfter(certificate), days * 86400L) != NULL);
	must(X509_set_pubkey(certificate, key));
	must(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0));
	must(X509_set_issuer_name(certificate,
				  issuer ? X509_get_subject_name(issuer->certificate) : subject));
	add(certificate, issuer ? issuer->certificate : certificate, NID_basic_constraints,
	    issuer ? "CA:false" : "critical,CA:true");
	return certificate;
}

static struct made end(X509 *certificate, EVP_PKEY *key, const struct made *issuer)
{
	must(X509_sign(certificate, issuer ? issuer->key : key, EVP_sha256()) > 0);
	return (struct made){ .key = key, .certificate = certificate };
}

struct made make_certificate(const char *name, const char *alternatives, int days, const struct made *issuer)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = begin(name, days, key, issuer);

	if (alternatives)
		add(certificate, issuer ? issuer->certificate : certificate, NID_subject_alt_name,
		    alternatives);
	return end(certificate, key, issuer);
}

struct made make_with_name(const char *name, const void *alternative, int len, const struct made *issuer)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = begin(name, 30, key, issuer);
	GENERAL_NAMES *names = GENERAL_NAMES_new();
	GENERAL_NAME *one = GENERAL_NAME_new();
	ASN1_IA5STRING *text = ASN1_IA5STRING_new();

	must(names && one && text && ASN1_STRING_set(text, alternative, len));
	GENERAL_NAME_set0_value(one, GEN_DNS, text);
	must(sk_GENERAL_NAME_push(names, one));
	must(X509_add1_ext_i2d(certificate, NID_subject_alt_name, names, 0, 0));
	GENERAL_NAMES_free(names);
	return end(certificate, key, issuer);
}

void made_free(struct made *made)
{
	EVP_PKEY_free(made->key);
	X509_free(made->certificate);
	*made = (struct made){ 0 };
}

void write_certificate(const struct made *made, const char *path)
{
	FILE *out = fopen(path, "w");

	must(out && PEM_write_X509(out, made->certificate) && fclose(out) == 0);
}

void write_key(const struct made *made, const char *path)
{
	FILE *out = fopen(path, "w");

	must(out && PEM_write_PrivateKey(out, made->key, NULL, NULL, 0, NULL, NULL) && fclose(out) == 0);
}
