/*
 * Was a client's host really restarted? Any host can send a datagram in another's name, and
 * any user of a host can send a notice in the name of that host. So the server asks the host
 * first (ask.c), at the client's address. The first line that applies gives the verdict of the
 * doubt:
 *
 *	the exchange is given up, or the monitor is freed           UNSURE     give_up_oldest()
 *	the client itself has told of this restart meanwhile        BELIEVED   judge_answer()
 *	its locks were released meanwhile, for another reason:
 *	   the statd gives the number of the notice, and it is new  BELIEVED
 *	   else                                                     UNSURE
 *	the server had no socket or memory to ask the host          UNSURE
 *	no answer, no statd, or a statd without a number            BELIEVED
 *	the statd is that of another host behind the address        BELIEVED
 *	the statd gives the number of the notice, and it is new     BELIEVED
 *
 * From here on the statd gives another number. The notice is forged; or the statd was started
 * before sm-notify raised the number, and gives the old one until it ends. The server asks the host
 * for the connection on which the client took its first lock, if there is one.
 *
 *	the host knows that connection                              DENIED     on_pulse()
 *	the host was not asked when the client took its locks:                 judge_number()
 *	   a lock manager of this host watches it                   BELIEVED
 *	   a number is proven: the statd gives it or the one before UNSURE
 *	   a number is proven, and the statd gives a third one      BELIEVED
 *	   the client has something, and a LOCK by datagram said
 *	   the number of the notice                                 UNSURE
 *	   the statd gives the number of the notice                 BELIEVED
 *	   some number is known, and the client has nothing         BELIEVED
 *	   else                                                     UNSURE
 *	its lock manager has another port now, or none              BELIEVED   judge_ports()
 *	several clients share the address                           BELIEVED, for lack of a denial
 *	they may share it, as far as datagrams tell                 UNSURE
 *	its lock manager has the same port, chosen by the system:
 *	   the host was slow to give that port at first             UNSURE, whatever the connection says
 *	   else                                                     DENIED
 *	its statd has another port now                              BELIEVED
 *	else                                                        UNSURE
 *
 * An UNSURE below the line of the connection becomes BELIEVED if the host does not know the
 * connection (on_pulse()).
 *
 * One call may get less than its doubt, by verdict_for():
 *
 *	the notice has another name      it counts if the statd gives this number now, and gave another
 *	                                 before. Else: the host is silent, or was slow to give that other
 *	                                 number, or the doubt is UNSURE: UNSURE; otherwise DENIED
 *	it is a LOCK                     DENIED if nothing but a slow first answer left it UNSURE
 *	its host has not shown its key   BELIEVED only if the statd gives this number; else UNSURE
 *	it may be a copy                 BELIEVED only by an answer that tells two lives apart. A silent
 *	                                 host: UNSURE, or DENIED if the client's own system sent it; no
 *	                                 statd, no number from before, or a statd with another port and
 *	                                 the same number: DENIED; for lack of a denial: UNSURE
 *
 * UNSURE: no reply, so the sender repeats the notice. DENIED: a reply, and nothing is released.
 *
 * Notices about one client with one number share one doubt. Doubts about one address share
 * one exchange.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "proto/nsm/internal.h"
#include "rpc/probe.h"

#define MAX_EXCHANGES 512 /* under way; an exchange with a silent host uses up to three sockets */
#define MAX_DOUBTS    32  /* in one exchange */
#define MAX_ASKERS    64  /* in one doubt */
#define MAX_WEIGHED   16  /* exchanges to look at before one is given up */

/* As a rule the system chooses ports from here up, and an administrator those below: so on Linux, BSD and
 * macOS. */
#define FIRST_CHOSEN_PORT 32768

struct exchange {
	struct hf_link link; /* of nsm->exchanges */
	struct hf_hash_node node;
	struct hf_nsm *nsm;
	struct hf_addr host; /* port 0 */
	struct hf_nsm_inquiry *inquiry;
	struct hf_list doubts;
	size_t n_doubts;
};

struct hf_nsm_doubt {
	struct hf_link link; /* of exchange->doubts, then of nsm->doubts */
	struct hf_hash_node node;
	struct hf_nsm *nsm;
	struct hf_client *client; /* a reference */
	int32_t state;
	bool was_new_restart; /* when the first notice came, its number was new */
	bool is_untold;   /* the ports of a shared address do not tell: the notice is believed for lack of a
			     denial */
	bool is_shown;    /* ports or connections show that the host was restarted */
	bool is_by_statd; /* nothing but the port of its statd shows it */
	bool is_open; /* the same port would deny the notice, but the host was slow to give it at first: if
			 it was down, it gave the port of the life that sends the notice */
	uint64_t n_crashes; /* of the client, at that time */
	struct hf_rpc_call *call;
	uint64_t deadline;
	struct hf_nsm_facts facts;
	struct hf_rpc_probe *probe;
	struct hf_list askers;
	size_t n_askers;
};

