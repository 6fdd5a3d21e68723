#include "daemon/ports_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/state_dir.h"

#define PORTS   "ports.json"
#define ADDRESS "api.address"

static int write_address(struct hf_state_dir *dir, const struct hf_ports *ports, const char *more)
{
	char text[HF_PORTS_ADDRESS + 2 * HF_API_PIN_TEXT + 4];

	snprintf(text, sizeof(text), "%s\n%s%s%s%s", ports->api_address, ports->api_pin,
		 *ports->api_pin ? "\n" : "", more, *more ? "\n" : "");
	return hf_state_dir_write(dir, ADDRESS, text, strlen(text));
}

int hf_ports_file_announce(struct hf_state_dir *dir, const struct hf_ports *ports, const char *pin)
{
	return *ports->api_pin ? write_address(dir, ports, pin) : 0;
}

int hf_ports_file_write_address(struct hf_state_dir *dir, const struct hf_ports *ports)
{
	if (*ports->api_address)
		return write_address(dir, ports, "");
	(void)hf_state_dir_remove(dir, ADDRESS); /* left by a run that was killed */
	return 0;
}

int hf_ports_file_write(struct hf_state_dir *dir, const struct hf_ports *ports)
{
	char text[128];

	snprintf(text, sizeof(text), "{\"rpc\":%u,\"portmap\":%u,\"api\":%u,\"pid\":%ld}\n", ports->rpc,
		 ports->portmap, ports->api, (long)getpid());
	return hf_state_dir_write(dir, PORTS, text, strlen(text));
}

void hf_ports_file_remove(struct hf_state_dir *dir)
{
	(void)hf_state_dir_remove(dir, PORTS); /* the next start writes it again */
	(void)hf_state_dir_remove(dir, ADDRESS);
}
