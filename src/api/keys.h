/*
 * Certificate and key of the API (HTTPS), by GnuTLS: libmicrohttpd speaks TLS
 * with that library, so only it can say whether it can use them. They never
 * change; a reload loads others. Connections use those that they began with.
 */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"

struct hf_api_keys;

enum { /* answers of hf_api_keys_load(): which file is wrong */
	HF_API_KEYS_OK = 0,
	HF_API_E_CERTIFICATE,
	HF_API_E_KEY,
};

#define HF_API_PROBLEM_SIZE 512
#define HF_API_PIN_TEXT     65 /* room for a fingerprint and its NUL */

/* May wait for a disk. If a file is wrong, @problem says what is wrong and what would be right, to follow the
 * file's name. */
int hf_api_keys_load(struct hf_api_keys **keysp, const char *certificate, const char *key,
		     char problem[static HF_API_PROBLEM_SIZE]);

/* Any thread */
struct hf_api_keys *hf_api_keys_ref(struct hf_api_keys *keys);
struct hf_api_keys *hf_api_keys_unref(struct hf_api_keys *keys);

HF_DEFINE_CLEANUP(struct hf_api_keys *, hf_api_keys_unref)

/* When the first certificate of the chain ends, in Unix seconds. */
int64_t hf_api_keys_expire(const struct hf_api_keys *keys);
/* The SHA-256 of the server's certificate, in hexadecimal digits. */
const char *hf_api_keys_pin(const struct hf_api_keys *keys);
