/* The inside of the registrar: registrar.c (rounds), registrar_calls.c (what goes to rpcbind),
 * registrar_complain.c. */
#pragma once

#include "loop/loop.h"
#include "loop/timer.h"
#include "proto/portmap/registrar.h"
#include "proto/portmap/wire.h"
#include "rpc/client.h"

enum registrar_step {
	STEP_IDLE,      /* between rounds */
	STEP_LOOK,      /* what has rpcbind? */
	STEP_SET,       /* items[at] */
	STEP_PING,      /* does its holder live? */
	STEP_UNSET,     /* he does not */
	STEP_SET_AGAIN, /* after that */
	STEP_REMOVE,    /* stopping: items[at] */
	STEP_STOPPED,
};

enum item_state {
	ITEM_MISSING,
	ITEM_PRESENT,
	ITEM_HELD, /* by @holder */
};

struct registrar_item {
	uint32_t program;
	uint32_t version;
	enum hf_netid netid;
	uint16_t port;
	enum item_state state;
	bool has_complained; /* until it is there */
	bool is_tried;       /* in this round */
	struct hf_addr holder;
	char holder_owner[32]; /* fit for the log */
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
	bool again; /* a round was asked for while one was under way */
	struct hf_addr rpcbind;
	bool on_ipv6; /* the second address to try */
	uint32_t version;
	struct hf_registrar_report report;
	struct hf_timer timer; /* the next round; stopping: the end of patience */
	struct hf_rpc_pending *pending;
	struct hf_task failure; /* a call that could not even be begun */
	struct hf_task telling; /* that it is stopped */
	void (*done)(void *user);
	void *done_user;
	size_t n_kept; /* that rpcbind would not remove */
};

/* registrar_calls.c: each ends in hf_registrar_answered(), never from inside. */
void hf_registrar_call_dump(struct hf_registrar *registrar);
void hf_registrar_call_set(struct hf_registrar *registrar, const struct registrar_item *item);
void hf_registrar_call_unset(struct hf_registrar *registrar, const struct registrar_item *item);
void hf_registrar_call_holder(struct hf_registrar *registrar, const struct registrar_item *item);
void hf_registrar_call_failed(struct hf_task *task);
/* Sorts the items by what rpcbind has; false: that makes no sense. */
bool hf_registrar_read_dump(struct hf_registrar *registrar, struct hf_xdr_in *in);

/* registrar_complain.c: counts it, and logs it once until it is right again. */
void hf_registrar_complain(struct hf_registrar *registrar, struct registrar_item *item);

/* registrar.c */
void hf_registrar_answered(void *user, const struct hf_rpc_result *result);
