/*
 * A reservation as bytes in the store. One record stands for all equal
 * reservations of an owner:
 *
 *	u8 access deny   u16 lengths of export handle client oh   u32 count   i32 state   then those bytes,
 *	and u64 mark, unless it is 0
 */
#include "base/le.h"
#include "recovery/internal.h"

#define HEADER  18
#define N_PARTS 4

uint32_t hf_reservation_encode(const struct hf_reservation *reservation, uint8_t blob[HF_STORE_MAX_BLOB])
{
	const struct hf_bytes parts[N_PARTS] = { reservation->export, reservation->handle,
						 reservation->client, reservation->oh };
	uint8_t *p = blob;

	*p++ = reservation->access;
	*p++ = reservation->deny;
	for (size_t i = 0; i < N_PARTS; i++)
		p = hf_le_put16(p, parts[i].len);
	p = hf_le_put32(p, reservation->count);
	p = hf_le_put32(p, (uint32_t)reservation->state);
	for (size_t i = 0; i < N_PARTS; i++)
		p = hf_le_put_bytes(p, parts[i]);
	if (reservation->mark)
		p = hf_le_put64(p, reservation->mark);
	return (uint32_t)(p - blob);
}

bool hf_reservation_decode(struct hf_reservation *reservation, struct hf_bytes blob)
{
	struct hf_bytes *const parts[N_PARTS] = { &reservation->export, &reservation->handle,
						  &reservation->client, &reservation->oh };
	size_t at = HEADER;

	if (blob.len < HEADER)
		return false;
	for (size_t i = 0; i < N_PARTS; i++) {
		uint32_t len = hf_le_get16(blob.data + 2 + 2 * i);

		if (len > blob.len - at)
			return false;
		*parts[i] = hf_bytes_of(blob.data + at, len);
		at += len;
	}
	reservation->access = blob.data[0];
	reservation->deny = blob.data[1];
	reservation->count = hf_le_get32(blob.data + 10);
	reservation->state = (int32_t)hf_le_get32(blob.data + 14);
	reservation->mark = 0;
	if (blob.len - at == sizeof(reservation->mark)) {
		reservation->mark = hf_le_get64(blob.data + at);
		at = blob.len;
	}
	return at == blob.len && reservation->access <= 3 && reservation->deny <= 3 &&
	       reservation->count > 0 && reservation->export.len <= HF_STORE_MAX_EXPORT &&
	       reservation->handle.len <= HF_LOCK_HANDLE_MAX && reservation->oh.len <= HF_LOCK_OH_MAX;
}