/* Verdicts */

/* Which number is certain? A lock manager of this host that watches a peer has heard of the last one, also in
 * an earlier run: only notices give a watch its number. It may have registered again since the peer's
 * restart, so what the statd gave then is not what it knows. */
static int32_t certain_number(const struct hf_nsm_doubt *doubt)
{
	const struct hf_client *client = doubt->client;

	return hf_nsm_is_local_watch(doubt->nsm, client) ? client->sm_state : hf_client_proven_state(client);
}

/* The statd gives the number in the notice, and the client had another one: a number that is certain, else
 * one that its statd gave or its LOCKs said. */
static bool says_new(const struct hf_nsm_doubt *doubt)
{
	const struct hf_nsm_facts *before = hf_nsm_baseline_facts(doubt->client);
	int32_t known = certain_number(doubt), said = doubt->client->lock_state;

	if (!doubt->state || doubt->facts.state != doubt->state)
		return false;
	if (known)
		return hf_client_is_newer(doubt->state, known);
	return (before && before->state != doubt->state) || (said && hf_client_is_newer(doubt->state, said));
}

/* The host gives this number now, and gave another one before; and it is the client's host, not another one
 * behind its address. */
static bool is_confirmed_by_statd(const struct hf_nsm_doubt *doubt)
{
	const struct hf_nsm_facts *before = hf_nsm_baseline_facts(doubt->client);

	return before && !hf_nsm_baseline_is_of_another(doubt->client) && doubt->state &&
	       doubt->facts.statd == HF_NSM_STATD_ANSWERS && doubt->facts.state == doubt->state &&
	       before->state != doubt->state;
}

static bool has_moved(uint16_t before, uint16_t now)
{
	return before && before != now;
}

/* The server has not asked the host since the client took its locks, so only numbers tell. If the statd gives
 * the proven number, or the one before it, nothing is decided: the statd may have been started too early.
 * Another number is that of another host behind the same address, which denies nothing. If no number is
 * proven and the client has no locks, the notice can release nothing: it is believed, but does not prove its
 * number.
 */
static enum hf_nsm_verdict judge_number(const struct hf_nsm_doubt *doubt)
{
	int32_t known = hf_client_proven_state(doubt->client);

	if (hf_nsm_is_local_watch(doubt->nsm, doubt->client))
		return HF_NSM_BELIEVED; /* the notice can release nothing here */
	if (known)
		return hf_nsm_is_number_of(doubt->facts.state, known) ? HF_NSM_UNSURE : HF_NSM_BELIEVED;
	/* A LOCK by datagram said that number. If the client sent it, the notice is a copy. */
	if (doubt->state == doubt->client->sm_state && !hf_client_has_nothing(doubt->client))
		return HF_NSM_UNSURE;
	if (doubt->state && doubt->facts.state == doubt->state)
		return HF_NSM_BELIEVED;
	return doubt->client->sm_state && hf_client_has_nothing(doubt->client) ? HF_NSM_BELIEVED
									       : HF_NSM_UNSURE;
}

enum company {
	ALONE,
	MAYBE_SHARED, /* datagrams, which may be forged, gave another name at this address */
	SHARED,
};

/* Several clients behind one address share one lock manager's port. It belongs to one of them, and the server
 * cannot tell to which. */
static enum company company_of(struct hf_client *client)
{
	enum company company = ALONE;
	struct hf_client *other = NULL;

	for (int i = 0; i < HF_NSM_MAX_LOOKED_AT && company != SHARED; i++) {
		other = hf_clients_next_at(client->clients, &client->address, other);
		if (!other)
			break;
		if (hf_client_is_neighbour(client, other))
			company = SHARED;
		else if (other != client && strcmp(other->protocol, client->protocol) == 0)
			company = MAYBE_SHARED;
	}
	hf_client_unref(other);
	return company;
}

static enum hf_nsm_verdict judge_ports(struct hf_nsm_doubt *doubt)
{
	const struct hf_nsm_facts *before = hf_nsm_baseline_facts(doubt->client), *now = &doubt->facts;
	enum company company;

