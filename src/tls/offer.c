#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"
#include "tls/internal.h"

struct hf_tls {
	pthread_mutex_t lock;
	struct hf_tls_keys *keys; /* under lock; NULL: none */
	_Atomic bool is_on;       /* there are keys */
	_Atomic uint64_t counts[HF_TLS_N_RESULTS];
};

const char *const hf_tls_result_names[HF_TLS_N_RESULTS] = {
	[HF_TLS_DONE] = "ok",       [HF_TLS_REFUSED_CERTIFICATE] = "bad_certificate",
	[HF_TLS_BROKEN] = "failed", [HF_TLS_GONE] = "closed",
	[HF_TLS_LATE] = "timeout",  [HF_TLS_CROWDED] = "too_many",
};

int hf_tls_new(struct hf_tls **tlsp)
{
	struct hf_tls *tls = calloc(1, sizeof(*tls));

	if (!tls)
		return hf_trace(-ENOMEM);
	pthread_mutex_init(&tls->lock, NULL);
	*tlsp = tls;
	return 0;
}

struct hf_tls *hf_tls_free(struct hf_tls *tls)
{
	if (!tls)
		return NULL;
	hf_tls_keys_free(tls->keys);
	pthread_mutex_destroy(&tls->lock);
	free(tls);
	return NULL;
}

void hf_tls_set_keys(struct hf_tls *tls, struct hf_tls_keys *keys)
{
	struct hf_tls_keys *before;

	pthread_mutex_lock(&tls->lock);
	before = tls->keys;
	tls->keys = keys;
	atomic_store_explicit(&tls->is_on, keys != NULL, memory_order_relaxed);
	pthread_mutex_unlock(&tls->lock);
	hf_tls_keys_free(before); /* sessions have references to what they need */
}

bool hf_tls_is_on(const struct hf_tls *tls)
{
	return atomic_load_explicit(&tls->is_on, memory_order_relaxed);
}

bool hf_tls_expires(struct hf_tls *tls, int64_t *unixp)
{
	bool is_on;

	pthread_mutex_lock(&tls->lock);
	is_on = tls->keys != NULL;
	if (is_on)
		*unixp = hf_tls_keys_expire(tls->keys);
	pthread_mutex_unlock(&tls->lock);
	return is_on;
}

SSL *hf_tls_begin(struct hf_tls *tls, int *errorp)
{
	SSL *ssl = NULL;

	*errorp = -ENOTSUP;
	pthread_mutex_lock(&tls->lock);
	if (tls->keys) {
		ssl = SSL_new(tls->keys->ctx);
		*errorp = ssl ? 0 : -ENOMEM;
	}
	pthread_mutex_unlock(&tls->lock);
	return ssl;
}

void hf_tls_count(struct hf_tls *tls, enum hf_tls_result result)
{
	atomic_fetch_add_explicit(&tls->counts[result], 1, memory_order_relaxed);
}

uint64_t hf_tls_counted(const struct hf_tls *tls, enum hf_tls_result result)
{
	return atomic_load_explicit(&tls->counts[result], memory_order_relaxed);
}
