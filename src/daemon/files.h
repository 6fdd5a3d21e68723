/*
 * The file service as a whole: exports, the file threads, NFS and MOUNT. It
 * gives the table of exports to the parts that ask about them: locks, their
 * recovery, the status service.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/cleanup.h"
#include "proto/nlm/nlm.h"
#include "recovery/recovery.h"

struct hf_call_log;
struct hf_config;
struct hf_export_list;
struct hf_export_table;
struct hf_file_service;
struct hf_jobs;
struct hf_local;
struct hf_loop;
struct hf_seal_key;
struct hf_usage;

/* The greatest number of threads for files and for the questions that locks have about them. */
size_t hf_file_service_threads(const struct hf_config *config);
/* @key: that seals handles; NULL: that of the state directory. */
int hf_file_service_new(struct hf_file_service **servicep, struct hf_loop *loop,
			const struct hf_config *config, const struct hf_seal_key *key);
struct hf_file_service *hf_file_service_free(struct hf_file_service *service);

HF_DEFINE_CLEANUP(struct hf_file_service *, hf_file_service_free)

/* Adds NFS and MOUNT. */
int hf_file_service_serve(struct hf_file_service *service,
			  int (*serve)(void *user, const struct hf_rpc_program *program, void *object),
			  void *user);
/* The exports of another configuration. prepare() opens their directories, on any thread, and may wait for a
 * disk; *n_failedp counts those that cannot be exported, which are logged and left out. take() runs on the
 * home loop and serves them from now on. < 0: out of memory, nothing changed. */
int hf_file_service_prepare(struct hf_file_service *service, const struct hf_config *config,
			    struct hf_export_list *listp, size_t *n_failedp);
int hf_file_service_take(struct hf_file_service *service, struct hf_export_list *list);
/* NFS calls are counted there, by client and export, from now on. NULL, as in the beginning: they are not. */
void hf_file_service_set_usage(struct hf_file_service *service, struct hf_usage *usage);
/* What is written about calls; after a change of it, or of log.slow_ms, that holds for calls from now on. */
struct hf_call_log *hf_file_service_call_log(struct hf_file_service *service);
void hf_file_service_log_calls(struct hf_file_service *service, const struct hf_config *config);
/* To stop, after the last call has come: waits until the calls on file threads are done. Their answers have
 * then been posted to the loops. */
void hf_file_service_wait(struct hf_file_service *service);

/* For other parts; each borrows @service. */
struct hf_jobs *hf_file_service_jobs(struct hf_file_service *service);
struct hf_export_table *hf_file_service_table(struct hf_file_service *service);
struct hf_nlm_files hf_file_service_nlm(struct hf_file_service *service);
/* Identifies the key that seals handles. */
uint64_t hf_file_service_key_print(const struct hf_file_service *service);
struct hf_recovery_exports hf_file_service_exports(struct hf_file_service *service);
struct hf_local *hf_file_service_local(struct hf_file_service *service);
void hf_file_service_show_limits(struct hf_file_service *service, struct hf_limit_use uses[HF_N_LIMITS]);
/* Gives it the lock table after loading: where an export wants that, the loaded locks are also taken in the
 * kernel. */
void hf_file_service_set_locks(struct hf_file_service *service, struct hf_locks *locks);
