#include "daemon/ports_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/state_dir.h"

#define FILE_NAME "ports.json"

int hf_ports_file_write(struct hf_state_dir *dir, const struct hf_ports *ports)
{
	char text[128];

	snprintf(text, sizeof(text), "{\"rpc\":%u,\"portmap\":%u,\"api\":%u,\"pid\":%ld}\n", ports->rpc,
		 ports->portmap, ports->api, (long)getpid());
	return hf_state_dir_write(dir, FILE_NAME, text, strlen(text));
}

void hf_ports_file_remove(struct hf_state_dir *dir)
{
	(void)hf_state_dir_remove(dir, FILE_NAME); /* the next start writes it anew */
}
