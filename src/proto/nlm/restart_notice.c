/*
 * FREE_ALL, by which a client says that it has started anew and holds nothing; and procedure 16 (SM_NOTIFY),
 * by which a statd on this host says that of another host. Only a client's own address, or root of this host,
 * is believed. A call that may be forged is checked first: the client's host may deny it (proto/nsm/doubt.c).
 * A call that its host denies is served anew when it comes again: a forger may have sent the very call that
 * the client sends when it is restarted. A client of an export that demands TLS must have connected anew
 * (proto/nsm/proof.c).
 */
#include <string.h>

#include "proto/nlm/durable_reply.h"
#include "proto/nlm/internal.h"
#include "proto/nsm/nsm.h"
#include "rpc/client.h"

static bool is_named(const struct hf_client *client, struct hf_bytes name)
{
	return strcmp(client->protocol, HF_NLM_PROTOCOL) == 0 &&
	       hf_bytes_equal(hf_bytes_of_str(client->name), name);
}

/* False: the client sends the call again. */
static bool has_proof(const struct hf_nlm_op *op, struct hf_client *client)
{
	if (hf_nsm_has_proof(op->nlm->monitor, op->call, client))
		return true;
	hf_nsm_note_unproven(op->nlm->monitor, op->call, client);
	return false;
}

/* Resumed: the client's host has answered. */
static void go_on(struct hf_nlm_op *op)
{
	struct hf_recovery *recovery = op->nlm->options.recovery;
	hf_cleanup(hf_client_unrefp) struct hf_client *client = hf_client_ref(op->checking.client);
	enum hf_nsm_verdict verdict = op->checking.verdict;

	/* It may have taken its first lock while its host was asked. */
	if (verdict == HF_NSM_BELIEVED && !has_proof(op, client)) {
		hf_nlm_op_drop(op);
		return;
	}
	if (verdict != HF_NSM_BELIEVED)
		hf_nsm_note_denied(op->nlm->monitor, op->call, op->args.caller, op->args.state,
				   verdict == HF_NSM_DENIED);
	if (verdict == HF_NSM_UNSURE) {
		hf_nlm_op_drop(op); /* the client sends it again */
		return;
	}
	/* The client may have said the number itself while its host was asked: then this call is a copy. */
	if (verdict == HF_NSM_BELIEVED && op->checking.is_new_restart) {
		if (hf_recovery_is_new_restart(recovery, client, op->args.state))
			hf_recovery_client_was_freed(recovery, client, op->args.state);
	} else if (verdict == HF_NSM_BELIEVED)
		hf_recovery_client_freed(recovery, client, op->args.state);
	/* A call that is denied may be a copy of one that was believed, and is not stored yet. */
	if (verdict == HF_NSM_DENIED && !hf_recovery_is_state_unstored(client) &&
	    hf_recovery_can_promise(recovery)) {
		hf_rpc_call_uncache(op->call);
		hf_rpc_reply_void(op->call); /* it stays counted as denied */
		hf_nlm_op_end(op);
	} else {
		hf_nlm_reply_restart(op);
	}
}

static void on_verdict(struct hf_nsm_asker *asker, struct hf_client *client, enum hf_nsm_verdict verdict)
{
	struct hf_nlm_op *op = hf_container_of(asker, struct hf_nlm_op, checking.asker);

	op->checking.client = client;
	op->checking.verdict = verdict;
	hf_nlm_op_resume(op);
}

static void check(struct hf_nlm_op *op, struct hf_client *client)
{
	int32_t state = op->args.state;

	if (!hf_nlm_op_can_suspend(op)) {
		hf_nlm_op_drop(op);
		return;
	}
	op = hf_nlm_op_suspend(op, HF_NLM_CHECKING, go_on);
	if (!op)
		return;
	memset(&op->checking, 0, sizeof(op->checking));
	op->checking.asker.fn = on_verdict;
	hf_link_init(&op->checking.asker.link);
	op->checking.is_new_restart = hf_recovery_is_new_restart(op->nlm->options.recovery, client, state);
	if (hf_nsm_doubt(op->nlm->monitor, op->call, client, state, &op->checking.asker) < 0)
		on_verdict(&op->checking.asker, client, HF_NSM_UNSURE);
}

/* Root of this host speaks of every client of that name; a client speaks of itself. */
static void free_named(const struct hf_nlm_op *op)
{
	struct hf_nlm *nlm = op->nlm;
	struct hf_client *client = NULL;

	while ((client = hf_clients_next_named(nlm->clients, op->args.caller, client)))
		if (is_named(client, op->args.caller))
			hf_recovery_client_freed(nlm->options.recovery, client, op->args.state);
}

void hf_nlm_run_free_all(struct hf_nlm_op *op)
{
	struct hf_nlm *nlm = op->nlm;
	hf_cleanup(hf_client_unrefp) struct hf_client *client = hf_nlm_find_caller(op);

	if (nlm->monitor && hf_nsm_refuses_port(nlm->monitor, op->call)) {
		hf_nlm_op_end(op);
		return;
	}
	if (client && nlm->monitor && !has_proof(op, client)) {
		hf_nlm_op_drop(op);
		return;
	}
	if (client && nlm->monitor && !hf_nsm_is_trusted(nlm->monitor, op->call, client)) {
		check(op, client);
		return;
	}
	if (client)
		hf_recovery_client_freed(nlm->options.recovery, client, op->args.state);
	else if (nlm->monitor)
		hf_nsm_note_free_all(nlm->monitor, hf_rpc_call_peer(op->call), op->args.caller,
				     op->args.state);
	if (hf_rpc_client_is_superuser(nlm->options.client, op->call))
		free_named(op);
	hf_nlm_reply_restart(op);
}

static bool parse_address(struct hf_addr *addressp, struct hf_bytes name)
{
	char text[HF_ADDR_TEXT];

	if (name.len >= sizeof(text))
		return false;
	memcpy(text, name.data, name.len);
	text[name.len] = '\0';
	return hf_addr_parse(addressp, text);
}

/* The name is the one that the statd was asked to watch: an address, or a caller_name. */
static void note_reboot(const struct hf_nlm_op *op)
{
	struct hf_nlm *nlm = op->nlm;
	struct hf_bytes name = op->args.caller;
	struct hf_client *client = NULL;
	struct hf_addr address;

	while ((client = hf_clients_next_named(nlm->clients, name, client)))
		if (is_named(client, name))
			hf_recovery_client_rebooted(nlm->options.recovery, client, op->args.state);
	if (!parse_address(&address, name))
		return;
	while ((client = hf_clients_next_at(nlm->clients, &address, client)))
		if (strcmp(client->protocol, HF_NLM_PROTOCOL) == 0 && !is_named(client, name))
			hf_recovery_client_rebooted(nlm->options.recovery, client, op->args.state);
}

void hf_nlm_run_sm_notify(struct hf_nlm_op *op)
{
	if (!hf_rpc_client_is_superuser(op->nlm->options.client, op->call)) {
		hf_rpc_reply_auth_error(op->call, HF_RPC_AUTH_TOOWEAK);
		hf_nlm_op_end(op);
		return;
	}
	note_reboot(op);
	hf_nlm_reply_restart(op);
}
