/* Every procedure of the embedded rpcbind: good, bad, and at its limits. Results are read by rpcgen's codec.
 */
#include "test.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "proto/portmap/rpcbind.h"

#include "fake_call.h"
#include "loop/loop.h"
#include "portmap_oracle.h"
#include "standin/fake_world.h"

static const struct hf_rpc_version nlm_versions[] = { { .version = 1 }, { .version = 3 }, { .version = 4 } };
static const struct hf_rpc_program nlm = {
	.program = 100021, .name = "nlm", .n_versions = 3, .versions = nlm_versions
};

static struct hf_rpcbind rpcbind;
static struct fake_world *world;
static struct hf_loop *loop;
static struct fake_reply reply;

static struct fake_caller local_tcp = { &loop, "127.0.0.1:700", "127.0.0.1:111", HF_RPC_TCP };
static struct fake_caller local_udp = { &loop, "127.0.0.1:700", "127.0.0.1:111", HF_RPC_UDP };
static struct fake_caller local_user = { &loop, "127.0.0.1:40000", "127.0.0.1:111", HF_RPC_TCP };
static struct fake_caller local_tcp6 = { &loop, "[::1]:700", "[::1]:111", HF_RPC_TCP };
static struct fake_caller far_tcp = { &loop, "192.0.2.9:700", "192.0.2.1:111", HF_RPC_TCP };
static struct fake_caller far_udp = { &loop, "192.0.2.9:700", "192.0.2.1:111", HF_RPC_UDP };
static struct fake_caller far_tcp6 = { &loop, "[2001:db8::9]:700", "[2001:db8::1]:111", HF_RPC_TCP };

static int setup(void **state)
{
	world = fake_world_new(1);
	assert_int_equal(fake_loop_new(&loop, world), 0);
	hf_rpcbind_init(&rpcbind);
	assert_int_equal(hf_rpcbind_offer(&rpcbind, &hf_rpcbind_program, HF_NETIDS_ALL, 111), 0);
	assert_int_equal(hf_rpcbind_offer(&rpcbind, &nlm, HF_NETIDS_ALL, 2049), 0);
	return 0;
}

static int teardown(void **state)
{
	hf_rpcbind_deinit(&rpcbind);
	loop = hf_loop_free(loop);
	fake_world_free(world);
	return 0;
}

static void ask(const struct fake_caller *caller, uint32_t version, uint32_t procedure, const void *args,
		size_t len)
{
	fake_call(&reply, &hf_rpcbind_program, &rpcbind, caller, version, procedure, args, len);
}

static uint32_t result_u32(void)
{
	uint32_t value;

	assert_int_equal(reply.stat, HF_RPC_SUCCESS);
	assert_int_equal(reply.len, 4);
	memcpy(&value, reply.data, 4);
	return be32toh(value);
}

/* Version 2 */

static uint32_t ask_pmap(const struct fake_caller *caller, uint32_t procedure, uint32_t program,
			 uint32_t version, uint32_t protocol, uint32_t port)
{
	struct pm_mapping mapping = { program, version, protocol, port };
	uint8_t args[64];
	size_t len = oracle_encode(args, sizeof(args), (xdrproc_t)xdr_pm_mapping, &mapping);

	ask(caller, 2, procedure, args, len);
	return result_u32();
}

static void test_null(void **state)
{
	for (uint32_t version = 2; version <= 4; version++) {
		ask(&far_udp, version, 0, NULL, 0);
		assert_int_equal(reply.stat, HF_RPC_SUCCESS);
		assert_int_equal(reply.len, 0);
	}
}

static void test_holes(void **state)
{
	static const uint32_t holes[][2] = { { 2, 5 }, { 2, 6 },  { 3, 5 },  { 3, 9 },         { 3, 12 },
					     { 4, 5 }, { 4, 10 }, { 4, 13 }, { 4, 0xffffffff } };
	uint8_t args[64] = { 0 };

	for (size_t i = 0; i < HF_ARRAY_SIZE(holes); i++) {
		ask(&local_udp, holes[i][0], holes[i][1], args, sizeof(args));
		assert_int_equal(reply.stat, HF_RPC_PROC_UNAVAIL);
	}
}

