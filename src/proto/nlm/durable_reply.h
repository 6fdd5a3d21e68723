/* Replies that are sent when what they promise is durable. Each consumes the operation. */
#pragma once

#include "proto/nlm/op.h"

/* A lock; @is_new: the owner had no part of it before. */
void hf_nlm_reply_granted(struct hf_nlm_op *op, bool is_new);
/* What is to be done or undone besides is in @how. */
void hf_nlm_reply_durable(struct hf_nlm_op *op, enum hf_nlm_stat stat, enum hf_nlm_finish how);
/* After something was given up: else a lock that no client reclaims would come back after a crash. */
void hf_nlm_reply_released(struct hf_nlm_op *op, enum hf_nlm_stat stat);
/* After a client told the server that it has started anew: its new state number is stored, too. */
void hf_nlm_reply_restart(struct hf_nlm_op *op);

/* Undoes at once what would be undone if it could not be made durable; consumes nothing. */
void hf_nlm_undo(struct hf_nlm_op *op, enum hf_nlm_finish how);
/* The answer to a client whose lock could not be stored. LATER: it was a reclaim, and the operation is over
 * without a reply. */
enum hf_nlm_stat hf_nlm_not_stored(struct hf_nlm_op *op);

/* Making and freeing */
void hf_nlm_batches_init(struct hf_nlm *nlm);
void hf_nlm_batches_deinit(struct hf_nlm *nlm);
