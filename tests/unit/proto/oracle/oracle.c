#include "oracle.h"

size_t oracle_encode(void *out, size_t size, xdrproc_t proc, void *value)
{
	XDR xdr;
	size_t len;

	xdrmem_create(&xdr, out, (unsigned int)size, XDR_ENCODE);
	len = proc(&xdr, value) ? xdr_getpos(&xdr) : 0;
	xdr_destroy(&xdr);
	return len;
}

bool oracle_decode(const void *data, size_t len, xdrproc_t proc, void *value)
{
	XDR xdr;
	bool ok;

	xdrmem_create(&xdr, (void *)(uintptr_t)data, (unsigned int)len, XDR_DECODE);
	ok = proc(&xdr, value) && xdr_getpos(&xdr) == len;
	xdr_destroy(&xdr);
	return ok;
}

void oracle_free(xdrproc_t proc, void *value)
{
	xdr_free(proc, value);
}
