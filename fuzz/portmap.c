/*
 * Any bytes as calls of the embedded rpcbind, one after the other, every version
 * and procedure from every sort of caller; or as what a system's rpcbind answers.
 *
 * A call: version, procedure, caller, length of its arguments (2 bytes), these.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "proto/portmap/registrar_internal.h"
#include "proto/portmap/rpcbind.h"

#include "fake_rpcbind.h"
#include "standin/fake_world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct hf_rpc_version nlm_versions[] = { { .version = 1 }, { .version = 4 } };
static const struct hf_rpc_program nlm = {
	.program = 100021, .name = "nlm", .n_versions = 2, .versions = nlm_versions
};

static struct hf_loop *loop;
static struct fake_reply reply;

static const struct {
	const char *peer;
	const char *local;
	enum hf_rpc_transport transport;
	bool is_local;
} callers[] = {
	{ "127.0.0.1:700", "127.0.0.1:111", HF_RPC_UDP, true },
	{ "127.0.0.1:40000", "127.0.0.1:111", HF_RPC_TCP, true },
	{ "[::1]:700", "[::1]:111", HF_RPC_TCP, true },
	{ "192.0.2.9:700", "192.0.2.1:111", HF_RPC_UDP, false },
	{ "[2001:db8::9]:700", "[2001:db8::1]:111", HF_RPC_UDP, false },
	{ "127.0.0.1:700", "192.0.2.1:111", HF_RPC_TCP, false },
};

static void must(bool truth)
{
	if (!truth)
		abort();
}

static void must_be_sound(const struct hf_mappings *mappings, size_t n_ours)
{
	must(mappings->n_foreign <= HF_MAPPINGS_MAX_FOREIGN);
	must(mappings->n == n_ours + mappings->n_foreign);
	for (size_t i = 0; i < mappings->n; i++) {
		const struct hf_mapping *mapping = &mappings->all[i];

		must(mapping->netid < HF_N_NETIDS && mapping->addr.port != 0);
		must(mapping->addr.family == hf_netid_info(mapping->netid)->family);
		must(mapping->owner == HF_OWNER_US || mapping->program != nlm.program);
	}
}

static void call_one(struct hf_rpcbind *rpcbind, const uint8_t *head, const uint8_t *args, size_t len)
{
	size_t c = head[2] % HF_ARRAY_SIZE(callers);
	struct fake_caller caller = { &loop, callers[c].peer, callers[c].local, callers[c].transport };
	size_t before = rpcbind->mappings.n;

	fake_call(&reply, &hf_rpcbind_program, rpcbind, &caller, 2 + head[0] % 3, head[1], args, len);
	must(callers[c].is_local || rpcbind->mappings.n == before);
	must(callers[c].transport == HF_RPC_TCP || reply.len <= HF_RPCBIND_MAX_UDP);
}

static void serve(const uint8_t *data, size_t size)
{
	struct hf_rpcbind rpcbind;
	size_t n_ours;

	hf_rpcbind_init(&rpcbind);
	hf_rpcbind_offer(&rpcbind, &hf_rpcbind_program, HF_NETIDS_ALL, 111);
	hf_rpcbind_offer(&rpcbind, &nlm, HF_NETIDS_ALL, 2049);
	n_ours = rpcbind.mappings.n;
	while (size >= 5) {
		const uint8_t *head = data;
		size_t len = HF_MIN((size_t)head[3] << 8 | head[4], size - 5);

		call_one(&rpcbind, head, data + 5, len);
		must_be_sound(&rpcbind.mappings, n_ours);
		data += 5 + len;
		size -= 5 + len;
	}
	hf_rpcbind_deinit(&rpcbind);
}

static void no_round(void *user, const struct hf_registrar_report *report)
{
}

static void read_dump(uint32_t version, const uint8_t *data, size_t size)
{
	hf_cleanup(hf_registrar_freep) struct hf_registrar *registrar = NULL;
	uint8_t *exact = malloc(size ? size : 1);
	struct hf_xdr_in in;

	must(exact && hf_registrar_new(&registrar, loop, NULL, 111, no_round, NULL) == 0);
	for (int i = 0; i < HF_N_NETIDS; i++)
		hf_registrar_add(registrar, 100021, 4, (enum hf_netid)i, 2049);
	if (size)
		memcpy(exact, data, size);
	hf_xdr_in_init(&in, exact, size);
	registrar->version = version;
	hf_registrar_read_dump(registrar, &in);
	for (size_t i = 0; i < registrar->n_items; i++)
		must(memchr(registrar->items[i].holder_owner, '\0',
			    sizeof(registrar->items[i].holder_owner)) != NULL);
	free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!loop) {
		must(fake_loop_new_alone(&loop) == 0);
		hf_log_configure(HF_LOG_ERROR, HF_LOG_TEXT);
	}
	if (size < 1)
		return 0;
	switch (data[0]) {
	case 2:
	case 4:
		read_dump(data[0], data + 1, size - 1);
		break;
	default:
		serve(data + 1, size - 1);
		break;
	}
	return 0;
}
