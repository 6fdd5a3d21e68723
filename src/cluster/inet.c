#include "cluster/inet.h"

uint32_t hf_inet_sum(uint32_t sum, const void *data, size_t len)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i + 1 < len; i += 2)
		sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
	if (len % 2)
		sum += (uint32_t)bytes[len - 1] << 8;
	return sum;
}

uint32_t hf_inet_sum_pseudo(const uint8_t *source, const uint8_t *destination, size_t ip_len,
			    uint8_t protocol, size_t len)
{
	return hf_inet_sum(hf_inet_sum(protocol + (uint32_t)len, source, ip_len), destination, ip_len);
}

uint16_t hf_inet_finish(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}
