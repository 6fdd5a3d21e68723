/*
 * What should this node do next?
 *
 * A node decides from what it saw of the service's row, and by its own clock. It has no
 * thread, no socket and no clock: a driver (cluster.c, or the simulation) asks for the next
 * step, carries it out in the database, and brings the answer. All times are
 * hf_loop_boottime() of this machine. Clocks of two machines are never compared.
 *
 *	             claimed              serves
 *	  STANDBY ───────────▶ TAKING ───────────▶ ACTIVE
 *	   ▲  ▲ ▲                │ another owner      │ │ must hand over
 *	   │  │ └────────────────┴────────────────────┘ ▼
 *	   │  └──────────────────────────────────── STOPPING
 *	   ▼ exports or lease differ   handed over, or another owner
 *	  MISMATCHED
 *
 * The lease. For its owner it ends one lease after the *sending* of the last renewal that was
 * acknowledged. For the others it ends a lease and a third after they last *saw* the row change.
 * So the owner has stopped before another node claims the service, whatever the delays
 * were, as long as the two clocks run at about the same speed.
 *
 * The database may go back: a replica that takes its place lacks the last changes, perhaps the
 * claim of the node that serves now. So an owner whose lease is over renews it only in the history of the
 * database in which it was sure of it. And a node that sees another history than the owner's lease is of
 * claims nothing until a lease of any other node must be over.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "store/service.h"

#define HF_NODE_NAME    HF_SERVICE_NAME
#define HF_NODE_VERSION 64
#define HF_NODE_REASON  HF_SERVICE_REASON
#define HF_NODE_ID      HF_SERVICE_OWNER

enum hf_node_role {
	HF_NODE_STANDBY,
	HF_NODE_MISMATCHED, /* a standby that must not take over */
	HF_NODE_TAKING,     /* has claimed the service and builds it; shown as active */
	HF_NODE_ACTIVE,
	HF_NODE_STOPPING, /* hands the service over, or has lost its lease for now */
};

const char *hf_node_role_name(enum hf_node_role role); /* as in the API */

struct hf_node_options {
	const char *service;
	const char *node;
	const char *instance; /* names the state directory of this node: HF_NODE_ID - 1 digits */
	const char *version;
	const char *exports; /* a description to compare */
	const uint8_t *key;  /* of the handles that this node made before, HF_SERVICE_KEY bytes; NULL: none */
	uint64_t key_print;  /* identifies it in the store; 0: no key */
	uint64_t lease_ns;
	bool automatic;
	bool has_fence;
};

struct hf_node;

int hf_node_new(struct hf_node **nodep, const struct hf_node_options *options, uint64_t now);
struct hf_node *hf_node_free(struct hf_node *node);

HF_DEFINE_CLEANUP(struct hf_node *, hf_node_free)

/* The next step, and when it is due. */
enum hf_node_step {
	HF_NODE_LOOK,      /* then saw() */
	HF_NODE_RENEW,     /* then saw() or deposed() */
	HF_NODE_ASK,       /* ask the owner to hand over; then look again */
	HF_NODE_FENCE,     /* stop the old node for good; then fenced() */
	HF_NODE_CLAIM,     /* then claimed(), or look again */
	HF_NODE_HAND_OVER, /* then handed_over() or deposed() */
	HF_NODE_NOTHING,   /* the node was refused */
};

enum hf_node_step hf_node_next(struct hf_node *node, uint64_t *atp);

/* Answers. @sent: before the first byte of the step left this machine. @heard: when its last byte was here.
 */
void hf_node_saw(struct hf_node *node, enum hf_node_step step, const struct hf_service_row *row,
		 uint64_t sent, uint64_t heard);
/* The step failed: no answer, or an error. The database may have carried it out nevertheless. */
void hf_node_failed(struct hf_node *node, uint64_t now);
/* The row has another owner. */
void hf_node_deposed(struct hf_node *node, uint64_t now);
void hf_node_fenced(struct hf_node *node, bool succeeded, uint64_t now);
void hf_node_asked(struct hf_node *node, uint64_t now);
void hf_node_claimed(struct hf_node *node, const char *owner, uint64_t sent);
/* Another node was faster. */
void hf_node_not_claimed(struct hf_node *node, uint64_t now);
void hf_node_handed_over(struct hf_node *node, uint64_t now);
/* Another instance has this node's name. */
void hf_node_name_is_used(struct hf_node *node, uint64_t now);

/* What the service does. */
void hf_node_serves(struct hf_node *node); /* TAKING -> ACTIVE */
/* It has ended, in order or after deposed(). The node claims nothing before that. @has_failed: it could not
 * be built; for a lease the other nodes come first. */
void hf_node_released(struct hf_node *node, bool has_failed, uint64_t now);

/* Orders. 0, or -EBUSY with a reason in @why. @to: empty: any node. */
int hf_node_move(struct hf_node *node, const char *to, uint64_t now, char *why, size_t size);
int hf_node_take(struct hf_node *node, uint64_t now, char *why, size_t size);
/* The process ends. The node hands the service over, if it has it, to any node or to none; what it has just
 * claimed, too. It claims nothing more. */
void hf_node_leave(struct hf_node *node, uint64_t now);
/* This host cannot serve clients now, because of @why; empty: it can. The active node hands over if a standby
 * is ready, and serves on if none is. */
void hf_node_set_unfit(struct hf_node *node, const char *why, uint64_t now);
/* From the next decision on; a takeover that has begun goes on. */
void hf_node_set_automatic(struct hf_node *node, bool is_automatic);
/* @text is copied; for the comparison. */
int hf_node_set_exports(struct hf_node *node, const char *text);

/* Questions */
enum hf_node_role hf_node_role(const struct hf_node *node);
const char *hf_node_reason(const struct hf_node *node); /* why it is in this role; empty: no more to say */
bool hf_node_is_refused(const struct hf_node *node);    /* it cannot take part at all */
/* It has the service, and does not serve it after so long a time: a disk hangs, for instance. */
bool hf_node_is_stuck(const struct hf_node *node, uint64_t now);
const char *hf_node_exports(const struct hf_node *node);
bool hf_node_is_automatic(const struct hf_node *node);
/* Until when may this node act for the service? 0: it is not its own. */
uint64_t hf_node_lease_ends(const struct hf_node *node);
const char *hf_node_owner(const struct hf_node *node); /* of this term */
const char *hf_node_heir(const struct hf_node *node);  /* for HAND_OVER */
/* The history of the database in which this node is sure of its lease; for RENEW. */
const char *hf_node_history(const struct hf_node *node);
/* The row that a claim must find unchanged, and whom to fence. */
const struct hf_service_row *hf_node_seen(const struct hf_node *node);
uint64_t hf_node_changed_at(const struct hf_node *node); /* when it saw the row change last */
/* How this term began, for people. */
const char *hf_node_claim_reason(const struct hf_node *node);
