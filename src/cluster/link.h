/*
 * Do the interfaces of the service's addresses have their carrier? The kernel
 * reports each change to a netlink socket, which is opened before the sandbox.
 * The kernel reports most changes at once, and delays them to one a second
 * where an interface changes often.
 *
 * An interface is up if it is administratively up, has a carrier and is ready
 * to pass packets (IFF_UP, IFF_LOWER_UP, IFF_RUNNING). One that does not exist
 * is down. What happens behind the next switch is not seen here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct hf_link_watch;
struct hf_service_address;

/* Knows the interfaces' state when it returns. The interfaces need not be there yet. */
int hf_link_watch_open(struct hf_link_watch **watchp, const struct hf_service_address *addresses, size_t n);
void hf_link_watch_close(struct hf_link_watch *watch);

/* Readable when something has changed: then ask hf_link_is_up(). */
int hf_link_watch_fd(const struct hf_link_watch *watch);
struct hf_link_down {
	const char *interface; /* valid while the watch is */
	bool exists;
};

/* Takes in what the kernel has reported, without waiting. false: at least one is down; *downp is the first
 * one. True also if there are no addresses. */
bool hf_link_is_up(struct hf_link_watch *watch, struct hf_link_down *downp);