static void test_getport(void **state)
{
	assert_int_equal(ask_pmap(&far_udp, 3, 100021, 4, IPPROTO_TCP, 0), 2049);
	assert_int_equal(ask_pmap(&far_tcp6, 3, 100021, 4, IPPROTO_UDP, 0), 2049);
	assert_int_equal(ask_pmap(&far_udp, 3, 100021, 2, IPPROTO_UDP, 77), 2049); /* another version */
	assert_int_equal(ask_pmap(&far_udp, 3, 100000, 2, IPPROTO_UDP, 0), 111);
	assert_int_equal(ask_pmap(&far_udp, 3, 100022, 4, IPPROTO_TCP, 0), 0);
	assert_int_equal(ask_pmap(&far_udp, 3, 100021, 4, 0, 0), 0);
	assert_int_equal(ask_pmap(&far_udp, 3, 100021, 4, 0xffffffff, 0), 0);
	assert_int_equal(ask_pmap(&far_udp, 3, 100021, 4, 256 + IPPROTO_TCP, 0), 0);
}

static void test_set2(void **state)
{
	assert_int_equal(ask_pmap(&local_udp, 1, 7, 1, IPPROTO_UDP, 700), 1);
	assert_int_equal(ask_pmap(&local_tcp, 1, 7, 1, IPPROTO_TCP, 700), 1);
	assert_int_equal(ask_pmap(&local_tcp, 1, 7, 1, IPPROTO_TCP, 701), 0); /* taken */
	assert_int_equal(ask_pmap(&local_udp, 1, 8, 1, IPPROTO_UDP, 0), 0);
	assert_int_equal(ask_pmap(&local_udp, 1, 8, 1, IPPROTO_UDP, 65536 + 700), 0);
	assert_int_equal(ask_pmap(&local_udp, 1, 8, 1, 3, 700), 0);
	assert_int_equal(ask_pmap(&local_udp, 1, 100021, 2, IPPROTO_UDP, 700), 0); /* the server's */
	assert_int_equal(ask_pmap(&far_udp, 3, 7, 1, IPPROTO_TCP, 0), 700);
	assert_int_equal(ask_pmap(&far_udp, 3, 8, 1, IPPROTO_UDP, 0), 0);

	assert_int_equal(ask_pmap(&local_user, 2, 7, 1, 0, 0), 0); /* not that user's */
	assert_int_equal(ask_pmap(&local_udp, 2, 7, 1, IPPROTO_UDP, 0), 1);
	assert_int_equal(ask_pmap(&far_udp, 3, 7, 1, IPPROTO_TCP, 0), 0);   /* both are gone */
	assert_int_equal(ask_pmap(&local_udp, 2, 7, 1, IPPROTO_UDP, 0), 1); /* nothing to do */
	assert_int_equal(ask_pmap(&local_udp, 2, 100021, 4, IPPROTO_UDP, 0), 0);
	assert_int_equal(ask_pmap(&far_udp, 3, 100021, 4, IPPROTO_UDP, 0), 2049);
}

static size_t dump2(const struct fake_caller *caller, bool *has_ipv6_twice)
{
	pm_list_ptr list = NULL;
	size_t n = 0;

	ask(caller, 2, 4, NULL, 0);
	assert_int_equal(reply.stat, HF_RPC_SUCCESS);
	assert_true(oracle_decode(reply.data, reply.len, (xdrproc_t)xdr_pm_list_ptr, &list));
	for (struct pm_list *p = list; p; p = p->next)
		n++;
	if (has_ipv6_twice)
		*has_ipv6_twice = list && list->map.prog == 100000 && list->map.port == 111;
	oracle_free((xdrproc_t)xdr_pm_list_ptr, &list);
	return n;
}

static void test_dump2(void **state)
{
	bool starts_with_us;

	/* portmap 3 versions, NLM 3, each by UDP and TCP; IPv6 is not for version 2 */
	assert_int_equal(dump2(&far_udp, &starts_with_us), 12);
	assert_true(starts_with_us);
	hf_rpcbind_deinit(&rpcbind);
	assert_int_equal(dump2(&far_udp, NULL), 0);
}

/* Versions 3 and 4 */

