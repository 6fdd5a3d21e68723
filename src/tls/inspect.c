#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/hex.h"
#include "base/macros.h"
#include "tls/internal.h"

#define DAY 86400

static HF_PRINTF(3, 4) void add(struct hf_tls_report *report, bool is_bad, const char *format, ...)
{
	struct hf_tls_fault *fault = &report->faults[report->n_faults];
	va_list args;

	if (report->n_faults == HF_TLS_MAX_FAULTS)
		return;
	report->n_faults++;
	fault->is_bad = is_bad;
	va_start(args, format);
	vsnprintf(fault->what, sizeof(fault->what), format, args);
	va_end(args);
}

/* What is in a file */

struct contents {
	STACK_OF(X509_INFO) * items;
};

static void contents_clear(struct contents *contents)
{
	sk_X509_INFO_pop_free(contents->items, X509_INFO_free);
	ERR_clear_error();
}

static bool read_contents(struct contents *contents, const char *path)
{
	BIO *bio = BIO_new_file(path, "re");

	contents->items = bio ? PEM_X509_INFO_read_bio(bio, NULL, NULL, NULL) : NULL;
	BIO_free(bio);
	return contents->items != NULL;
}

/* The certificate behind number @from, or NULL; its number is in *atp. */
static X509 *next_certificate(const struct contents *contents, int from, int *atp)
{
	for (int i = from; i < sk_X509_INFO_num(contents->items); i++) {
		X509 *certificate = sk_X509_INFO_value(contents->items, i)->x509;

		if (certificate) {
			*atp = i;
			return certificate;
		}
	}
	return NULL;
}

static X509_CRL *list_at(const struct contents *contents, int i)
{
	return sk_X509_INFO_value(contents->items, i)->crl;
}

static const char *name_of(const X509_NAME *name, char *out, size_t size)
{
	if (!X509_NAME_oneline(name, out, (int)size))
		snprintf(out, size, "?");
	return out;
}

/* Dates */

static int64_t unix_time(const ASN1_TIME *time)
{
	struct tm tm;

	return time && ASN1_TIME_to_tm(time, &tm) ? timegm(&tm) : 0;
}

static void check_dates(struct hf_tls_report *report, const X509 *certificate, int64_t now)
{
	int64_t begins = unix_time(X509_get0_notBefore(certificate));
	int64_t ends = unix_time(X509_get0_notAfter(certificate));
	char name[256];

	name_of(X509_get_subject_name(certificate), name, sizeof(name));
	if (begins > now)
		add(report, true, "the certificate %s is not valid yet, for %lld more days", name,
		    (long long)(begins - now + DAY - 1) / DAY);
	if (ends <= now)
		add(report, true, "the certificate %s has expired, %lld days ago", name,
		    (long long)(now - ends) / DAY);
	if (!report->expires || ends < report->expires)
		report->expires = ends;
}

/* The server's own certificate */

static void note_pin(struct hf_tls_report *report, const X509 *certificate)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int len = 0;

	if (X509_digest(certificate, EVP_sha256(), digest, &len) == 1 && 2 * len < sizeof(report->pin))
		*hf_hex_put(report->pin, digest, len) = '\0';
}

/* Clients find the way from the server's certificate to a CA that they know only if each certificate is
 * signed by the next one. */
static void check_chain(struct hf_tls_report *report, const struct contents *contents, int64_t now)
{
	char name[256], next_name[256];
	int at = 0;
	X509 *certificate = next_certificate(contents, 0, &at), *next;

	for (; certificate; certificate = next) {
		check_dates(report, certificate, now);
		next = next_certificate(contents, at + 1, &at);
		if (next && X509_check_issued(next, certificate) != X509_V_OK)
			add(report, true, "the certificate %s is not signed by the one behind it, %s",
			    name_of(X509_get_subject_name(certificate), name, sizeof(name)),
			    name_of(X509_get_subject_name(next), next_name, sizeof(next_name)));
	}
}

void hf_tls_inspect_certificate(struct hf_tls_report *report, const char *path, int64_t now)
{
	hf_cleanup(contents_clear) struct contents contents = { NULL };
	X509 *certificate;
	int at;

	*report = (struct hf_tls_report){ 0 };
	if (!read_contents(&contents, path) || !(certificate = next_certificate(&contents, 0, &at))) {
		add(report, true, "no certificate can be read");
		return;
	}
	note_pin(report, certificate);
	check_chain(report, &contents, now);
	if (X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 0) != 1)
		add(report, true, "the certificate may not be a server's (its key usage forbids it)");
	if (X509_check_issued(certificate, certificate) == X509_V_OK)
		add(report, false, "the certificate is signed by itself: each client must be told of it");
	if (X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1) < 0)
		add(report, false,
		    "the certificate has no subjectAltName: browsers and new clients find no name in it");
}

/* The CAs of clients */

static void check_list(struct hf_tls_report *report, const X509_CRL *list, int64_t now)
{
	int64_t next = unix_time(X509_CRL_get0_nextUpdate(list));
	char name[256];

	name_of(X509_CRL_get_issuer(list), name, sizeof(name));
	if (unix_time(X509_CRL_get0_lastUpdate(list)) > now)
		add(report, true, "the list of revoked certificates of %s is not valid yet", name);
	if (next && next <= now)
		add(report, true, "the list of revoked certificates of %s ran out, %lld days ago", name,
		    (long long)(now - next) / DAY);
	if (next && (!report->expires || next < report->expires))
		report->expires = next;
}

static bool has_list(const struct contents *contents, const X509 *authority)
{
	for (int i = 0; i < sk_X509_INFO_num(contents->items); i++)
		if (list_at(contents, i) && X509_NAME_cmp(X509_CRL_get_issuer(list_at(contents, i)),
							  X509_get_subject_name(authority)) == 0)
			return true;
	return false;
}

void hf_tls_inspect_client_ca(struct hf_tls_report *report, const char *path, int64_t now)
{
	hf_cleanup(contents_clear) struct contents contents = { NULL };
	X509 *authority;
	bool any_list = false;
	char name[256];

	*report = (struct hf_tls_report){ 0 };
	if (!read_contents(&contents, path)) {
		add(report, true, "no CA can be read");
		return;
	}
	for (int i = 0; i < sk_X509_INFO_num(contents.items); i++) {
		any_list |= list_at(&contents, i) != NULL;
		if (list_at(&contents, i))
			check_list(report, list_at(&contents, i), now);
	}
	for (int at = -1; (authority = next_certificate(&contents, at + 1, &at));) {
		check_dates(report, authority, now);
		if (X509_check_ca(authority) == 0)
			add(report, true, "the certificate %s is not a CA's",
			    name_of(X509_get_subject_name(authority), name, sizeof(name)));
		if (any_list && !has_list(&contents, authority))
			add(report, true,
			    "%s has no list of revoked certificates, and another CA has: it vouches for no "
			    "client",
			    name_of(X509_get_subject_name(authority), name, sizeof(name)));
	}
}
