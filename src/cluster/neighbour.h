/*
 * Packets that wait for a neighbour.
 *
 * The kernel holds a packet back while it asks for the neighbour's hardware
 * address. It asks for up to three seconds, and then sends what waits, as it is:
 * also from an address that has left the interface meanwhile. When a link was
 * down, a node that has handed the service over would be heard once more.
 */
#pragma once

struct hf_addr;
struct hf_host;

/* Drops what waits on the interface for neighbours of the address's family that have not answered. */
int hf_neighbours_drop_waiting(struct hf_host *host, const struct hf_addr *addr, int index);
