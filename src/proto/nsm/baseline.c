/*
 * The baseline of a client: what does its host say of itself when the client takes its first
 * lock? A later notice may say that the host was restarted while its statd gives an old number.
 * Then doubt.c compares the host's answers with the baseline.
 *
 * The server asks in the background, a few hosts at a time; no lock waits for an answer. It
 * asks again if the client had given up all its locks and some time has passed: a host that
 * unmounts everything stops its lock manager, which has another port when it starts again.
 * After a restart of the server it asks when the client reclaims. Before that the server
 * cannot tell whether this host still is the one that had the stored locks.
 */
#include <stdlib.h>

#include "proto/nsm/internal.h"

#define MAX_ASKED 32 /* hosts at a time; a silent one has up to three sockets */
#define AGAIN_NS  (300 * HF_NS_PER_S)

/* The host may restart while a call or an answer is under way. After a longer time an answer proves nothing
 * about the call. A call that waited in a socket while the server stood still may be as old. */
#define PROMPT_NS (2 * HF_NS_PER_S)

/* A host that is up answers by then, before the server asks again. A host that answers later may have been
 * down when the call came: a copy of a call, or a forged one, can come while its sender boots. */
#define AT_ONCE_NS (250 * HF_NS_PER_MS)

struct hf_nsm_baseline {
	struct hf_link link; /* of nsm->unasked, or of nsm->baselines */
	struct hf_nsm *nsm;
	struct hf_client *client;       /* no reference: the baseline ends with the registration */
	struct hf_nsm_inquiry *inquiry; /* NULL: not under way */
	struct hf_nsm_facts facts;
	bool is_late;                 /* the facts came so late that they may be of the host's next life */
	int32_t said;                 /* the state number in the client's call */
	bool is_said_by_lock_manager; /* the call came over TCP from a reserved port, see trust.c */
	uint64_t called_at, asked_at, again_at; /* monotonic ns */
};

static void ask_some(struct hf_nsm *nsm);

static void stop(struct hf_nsm_baseline *baseline)
{
	if (!baseline->inquiry)
		return;
	baseline->inquiry = hf_nsm_ask_cancel(baseline->inquiry);
	baseline->nsm->n_asking--;
}

/* The statd gives the number that the server has; or the number in the client's LOCK, while the server has
 * another one that a forged datagram may have given. That number would make the client's next one look old.
 */
static void prove_number(struct hf_nsm_baseline *baseline)
{
	struct hf_client *client = baseline->client;

	if (hf_nsm_baseline_says(client, client->sm_state))
		hf_recovery_client_proves(client, true);
	else if (!client->is_state_proven && hf_nsm_baseline_says(client, baseline->said))
		hf_recovery_client_began(baseline->nsm->options.recovery, client, baseline->said);
}

/* A look-up asks over the other transport as well after a quarter of the time that it has. */
static uint64_t at_once(const struct hf_nsm *nsm)
{
	return HF_MIN(AT_ONCE_NS, nsm->options.timeout_ns / 4);
}

static void on_facts(void *user, const struct hf_nsm_facts *facts)
{
	struct hf_nsm_baseline *baseline = user;
	uint64_t now = hf_loop_now(baseline->nsm->options.loop);

	baseline->inquiry = NULL;
	baseline->nsm->n_asking--;
	if (now - baseline->asked_at < PROMPT_NS) {
		baseline->facts = *facts;
		baseline->is_late = now - baseline->called_at >= at_once(baseline->nsm);
		prove_number(baseline);
	}
	if (facts->is_answered)
		hf_client_answered(baseline->client);
	ask_some(baseline->nsm);
}

static void ask_some(struct hf_nsm *nsm)
{
	struct hf_link *link;

	while (!nsm->is_ending && nsm->n_asking < MAX_ASKED && (link = hf_list_pop_front(&nsm->unasked))) {
		struct hf_nsm_baseline *baseline = hf_list_entry(link, struct hf_nsm_baseline, link);
		const struct hf_client *client = baseline->client;
		struct hf_addr any = { 0 };
		/* A lock manager of this host registered over loopback. The peer is not reachable from that
		 * address. */
		const struct hf_addr *local = hf_nsm_is_local_watch(nsm, client) ? &any : &client->local;

		hf_list_push_back(&nsm->baselines, link);
		baseline->asked_at = hf_loop_now(nsm->options.loop);
		baseline->inquiry = hf_nsm_ask(nsm, &client->address, local, on_facts, baseline);
		nsm->n_asking += baseline->inquiry != NULL;
	}
}

static struct hf_nsm_baseline *baseline_of(struct hf_nsm *nsm, struct hf_client *client)
{
	struct hf_nsm_baseline *baseline = client->baseline;

