#include "api/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <gnutls/crypto.h>
#include <gnutls/x509.h>

#include "api/keys_internal.h"
#include "base/error.h"
#include "base/hex.h"
#include "base/macros.h"

#define MAX_FILE         (1 << 20)
#define MAX_CERTIFICATES 16 /* of a chain */

static HF_PRINTF(2, 3) void explain(char problem[static HF_API_PROBLEM_SIZE], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(problem, HF_API_PROBLEM_SIZE, format, args);
	va_end(args);
}

/* Files */

struct content {
	gnutls_datum_t datum;
	bool is_secret;
};

static void content_clear(struct content *content)
{
	if (content->datum.data && content->is_secret)
		gnutls_memset(content->datum.data, 0, content->datum.size);
	free(content->datum.data);
}

/* 0, or -errno; -EINVAL: it is no file. */
static int read_file(struct content *content, const char *path)
{
	hf_cleanup(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	ssize_t n = 1;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size > MAX_FILE)
		return -EFBIG;
	content->datum.data = malloc((size_t)st.st_size + 1);
	if (!content->datum.data)
		return -ENOMEM;
	while (n > 0 && content->datum.size < (size_t)st.st_size) {
		n = read(fd, content->datum.data + content->datum.size,
			 (size_t)st.st_size - content->datum.size);
		if (n < 0)
			return -errno;
		content->datum.size += (unsigned int)n;
	}
	content->datum.data[content->datum.size] = '\0';
	return 0;
}

static bool is_read(struct content *content, const char *path, const char *wanted,
		    char problem[static HF_API_PROBLEM_SIZE])
{
	int r = read_file(content, path);

	if (r == -EINVAL)
		explain(problem, "is not a file; give %s", wanted);
	else if (r < 0)
		explain(problem, "cannot be read (%s); give %s", strerror(-r), wanted);
	return r == 0;
}

/* Certificates */

static int note_pin(struct hf_api_keys *keys, gnutls_x509_crt_t certificate)
{
	uint8_t digest[(HF_API_PIN_TEXT - 1) / 2];
	size_t size = sizeof(digest);
	int r = gnutls_x509_crt_get_fingerprint(certificate, GNUTLS_DIG_SHA256, digest, &size);

	if (r == 0)
		*hf_hex_put(keys->pin, digest, size) = '\0';
	return r;
}

/* What the files say about themselves: when the chain ends, and the fingerprint of its first certificate. */
static int examine(struct hf_api_keys *keys, const gnutls_datum_t *pem)
{
	gnutls_x509_crt_t chain[MAX_CERTIFICATES];
	unsigned int n = MAX_CERTIFICATES;
	int r = gnutls_x509_crt_list_import(chain, &n, pem, GNUTLS_X509_FMT_PEM,
					    GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED);

	if (r < 0)
		return r;
	keys->expires = INT64_MAX;
	for (unsigned int i = 0; i < n; i++)
		keys->expires = HF_MIN(keys->expires, (int64_t)gnutls_x509_crt_get_expiration_time(chain[i]));
	r = n ? note_pin(keys, chain[0]) : GNUTLS_E_NO_CERTIFICATE_FOUND;
	for (unsigned int i = 0; i < n; i++)
		gnutls_x509_crt_deinit(chain[i]);
	return r;
}

/* Making and freeing */

static int load(struct hf_api_keys *keys, const char *certificate_path, const char *key_path,
		char problem[static HF_API_PROBLEM_SIZE])
{
	static const char wanted[] = "a PEM file with the certificate of the API";
	static const char wanted_key[] = "a PEM file with the private key of api.certificate";
	hf_cleanup(content_clear) struct content certificate = { 0 };
	hf_cleanup(content_clear) struct content key = { .is_secret = true };
	int r;

	if (!is_read(&certificate, certificate_path, wanted, problem))
		return HF_API_E_CERTIFICATE;
	r = examine(keys, &certificate.datum);
	if (r < 0) {
		explain(problem, "has no usable certificate (%s); give %s", gnutls_strerror(r), wanted);
		return HF_API_E_CERTIFICATE;
	}
	if (!is_read(&key, key_path, wanted_key, problem))
		return HF_API_E_KEY;
	r = gnutls_certificate_set_x509_key_mem2(keys->credentials, &certificate.datum, &key.datum,
						 GNUTLS_X509_FMT_PEM, NULL, 0);
	if (r >= 0)
		return 0;
	if (r == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
		explain(problem, "is not the key of api.certificate; give %s", wanted_key);
	else
		explain(problem, "has no key that can be read without a passphrase (%s); give %s",
			gnutls_strerror(r), wanted_key);
	return HF_API_E_KEY;
}

int hf_api_keys_load(struct hf_api_keys **keysp, const char *certificate, const char *key,
		     char problem[static HF_API_PROBLEM_SIZE])
{
	hf_cleanup(hf_api_keys_unrefp) struct hf_api_keys *keys = calloc(1, sizeof(*keys));
	int r;

	if (!keys)
		return hf_trace(-ENOMEM);
	keys->n_refs = 1;
	if (gnutls_certificate_allocate_credentials(&keys->credentials) < 0)
		return hf_trace(-ENOMEM);
	r = load(keys, certificate, key, problem);
	if (r)
		return r;
	*keysp = keys;
	keys = NULL;
	return 0;
}

struct hf_api_keys *hf_api_keys_ref(struct hf_api_keys *keys)
{
	if (keys)
		atomic_fetch_add(&keys->n_refs, 1);
	return keys;
}

struct hf_api_keys *hf_api_keys_unref(struct hf_api_keys *keys)
{
	if (keys && atomic_fetch_sub(&keys->n_refs, 1) == 1) {
		if (keys->credentials)
			gnutls_certificate_free_credentials(keys->credentials);
		free(keys);
	}
	return NULL;
}

int64_t hf_api_keys_expire(const struct hf_api_keys *keys)
{
	return keys->expires;
}

const char *hf_api_keys_pin(const struct hf_api_keys *keys)
{
	return keys->pin;
}
