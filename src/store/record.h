/*
 * Facts as bytes: in memory, in the journal and as LMDB's values.
 *
 * A record is a header and a body, padded with zeros to a multiple of 8:
 *
 *	u32 length of all of it   u8 type   u8 zero[3]   body
 *
 * Numbers are little-endian. Bodies:
 *
 *	lock    u64 id owner start end epoch   i32 client_state   u32 flags   u8 kind mode
 *	        u16 lengths of export handle client oh   then those bytes
 *	reservation   u64 id   u16 length   blob (a reservation)
 *	waiter  as a lock, then u8 is_granted   u16 length   route
 *	client  u64 registered_at last_seen   i32 sm_state   u32 program version procedure
 *	        u8 flags: 1 has_callback, 2 is_privileged, 4 is_state_unproven,
 *	                  8 has told_state, 16 is_secured
 *	        addresses (u8 family ip[16]   u16 port   u32 scope) twice   priv[16]
 *	        u16 lengths of id protocol mon_name callback_host   then those bytes
 *	        where the flags say so: i32 told_state; u16 length of identity and its bytes
 *	state   u64 epoch   i32 sm_state   u8 is_clean   u8 flags: 1 is_complete, 2 is_settled
 *	        u8 durability   u16 lengths of boot_id medium   then those bytes
 *	delete  u64 id, or for a client u16 length and its id
 *
 * The decoder trusts nothing: it reads files that may be torn, damaged or not from
 * this server.
 */
#pragma once

#include "store/state.h"
#include "store/store.h"

enum hf_record_type {
	HF_RECORD_VOID, /* put and deleted within one turn: never written */
	HF_RECORD_LOCK,
	HF_RECORD_LOCK_DELETE,
	HF_RECORD_RESERVATION,
	HF_RECORD_RESERVATION_DELETE,
	HF_RECORD_CLIENT,
	HF_RECORD_CLIENT_DELETE,
	HF_RECORD_STATE,
	HF_RECORD_WAITER,
	HF_RECORD_WAITER_DELETE,
};

#define HF_RECORD_HEADER   8
#define HF_RECORD_SHORTEST 16
#define HF_RECORD_MAX      8192 /* no valid record is longer */

struct hf_record {
	enum hf_record_type type;
	struct hf_bytes body;
	union {
		struct hf_store_lock lock;
		struct hf_store_reservation reservation;
		struct hf_store_waiter waiter;
		struct hf_store_client client;
		struct hf_store_state state;
		uint64_t id;          /* of the lock, reservation or waiter to delete */
		struct hf_bytes name; /* of the client to delete */
	};
};

/* Encoding. @out has room for HF_RECORD_MAX bytes. Each returns the length, or -EINVAL beyond the bounds of
 * store.h. */
int hf_record_encode_lock(uint8_t *out, const struct hf_store_lock *lock);
int hf_record_encode_reservation(uint8_t *out, const struct hf_store_reservation *reservation);
int hf_record_encode_waiter(uint8_t *out, const struct hf_store_waiter *waiter);
int hf_record_encode_client(uint8_t *out, const struct hf_store_client *client);
int hf_record_encode_state(uint8_t *out, const struct hf_store_state *state);
int hf_record_encode_delete(uint8_t *out, enum hf_record_type type, uint64_t id);
int hf_record_encode_client_delete(uint8_t *out, struct hf_bytes id);

/* Decoding. Bytes in the result point into the bytes that were decoded. */
int hf_record_decode(struct hf_record *record, enum hf_record_type type, struct hf_bytes body); /* -EBADMSG */
/* Decodes the record at *bytesp and moves past it. 1: a record; 0: the end; -EBADMSG. */
int hf_record_next(struct hf_record *record, struct hf_bytes *bytesp);

/* Fields of a record without decoding its body, only for records that this process encoded. */
uint32_t hf_record_length(const uint8_t *record);
enum hf_record_type hf_record_type(const uint8_t *record);
uint64_t hf_record_id(const uint8_t *record); /* of a lock, reservation or waiter that is put or deleted */
void hf_record_void(uint8_t *record);
