#include "cluster/announce.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "cluster/host.h"
#include "cluster/inet.h"
#include "cluster/interface.h"

#define ARP_REQUEST 1
#define ARP_REPLY   2
#define IPV6_HEADER 40
#define ADVERT      136        /* ICMPv6 type */
#define OVERRIDE    0x20000000 /* replaces what the neighbour knows */

void hf_announce_encode_arp(uint8_t out[HF_ANNOUNCE_ARP], const uint8_t ip[4], const uint8_t hardware[6],
			    uint16_t operation)
{
	hf_inet_put16(out, 1); /* Ethernet */
	hf_inet_put16(out + 2, ETH_P_IP);
	out[4] = 6;
	out[5] = 4;
	hf_inet_put16(out + 6, operation);
	memcpy(out + 8, hardware, 6);
	memcpy(out + 14, ip, 4);
	/* The target is the sender; in a request its hardware address says nothing. */
	memset(out + 18, 0xff, 6);
	if (operation == ARP_REPLY)
		memcpy(out + 18, hardware, 6);
	memcpy(out + 24, ip, 4);
}

void hf_announce_encode_advert(uint8_t out[HF_ANNOUNCE_ADVERT], const uint8_t ip[16],
			       const uint8_t hardware[6])
{
	static const uint8_t all_nodes[16] = { 0xff, 0x02, [15] = 1 };
	const size_t len = HF_ANNOUNCE_ADVERT - IPV6_HEADER;
	uint8_t *icmp = out + IPV6_HEADER;
	uint32_t sum;

	memset(out, 0, HF_ANNOUNCE_ADVERT);
	out[0] = 0x60;
	hf_inet_put16(out + 4, (uint16_t)len);
	out[6] = IPPROTO_ICMPV6;
	out[7] = 255; /* receivers drop any other hop limit */
	memcpy(out + 8, ip, 16);
	memcpy(out + 24, all_nodes, 16);
	icmp[0] = ADVERT;
	hf_inet_put32(icmp + 4, OVERRIDE);
	memcpy(icmp + 8, ip, 16);
	icmp[24] = 2; /* option: the target's link-layer address, */
	icmp[25] = 1; /* in units of eight bytes */
	memcpy(icmp + 26, hardware, 6);
	sum = hf_inet_sum_pseudo(ip, all_nodes, 16, IPPROTO_ICMPV6, len);
	hf_inet_put16(icmp + 2, hf_inet_finish(hf_inet_sum(sum, icmp, len)));
}

static int send_to(struct hf_host *host, const struct hf_interface *interface, const uint8_t hardware[6],
		   uint16_t protocol, const uint8_t *packet, size_t len)
{
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(protocol),
		.sll_ifindex = interface->index,
		.sll_halen = 6,
	};

	memcpy(to.sll_addr, hardware, 6);
	if (sendto(host->packet, packet, len, 0, (struct sockaddr *)&to, sizeof(to)) < 0)
		return -errno;
	return 0;
}

static int announce_v4(struct hf_host *host, const struct hf_interface *interface, const uint8_t *ip)
{
	static const uint8_t broadcast[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	int result = 0;

	for (uint16_t operation = ARP_REQUEST; operation <= ARP_REPLY; operation++) {
		uint8_t packet[HF_ANNOUNCE_ARP];
		int r;

		hf_announce_encode_arp(packet, ip, interface->hardware, operation);
		r = send_to(host, interface, broadcast, ETH_P_ARP, packet, sizeof(packet));
		result = result ? result : r;
	}
	return result;
}

static int announce_v6(struct hf_host *host, const struct hf_interface *interface, const uint8_t *ip)
{
	static const uint8_t all_nodes[6] = { 0x33, 0x33, 0, 0, 0, 1 };
	uint8_t packet[HF_ANNOUNCE_ADVERT];

	hf_announce_encode_advert(packet, ip, interface->hardware);
	return send_to(host, interface, all_nodes, ETH_P_IPV6, packet, sizeof(packet));
}

static int announce(struct hf_host *host, const struct hf_service_address *address)
{
	struct hf_interface interface;
	int r = hf_interface_find(&interface, &host->route, address->interface);

	if (r < 0 || !interface.is_ethernet)
		return r;
	return address->addr.family == AF_INET ? announce_v4(host, &interface, address->addr.ip)
					       : announce_v6(host, &interface, address->addr.ip);
}

int hf_announce(struct hf_host *host, const struct hf_service_address *addresses, size_t n)
{
	int result = 0;

	for (size_t i = 0; i < n; i++) {
		int r = announce(host, &addresses[i]);

		result = result ? result : r;
	}
	return result;
}