static size_t rpcb_args(uint8_t *args, size_t size, uint32_t program, uint32_t version, const char *netid,
			const char *uaddr)
{
	struct pm_rpcb rpcb = { program, version, oracle_text(netid), oracle_text(uaddr), oracle_text("me") };

	return oracle_encode(args, size, (xdrproc_t)xdr_pm_rpcb, &rpcb);
}

static uint32_t change(const struct fake_caller *caller, uint32_t v, uint32_t procedure, uint32_t program,
		       uint32_t version, const char *netid, const char *uaddr)
{
	uint8_t args[512];

	ask(caller, v, procedure, args, rpcb_args(args, sizeof(args), program, version, netid, uaddr));
	return result_u32();
}

static const char *get(const struct fake_caller *caller, uint32_t v, uint32_t procedure, uint32_t program,
		       uint32_t version, const char *netid)
{
	static char text[PM_MAX_UADDR + 1];
	pm_uaddr uaddr = NULL;
	uint8_t args[512];

	ask(caller, v, procedure, args, rpcb_args(args, sizeof(args), program, version, netid, ""));
	assert_int_equal(reply.stat, HF_RPC_SUCCESS);
	assert_true(oracle_decode(reply.data, reply.len, (xdrproc_t)xdr_pm_uaddr, &uaddr));
	snprintf(text, sizeof(text), "%s", uaddr);
	oracle_free((xdrproc_t)xdr_pm_uaddr, &uaddr);
	return text;
}

static void test_getaddr(void **state)
{
	for (uint32_t v = 3; v <= 4; v++) {
		assert_string_equal(get(&far_tcp, v, 3, 100021, 4, "tcp"), "192.0.2.1.8.1");
		assert_string_equal(get(&far_udp, v, 3, 100000, 2, "udp"), "192.0.2.1.0.111");
		assert_string_equal(get(&far_tcp6, v, 3, 100021, 4, "tcp6"), "2001:db8::1.8.1");
		assert_string_equal(get(&local_tcp6, v, 3, 100021, 4, ""), "::1.8.1");
		assert_string_equal(get(&far_tcp, v, 3, 100021, 0, "tcp"), "192.0.2.1.8.1"); /* rpcinfo */
		assert_string_equal(get(&far_tcp, v, 3, 100022, 4, "tcp"), "");
	}
}

/* The transport counts, not the netid that is named. */
static void test_getaddr_by_transport(void **state)
{
	assert_int_equal(change(&local_tcp, 4, 1, 7, 1, "udp", "0.0.0.0.2.188"), 1);
	assert_int_equal(change(&local_tcp, 4, 1, 7, 1, "tcp", "127.0.0.1.2.189"), 1);
	assert_string_equal(get(&far_udp, 4, 3, 7, 1, "tcp"), "192.0.2.1.2.188");
	assert_string_equal(get(&far_tcp, 4, 3, 7, 1, "udp"), "127.0.0.1.2.189"); /* only there */
	assert_string_equal(get(&far_tcp6, 4, 3, 7, 1, "tcp"), "");
}

static void test_getversaddr(void **state)
{
	assert_string_equal(get(&far_tcp, 4, 9, 100021, 4, "tcp"), "192.0.2.1.8.1");
	assert_string_equal(get(&far_tcp, 4, 9, 100021, 2, "tcp"), "");
}

static void test_scope_stays_home(void **state)
{
	struct fake_caller link_local = { &loop, "[fe80::9%lo]:700", "[fe80::1%lo]:111", HF_RPC_TCP };

	assert_string_equal(get(&link_local, 4, 3, 100021, 4, "tcp6"), "fe80::1.8.1");
}

