/*
 * The file service as a whole: exports, the threads for files, NFS and MOUNT; and
 * what the others want to know of exports: the lock table's number of a share and
 * its name in the store, and who may use any of them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "proto/nlm/nlm.h"
#include "recovery/recovery.h"

struct hf_config;
struct hf_export_list;
struct hf_file_service;
struct hf_jobs;
struct hf_local;
struct hf_loop;
struct hf_rpc_server;

/* How many threads are for files, and for what locks want to know of them, at most. */
size_t hf_file_service_threads(const struct hf_config *config);
int hf_file_service_new(struct hf_file_service **servicep, struct hf_loop *loop,
			const struct hf_config *config);
struct hf_file_service *hf_file_service_free(struct hf_file_service *service);

HF_DEFINE_CLEANUP(struct hf_file_service *, hf_file_service_free)

/* Adds NFS and MOUNT. */
int hf_file_service_serve(struct hf_file_service *service,
			  int (*serve)(void *user, const struct hf_rpc_program *program, void *object),
			  void *user);
/* The exports of another configuration: prepare looks at their directories, and may have to wait for a disk,
 * on any thread; *n_failedp counts those that cannot be shared, which are in the log and not in the list.
 * Take, at home, has them served from now on; < 0: want of memory, and all is as before. */
int hf_file_service_prepare(struct hf_file_service *service, const struct hf_config *config,
			    struct hf_export_list *listp, size_t *n_failedp);
int hf_file_service_take(struct hf_file_service *service, struct hf_export_list *list);
/* To stop: no calls come any more; waits until those on the files' threads are done. Their answers are with
 * the loops then. */
void hf_file_service_wait(struct hf_file_service *service);

/* For the others; each borrows @service. */
struct hf_jobs *hf_file_service_jobs(struct hf_file_service *service);
struct hf_nlm_files hf_file_service_nlm(struct hf_file_service *service);
uint64_t hf_file_service_key_print(const struct hf_file_service *service); /* of the key that seals handles */
struct hf_recovery_shares hf_file_service_shares(struct hf_file_service *service);
struct hf_local *hf_file_service_local(struct hf_file_service *service);
/* The table, with what was loaded into it: that is taken in the kernel, too, where that is wanted. */
void hf_file_service_set_locks(struct hf_file_service *service, struct hf_locks *locks);
bool hf_file_service_is_client(void *service, const struct hf_addr *peer);
