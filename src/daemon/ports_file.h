/*
 * How other programs find the server: two files in the state directory while it
 * is ready.
 *
 *	ports.json   the ports in use, for a caller that started it with port 0
 *	api.address  where holdfast(1) reaches the API, in the form of --server
 */
#pragma once

#include <stdint.h>

struct hf_state_dir;

#define HF_PORTS_ADDRESS 128

struct hf_ports {
	uint16_t rpc;
	uint16_t portmap;                   /* 0: we serve no port mapper */
	uint16_t api;                       /* 0: off, or a Unix socket */
	char api_address[HF_PORTS_ADDRESS]; /* empty: off */
};

int hf_ports_file_write(struct hf_state_dir *dir, const struct hf_ports *ports);
void hf_ports_file_remove(struct hf_state_dir *dir);
