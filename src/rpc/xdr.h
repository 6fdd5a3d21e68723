/*
 * XDR (RFC 4506), bounded: the only decoder for bytes from the network, and its encoder.
 *
 * Errors stay. A decoder that has run out of bytes, or met a length over its limit, has
 * failed. From then on it gives zeros and empty views. The caller asks hf_xdr_in_is_ok() once,
 * at the end. Views point into the message and are valid as long as it is. Nothing is
 * allocated.
 *
 * An encoder without room has failed in the same way. It never writes past its end.
 */
#pragma once

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "base/macros.h"

/* Decoding */
struct hf_xdr_in {
	const uint8_t *p;
	const uint8_t *end; /* NULL: failed */
};

static inline void hf_xdr_in_init(struct hf_xdr_in *in, const void *data, size_t len)
{
	in->p = data;
	in->end = in->p + len;
}

static inline bool hf_xdr_in_is_ok(const struct hf_xdr_in *in)
{
	return in->end != NULL;
}

static inline size_t hf_xdr_in_left(const struct hf_xdr_in *in)
{
	return in->end ? (size_t)(in->end - in->p) : 0;
}

static inline void hf_xdr_in_fail(struct hf_xdr_in *in)
{
	in->end = NULL; /* p stays: adding 0 to a null pointer is undefined */
}

static inline uint32_t hf_xdr_word(const uint8_t *p)
{
	uint32_t value;

	memcpy(&value, p, 4);
	return be32toh(value);
}

static inline uint64_t hf_xdr_double_word(const uint8_t *p)
{
	uint64_t value;

	memcpy(&value, p, 8);
	return be64toh(value);
}

/* A peer's length with its padding. It has 64 bits even where an address has 32, so that it never wraps. */
static inline uint64_t hf_xdr_padded(uint32_t len)
{
	return ((uint64_t)len + 3) & ~UINT64_C(3);
}

/* The next @len bytes, without padding; NULL if they are not there. */
static inline const uint8_t *hf_xdr_take(struct hf_xdr_in *in, uint64_t len)
{
	const uint8_t *p = in->p;

	/* A failed decoder has less than nothing left: one comparison for both cases. */
	if (HF_UNLIKELY((intptr_t)((uintptr_t)in->end - (uintptr_t)p) < (int64_t)len)) {
		hf_xdr_in_fail(in);
		return NULL;
	}
	in->p += len;
	return p;
}

static inline uint32_t hf_xdr_get_u32(struct hf_xdr_in *in)
{
	const uint8_t *p = hf_xdr_take(in, 4);

	return p ? hf_xdr_word(p) : 0;
}

static inline int32_t hf_xdr_get_i32(struct hf_xdr_in *in)
{
	return (int32_t)hf_xdr_get_u32(in);
}

static inline uint64_t hf_xdr_get_u64(struct hf_xdr_in *in)
{
	const uint8_t *p = hf_xdr_take(in, 8);

	return p ? hf_xdr_double_word(p) : 0;
}

/* Peers send any non-zero word for true. */
static inline bool hf_xdr_get_bool(struct hf_xdr_in *in)
{
	return hf_xdr_get_u32(in) != 0;
}

/* opaque[len]: fixed length, padded. */
static inline struct hf_bytes hf_xdr_get_fixed(struct hf_xdr_in *in, uint32_t len)
{
	const uint8_t *p = hf_xdr_take(in, hf_xdr_padded(len));

	return (struct hf_bytes){ p, p ? len : 0 };
}

/* opaque<max>; and string<max> if NUL bytes do not matter. */
static inline struct hf_bytes hf_xdr_get_opaque(struct hf_xdr_in *in, uint32_t max)
{
	uint32_t len = hf_xdr_get_u32(in);

	if (HF_UNLIKELY(len > max)) {
		hf_xdr_in_fail(in);
		return (struct hf_bytes){ 0 };
	}
	return hf_xdr_get_fixed(in, len);
}