	if (baseline)
		return baseline;
	baseline = calloc(1, sizeof(*baseline));
	if (!baseline)
		return NULL; /* the client's next lock asks */
	baseline->nsm = nsm;
	baseline->client = client;
	hf_link_init(&baseline->link);
	client->baseline = baseline;
	return baseline;
}

/* @is_by_lock_manager: @said came over TCP from a reserved port. @age: of the call. */
static void take_baseline(struct hf_nsm *nsm, struct hf_client *client, int32_t said, bool is_by_lock_manager,
			  uint64_t age)
{
	uint64_t now = hf_loop_now(nsm->options.loop);
	struct hf_nsm_baseline *baseline = client->baseline;

	if (nsm->is_ending || (baseline && now < baseline->again_at))
		return;
	baseline = baseline_of(nsm, client);
	if (!baseline)
		return;
	stop(baseline);
	baseline->facts = (struct hf_nsm_facts){ 0 };
	baseline->said = said;
	baseline->is_said_by_lock_manager = is_by_lock_manager;
	baseline->called_at = now - age;
	baseline->again_at = now + AGAIN_NS;
	hf_link_remove(&baseline->link);
	hf_list_push_back(&nsm->unasked, &baseline->link);
	ask_some(nsm);
}

void hf_nsm_take_baseline(struct hf_nsm *nsm, struct hf_client *client, int32_t said)
{
	take_baseline(nsm, client, said, false, 0);
}

/* After the host's restart its locks are those of a new run. */
void hf_nsm_baseline_forget(struct hf_client *client)
{
	struct hf_nsm_baseline *baseline = client->baseline;
	struct hf_nsm *nsm;

	if (!baseline)
		return;
	nsm = baseline->nsm;
	client->baseline = NULL;
	stop(baseline);
	hf_link_remove(&baseline->link);
	free(baseline);
	ask_some(nsm);
}

const struct hf_nsm_facts *hf_nsm_baseline_facts(const struct hf_client *client)
{
	const struct hf_nsm_baseline *baseline = client->baseline;

	return baseline && baseline->facts.statd == HF_NSM_STATD_ANSWERS ? &baseline->facts : NULL;
}

/* A Linux client puts into its locks the number that its statd gives. sm-notify may have raised the number by
 * 2 since that statd started. */
bool hf_nsm_is_number_of(int32_t said_by_statd, int32_t known)
{
	return said_by_statd == known || hf_client_is_next(known, said_by_statd);
}

bool hf_nsm_baseline_is_late(const struct hf_client *client)
{
	return client->baseline && client->baseline->is_late;
}

bool hf_nsm_baseline_says(const struct hf_client *client, int32_t state)
{
	const struct hf_nsm_facts *facts = hf_nsm_baseline_facts(client);

	return facts && state && facts->state == state;
}

static bool differs(const struct hf_nsm_facts *facts, int32_t number)
{
	return number && !hf_nsm_is_number_of(facts->state, number);
}

/* Several hosts may be behind one address, of which one has a statd that answers. A number from a datagram
 * does not decide: it may be forged. */
bool hf_nsm_baseline_is_of_another(const struct hf_client *client)
{
	const struct hf_nsm_facts *facts = hf_nsm_baseline_facts(client);
	const struct hf_nsm_baseline *baseline = client->baseline;

	return facts && differs(facts, baseline->said && baseline->is_said_by_lock_manager
					       ? baseline->said
					       : hf_client_proven_state(client));
}

bool hf_nsm_baseline_may_be_of_another(const struct hf_client *client)
{
	const struct hf_nsm_facts *facts = hf_nsm_baseline_facts(client);

	return facts &&
	       (differs(facts, client->baseline->said) || differs(facts, hf_client_life_state(client)));
}

void hf_nsm_client_begins(struct hf_nsm *nsm, struct hf_client *client, struct hf_rpc_call *call,
			  int32_t said, bool is_first)
{
	uint64_t age = hf_rpc_call_age(call);

	if (hf_rpc_call_transport(call) == HF_RPC_TCP)
		hf_client_confirm(client);
	if (is_first || !client->link)
		client->link = hf_rpc_call_link(call);
	if (hf_client_is_registered(client) && age < PROMPT_NS &&
	    !hf_loop_stood_still_lately(nsm->options.loop, PROMPT_NS))
		take_baseline(nsm, client, said, hf_nsm_is_from_lock_manager(call), age);
}

void hf_nsm_baselines_deinit(struct hf_nsm *nsm)
{
	struct hf_link *link;

	while ((link = hf_list_first(&nsm->unasked)) || (link = hf_list_first(&nsm->baselines)))
		hf_nsm_baseline_forget(hf_list_entry(link, struct hf_nsm_baseline, link)->client);
}
