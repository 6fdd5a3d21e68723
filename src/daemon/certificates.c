#include "daemon/certificates.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/log.h"
#include "daemon/config.h"
#include "tls/tls.h"

#define DAY       86400
#define WARN_DAYS 14

/* The configuration was checked with these files. Here the server has the rights of server.user. */
int hf_certificates_load(struct hf_tls_keys **keysp, const struct hf_config *config)
{
	const struct hf_tls_files files = { config->tls.certificate, config->tls.key, config->tls.client_ca };
	const char *const paths[] = { NULL, files.certificate, files.key, files.client_ca };
	static const char *const keys[] = { NULL, "tls.certificate", "tls.key", "tls.client_ca" };
	char problem[HF_TLS_PROBLEM_SIZE], sentence[HF_TLS_PROBLEM_SIZE + 32], path[512];
	int r;

	*keysp = NULL;
	if (*files.certificate == '\0')
		return 0;
	r = hf_tls_keys_load(keysp, &files, problem);
	if (r <= 0)
		return hf_trace(r);
	snprintf(sentence, sizeof(sentence), "%s %s", keys[r], problem);
	hf_log_error(sentence, "file=%s", hf_log_quote(path, sizeof(path), paths[r], strlen(paths[r])));
	return -EINVAL;
}

void hf_certificates_take(struct hf_tls *tls, struct hf_tls_keys *keys)
{
	bool was_on = hf_tls_is_on(tls);
	int64_t left = 0, end;

	hf_tls_set_keys(tls, keys);
	if (!hf_tls_expires(tls, &end)) {
		if (was_on)
			hf_log_info("TLS is not offered any more; connections that use it go on", "%s", "");
		return;
	}
	left = end - (int64_t)time(NULL);
	if (left <= 0)
		hf_log_warn("the TLS certificate has expired: clients refuse it. Renew it, and reload",
			    "expired_days_ago=%" PRId64, -left / DAY);
	else if (left < WARN_DAYS * DAY)
		hf_log_warn("the TLS certificate expires soon. Renew it, and reload", "days=%" PRId64,
			    left / DAY);
	else
		hf_log_info("TLS is offered", "expires_in_days=%" PRId64, left / DAY);
}
