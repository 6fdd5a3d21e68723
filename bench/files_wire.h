/* As much of XDR, RPC and blocking sockets as the file benchmark needs; whatever goes wrong ends it. */
#pragma once

#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define BENCH_BUFFER ((1 << 20) + 65536) /* room for any reply */

struct handle {
	uint32_t len;
	uint8_t bytes[64];
};

static inline void die(const char *what)
{
	fprintf(stderr, "bench_files: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* XDR */

static inline uint8_t *put32(uint8_t *p, uint32_t value)
{
	value = htobe32(value);
	memcpy(p, &value, 4);
	return p + 4;
}

static inline uint8_t *put64(uint8_t *p, uint64_t value)
{
	value = htobe64(value);
	memcpy(p, &value, 8);
	return p + 8;
}

static inline uint8_t *put_bytes(uint8_t *p, const void *data, uint32_t len)
{
	p = put32(p, len);
	memset(p + (len & ~3u), 0, 4);
	memcpy(p, data, len);
	return p + ((len + 3) & ~3u);
}

static inline uint8_t *put_handle(uint8_t *p, const struct handle *handle)
{
	return put_bytes(p, handle->bytes, handle->len);
}

static inline uint32_t get32(const uint8_t *p)
{
	uint32_t value;

	memcpy(&value, p, 4);
	return be32toh(value);
}

static inline uint64_t get64(const uint8_t *p)
{
	return (uint64_t)get32(p) << 32 | get32(p + 4);
}

/* A call with room for the record mark before it; AUTH_SYS as the superuser. */
static inline uint8_t *put_call(uint8_t *p, uint32_t xid, uint32_t program, uint32_t version,
				uint32_t procedure)
{
	p = put32(p + 4, xid);
	p = put32(p, 0);
	p = put32(p, 2);
	p = put32(p, program);
	p = put32(p, version);
	p = put32(p, procedure);
	p = put32(p, 1); /* AUTH_SYS */
	p = put32(p, 28);
	p = put32(p, 0);
	p = put_bytes(p, "bench", 5);
	p = put32(p, 0);
	p = put32(p, 0);
	p = put32(p, 0);
	p = put32(p, 0); /* verifier */
	return put32(p, 0);
}

/* Sockets */

static inline void send_all(int fd, struct iovec *iov, int n)
{
	while (n) {
		ssize_t sent = writev(fd, iov, n);

		if (sent < 0)
			die("send");
		while (n && (size_t)sent >= iov->iov_len) {
			sent -= (ssize_t)iov->iov_len;
			iov++;
			n--;
		}
		if (n) {
			iov->iov_base = (uint8_t *)iov->iov_base + sent;
			iov->iov_len -= (size_t)sent;
		}
	}
}

static inline void send_call(int fd, uint8_t *call, uint8_t *end, const void *payload, uint32_t len)
{
	struct iovec iov[2] = { { call, (size_t)(end - call) }, { (void *)(uintptr_t)payload, len } };

	put32(call, 0x80000000u | (uint32_t)(end - call - 4 + len));
	send_all(fd, iov, len ? 2 : 1);
}

static inline void receive_exactly(int fd, uint8_t *data, size_t len)
{
	while (len) {
		ssize_t n = recv(fd, data, len, 0);

		if (n <= 0)
			die("receive");
		data += n;
		len -= (size_t)n;
	}
}

/* The results in a reply, after the RPC header; *lenp of them. NULL: refused. */
static inline const uint8_t *find_results(const uint8_t *reply, size_t len, size_t *lenp)
{
	if (len < 28 || get32(reply + 8) != 0 || get32(reply + 20) != 0)
		return NULL;
	*lenp = len - 24;
	return reply + 24;
}

/* Those of the next reply. */
static inline const uint8_t *receive_reply(int fd, uint8_t *in, size_t *lenp)
{
	uint32_t len;

	receive_exactly(fd, in, 4);
	len = get32(in) & 0x7fffffff;
	if (len > BENCH_BUFFER)
		die("reply too long");
	receive_exactly(fd, in, len);
	return find_results(in, len, lenp);
}

static inline struct handle get_handle(const uint8_t *p)
{
	struct handle handle = { .len = get32(p) };

	if (handle.len > sizeof(handle.bytes))
		die("handle");
	memcpy(handle.bytes, p + 4, handle.len);
	return handle;
}