	if (!before)
		return judge_number(doubt);
	if (now->is_lockd_known && has_moved(before->lockd_port, now->lockd_port)) {
		doubt->is_shown = true;
		return HF_NSM_BELIEVED;
	}
	company = company_of(doubt->client);
	doubt->is_untold = company == SHARED;
	if (doubt->is_untold)
		return HF_NSM_BELIEVED;
	/* If those datagrams are true, these ports are of another host. */
	if (company == MAYBE_SHARED || hf_nsm_baseline_may_be_of_another(doubt->client))
		return HF_NSM_UNSURE;
	if (now->is_lockd_known && before->lockd_port >= FIRST_CHOSEN_PORT) {
		doubt->is_open = hf_nsm_baseline_is_late(doubt->client);
		return doubt->is_open ? HF_NSM_UNSURE : HF_NSM_DENIED;
	}
	/* A lock manager with a configured port has it after every start. The port of its statd may tell. */
	doubt->is_shown = doubt->is_by_statd = has_moved(before->statd_port, now->statd_port);
	return doubt->is_shown ? HF_NSM_BELIEVED : HF_NSM_UNSURE;
}

/* Other evidence released the client's locks while its host was asked. What the host did not say before that,
 * its old connection and its old ports are of the life that is over, and do not speak for this notice. Only
 * the statd does. The host can be asked about the next copy. */
static bool is_outdated(const struct hf_nsm_doubt *doubt)
{
	return hf_recovery_count_crashes(doubt->client) != doubt->n_crashes;
}

/* False: the answer does not decide, because the statd gives another number. An outdated doubt is always
 * decided here. */
static bool judge_answer(const struct hf_nsm_doubt *doubt, enum hf_nsm_verdict *verdictp)
{
	const struct hf_client *client = doubt->client;

	*verdictp = HF_NSM_BELIEVED;
	if (doubt->was_new_restart &&
	    !hf_recovery_is_new_restart(doubt->nsm->options.recovery, client, doubt->state))
		return true; /* the host itself has told of it meanwhile */
	if (is_outdated(doubt)) {
		if (!says_new(doubt))
			*verdictp = HF_NSM_UNSURE;
		return true;
	}
	if (doubt->facts.is_unasked) {
		*verdictp = HF_NSM_UNSURE;
		return true;
	}
	return doubt->facts.statd != HF_NSM_STATD_ANSWERS || hf_nsm_baseline_is_of_another(client) ||
	       says_new(doubt);
}

/* What the verdicts for the notices of one doubt depend on, beside its own. */
struct evidence {
	enum hf_nsm_statd statd;
	bool is_said;      /* the statd gives the number */
	bool is_confirmed; /* is_confirmed_by_statd() */
	bool can_tell;     /* something tells which number the statd gave before */
	bool is_untold;    /* the notice is believed only for lack of a denial */
	bool is_statd_new; /* its port alone has moved, and it gives the number that it gave before */
	bool is_open;      /* the port would deny the notice, but the host was slow to give it at first */
	bool is_late;      /* what the host said before may be of the life that sends the notice */
};

static enum hf_nsm_verdict verdict_for(const struct hf_nsm_asker *asker, enum hf_nsm_verdict verdict,
				       const struct evidence *evidence)
{
	/* An exchange that was given up has no answer either. */
	if (asker->wants_confirmation && !evidence->is_confirmed)
		return evidence->statd == HF_NSM_STATD_SILENT || verdict == HF_NSM_UNSURE || evidence->is_late
			       ? HF_NSM_UNSURE
			       : HF_NSM_DENIED;
	/* A host puts the number of its statd into its LOCKs, and this statd gives another one. */
	if (asker->is_lock && evidence->is_open)
		return HF_NSM_DENIED;
	if (verdict != HF_NSM_BELIEVED)
		return verdict;
	if (asker->is_unproven && !evidence->is_said)
		return HF_NSM_UNSURE;
	if (!asker->is_copy)
		return verdict;
	if (evidence->statd != HF_NSM_STATD_ANSWERS)
		return evidence->statd == HF_NSM_STATD_SILENT && !asker->is_sure ? HF_NSM_UNSURE
										 : HF_NSM_DENIED;
	/* Nothing tells which number the statd gave when the first copy came. A copy is more likely than a
	 * forger that guessed the number; the next LOCK with the new number would show that. If an older
	 * number is proven, a forger guessed: the host came to this one after the first copy. If the client
	 * has nothing, the notice is believed: it ends LOCKs that wait, and their sender repeats them. A
	 * statd that was started again alone is no restart of its host. */
	if (!evidence->can_tell || evidence->is_statd_new)
		return HF_NSM_DENIED;
	return evidence->is_untold ? HF_NSM_UNSURE : verdict;
}

