/*
 * The service's addresses on the interfaces of the node that serves it.
 *
 * The kernel gives an address a lifetime and removes it when that is over. The
 * node renews it with its lease, so the address also leaves a host whose
 * holdfastd was killed or stopped. Lifetimes are whole seconds. Measured on
 * Linux 6.18, on a busy machine: of 60 addresses with 1 to 3 s each, half left
 * within 26 ms after the lifetime, the last one 351 ms after it, and none before
 * it; IPv4 and IPv6 alike. The kernel rounds its own timer to whole seconds if
 * that is not more than a quarter of a second late.
 *
 * The first IPv4 address of a subnet on an interface is its primary one, and
 * the kernel removes the others of the subnet with it, unless
 * net.ipv4.conf.*.promote_secondaries is set. Debian does not set it. A host that has an
 * address of its own there first, or gives the service's address the prefix
 * /32, does not depend on it.
 *
 * A change waits for the kernel's lock of all network settings (rtnl), which
 * no timeout of the server bounds. Each answer is waited for at most
 * HF_NETLINK_TIMEOUT_MS.
 */
#pragma once

#include <net/if.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"

struct hf_host;

struct hf_service_address {
	struct hf_addr addr; /* port 0 */
	uint8_t prefix;      /* bits of its subnet */
	char interface[IF_NAMESIZE];
};

enum {
	HF_SERVICE_ADDRESS_OK = 0,
	HF_SERVICE_ADDRESS_E_FORM,    /* not ADDRESS/PREFIX%INTERFACE */
	HF_SERVICE_ADDRESS_E_ADDRESS, /* no address that a server can have on an interface for its clients */
	HF_SERVICE_ADDRESS_E_PREFIX,  /* not 1 to 32, or 1 to 128 */
	HF_SERVICE_ADDRESS_E_INTERFACE, /* no possible name */
};

/* From the configuration's ADDRESS/PREFIX%INTERFACE. The interface need not be there yet. */
int hf_service_address_parse(struct hf_service_address *out, const char *text);
/* An answer in words, to go on after a name, as in "cluster.addresses: ". */
const char *hf_service_address_explain(int answer);

/* Adds each address, or renews its lifetime: @lifetime_ms, rounded up to whole seconds. It tries all of them
 * and returns the first failure, which @error explains: for instance an interface that is not there, or
 * -EEXIST for an address that has no lifetime, because the host's own configuration has it. */
int hf_addresses_hold(struct hf_host *host, const struct hf_service_address *addresses, size_t n,
		      uint32_t lifetime_ms, char *error, size_t error_size);
/* Removes each address, and drops what still waits to be sent from it. One that is not there, or whose
 * interface is not, is no failure; an address without a lifetime is the host's own, and stays. */
int hf_addresses_give_up(struct hf_host *host, const struct hf_service_address *addresses, size_t n,
			 char *error, size_t error_size);
