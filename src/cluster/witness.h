/*
 * The witness: a process that sees this server's process die, and gives the service up for it.
 *
 * When the process of the active node is killed and its machine lives, the other nodes would
 * wait for the end of the lease. The witness knows at once that nothing of the process runs any
 * more: the kernel closes the socket between the two only after the last system call of the
 * last thread has ended. So the service is handed over as if the process had stopped in order:
 * the witness removes the addresses and clears the owner in the database. Where the machine
 * dies, the witness dies, too, and the lease decides.
 *
 * It is forked before the sandbox, while there is one thread, and ends with the server.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "cluster/address.h"

struct hf_witness;

struct hf_witness_options {
	const char *postgres;
	const char *service;
	uint64_t lease_ns;
	const struct hf_service_address *addresses;
	size_t n_addresses;
	void (*confine)(void); /* drops the rights of the new process */
};

int hf_witness_new(struct hf_witness **witnessp, const struct hf_witness_options *options);
struct hf_witness *hf_witness_free(struct hf_witness *witness); /* it ends, and gives nothing up */

HF_DEFINE_CLEANUP(struct hf_witness *, hf_witness_free)

/* The term that it would give up; empty: none. */
void hf_witness_tell(struct hf_witness *witness, const char *owner);
