/* The procedures of the embedded rpcbind and what they share. */
#pragma once

#include <stdbool.h>

#include "proto/portmap/rpcbind.h"
#include "rpc/call.h"

/* rpcbind.c */
void hf_rpcbind_count(struct hf_rpcbind *rpcbind, const struct hf_rpc_call *call);
/* The same, after the arguments were read. false: they are invalid, and the call has been answered. */
bool hf_rpcbind_begin(struct hf_rpcbind *rpcbind, struct hf_rpc_call *call);
/* May the caller change the table? A refusal is counted, and logged once in a while. */
bool hf_rpcbind_may_change(struct hf_rpcbind *rpcbind, const struct hf_rpc_call *call);
/* SET and UNSET after decoding; false: answer FALSE. */
bool hf_rpcbind_set(struct hf_rpcbind *rpcbind, const struct hf_rpc_call *call, uint32_t program,
		    uint32_t version, enum hf_netid netid, const struct hf_addr *addr);
bool hf_rpcbind_unset(struct hf_rpcbind *rpcbind, const struct hf_rpc_call *call, uint32_t program,
		      uint32_t version, unsigned int netids);
void hf_rpcbind_reply_bool(struct hf_rpc_call *call, bool value);
/* The most bytes that a list of @n elements may take for this caller. */
size_t hf_rpcbind_list_room(const struct hf_rpc_call *call, size_t n, size_t element);

/* proc_pmap.c */
void hf_pmap_proc_null(void *service, struct hf_rpc_call *call);
void hf_pmap_proc_set(void *service, struct hf_rpc_call *call);
void hf_pmap_proc_unset(void *service, struct hf_rpc_call *call);
void hf_pmap_proc_getport(void *service, struct hf_rpc_call *call);
void hf_pmap_proc_dump(void *service, struct hf_rpc_call *call);

/* proc_rpcb.c */
void hf_rpcb_proc_set(void *service, struct hf_rpc_call *call);
void hf_rpcb_proc_unset(void *service, struct hf_rpc_call *call);
void hf_rpcb_proc_getaddr(void *service, struct hf_rpc_call *call);
void hf_rpcb_proc_dump(void *service, struct hf_rpc_call *call);
void hf_rpcb_proc_gettime(void *service, struct hf_rpc_call *call);
void hf_rpcb_proc_uaddr2taddr(void *service, struct hf_rpc_call *call);
void hf_rpcb_proc_taddr2uaddr(void *service, struct hf_rpc_call *call);
void hf_rpcb_proc_getversaddr(void *service, struct hf_rpc_call *call);
void hf_rpcb_proc_getaddrlist(void *service, struct hf_rpc_call *call);
void hf_rpcb_proc_getstat(void *service, struct hf_rpc_call *call);