static void test_set34(void **state)
{
	for (uint32_t v = 3; v <= 4; v++) {
		assert_int_equal(change(&local_tcp, v, 1, 7, v, "tcp6", "::.2.188"), 1);
		assert_int_equal(change(&local_tcp6, v, 1, 7, v, "tcp", "0.0.0.0.2.188"), 1);
		assert_int_equal(change(&local_tcp, v, 1, 7, v, "tcp", "0.0.0.0.2.188"), 1);
		assert_int_equal(change(&local_tcp, v, 1, 7, v, "tcp", "0.0.0.0.2.189"), 0);
		assert_int_equal(change(&local_tcp, v, 1, 8, v, "tcp", "0.0.0.0.0.0"), 0);
		assert_int_equal(change(&local_tcp, v, 1, 8, v, "tcp", "::.2.188"), 0);
		assert_int_equal(change(&local_tcp, v, 1, 8, v, "tcp", "blah"), 0);
		assert_int_equal(change(&local_tcp, v, 1, 8, v, "tcp", ""), 0);
		assert_int_equal(change(&local_tcp, v, 1, 8, v, "local", "/run/x"), 0);
		assert_int_equal(change(&local_tcp, v, 1, 100021, 5, "tcp", "0.0.0.0.2.188"), 0);
		assert_int_equal(change(&local_tcp, v, 1, 100000, 4, "tcp", "0.0.0.0.0.111"), 0);
		assert_string_equal(get(&far_tcp, v, 3, 7, v, ""), "192.0.2.1.2.188");

		assert_int_equal(change(&local_user, v, 2, 7, v, "tcp", ""), 0);
		assert_int_equal(change(&local_tcp, v, 2, 7, v, "nonsense", ""), 1);
		assert_int_equal(change(&local_tcp, v, 2, 7, v, "tcp", ""), 1);
		assert_string_equal(get(&far_tcp, v, 9 - 6 * (v == 3), 7, v, ""), "");
		assert_string_equal(get(&far_tcp6, v, 3, 7, v, ""), "2001:db8::1.2.188");
		assert_int_equal(change(&local_tcp, v, 2, 7, v, "", ""), 1);
		assert_string_equal(get(&far_tcp6, v, 3, 7, v, ""), "");
		assert_int_equal(change(&local_tcp, v, 2, 100021, 4, "", ""), 0);
		assert_int_equal(change(&local_tcp, v, 2, 100000, v, "tcp", ""), 0);
	}
	assert_int_equal(rpcbind.mappings.n_foreign, 0);
	assert_int_equal(rpcbind.n_refused, 2); /* the user's UNSET, in each version */
}

/* Strangers get FALSE, whatever they claim. */
static void test_set_from_elsewhere(void **state)
{
	struct fake_caller forged = { &loop, "127.0.0.1:700", "192.0.2.1:111", HF_RPC_UDP };
	struct fake_caller own = { &loop, "192.0.2.1:700", "192.0.2.1:111", HF_RPC_UDP };
	const struct fake_caller *const strangers[] = { &far_tcp, &far_udp, &far_tcp6, &forged, &own };
	size_t before = rpcbind.mappings.n;

	assert_int_equal(ask_pmap(&local_udp, 1, 9, 1, IPPROTO_UDP, 700), 1);
	for (size_t i = 0; i < HF_ARRAY_SIZE(strangers); i++) {
		assert_int_equal(ask_pmap(strangers[i], 1, 7, 1, IPPROTO_UDP, 700), 0);
		assert_int_equal(ask_pmap(strangers[i], 2, 9, 1, IPPROTO_UDP, 700), 0);
		assert_int_equal(change(strangers[i], 3, 1, 7, 1, "udp", "0.0.0.0.2.188"), 0);
		assert_int_equal(change(strangers[i], 4, 1, 7, 1, "udp", "0.0.0.0.2.188"), 0);
		assert_int_equal(change(strangers[i], 4, 2, 9, 1, "", ""), 0);
	}
	assert_int_equal(rpcbind.n_refused, 5 * HF_ARRAY_SIZE(strangers));
	assert_int_equal(rpcbind.mappings.n, before + 1);
}

/* Reserved ports and the superuser's mappings are out of an unprivileged process's reach, in every version.
 */
