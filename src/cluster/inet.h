/* The Internet checksum (RFC 1071). */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A sum that goes on from @sum, over bytes in network order. Only the last part may have an odd length. */
uint32_t hf_inet_sum(uint32_t sum, const void *data, size_t len);
/* The part of a sum that stands for the addresses around a TCP segment or an ICMPv6 message. @ip_len: 4
 * or 16. */
uint32_t hf_inet_sum_pseudo(const uint8_t *source, const uint8_t *destination, size_t ip_len,
			    uint8_t protocol, size_t len);
/* The checksum, as it goes into a header with hf_inet_put16(). */
uint16_t hf_inet_finish(uint32_t sum);

static inline void hf_inet_put16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static inline void hf_inet_put32(uint8_t *at, uint32_t value)
{
	hf_inet_put16(at, (uint16_t)(value >> 16));
	hf_inet_put16(at + 2, (uint16_t)value);
}
