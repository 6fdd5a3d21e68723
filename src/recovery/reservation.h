/* A reservation as the store has it; reservation.c describes the bytes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "store/store.h"

struct hf_reservation {
	struct hf_bytes export; /* its name */
	struct hf_bytes handle;
	struct hf_bytes client; /* its id */
	struct hf_bytes oh;
	uint32_t count;
	int32_t state;
	uint8_t access, deny;
	uint64_t mark; /* of the last request that changed the count; 0: none */
};

uint32_t hf_reservation_encode(const struct hf_reservation *reservation, uint8_t blob[HF_STORE_MAX_BLOB]);
bool hf_reservation_decode(struct hf_reservation *reservation, struct hf_bytes blob); /* borrows from it */
