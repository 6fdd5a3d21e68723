/*
 * The wire format of program 100000, v2 (port mapper), v3 and v4 (rpcbind), in
 * both directions (RFC 1833; portmap.x). Pure functions over bytes; a decoder's
 * caller checks hf_xdr_in_is_ok() at the end.
 *
 * A list is a sequence of (1, element), ended by 0.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "proto/portmap/netid.h"
#include "rpc/uaddr.h"
#include "rpc/xdr.h"

#define HF_PORTMAP_PROGRAM 100000

enum hf_pmap_proc {
	HF_PMAPPROC_NULL,
	HF_PMAPPROC_SET,
	HF_PMAPPROC_UNSET,
	HF_PMAPPROC_GETPORT,
	HF_PMAPPROC_DUMP,
	HF_PMAPPROC_CALLIT,
	HF_N_PMAPPROCS,
};

enum hf_rpcb_proc {
	HF_RPCBPROC_NULL,
	HF_RPCBPROC_SET,
	HF_RPCBPROC_UNSET,
	HF_RPCBPROC_GETADDR,
	HF_RPCBPROC_DUMP,
	HF_RPCBPROC_CALLIT,
	HF_RPCBPROC_GETTIME,
	HF_RPCBPROC_UADDR2TADDR,
	HF_RPCBPROC_TADDR2UADDR,
	HF_N_RPCB3PROCS,
	HF_RPCBPROC_GETVERSADDR = HF_N_RPCB3PROCS,
	HF_RPCBPROC_INDIRECT,
	HF_RPCBPROC_GETADDRLIST,
	HF_RPCBPROC_GETSTAT,
	HF_N_RPCB4PROCS,
};

/* Bounds that this server sets; the RFC has none. */
#define HF_RPCB_MAX_NETID 32
#define HF_RPCB_MAX_UADDR 128
#define HF_RPCB_MAX_OWNER 256
#define HF_RPCB_MAX_TADDR 128

/* The most bytes of an encoded element, with the 1 before it. */
#define HF_PMAP_ELEMENT  20
#define HF_RPCB_ELEMENT  (4 + 8 + 8 + 4 + HF_UADDR_TEXT + 4 + 12)
#define HF_ENTRY_ELEMENT (4 + 4 + HF_UADDR_TEXT + 8 + 4 + 12 + 8)

struct hf_pmap {
	uint32_t program;
	uint32_t version;
	uint32_t protocol;
	uint32_t port;
};

/* The strings are views. */
struct hf_rpcb {
	uint32_t program;
	uint32_t version;
	struct hf_bytes netid;
	struct hf_bytes uaddr;
	struct hf_bytes owner;
};

/* Version 2 */
struct hf_pmap hf_pmap_get(struct hf_xdr_in *in);
void hf_pmap_put(struct hf_xdr_out *out, const struct hf_pmap *pmap);

/* Versions 3 and 4 */
struct hf_rpcb hf_rpcb_get(struct hf_xdr_in *in);
/* The same without bounds, for rpcbind's answers: rpcbind stores whatever a local process gave it. */
struct hf_rpcb hf_rpcb_get_any(struct hf_xdr_in *in);
void hf_rpcb_put(struct hf_xdr_out *out, const struct hf_rpcb *rpcb);

struct hf_bytes hf_uaddr_get(struct hf_xdr_in *in);

/* A kernel sockaddr in a "netbuf"; family 0 is an empty one. Reading returns false if it is not an Internet
 * address, also if the XDR is well formed. */
bool hf_netbuf_get(struct hf_addr *addr, struct hf_xdr_in *in);
void hf_netbuf_put(struct hf_xdr_out *out, const struct hf_addr *addr);

/* An element of GETADDRLIST's answer */
void hf_entry_put(struct hf_xdr_out *out, const char *uaddr, enum hf_netid netid);
