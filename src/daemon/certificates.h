/*
 * The certificates of the configuration: loaded, and given to what the server
 * offers (tls/tls.h). A client that cannot check the server's certificate goes
 * away without a word, so the log says when the certificate ends.
 */
#pragma once

struct hf_config;
struct hf_tls;
struct hf_tls_keys;

/* May wait for a disk. *keysp is NULL if no certificate is configured. Logs what is wrong; then -EINVAL. */
int hf_certificates_load(struct hf_tls_keys **keysp, const struct hf_config *config);
/* New connections use @keys, which it takes; NULL: no new connection uses TLS. */
void hf_certificates_take(struct hf_tls *tls, struct hf_tls_keys *keys);
