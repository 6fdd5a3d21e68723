#include "proto/portmap/registrar.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "base/macros.h"
#include "proto/portmap/registrar_internal.h"

#define MAX_ITEMS 256

static void next_item(struct hf_registrar *registrar);
static void remove_next(struct hf_registrar *registrar);

/* Rounds */

static void look(struct hf_registrar *registrar, uint32_t version)
{
	registrar->step = STEP_LOOK;
	registrar->version = version;
	hf_registrar_call_dump(registrar);
}

/* Only after rpcbind has answered: a stop before that still needs to know what to remove. */
static void forget_all(struct hf_registrar *registrar)
{
	for (size_t i = 0; i < registrar->n_items; i++) {
		registrar->items[i].state = ITEM_MISSING;
		registrar->items[i].is_tried = false;
	}
}

static void look_at(struct hf_registrar *registrar, bool on_ipv6)
{
	uint16_t port = registrar->rpcbind.port;

	registrar->on_ipv6 = on_ipv6;
	hf_addr_parse(&registrar->rpcbind, on_ipv6 ? "::1" : "127.0.0.1");
	registrar->rpcbind.port = port;
	look(registrar, 4);
}

static void begin_round(struct hf_registrar *registrar)
{
	registrar->again = false;
	registrar->report = (struct hf_registrar_report){ .n_wanted = registrar->n_items };
	look_at(registrar, false);
}

static void end_round(struct hf_registrar *registrar, bool is_found)
{
	struct hf_registrar_report *report = &registrar->report;

	report->is_found = is_found;
	report->version = registrar->version;
	for (size_t i = 0; i < registrar->n_items && is_found; i++)
		report->n_present += registrar->items[i].state == ITEM_PRESENT;
	registrar->step = STEP_IDLE;
	/* Without memory for a timer, the next round starts only on request. */
	(void)hf_timer_start(&registrar->timer, registrar->again ? 0 : HF_REGISTRAR_PERIOD_NS);
	registrar->checked(registrar->user, report);
}

static void looked(struct hf_registrar *registrar, const struct hf_rpc_result *result)
{
	registrar->at = 0;
	switch (result->outcome) {
	case HF_RPC_OUTCOME_OK:
		forget_all(registrar);
		if (hf_registrar_read_dump(registrar, result->results))
			next_item(registrar);
		else
			end_round(registrar, false);
		return;
	case HF_RPC_OUTCOME_GARBAGE:
		/* The list is longer than the RPC client accepts. Continue without it: setting a mapping that
		 * exists does no harm. */
		forget_all(registrar);
		next_item(registrar);
		return;
	case HF_RPC_OUTCOME_NO_PROGRAM:
		if (registrar->version == 4) {
			look(registrar, 2);
			return;
		}
		break;
	default:
		break;
	}
	if (!registrar->on_ipv6)
		look_at(registrar, true);
	else
		end_round(registrar, false);
}

/* Items */

static bool is_registrable(const struct hf_registrar *registrar, const struct registrar_item *item)
{
	return registrar->version > 2 || (HF_NETIDS_IPV4 & HF_NETID_BIT(item->netid));
}

static void next_item(struct hf_registrar *registrar)
{
	for (; registrar->at < registrar->n_items; registrar->at++) {
		struct registrar_item *item = &registrar->items[registrar->at];

		if (item->state == ITEM_PRESENT)
			item->has_complained = false;
		if (item->state == ITEM_PRESENT || item->is_tried)
			continue;
		item->is_tried = true;
		if (!is_registrable(registrar, item)) {
			registrar->report.n_unfitting++;
			continue;
		}
		if (item->state == ITEM_TAKEN && item->holder.port) {
			registrar->step = STEP_PING;
			hf_registrar_call_holder(registrar, item);
		} else {
			registrar->step = STEP_SET;
			hf_registrar_call_set(registrar, item);
		}
		return;
	}
	end_round(registrar, true);
}

