/*
 * The codec that rpcgen makes from nlm.x, beside ours in the tests.
 *
 * libtirpc's <rpc/xdr.h> and our "rpc/xdr.h" cannot be had in one file. So the
 * tests see its types alone, and oracle.c, which sees nothing of ours, has the rest.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifndef ORACLE_HAS_RPC
typedef struct __rpc_xdr XDR;
typedef int32_t bool_t;
typedef bool_t (*xdrproc_t)(XDR *, ...);
#endif

#include "nlm_oracle.h"

/* Their bytes of @value; how many, 0 where they refuse it. */
size_t oracle_encode(void *out, size_t size, xdrproc_t proc, void *value);
/* @value zeroed before, and freed by oracle_free() after. False as well where not all bytes were used. */
bool oracle_decode(const void *data, size_t len, xdrproc_t proc, void *value);
void oracle_free(xdrproc_t proc, void *value);
