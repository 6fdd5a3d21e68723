/* The address of a host name. It reads files and asks servers, so only a worker may call it (loop/work.h). */
#pragma once

struct hf_addr;

/* The first address that may be called and is not loopback; -ENOENT: there is none. */
int hf_resolve_host(struct hf_addr *addrp, const char *name);