/* The host was restarted, its statd was started too early, and gives the number of the life before: the one
 * after that is the number in the notice. A forger could not say another one. */
static bool is_statd_late(const struct hf_nsm_doubt *doubt)
{
	return doubt->is_shown && doubt->facts.state == hf_client_life_state(doubt->client) &&
	       hf_client_is_next(doubt->state, doubt->facts.state);
}

/* Ends */

static void doubt_free(struct hf_nsm_doubt *doubt)
{
	if (doubt->was_new_restart)
		doubt->client->doubted_state = 0;
	hf_link_remove(&doubt->link);
	hf_hashtable_remove(&doubt->nsm->doubts_by_client, &doubt->node);
	hf_rpc_probe_cancel(doubt->probe);
	hf_client_unref(doubt->client);
	free(doubt);
}

static void decide(struct hf_nsm_doubt *doubt, enum hf_nsm_verdict verdict)
{
	struct hf_client *client = hf_client_ref(doubt->client);
	struct hf_nsm *nsm = doubt->nsm;
	bool is_new_restart = hf_recovery_is_new_restart(doubt->nsm->options.recovery, client, doubt->state);
	int32_t state = doubt->state;
	bool is_late = is_statd_late(doubt);
	struct hf_list askers = HF_LIST_INIT(askers);
	bool is_told = says_new(doubt) || hf_client_has_nothing(client);
	bool is_old = hf_nsm_baseline_says(client, state) && doubt->facts.state == state;
	struct evidence evidence = {
		.statd = doubt->facts.statd,
		.is_said = doubt->facts.statd == HF_NSM_STATD_ANSWERS && doubt->facts.state == state,
		.is_confirmed = is_confirmed_by_statd(doubt),
		.can_tell = hf_nsm_baseline_facts(client) || is_told,
		.is_untold = doubt->is_untold && !is_told,
		.is_statd_new = doubt->is_by_statd && is_old,
		.is_open = doubt->is_open && verdict == HF_NSM_UNSURE && !is_outdated(doubt),
		.is_late = hf_nsm_baseline_is_late(client),
	};
	struct hf_link *link;

	/* The order counts. The doubt is freed first, so that a call that is resumed can begin a new one. The
	 * tag ends before the calls are served, or what they take would carry it. The number is proven last,
	 * when the notice was taken. */
	hf_list_splice(&askers, &doubt->askers);
	doubt_free(doubt);
	/* A host puts the number of its statd into its LOCKs. */
	if (verdict != HF_NSM_BELIEVED)
		client->doubt_tag = 0;
	else if (evidence.is_said)
		hf_client_end_older_tag(client, state);
	while ((link = hf_list_pop_front(&askers))) {
		struct hf_nsm_asker *asker = hf_list_entry(link, struct hf_nsm_asker, link);

		enum hf_nsm_verdict its_own = verdict_for(asker, verdict, &evidence);

		asker->is_said = evidence.is_said;
		if (its_own != HF_NSM_BELIEVED && !asker->is_lock && !asker->wants_confirmation)
			hf_recovery_note_unbelieved(client, state);
		asker->fn(asker, client, its_own);
		/* @asker may be freed here */
	}
	if (!client->doubted_state) /* else the notice waits for a proof (proof.c), and its tag stays */
		client->doubt_tag = 0;
	/* Only a datagram gave the number, unless the host's statd gave it, too. If the notice was not
	 * believed, or waits, a forger may have guessed the number, and what the client holds is of the life
	 * before. */
	if (verdict == HF_NSM_BELIEVED && is_new_restart && client->sm_state == state &&
	    !hf_nsm_awaits_proof(nsm, client)) {
		hf_recovery_client_proves(client, evidence.is_said);
		client->is_restart_shown = is_late;
	}
	hf_client_unref(client);
}

