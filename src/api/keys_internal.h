/* The inside of hf_api_keys, for keys.c and https.c: no other file includes GnuTLS. */
#pragma once

#include <gnutls/gnutls.h>
#include <stdint.h>

#include "api/keys.h"

struct hf_api_keys {
	_Atomic unsigned int n_refs;
	gnutls_certificate_credentials_t credentials;
	int64_t expires; /* Unix seconds */
	char pin[HF_API_PIN_TEXT];
};
