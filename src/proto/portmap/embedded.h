/* The embedded rpcbind on its own sockets: an RPC server with one program, on one loop. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/limit.h"
#include "proto/portmap/portmap.h"
#include "proto/portmap/rpcbind.h"

struct hf_embedded;
struct hf_loop;

/* Serves @offers, and itself, on all of the addresses, over TCP and UDP. *portp: in, the wanted port, 0 for
 * any; out, the port in use. -EADDRINUSE, -EACCES …: nothing was opened. */
int hf_embedded_new(struct hf_embedded **embeddedp, struct hf_loop *loop, const struct hf_addr *listen,
		    size_t n_listen, const struct hf_portmap_offer *offers, size_t n_offers, uint16_t *portp);
struct hf_embedded *hf_embedded_free(struct hf_embedded *embedded);

HF_DEFINE_CLEANUP(struct hf_embedded *, hf_embedded_free)

void hf_embedded_close(struct hf_embedded *embedded); /* answers no more calls; the counts stay */
const struct hf_rpcbind *hf_embedded_rpcbind(const struct hf_embedded *embedded);
void hf_embedded_show_limits(const struct hf_embedded *embedded,
			     struct hf_limit_use uses[HF_N_LIMITS]); /* of its RPC server */
