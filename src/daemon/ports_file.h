/*
 * How other programs find the server: two files in the state directory.
 *
 *	ports.json   the ports in use, for a caller that started it with port 0; while
 *	             the server is ready
 *	api.address  where holdfast(1) reaches the API, in the form of --server; while
 *	             the API has its port. With HTTPS, each further line is the SHA-256
 *	             of a certificate that the API may show: on this host its names need
 *	             not be the server's.
 */
#pragma once

#include <stdint.h>

#include "api/keys.h"

struct hf_state_dir;

#define HF_PORTS_ADDRESS 128

struct hf_ports {
	uint16_t rpc;
	uint16_t portmap;                   /* 0: the server serves no port mapper */
	uint16_t api;                       /* 0: off, or a Unix socket */
	char api_address[HF_PORTS_ADDRESS]; /* empty: off */
	char api_pin[HF_API_PIN_TEXT];      /* of the API's certificate; empty: no HTTPS */
};

int hf_ports_file_write(struct hf_state_dir *dir, const struct hf_ports *ports); /* ports.json */
/* Before the loop runs: from then on reloads write the file, on their worker. */
int hf_ports_file_write_address(struct hf_state_dir *dir, const struct hf_ports *ports);
/* Before the API gives up its port: holdfast(1) sends its token to the address that it finds. */
void hf_ports_file_remove(struct hf_state_dir *dir);
/* Before the API shows a certificate with @pin. Any thread, while the ports do not change. */
int hf_ports_file_announce(struct hf_state_dir *dir, const struct hf_ports *ports, const char *pin);
