/*
 * Beside the server's codecs in the tests: those that rpcgen makes from the .x files, one header each, which
 * includes this.
 *
 * libtirpc's <rpc/xdr.h> and the server's "rpc/xdr.h" cannot be had in one file. So the
 * tests see its types alone, and the library, which sees nothing of the server, has the rest.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef ORACLE_IS_BUILT
#include <rpc/rpc.h>
#else
typedef struct __rpc_xdr XDR;
typedef int32_t bool_t;
typedef bool_t (*xdrproc_t)(XDR *, ...);
#endif

/* rpcgen's strings are not const, even those that are only read. */
static inline char *oracle_text(const void *text)
{
	return (char *)(uintptr_t)text;
}

/* Their bytes of @value; how many, 0 where they refuse it. */
size_t oracle_encode(void *out, size_t size, xdrproc_t proc, void *value);
/* @value zeroed before, and freed by oracle_free() after. False as well where not all bytes were used. */
bool oracle_decode(const void *data, size_t len, xdrproc_t proc, void *value);
void oracle_free(xdrproc_t proc, void *value);