static void on_pulse(void *user, enum hf_rpc_pulse pulse)
{
	struct hf_nsm_doubt *doubt = user;
	enum hf_nsm_verdict verdict = pulse == HF_RPC_PULSE_ALIVE ? HF_NSM_DENIED : judge_ports(doubt);

	doubt->probe = NULL;
	if (is_outdated(doubt)) {
		judge_answer(doubt, &verdict);
		decide(doubt, verdict);
		return;
	}
	if (pulse == HF_RPC_PULSE_DEAD)
		doubt->is_by_statd = false;
	/* A killed program resets a connection of its own while its host lives on. But then the lock manager
	 * of that host still has its port, and judge_ports() has denied the notice or left it open. */
	if (pulse == HF_RPC_PULSE_DEAD && verdict == HF_NSM_UNSURE && !doubt->is_open) {
		doubt->is_shown = true;
		verdict = HF_NSM_BELIEVED;
	}
	decide(doubt, verdict);
}

static void go_on(struct hf_nsm_doubt *doubt, const struct hf_nsm_facts *facts)
{
	uint64_t now = hf_loop_now(doubt->nsm->options.loop);
	enum hf_nsm_verdict verdict;
	bool is_decided;

	doubt->facts = *facts;
	is_decided = judge_answer(doubt, &verdict);
	if (!is_decided && doubt->deadline > now)
		doubt->probe = hf_rpc_probe_start(doubt->call, doubt->client->link, doubt->deadline - now,
						  on_pulse, doubt);
	if (!doubt->probe)
		decide(doubt, is_decided ? verdict : judge_ports(doubt));
}

/* Exchanges */

static void exchange_free(struct exchange *exchange)
{
	hf_link_remove(&exchange->link);
	hf_hashtable_remove(&exchange->nsm->exchanges_by_host, &exchange->node);
	hf_nsm_ask_cancel(exchange->inquiry);
	free(exchange);
}

static void on_facts(void *user, const struct hf_nsm_facts *facts)
{
	struct exchange *exchange = user;
	struct hf_nsm *nsm = exchange->nsm;
	struct hf_list doubts = HF_LIST_INIT(doubts);
	struct hf_link *link;

	exchange->inquiry = NULL;
	hf_list_splice(&doubts, &exchange->doubts);
	exchange_free(exchange);
	while ((link = hf_list_pop_front(&doubts))) {
		hf_list_push_back(&nsm->doubts, link);
		go_on(hf_list_entry(link, struct hf_nsm_doubt, link), facts);
	}
}

static struct exchange *find_exchange(struct hf_nsm *nsm, const struct hf_addr *host, uint64_t hash)
{
	hf_hash_for_each(node, &nsm->exchanges_by_host, hash) {
		struct exchange *exchange = hf_container_of(node, struct exchange, node);

		if (hf_addr_same_host(&exchange->host, host))
			return exchange;
	}
	return NULL;
}

/* Silent hosts must not prevent questions to other hosts. So the exchange that has waited longest
 * without an answer ends. Its notices stay unanswered, and their senders repeat them. */
static void give_up_oldest(struct hf_nsm *nsm)
{
	struct exchange *oldest = hf_list_entry(hf_list_first(&nsm->exchanges), struct exchange, link);
	struct hf_list doubts = HF_LIST_INIT(doubts);
	size_t n = 0;
	struct hf_link *next;

	hf_list_for_each(link, &nsm->exchanges) {
		struct exchange *exchange = hf_list_entry(link, struct exchange, link);

		if (n++ == MAX_WEIGHED)
			break;
		if (!hf_nsm_ask_is_answered(exchange->inquiry)) {
			oldest = exchange;
			break;
		}
	}
	hf_list_splice(&doubts, &oldest->doubts);
	exchange_free(oldest);
	while ((next = hf_list_first(&doubts)))
		decide(hf_list_entry(next, struct hf_nsm_doubt, link), HF_NSM_UNSURE);
}

/* Giving up an exchange serves the calls that waited for it, so it may free doubts: look them up only
 * afterwards. */
static void make_room_for(struct hf_nsm *nsm, const struct hf_rpc_call *call)
{
	struct hf_addr host = hf_nsm_host_of(call);

	if (nsm->exchanges_by_host.n >= MAX_EXCHANGES &&
	    !find_exchange(nsm, &host, hf_nsm_hash_host(nsm, &host)))
		give_up_oldest(nsm);
}

static struct exchange *exchange_with(struct hf_nsm *nsm, struct hf_rpc_call *call)
{
	struct hf_addr host = hf_nsm_host_of(call);
	uint64_t hash = hf_nsm_hash_host(nsm, &host);
	struct exchange *exchange = find_exchange(nsm, &host, hash);

