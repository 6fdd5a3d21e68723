#include "proto/portmap/netid.h"

#include <assert.h>
#include <netinet/in.h>

#include "rpc/uaddr.h"

enum {
	SEMANTICS_CLTS = 1,
	SEMANTICS_COTS_ORD = 3,
};

static const struct hf_netid_info infos[HF_N_NETIDS] = {
	[HF_NETID_UDP] = { "udp", "inet", "udp", AF_INET, IPPROTO_UDP, SEMANTICS_CLTS },
	[HF_NETID_TCP] = { "tcp", "inet", "tcp", AF_INET, IPPROTO_TCP, SEMANTICS_COTS_ORD },
	[HF_NETID_UDP6] = { "udp6", "inet6", "udp", AF_INET6, IPPROTO_UDP, SEMANTICS_CLTS },
	[HF_NETID_TCP6] = { "tcp6", "inet6", "tcp", AF_INET6, IPPROTO_TCP, SEMANTICS_COTS_ORD },
};

const struct hf_netid_info *hf_netid_info(enum hf_netid netid)
{
	assert(netid < HF_N_NETIDS);
	return &infos[netid];
}

const char *hf_netid_name(enum hf_netid netid)
{
	return hf_netid_info(netid)->name;
}

enum hf_netid hf_netid_parse(struct hf_bytes name)
{
	for (int i = 0; i < HF_N_NETIDS; i++) {
		if (hf_bytes_equal(name, hf_bytes_of_str(infos[i].name)))
			return (enum hf_netid)i;
	}
	return HF_N_NETIDS;
}

enum hf_netid hf_netid_of(int family, int protocol)
{
	for (int i = 0; i < HF_N_NETIDS; i++) {
		if (infos[i].family == family && infos[i].protocol == protocol)
			return (enum hf_netid)i;
	}
	return HF_N_NETIDS;
}

bool hf_netid_parse_uaddr(struct hf_addr *addr, enum hf_netid netid, struct hf_bytes text)
{
	return hf_uaddr_parse(addr, text) && addr->family == hf_netid_info(netid)->family;
}
