/* The inside of the registrar: registrar.c (rounds), registrar_calls.c (calls to rpcbind),
 * registrar_complain.c (log lines). */
#pragma once

#include "loop/loop.h"
#include "loop/timer.h"
#include "proto/portmap/registrar.h"
#include "proto/portmap/wire.h"
#include "rpc/client.h"

enum registrar_step {
	STEP_IDLE,      /* between rounds */
	STEP_LOOK,      /* read rpcbind's mappings */
	STEP_SET,       /* items[at] */
	STEP_PING,      /* does the other owner answer? */
	STEP_UNSET,     /* it does not: remove its mapping */
	STEP_SET_AGAIN, /* after the removal */
	STEP_REMOVE,    /* stopping: remove items[at] */
	STEP_STOPPED,
};

enum item_state {
	ITEM_MISSING,
	ITEM_PRESENT,
	ITEM_TAKEN, /* another program has it: @holder */
};

struct registrar_item {
	uint32_t program;
	uint32_t version;
	enum hf_netid netid;
	uint16_t port;
	enum item_state state;
	bool has_complained; /* cleared when the mapping is there */
	bool is_tried;       /* in this round */
	struct hf_addr holder;
	char holder_owner[32]; /* quoted for the log */
};

struct hf_registrar {
	struct hf_loop *loop;         /* (c) */
	struct hf_rpc_client *client; /* (c) */
	hf_registrar_checked_fn checked;
	void *user;
	struct registrar_item *items;
	size_t n_items;
	size_t at;
	enum registrar_step step;
	bool again; /* a round was requested during a round */
	struct hf_addr rpcbind;
	bool on_ipv6; /* tries the second address */
	uint32_t version;
	struct hf_registrar_report report;
	struct hf_timer timer;   /* starts the next round; while stopping: the time limit */
	hf_rpc_done_fn answered; /* (c) a call has ended */
	struct hf_rpc_pending *pending;
	struct hf_task failure; /* reports a call that could not be started */
	struct hf_task telling; /* calls done after the stop */
	void (*done)(void *user);
	void *done_user;
	size_t n_left; /* mappings that rpcbind did not remove */
};

/* registrar_calls.c: each ends in answered(), never from within the call. */
void hf_registrar_call_dump(struct hf_registrar *registrar);
void hf_registrar_call_set(struct hf_registrar *registrar, const struct registrar_item *item);
void hf_registrar_call_unset(struct hf_registrar *registrar, const struct registrar_item *item);
void hf_registrar_call_holder(struct hf_registrar *registrar, const struct registrar_item *item);
void hf_registrar_call_failed(struct hf_task *task);
/* Sets the items' states from rpcbind's list; false: the list is invalid. */
bool hf_registrar_read_dump(struct hf_registrar *registrar, struct hf_xdr_in *in);

/* registrar_complain.c: counts the conflict, and logs it once until it is resolved. */
void hf_registrar_complain(struct hf_registrar *registrar, struct registrar_item *item);
