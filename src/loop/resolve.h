/* The address of a host by its name. It asks files and servers, so it is for a worker (loop/work.h) alone. */
#pragma once

struct hf_addr;

/* The first address that we may call, and that is not our own loopback; -ENOENT: there is none. */
int hf_resolve_host(struct hf_addr *addrp, const char *name);
