/* The packets that a node sends, byte by byte, and the kernel's answers, also damaged ones. */
#include "../test.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "cluster/announce.h"
#include "cluster/host.h"
#include "cluster/inet.h"
#include "cluster/interface.h"
#include "cluster/netlink.h"
#include "cluster/nudge.h"

static const uint8_t hardware[6] = { 2, 0, 0, 0, 0, 9 };

static struct hf_addr addr_of(const char *text)
{
	struct hf_addr addr;

	assert_true(hf_addr_parse_with_port(&addr, text));
	return addr;
}

static void test_checksum(void **state)
{
	static const uint8_t example[] = { 0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7 }; /* RFC 1071 */

	assert_int_equal(hf_inet_finish(hf_inet_sum(0, example, sizeof(example))), 0xffff & ~0xddf2);
	assert_int_equal(hf_inet_finish(hf_inet_sum(0, "\x12", 1)), 0xffff & ~0x1200);
}

static void test_arp(void **state)
{
	static const uint8_t ip[4] = { 192, 0, 2, 7 };
	static const uint8_t reply[HF_ANNOUNCE_ARP] = { 0,   1, 8, 0, 6, 4, 0, 2, 2, 0, 0,   0, 0, 9,
							192, 0, 2, 7, 2, 0, 0, 0, 0, 9, 192, 0, 2, 7 };
	uint8_t out[HF_ANNOUNCE_ARP];

	hf_announce_encode_arp(out, ip, hardware, 2);
	assert_memory_equal(out, reply, sizeof(reply));
	hf_announce_encode_arp(out, ip, hardware, 1);
	assert_int_equal(out[7], 1);
	assert_memory_equal(out + 14, ip, 4);
	assert_memory_equal(out + 24, ip, 4);
}

/* A checksum is right if the sum over everything, with it, is. */
static void assert_checksum(const uint8_t *packet, size_t ip_header, size_t ip_len, size_t len,
			    uint8_t protocol)
{
	const uint8_t *to = packet + ip_header - ip_len;
	uint32_t sum = hf_inet_sum_pseudo(to - ip_len, to, ip_len, protocol, len - ip_header);

	assert_int_equal(hf_inet_finish(hf_inet_sum(sum, packet + ip_header, len - ip_header)), 0);
}

static void test_advert(void **state)
{
	static const uint8_t ip[16] = { 0x20, 0x01, 0x0d, 0xb8, [15] = 7 };
	uint8_t out[HF_ANNOUNCE_ADVERT];

	hf_announce_encode_advert(out, ip, hardware);
	assert_int_equal(out[7], 255);
	assert_int_equal(out[40], 136);
	assert_int_equal(out[44], 0x20); /* override alone */
	assert_memory_equal(out + 48, ip, 16);
	assert_memory_equal(out + 66, hardware, 6);
	assert_checksum(out, 40, 16, sizeof(out), 58);
}

static void test_nudge(void **state)
{
	struct hf_nudge four = { addr_of("192.0.2.7:2049"), addr_of("192.0.2.90:700") };
	struct hf_nudge six = { addr_of("[2001:db8::7]:2049"), addr_of("[2001:db8::90]:700") };
	struct hf_nudge mixed = { four.service, six.client };
	uint8_t out[HF_NUDGE_PACKET];

	assert_int_equal(hf_nudge_encode(out, &four, 0x01020304), 40);
	assert_memory_equal(out + 12, "\xc0\x00\x02\x07\xc0\x00\x02\x5a", 8);
	assert_memory_equal(out + 20, "\x08\x01\x02\xbc\x01\x02\x03\x04", 8);
	assert_int_equal(out[33], 0x10); /* ACK alone */
	assert_checksum(out, 20, 4, 40, 6);
	assert_int_equal(hf_nudge_encode(out, &six, 5), 60);
	assert_int_equal(out[53], 0x10);
	assert_checksum(out, 40, 16, 60, 6);

	assert_int_equal(hf_nudge_encode(out, &mixed, 5), 0);
	four.client.port = 0;
	assert_int_equal(hf_nudge_encode(out, &four, 5), 0);
	four.client = addr_of("224.0.0.1:700");
	assert_int_equal(hf_nudge_encode(out, &four, 5), 0);
}

/* No call handles more than a batch; what cannot be sent is handled, so a list has an end. */
static void test_nudges_are_bounded(void **state)
{
	struct hf_host host = HF_HOST_CLOSED;
	struct hf_nudge *list = calloc(2 * HF_NUDGE_BATCH, sizeof(*list));

	assert_non_null(list);
	assert_int_equal(hf_nudge_some(&host, list, 2 * HF_NUDGE_BATCH), HF_NUDGE_BATCH);
	assert_int_equal(hf_nudge_some(&host, list, 7), 7);
	assert_int_equal(hf_nudge_some(&host, list, 0), 0);
	free(list);
}

/* One message about an interface, as the kernel sends it. */
static struct hf_netlink_request link_message(void)
{
	struct ifinfomsg info = { .ifi_type = 1,
				  .ifi_index = 7,
				  .ifi_flags = IFF_UP | IFF_RUNNING | 0x10000 };
	struct hf_netlink_request message;

	hf_netlink_begin(&message, RTM_NEWLINK, 0, &info, sizeof(info));
	hf_netlink_add(&message, IFLA_IFNAME, "eth0", 5);
	hf_netlink_add(&message, IFLA_ADDRESS, hardware, 6);
	return message;
}

static void test_interface(void **state)
{
	struct hf_netlink_request message = link_message();
	struct hf_bytes bytes = hf_bytes_of(message.bytes, message.header.nlmsg_len), body;
	struct hf_interface interface;
	struct nlmsghdr header;

	assert_true(hf_netlink_next(&bytes, &header, &body));
	assert_int_equal(header.nlmsg_type, RTM_NEWLINK);
	assert_true(hf_interface_decode(&interface, body));
	assert_string_equal(interface.name, "eth0");
	assert_int_equal(interface.index, 7);
	assert_true(interface.is_ethernet && hf_interface_is_up(&interface));
	assert_memory_equal(interface.hardware, hardware, 6);
	assert_false(hf_netlink_next(&bytes, &header, &body));
	interface.flags &= ~0x10000u;
	assert_false(hf_interface_is_up(&interface));
}

/* Of every length, in memory that ends there; and with every length that its parts can claim. */
static void test_damaged_answers(void **state)
{
	struct hf_netlink_request whole = link_message();
	size_t len = whole.header.nlmsg_len;

	for (size_t cut = 0; cut <= len; cut++) {
		for (int value = 0; value < 256; value += 5) {
			uint8_t *copy = malloc(cut + 1);
			struct hf_bytes bytes = hf_bytes_of(copy, cut), body;
			struct hf_interface interface;
			struct nlmsghdr header;

			memcpy(copy, whole.bytes, cut);
			if (cut < len && value)
				copy[(size_t)value * 7 % (cut + 1)] = (uint8_t)value;
			for (int i = 0; i < 100 && hf_netlink_next(&bytes, &header, &body); i++) {
				hf_interface_decode(&interface, body);
				hf_netlink_error(body);
			}
			free(copy);
		}
	}
	assert_int_equal(hf_netlink_error(hf_bytes_of("\xff\xff", 2)), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_checksum),
		cmocka_unit_test(test_arp),
		cmocka_unit_test(test_advert),
		cmocka_unit_test(test_nudge),
		cmocka_unit_test(test_nudges_are_bounded),
		cmocka_unit_test(test_interface),
		cmocka_unit_test(test_damaged_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
