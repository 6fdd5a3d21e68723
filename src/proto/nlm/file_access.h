/*
 * What an operation remembers while it asks for its file: may the caller lock it, and, where locks are taken
 * in the kernel, too, the opened file. See file_access.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "export/local.h"
#include "proto/nlm/wire.h"
#include "vfs/disk_queue.h"
#include "vfs/identity.h"

/* Everything that the answer depends on. */
struct hf_nlm_question {
	struct hf_addr peer; /* its port counts as reserved or not */
	uint32_t flavor;
	uint32_t for_writing;
	struct hf_identity identity;
	uint32_t handle_len;
	uint8_t handle[HF_NLM_MAX_HANDLE];
};

/* An answer, as it is remembered for later calls. */
struct hf_nlm_right {
	uint64_t key; /* of its question; 0: there is none */
	uint64_t until;
	uint64_t n_exports; /* hf_exports_count_changes() before the question was asked */
	uint64_t since;     /* hf_watch_count(), the same */
	int watch;          /* 0: the file is not watched */
	enum hf_nlm_stat stat;
};

struct hf_nlm_asking {
	struct hf_question asked;
	struct hf_nlm_question question;
	struct hf_nlm_right right;
	bool opens; /* the file, for the kernel's locks */
	struct hf_local_opened opened;
};
