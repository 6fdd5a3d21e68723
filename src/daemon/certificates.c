#include "daemon/certificates.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "api/api.h"
#include "api/keys.h"
#include "base/error.h"
#include "base/log.h"
#include "daemon/config.h"
#include "tls/tls.h"

#define DAY       86400
#define WARN_DAYS 14

/* @problem follows the name of the key. */
static int refuse(const char *key, const char *path, const char *problem)
{
	char sentence[HF_TLS_PROBLEM_SIZE + 32], quoted[512];

	snprintf(sentence, sizeof(sentence), "%s %s", key, problem);
	hf_log_error(sentence, "file=%s", hf_log_quote(quoted, sizeof(quoted), path, strlen(path)));
	return -EINVAL;
}

bool hf_certificates_expose(unsigned int mode)
{
	return mode & (S_IRWXO | S_IWGRP);
}

/* @key: its name in the configuration */
static void look_at_key(const char *key, const char *path)
{
	char quoted[512];
	struct stat st;

	if (stat(path, &st) == 0 && hf_certificates_expose(st.st_mode))
		hf_log_warn("other users can read or write a private key; fix it with chmod 600, or, with "
			    "server.user, chmod 640 and that user's group",
			    "key=%s file=%s", key, hf_log_quote(quoted, sizeof(quoted), path, strlen(path)));
}

/* The configuration was checked with these files. Here the server has the rights of server.user. */
int hf_certificates_load(struct hf_tls_keys **keysp, const struct hf_config *config)
{
	const struct hf_tls_files files = { config->tls.certificate, config->tls.key, config->tls.client_ca };
	const char *const paths[] = { NULL, files.certificate, files.key, files.client_ca };
	static const char *const keys[] = { NULL, "tls.certificate", "tls.key", "tls.client_ca" };
	char problem[HF_TLS_PROBLEM_SIZE];
	int r;

	*keysp = NULL;
	if (*files.certificate == '\0')
		return 0;
	r = hf_tls_keys_load(keysp, &files, problem);
	if (r == 0)
		look_at_key("tls.key", files.key);
	if (r <= 0)
		return hf_trace(r);
	return refuse(keys[r], paths[r], problem);
}

static void tell_end(const char *key, int64_t end)
{
	int64_t left = end - (int64_t)time(NULL);

	if (left <= 0)
		hf_log_warn("the TLS certificate has expired: clients refuse it. Renew it, and reload",
			    "key=%s expired_days_ago=%" PRId64, key, -left / DAY);
	else if (left < WARN_DAYS * DAY)
		hf_log_warn("the TLS certificate expires soon. Renew it, and reload", "key=%s days=%" PRId64,
			    key, left / DAY);
	else
		hf_log_info("TLS is offered", "key=%s expires_in_days=%" PRId64, key, left / DAY);
}

void hf_certificates_take(struct hf_tls *tls, struct hf_tls_keys *keys)
{
	bool was_on = hf_tls_is_on(tls);
	int64_t end;

	hf_tls_set_keys(tls, keys);
	if (!hf_tls_expires(tls, &end)) {
		if (was_on)
			hf_log_info("TLS is not offered any more; connections that use it go on", "%s", "");
		return;
	}
	tell_end("tls.certificate", end);
}

/* The API */

int hf_certificates_load_api(struct hf_api_keys **keysp, const struct hf_config *config)
{
	const char *const paths[] = { NULL, config->api.certificate, config->api.key };
	static const char *const keys[] = { NULL, "api.certificate", "api.key" };
	char problem[HF_API_PROBLEM_SIZE];
	int r;

	*keysp = NULL;
	if (*config->api.certificate == '\0')
		return 0;
	r = hf_api_keys_load(keysp, config->api.certificate, config->api.key, problem);
	if (r == 0)
		look_at_key("api.key", config->api.key);
	if (r <= 0)
		return hf_trace(r);
	return refuse(keys[r], paths[r], problem);
}

void hf_certificates_tell_api(const struct hf_api_keys *keys)
{
	if (keys)
		tell_end("api.certificate", hf_api_keys_expire(keys));
}

bool hf_certificates_take_api(struct hf_api *api, struct hf_api_keys *keys)
{
	if (!api || hf_api_is_https(api) != (keys != NULL)) {
		hf_api_keys_unref(keys);
		return !api;
	}
	hf_certificates_tell_api(keys);
	if (keys)
		hf_api_set_keys(api, keys);
	return true;
}