static void test_what_a_user_may_not(void **state)
{
	assert_int_equal(ask_pmap(&local_user, 1, 7, 1, IPPROTO_TCP, 700), 0);
	assert_int_equal(ask_pmap(&local_user, 1, 7, 1, IPPROTO_TCP, 2049), 0);
	assert_int_equal(change(&local_user, 3, 1, 7, 1, "tcp", "0.0.0.0.2.188"), 0);
	assert_int_equal(change(&local_user, 4, 1, 7, 1, "tcp6", "::.3.255"), 0);
	assert_int_equal(rpcbind.n_refused, 4);
	assert_int_equal(ask_pmap(&local_user, 1, 7, 1, IPPROTO_TCP, 1024), 1);
	assert_int_equal(ask_pmap(&local_tcp, 1, 8, 1, IPPROTO_TCP, 700), 1);
	assert_int_equal(ask_pmap(&local_user, 1, 8, 1, IPPROTO_TCP, 7000), 0); /* taken */
	assert_int_equal(ask_pmap(&local_user, 2, 8, 1, 0, 0), 0);
	assert_int_equal(ask_pmap(&far_udp, 3, 8, 1, IPPROTO_TCP, 0), 700);
	assert_int_equal(ask_pmap(&local_user, 2, 7, 1, 0, 0), 1);
	assert_int_equal(rpcbind.n_refused, 5);
}

static size_t n_refused_places(void)
{
	size_t n = 0;

	for (size_t i = 0; i < HF_RPCBIND_N_REFUSED; i++)
		n += rpcbind.refused[i].until > fake_world_now(world);
	return n;
}

/* A host is told of once an hour, and many forged ones do not fill the log. */
static void test_refusals_are_told_rarely(void **state)
{
	char peer[32];
	struct fake_caller caller = far_udp;

	for (int i = 0; i < 5; i++)
		ask_pmap(&far_udp, 1, 7, 1, IPPROTO_UDP, 700);
	assert_int_equal(n_refused_places(), 1);
	caller.peer = peer;
	for (int i = 0; i < 200; i++) {
		snprintf(peer, sizeof(peer), "198.51.100.%d:700", i);
		ask_pmap(&caller, 1, 7, 1, IPPROTO_UDP, 700);
	}
	assert_int_equal(n_refused_places(), HF_RPCBIND_N_REFUSED);
	for (size_t i = 0; i < HF_RPCBIND_N_REFUSED; i++) /* a later caller has no place, and no line */
		assert_true(rpcbind.refused[i].host.ip[0] == 192 || rpcbind.refused[i].host.ip[3] < 15);
	fake_world_advance(world, 3601 * UINT64_C(1000000000));
	assert_int_equal(n_refused_places(), 0);
	ask_pmap(&far_udp, 1, 7, 1, IPPROTO_UDP, 700);
	assert_int_equal(n_refused_places(), 1);
	assert_int_equal(rpcbind.n_refused, 206);
}

static size_t dump34(const struct fake_caller *caller, uint32_t version)
{
	pm_rpcblist_ptr list = NULL;
	size_t n = 0;

	ask(caller, version, 4, NULL, 0);
	assert_int_equal(reply.stat, HF_RPC_SUCCESS);
	assert_true(oracle_decode(reply.data, reply.len, (xdrproc_t)xdr_pm_rpcblist_ptr, &list));
	for (struct pm_rpcblist *p = list; p; p = p->rpcb_next)
		n++;
	if (list) {
		assert_string_equal(list->rpcb_map.r_addr, "0.0.0.0.0.111");
		assert_string_equal(list->rpcb_map.r_owner, "holdfast");
	}
	oracle_free((xdrproc_t)xdr_pm_rpcblist_ptr, &list);
	return n;
}

static void test_dump34(void **state)
{
	/* portmap 2 on two transports, 3 and 4 on four; NLM 3 versions on four */
	assert_int_equal(dump34(&far_tcp, 3), 22);
	assert_int_equal(dump34(&far_udp, 4), 22);
}

static void test_dump_at_the_limit(void **state)
{
	char uaddr[64];
	size_t n;

	for (unsigned int i = 0; i < HF_MAPPINGS_MAX_FOREIGN; i++) {
		snprintf(uaddr, sizeof(uaddr), "2001:db8:1111:2222:3333:4444:5555:%x.255.255", 0x1000 + i);
		assert_int_equal(change(&local_tcp, 4, 1, 5000 + i, 1, "udp6", uaddr), 1);
	}
	assert_int_equal(change(&local_tcp, 4, 1, 9999, 1, "udp6", "::.2.188"), 0);
	assert_int_equal(dump34(&far_tcp, 4), 22 + HF_MAPPINGS_MAX_FOREIGN);
	n = dump34(&far_udp, 4);
	assert_true(n > 60 && n < 200);
	assert_true(reply.len <= HF_RPCBIND_MAX_UDP);
	assert_true(reply.len > HF_RPCBIND_MAX_UDP - 2 * HF_RPCB_ELEMENT);
}