static void pinged(struct hf_registrar *registrar, const struct hf_rpc_result *result)
{
	struct registrar_item *item = &registrar->items[registrar->at];

	if (result->outcome == HF_RPC_OUTCOME_OK) {
		hf_registrar_complain(registrar, item);
		next_item(registrar);
		return;
	}
	registrar->step = STEP_UNSET;
	hf_registrar_call_unset(registrar, item);
}

static void set(struct hf_registrar *registrar, const struct hf_rpc_result *result)
{
	struct registrar_item *item = &registrar->items[registrar->at];

	if (result->outcome != HF_RPC_OUTCOME_OK) {
		end_round(registrar, false);
		return;
	}
	if (hf_xdr_get_bool(result->results)) {
		item->state = ITEM_PRESENT;
		registrar->report.n_renewed++;
	} else if (registrar->step == STEP_SET) {
		registrar->step = STEP_UNSET;
		hf_registrar_call_unset(registrar, item);
		return;
	} else {
		hf_registrar_complain(registrar, item);
	}
	/* Start over for siblings that were removed; items that were tried are not tried again. */
	if (registrar->step == STEP_SET_AGAIN)
		registrar->at = 0;
	next_item(registrar);
}

/* UNSET of version 2 also removed the mapping of the other protocol: mark it as missing, so that it is set
 * again. */
static void forget_sibling(struct hf_registrar *registrar, const struct registrar_item *item)
{
	for (size_t i = 0; i < registrar->n_items; i++) {
		struct registrar_item *other = &registrar->items[i];

		if (other == item || other->program != item->program || other->version != item->version)
			continue;
		if (other->state == ITEM_PRESENT)
			other->is_tried = false;
		other->state = ITEM_MISSING;
	}
}

static void unset(struct hf_registrar *registrar, const struct hf_rpc_result *result)
{
	struct registrar_item *item = &registrar->items[registrar->at];

	if (result->outcome != HF_RPC_OUTCOME_OK) {
		end_round(registrar, false);
		return;
	}
	if (registrar->version == 2)
		forget_sibling(registrar, item);
	registrar->step = STEP_SET_AGAIN;
	hf_registrar_call_set(registrar, item);
}

/* Stopping */

static void stopped(struct hf_registrar *registrar)
{
	registrar->step = STEP_STOPPED;
	if (registrar->n_left)
		hf_log_warn("rpcbind refuses to remove the server's registrations: that needs a reserved "
			    "port, and so CAP_NET_BIND_SERVICE",
			    "n=%zu", registrar->n_left);
	hf_timer_stop(&registrar->timer);
	registrar->pending = hf_rpc_pending_cancel(registrar->pending);
	hf_task_cancel(&registrar->failure);
	hf_loop_defer(registrar->loop, &registrar->telling);
}

static void remove_next(struct hf_registrar *registrar)
{
	for (; registrar->at < registrar->n_items; registrar->at++) {
		const struct registrar_item *item = &registrar->items[registrar->at];

		if (item->state != ITEM_PRESENT)
			continue;
		registrar->step = STEP_REMOVE;
		hf_registrar_call_unset(registrar, item);
		return;
	}
	stopped(registrar);
}

static void removed(struct hf_registrar *registrar, const struct hf_rpc_result *result)
{
	if (result->outcome != HF_RPC_OUTCOME_OK) {
		stopped(registrar); /* rpcbind is gone, and the server's mappings with it */
		return;
	}
	if (!hf_xdr_get_bool(result->results))
		registrar->n_left++;
	registrar->items[registrar->at].state = ITEM_MISSING;
	remove_next(registrar);
}

static void tell(struct hf_task *task)
{
	struct hf_registrar *registrar = hf_container_of(task, struct hf_registrar, telling);

	registrar->done(registrar->done_user);
	/* @registrar may be gone here */
}