	if (exchange)
		return exchange->n_doubts < MAX_DOUBTS ? exchange : NULL;
	if (nsm->exchanges_by_host.n >= MAX_EXCHANGES)
		return NULL;
	exchange = calloc(1, sizeof(*exchange));
	if (!exchange)
		return NULL;
	exchange->nsm = nsm;
	exchange->host = host;
	hf_list_init(&exchange->doubts);
	hf_list_push_back(&nsm->exchanges, &exchange->link);
	hf_hashtable_insert(&nsm->exchanges_by_host, &exchange->node, hash);
	exchange->inquiry = hf_nsm_ask(nsm, &host, hf_rpc_call_local(call), on_facts, exchange);
	if (!exchange->inquiry) {
		exchange_free(exchange);
		return NULL;
	}
	return exchange;
}

/* Doubts */

static uint64_t hash_client(const struct hf_nsm *nsm, const struct hf_client *client)
{
	return hf_siphash(&nsm->key, &client->serial, sizeof(client->serial));
}

static struct hf_nsm_doubt *find(struct hf_nsm *nsm, const struct hf_client *client)
{
	hf_hash_for_each(node, &nsm->doubts_by_client, hash_client(nsm, client)) {
		struct hf_nsm_doubt *doubt = hf_container_of(node, struct hf_nsm_doubt, node);

		if (doubt->client == client)
			return doubt;
	}
	return NULL;
}

static struct hf_nsm_doubt *doubt_new(struct hf_nsm *nsm, struct hf_rpc_call *call, struct hf_client *client,
				      int32_t state)
{
	struct exchange *exchange = exchange_with(nsm, call);
	struct hf_nsm_doubt *doubt = exchange ? calloc(1, sizeof(*doubt)) : NULL;

	if (!doubt)
		return NULL; /* an exchange without doubts ends by itself */
	doubt->nsm = nsm;
	doubt->client = hf_client_ref(client);
	doubt->state = state;
	doubt->call = call;
	doubt->deadline = hf_loop_now(nsm->options.loop) + nsm->options.timeout_ns;
	hf_list_init(&doubt->askers);
	hf_list_push_back(&exchange->doubts, &doubt->link);
	hf_hashtable_insert(&nsm->doubts_by_client, &doubt->node, hash_client(nsm, client));
	exchange->n_doubts++;
	doubt->n_crashes = hf_recovery_count_crashes(client);
	doubt->was_new_restart = hf_recovery_is_new_restart(nsm->options.recovery, client, state);
	if (doubt->was_new_restart) {
		client->doubted_state = state;
		client->doubt_tag = hf_client_make_doubt_tag(state, nsm->n_doubted++);
		client->doubted_at = hf_loop_now(nsm->options.loop);
	}
	return doubt;
}

int hf_nsm_doubt(struct hf_nsm *nsm, struct hf_rpc_call *call, struct hf_client *client, int32_t state,
		 struct hf_nsm_asker *asker)
{
	struct hf_nsm_doubt *doubt;

	if (nsm->is_ending)
		return -EBUSY;
	make_room_for(nsm, call);
	doubt = find(nsm, client);
	if (doubt ? doubt->state != state || doubt->n_askers >= MAX_ASKERS
		  : !(doubt = doubt_new(nsm, call, client, state)))
		return -EBUSY;
	/* If the doubt is believed, a LOCK may teach the server the client's number and release nothing.
	 * After that a notice with the same number would tell of no new restart. So notices are served first.
	 */
	if (asker->is_lock)
		hf_list_push_back(&doubt->askers, &asker->link);
	else
		hf_list_push_front(&doubt->askers, &asker->link);
	doubt->n_askers++;
	return 0;
}

int hf_nsm_doubts_init(struct hf_nsm *nsm)
{
	int r = hf_hashtable_init(&nsm->exchanges_by_host);

	return r < 0 ? hf_trace(r) : hf_trace(hf_hashtable_init(&nsm->doubts_by_client));
}

void hf_nsm_doubts_deinit(struct hf_nsm *nsm)
{
	struct hf_link *link;

	while ((link = hf_list_first(&nsm->exchanges))) {
		struct exchange *exchange = hf_list_entry(link, struct exchange, link);

		hf_list_splice(&nsm->doubts, &exchange->doubts);
		exchange_free(exchange);
	}
	while ((link = hf_list_first(&nsm->doubts)))
		decide(hf_list_entry(link, struct hf_nsm_doubt, link), HF_NSM_UNSURE);
	hf_hashtable_deinit(&nsm->exchanges_by_host);
	hf_hashtable_deinit(&nsm->doubts_by_client);
}