static void test_dump2_at_the_limit(void **state)
{
	for (uint32_t i = 0; i < HF_MAPPINGS_MAX_FOREIGN; i++)
		assert_int_equal(ask_pmap(&local_tcp, 1, 5000 + i, 1, IPPROTO_TCP, 700), 1);
	assert_int_equal(ask_pmap(&local_tcp, 1, 9999, 1, IPPROTO_TCP, 700), 0);
	assert_int_equal(dump2(&far_tcp, NULL), 12 + HF_MAPPINGS_MAX_FOREIGN);
	assert_true(dump2(&far_udp, NULL) > 400);
	assert_true(reply.len <= HF_RPCBIND_MAX_UDP);
}

static void test_gettime(void **state)
{
	ask(&far_udp, 3, 6, NULL, 0);
	assert_int_equal(result_u32(), 1700000000);
}

static const char *to_uaddr(const struct fake_caller *caller, const void *args, size_t len)
{
	static char text[PM_MAX_UADDR + 1];
	pm_uaddr uaddr = NULL;

	ask(caller, 4, 8, args, len);
	assert_int_equal(reply.stat, HF_RPC_SUCCESS);
	assert_true(oracle_decode(reply.data, reply.len, (xdrproc_t)xdr_pm_uaddr, &uaddr));
	snprintf(text, sizeof(text), "%s", uaddr);
	oracle_free((xdrproc_t)xdr_pm_uaddr, &uaddr);
	return text;
}

static void test_translations(void **state)
{
	static const struct {
		const struct fake_caller *caller;
		const char *uaddr;
		bool ok;
	} cases[] = {
		{ &far_udp, "192.0.2.3.8.1", true },
		{ &far_tcp6, "2001:db8::3.0.111", true },
		{ &far_udp, "2001:db8::3.8.1", false },
		{ &far_tcp6, "192.0.2.3.8.1", false },
		{ &far_udp, "", false },
		{ &far_udp, "1.2.3.4.5.6.7.8", false },
		{ &far_udp, "a.b.c.d.e.f", false },
	};

	for (size_t i = 0; i < HF_ARRAY_SIZE(cases); i++) {
		pm_uaddr uaddr = oracle_text(cases[i].uaddr);
		struct pm_netbuf netbuf = { 0 };
		uint8_t args[256];
		size_t len = oracle_encode(args, sizeof(args), (xdrproc_t)xdr_pm_uaddr, &uaddr);

		ask(cases[i].caller, 4, 7, args, len);
		assert_int_equal(reply.stat, HF_RPC_SUCCESS);
		assert_true(oracle_decode(reply.data, reply.len, (xdrproc_t)xdr_pm_netbuf, &netbuf));
		assert_int_equal(netbuf.buf.buf_len > 0, cases[i].ok);
		len = oracle_encode(args, sizeof(args), (xdrproc_t)xdr_pm_netbuf, &netbuf);
		assert_string_equal(to_uaddr(cases[i].caller, args, len), cases[i].ok ? uaddr : "");
		oracle_free((xdrproc_t)xdr_pm_netbuf, &netbuf);
	}
}

static void test_getaddrlist(void **state)
{
	pm_entrylist_ptr list = NULL;
	uint8_t args[256];
	size_t len = rpcb_args(args, sizeof(args), 100021, 4, "", "");

	ask(&far_tcp6, 4, 11, args, len);
	assert_true(oracle_decode(reply.data, reply.len, (xdrproc_t)xdr_pm_entrylist_ptr, &list));
	assert_string_equal(list->rpcb_entry_map.r_nc_netid, "udp6");
	assert_string_equal(list->rpcb_entry_map.r_maddr, "2001:db8::1.8.1");
	assert_string_equal(list->rpcb_entry_next->rpcb_entry_map.r_nc_netid, "tcp6");
	assert_string_equal(list->rpcb_entry_next->rpcb_entry_map.r_nc_protofmly, "inet6");
	assert_null(list->rpcb_entry_next->rpcb_entry_next);
	oracle_free((xdrproc_t)xdr_pm_entrylist_ptr, &list);

	list = NULL;
	len = rpcb_args(args, sizeof(args), 100021, 2, "", ""); /* that version is not there */
	ask(&far_tcp, 4, 11, args, len);
	assert_true(oracle_decode(reply.data, reply.len, (xdrproc_t)xdr_pm_entrylist_ptr, &list));
	assert_null(list);
}

