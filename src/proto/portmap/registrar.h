/*
 * Registration with the rpcbind of this host.
 *
 * A round looks at what rpcbind has (one DUMP) and sets right what is not as it
 * should be; rounds follow every HF_REGISTRAR_PERIOD_NS, for an rpcbind that is
 * started again has forgotten everything, and whenever somebody asks. So the table
 * here is a wish, and rpcbind's is the truth, read anew each time.
 *
 * What is not there is SET. What somebody else has is taken from him only if he
 * does not answer any more: two servers would else take it from each other for
 * ever. A living one is left alone, and the log says who he is and what to do.
 *
 * Everything goes over one TCP connection to a loopback address, from a reserved
 * port where we may have one: so rpcbind lets us remove what we have set. Version
 * 4 is spoken, or version 2 where rpcbind has nothing newer; version 2 knows IPv4
 * alone, and its UNSET removes TCP and UDP both.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "loop/loop.h"
#include "proto/portmap/netid.h"

#define HF_REGISTRAR_PERIOD_NS (30 * HF_NS_PER_S)
#define HF_REGISTRAR_STOP_NS   (2 * HF_NS_PER_S)

struct hf_registrar;
struct hf_rpc_client;

/* What a round has found and done. */
struct hf_registrar_report {
	bool is_found;      /* rpcbind answered, to the end */
	uint32_t version;   /* that it speaks: 4 or 2 */
	size_t n_wanted;    /* of ours */
	size_t n_present;   /* in rpcbind, now */
	size_t n_renewed;   /* of these, set in this round */
	size_t n_refused;   /* somebody else has them */
	size_t n_unfitting; /* IPv6, with an rpcbind that speaks version 2 alone */
};

/* After each round. It must not free the registrar. */
typedef void (*hf_registrar_checked_fn)(void *user, const struct hf_registrar_report *report);

/* Life. The client is borrowed. */
int hf_registrar_new(struct hf_registrar **registrarp, struct hf_loop *loop, struct hf_rpc_client *client,
		     uint16_t rpcbind_port, hf_registrar_checked_fn checked, void *user);
struct hf_registrar *hf_registrar_free(struct hf_registrar *registrar);

HF_DEFINE_CLEANUP(struct hf_registrar *, hf_registrar_free)

/* Before it is started. */
int hf_registrar_add(struct hf_registrar *registrar, uint32_t program, uint32_t version, enum hf_netid netid,
		     uint16_t port);

/* Running. The first round begins with the loop's next turn. */
int hf_registrar_start(struct hf_registrar *registrar);
void hf_registrar_check(struct hf_registrar *registrar); /* a round now, or after the one under way */
/* Removes what is ours from rpcbind, for HF_REGISTRAR_STOP_NS at most; then, never from inside this call,
 * done. Again is no-op. */
void hf_registrar_stop(struct hf_registrar *registrar, void (*done)(void *user), void *user);
