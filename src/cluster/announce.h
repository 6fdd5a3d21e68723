/*
 * Tells the neighbours on the wire that an address is here now, so that their
 * packets no longer go to the node that had it before: gratuitous ARP, as a
 * request and as a reply because hosts differ in which one they believe, and
 * unsolicited neighbour advertisements that override (RFC 4861 7.2.6). They
 * also teach the switches in between.
 *
 * Such packets get lost. Send several rounds: at once, and after about 100 ms,
 * 500 ms, 1 s and 2 s.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cluster/address.h"

struct hf_host;

/* One round for all the addresses; an interface without neighbours (loopback, a tunnel) needs none. It tries
 * all of them and returns the first failure. */
int hf_announce(struct hf_host *host, const struct hf_service_address *addresses, size_t n);

/* What it sends, from the network header on */
#define HF_ANNOUNCE_ARP    28
#define HF_ANNOUNCE_ADVERT 72

/* @operation: 1 request, 2 reply. */
void hf_announce_encode_arp(uint8_t out[HF_ANNOUNCE_ARP], const uint8_t ip[4], const uint8_t hardware[6],
			    uint16_t operation);
void hf_announce_encode_advert(uint8_t out[HF_ANNOUNCE_ADVERT], const uint8_t ip[16],
			       const uint8_t hardware[6]);
