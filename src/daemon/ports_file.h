/* STATE_DIR/ports.json: the ports in use, for whoever started us with port 0; there while we are ready. */
#pragma once

#include <stdint.h>

struct hf_state_dir;

struct hf_ports {
	uint16_t rpc;
	uint16_t portmap; /* 0: none of ours */
	uint16_t api;     /* 0: off */
};

int hf_ports_file_write(struct hf_state_dir *dir, const struct hf_ports *ports);
void hf_ports_file_remove(struct hf_state_dir *dir);
