/* A monitor whose questions to hosts are put only on paper (ld --wrap): none is sent, and none is answered.
 */
#pragma once

#include "../../recovery/world.h"
#include "proto/nsm/internal.h"

extern struct world w;
extern struct hf_nsm *nsm;
extern size_t n_asked; /* statds */

void on_paper_end(enum hf_rpc_outcome outcome); /* the last question to a statd */
int on_paper_setup(void **state);