static void test_getstat(void **state)
{
	struct pm_stat_byvers stat = { 0 };

	ask_pmap(&local_udp, 1, 7, 1, IPPROTO_UDP, 700);
	ask_pmap(&local_udp, 1, 7, 1, IPPROTO_UDP, 701);
	get(&far_tcp, 4, 3, 100021, 4, "");
	change(&local_tcp, 4, 2, 7, 1, "", "");
	ask(&far_tcp, 4, 12, NULL, 0);
	assert_true(oracle_decode(reply.data, reply.len, (xdrproc_t)xdr_pm_stat_byvers, &stat));
	assert_int_equal(stat.v2.info[1], 2);
	assert_int_equal(stat.v2.setinfo, 1);
	assert_int_equal(stat.v4.info[3], 1);
	assert_int_equal(stat.v4.info[2], 1);
	assert_int_equal(stat.v4.unsetinfo, 1);
	assert_int_equal(stat.v4.info[12], 1);
	assert_null(stat.v4.addrinfo);
	oracle_free((xdrproc_t)xdr_pm_stat_byvers, &stat);
}

/* Arguments that end early, lengths that lie, strings that are too long or hold a NUL. */
static void test_garbage(void **state)
{
	static const uint32_t with_args[][2] = { { 2, 1 }, { 2, 2 }, { 2, 3 }, { 3, 1 }, { 3, 2 },
						 { 3, 3 }, { 3, 7 }, { 3, 8 }, { 4, 1 }, { 4, 2 },
						 { 4, 3 }, { 4, 7 }, { 4, 8 }, { 4, 9 }, { 4, 11 } };
	uint8_t args[1024];

	for (size_t i = 0; i < HF_ARRAY_SIZE(with_args); i++) {
		uint32_t v = with_args[i][0], p = with_args[i][1];

		ask(&local_tcp, v, p, NULL, 0);
		assert_int_equal(reply.stat, HF_RPC_GARBAGE_ARGS);
		ask(&local_tcp, v, p, args, 3);
		assert_int_equal(reply.stat, HF_RPC_GARBAGE_ARGS);
		if (v == 2)
			continue;
		memset(args, 0xff, sizeof(args)); /* lengths of 2^32-1 */
		ask(&local_tcp, v, p, args, sizeof(args));
		assert_int_equal(reply.stat, HF_RPC_GARBAGE_ARGS);
	}
	struct hf_xdr_out out;

	hf_xdr_out_init(&out, args, sizeof(args));
	hf_rpcb_put(&out, &(struct hf_rpcb){ 7, 1, hf_bytes_of("tcp\0", 4), hf_bytes_of_str("0.0.0.0.8.1") });
	ask(&local_tcp, 4, 1, args, (size_t)(out.p - args));
	assert_int_equal(reply.stat, HF_RPC_GARBAGE_ARGS);
	assert_int_equal(rpcbind.mappings.n_foreign, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_null),
		TEST(test_holes),
		TEST(test_getport),
		TEST(test_set2),
		TEST(test_dump2),
		TEST(test_getaddr),
		TEST(test_getaddr_by_transport),
		TEST(test_getversaddr),
		TEST(test_scope_stays_home),
		TEST(test_set34),
		TEST(test_set_from_elsewhere),
		TEST(test_what_a_user_may_not),
		TEST(test_refusals_are_told_rarely),
		TEST(test_dump34),
		TEST(test_dump_at_the_limit),
		TEST(test_dump2_at_the_limit),
		TEST(test_gettime),
		TEST(test_translations),
		TEST(test_getaddrlist),
		TEST(test_getstat),
		TEST(test_garbage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