void hf_registrar_stop(struct hf_registrar *registrar, void (*done)(void *user), void *user)
{
	if (registrar->step >= STEP_REMOVE)
		return;
	registrar->done = done;
	registrar->done_user = user;
	/* SET is not answered yet, but the mapping may already exist. */
	if (registrar->step == STEP_SET || registrar->step == STEP_SET_AGAIN)
		registrar->items[registrar->at].state = ITEM_PRESENT;
	registrar->pending = hf_rpc_pending_cancel(registrar->pending);
	hf_task_cancel(&registrar->failure);
	registrar->at = 0;
	registrar->step = STEP_REMOVE;
	if (hf_timer_start(&registrar->timer, HF_REGISTRAR_STOP_NS) < 0)
		stopped(registrar);
	else
		remove_next(registrar);
}

/* Events */

static void on_answered(void *user, const struct hf_rpc_result *result)
{
	struct hf_registrar *registrar = user;

	registrar->pending = NULL;
	switch (registrar->step) {
	case STEP_LOOK:
		looked(registrar, result);
		break;
	case STEP_SET:
	case STEP_SET_AGAIN:
		set(registrar, result);
		break;
	case STEP_PING:
		pinged(registrar, result);
		break;
	case STEP_UNSET:
		unset(registrar, result);
		break;
	case STEP_REMOVE:
		removed(registrar, result);
		break;
	case STEP_IDLE:
	case STEP_STOPPED:
		assert(!"no call is in progress");
	}
}

static void on_timer(struct hf_timer *timer)
{
	struct hf_registrar *registrar = hf_container_of(timer, struct hf_registrar, timer);

	if (registrar->step == STEP_IDLE)
		begin_round(registrar);
	else if (registrar->step == STEP_REMOVE)
		stopped(registrar);
}

/* Making and freeing */

int hf_registrar_new(struct hf_registrar **registrarp, struct hf_loop *loop, struct hf_rpc_client *client,
		     uint16_t rpcbind_port, hf_registrar_checked_fn checked, void *user)
{
	struct hf_registrar *registrar = calloc(1, sizeof(*registrar));

	if (!registrar)
		return hf_trace(-ENOMEM);
	registrar->items = calloc(MAX_ITEMS, sizeof(*registrar->items));
	if (!registrar->items) {
		free(registrar);
		return hf_trace(-ENOMEM);
	}
	registrar->loop = loop;
	registrar->client = client;
	registrar->answered = on_answered;
	registrar->rpcbind.port = rpcbind_port;
	registrar->checked = checked;
	registrar->user = user;
	hf_timer_init(&registrar->timer, loop, on_timer);
	hf_task_init(&registrar->failure, hf_registrar_call_failed);
	hf_task_init(&registrar->telling, tell);
	*registrarp = registrar;
	return 0;
}

struct hf_registrar *hf_registrar_free(struct hf_registrar *registrar)
{
	if (!registrar)
		return NULL;
	hf_timer_stop(&registrar->timer);
	hf_rpc_pending_cancel(registrar->pending);
	hf_task_cancel(&registrar->failure);
	hf_task_cancel(&registrar->telling);
	free(registrar->items);
	free(registrar);
	return NULL;
}

int hf_registrar_add(struct hf_registrar *registrar, uint32_t program, uint32_t version, enum hf_netid netid,
		     uint16_t port)
{
	assert(port != 0 && netid < HF_N_NETIDS);
	if (registrar->n_items == MAX_ITEMS)
		return hf_trace(-ENOSPC);
	registrar->items[registrar->n_items++] = (struct registrar_item){
		.program = program,
		.version = version,
		.netid = netid,
		.port = port,
	};
	return 0;
}

int hf_registrar_start(struct hf_registrar *registrar)
{
	return hf_trace(hf_timer_start(&registrar->timer, 0));
}

void hf_registrar_check(struct hf_registrar *registrar)
{
	if (registrar->step == STEP_IDLE)
		(void)hf_timer_start(&registrar->timer, 0);
	else
		registrar->again = true;
}