/*
 * The same for decoders that must be fast: false if it is not there. It does not promise zeros, so the
 * cursor, if it is the caller's own, stays in registers.
 */
static inline bool hf_xdr_read_opaque(struct hf_bytes *bytesp, struct hf_xdr_in *in, uint32_t max)
{
	const uint8_t *p = hf_xdr_take(in, 4);
	uint32_t len;

	if (HF_UNLIKELY(!p))
		return false;
	len = hf_xdr_word(p);
	if (HF_UNLIKELY(len > max || !hf_xdr_take(in, hf_xdr_padded(len))))
		return false;
	bytesp->data = p + 4;
	bytesp->len = len;
	return true;
}

/* string<max> for a name or a key: a NUL byte inside is an error. */
static inline struct hf_bytes hf_xdr_get_string(struct hf_xdr_in *in, uint32_t max)
{
	struct hf_bytes text = hf_xdr_get_opaque(in, max);

	if (text.len && memchr(text.data, '\0', text.len)) {
		hf_xdr_in_fail(in);
		return (struct hf_bytes){ 0 };
	}
	return text;
}

/* Encoding */
struct hf_xdr_out {
	uint8_t *p;
	uint8_t *end; /* NULL: failed */
};

static inline void hf_xdr_out_init(struct hf_xdr_out *out, void *data, size_t len)
{
	out->p = data;
	out->end = out->p + len;
}

static inline bool hf_xdr_out_is_ok(const struct hf_xdr_out *out)
{
	return out->end != NULL;
}

static inline size_t hf_xdr_out_left(const struct hf_xdr_out *out)
{
	return out->end ? (size_t)(out->end - out->p) : 0;
}

/* Room for @len bytes, for the caller to fill; NULL if there is none. */
static inline uint8_t *hf_xdr_reserve(struct hf_xdr_out *out, size_t len)
{
	uint8_t *p = out->p;

	if (HF_UNLIKELY((intptr_t)((uintptr_t)out->end - (uintptr_t)p) < (intptr_t)len)) {
		out->end = NULL;
		return NULL;
	}
	out->p += len;
	return p;
}

static inline void hf_xdr_set_word(uint8_t *p, uint32_t value)
{
	value = htobe32(value);
	memcpy(p, &value, 4);
}

static inline void hf_xdr_put_u32(struct hf_xdr_out *out, uint32_t value)
{
	uint8_t *p = hf_xdr_reserve(out, 4);

	if (p)
		hf_xdr_set_word(p, value);
}

static inline void hf_xdr_put_i32(struct hf_xdr_out *out, int32_t value)
{
	hf_xdr_put_u32(out, (uint32_t)value);
}

static inline void hf_xdr_put_bool(struct hf_xdr_out *out, bool value)
{
	hf_xdr_put_u32(out, value);
}

static inline void hf_xdr_put_u64(struct hf_xdr_out *out, uint64_t value)
{
	uint8_t *p = hf_xdr_reserve(out, 8);

	value = htobe64(value);
	if (p)
		memcpy(p, &value, 8);
}

static inline void hf_xdr_put_fixed(struct hf_xdr_out *out, const void *data, uint32_t len)
{
	size_t padded = ((size_t)len + 3) & ~(size_t)3;
	uint8_t *p = hf_xdr_reserve(out, padded);

	if (!p || !len)
		return;
	memset(p + padded - 4, 0, 4); /* the padding; the data overwrites the rest */
	memcpy(p, data, len);
}

static inline void hf_xdr_put_opaque(struct hf_xdr_out *out, struct hf_bytes bytes)
{
	hf_xdr_put_u32(out, bytes.len);
	hf_xdr_put_fixed(out, bytes.data, bytes.len);
}

static inline void hf_xdr_put_string(struct hf_xdr_out *out, const char *text)
{
	hf_xdr_put_opaque(out, hf_bytes_of_str(text));
}
