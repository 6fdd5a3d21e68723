/* A network interface, as the kernel describes it now. */
#pragma once

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

struct hf_netlink;

struct hf_interface {
	char name[IF_NAMESIZE];
	int index;
	unsigned int flags;  /* IFF_UP and so on */
	bool is_ethernet;    /* with addresses of six bytes, and neighbours that look for each other's */
	uint8_t hardware[6]; /* its own address, if it is_ethernet */
};

/* From the body of an RTM_NEWLINK or RTM_DELLINK. false: it is cut short, has no name, or is about
 * an interface's part in a bridge. */
bool hf_interface_decode(struct hf_interface *interface, struct hf_bytes body);
/* Asks the kernel: -ENODEV if there is none of this name. */
int hf_interface_find(struct hf_interface *interface, struct hf_netlink *netlink, const char *name);
/* Administratively up, with a carrier, and ready to pass packets. */
bool hf_interface_is_up(const struct hf_interface *interface);
