/*
 * The protocols, and how the clients of each come back after a restart of the server.
 *
 *	told        NLM, NSM: the client holds no connection. It is told of the restart
 *	            (notifier.c), and reclaims while grace lasts. What it has not
 *	            reclaimed goes when grace ends.
 *	reconnects  SMB: the client lives by its connection, which the restart has cut.
 *	            Nothing is sent to it. What was loaded of it outlives grace: it may
 *	            reconnect and reclaim within the window of its protocol
 *	            (recovery.smb_durable_seconds). If it is not back by then, it has
 *	            crashed; if it is, what it has not reclaimed goes.
 *
 * src/client gives such a client the same window whenever it loses its connection
 * (client.h).
 */
#include <assert.h>

#include "base/error.h"
#include "recovery/internal.h"

static const struct hf_recovery_protocol defaults[] = {
	{ .name = "nlm", .is_told = true, .window_ns = UINT64_MAX },
	{ .name = "nsm", .is_told = true, .window_ns = UINT64_MAX },
};

void hf_protocols_init(struct hf_recovery *recovery)
{
	const struct hf_recovery_options *options = &recovery->options;
	const struct hf_recovery_protocol *given = options->n_protocols ? options->protocols : defaults;
	size_t n = options->n_protocols ? options->n_protocols : HF_ARRAY_SIZE(defaults);

	assert(n <= HF_RECOVERY_MAX_PROTOCOLS);
	for (size_t i = 0; i < n; i++) {
		struct hf_protocol *protocol = &recovery->protocols[i];

		protocol->rules = given[i];
		if (protocol->rules.window_ns == UINT64_MAX)
			protocol->rules.window_ns = options->window_ns;
	}
	recovery->n_protocols = n;
}

struct hf_protocol *hf_protocols_find(struct hf_recovery *recovery, struct hf_bytes name)
{
	for (size_t i = 0; i < recovery->n_protocols; i++)
		if (hf_bytes_equal(hf_bytes_of_str(recovery->protocols[i].rules.name), name))
			return &recovery->protocols[i];
	return NULL;
}

int hf_protocols_set_windows(struct hf_recovery *recovery)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < recovery->n_protocols; i++)
		r = hf_clients_set_window(recovery->clients, recovery->protocols[i].rules.name,
					  recovery->protocols[i].rules.window_ns);
	return hf_trace(r);
}

void hf_protocols_change(struct hf_recovery *recovery, const struct hf_recovery_options *options)
{
	recovery->options.window_ns = options->window_ns;
	for (size_t i = 0; i < options->n_protocols; i++)
		recovery->options.protocols[i].window_ns = options->protocols[i].window_ns;
	hf_protocols_init(recovery);
	(void)hf_protocols_set_windows(recovery); /* there is one for each already */
}

void hf_protocols_join(struct hf_recovery *recovery, struct hf_client *client)
{
	struct hf_protocol *protocol = hf_protocols_find(recovery, hf_bytes_of_str(client->protocol));

	assert(protocol); /* a client is of a protocol that this server speaks */
	client->recovery->protocol = protocol;
	client->locking.outlives_grace = !protocol->rules.is_told;
}

/* The next registered client of a protocol whose clients reconnect; as hf_clients_next(). */
static struct hf_client *next_reconnecting(struct hf_recovery *recovery, uint64_t *serialp)
{
	struct hf_client *client;

	while ((client = hf_clients_next(recovery->clients, *serialp))) {
		*serialp = client->serial;
		if (!client->recovery->protocol->rules.is_told && hf_client_is_registered(client))
			return client;
		hf_client_unref(client);
	}
	return NULL;
}

uint64_t hf_protocols_grace_ns(struct hf_recovery *recovery, bool is_open)
{
	struct hf_client *client;
	uint64_t longest = 0, serial = 0;

	for (size_t i = 0; i < recovery->n_protocols; i++)
		if (recovery->protocols[i].rules.is_told)
			longest = HF_MAX(longest, recovery->protocols[i].rules.window_ns);
	while (is_open && (client = next_reconnecting(recovery, &serial))) {
		longest = HF_MAX(longest, client->recovery->protocol->rules.window_ns);
		hf_client_unref(client);
	}
	return longest;
}

void hf_protocols_start(struct hf_recovery *recovery, bool is_open)
{
	struct hf_client *client;
	uint64_t serial = 0;

	while ((client = next_reconnecting(recovery, &serial))) {
		if (!hf_lock_client_is_idle(&client->locking))
			hf_client_disconnected(client);
		else if (is_open) /* it may reclaim what the store does not know of */
			hf_client_pin(client, true);
		hf_client_unref(client);
	}
}

void hf_recovery_set_teller(struct hf_recovery *recovery, const char *name,
			    const struct hf_recovery_teller *teller)
{
	struct hf_protocol *protocol = hf_protocols_find(recovery, hf_bytes_of_str(name));

	assert(protocol && protocol->rules.is_told);
	protocol->teller = teller ? *teller : (struct hf_recovery_teller){ 0 };
}
