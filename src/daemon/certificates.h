/*
 * The certificates of the configuration: loaded, and given to what the server
 * offers (tls/tls.h) and to the API (api/keys.h). A client that cannot check the server's certificate goes
 * away without a word, so the log says when the certificate ends.
 */
#pragma once

#include <stdbool.h>

struct hf_api;
struct hf_api_keys;
struct hf_config;
struct hf_tls;
struct hf_tls_keys;

/* Whether the mode of a private key lets other users read or write it. Its group may read it: that may be the
 * group of server.user. */
bool hf_certificates_expose(unsigned int mode);

/* May wait for a disk. *keysp is NULL if no certificate is configured. Logs what is wrong; then -EINVAL.
 * Warns of a private key that other users can read. */
int hf_certificates_load(struct hf_tls_keys **keysp, const struct hf_config *config);
/* New connections use @keys, which it takes; NULL: no new connection uses TLS. */
void hf_certificates_take(struct hf_tls *tls, struct hf_tls_keys *keys);

/* The same for the API. Without HTTPS *keysp is NULL. */
int hf_certificates_load_api(struct hf_api_keys **keysp, const struct hf_config *config);
/* Takes @keys; NULL: there are none. False: the API would have to change between HTTP and HTTPS, which waits
 * for the next start. @api may be NULL: it is off. */
bool hf_certificates_take_api(struct hf_api *api, struct hf_api_keys *keys);
/* Logs when @keys end; NULL: nothing. */
void hf_certificates_tell_api(const struct hf_api_keys *keys);
