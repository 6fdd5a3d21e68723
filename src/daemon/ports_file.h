/*
 * What others find us by, in the state directory while we are ready:
 *
 *	ports.json   the ports in use, for whoever started us with port 0
 *	api.address  where holdfast(1) reaches the API, as its --server
 */
#pragma once

#include <stdint.h>

struct hf_state_dir;

#define HF_PORTS_ADDRESS 128

struct hf_ports {
	uint16_t rpc;
	uint16_t portmap;                   /* 0: none of ours */
	uint16_t api;                       /* 0: off, or a Unix socket */
	char api_address[HF_PORTS_ADDRESS]; /* empty: off */
};

int hf_ports_file_write(struct hf_state_dir *dir, const struct hf_ports *ports);
void hf_ports_file_remove(struct hf_state_dir *dir);
