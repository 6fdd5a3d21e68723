/*
 * The further loops: one thread each, beside the home loop, which runs in main.
 * They serve programs without shared state (NFS, MOUNT); locks and recovery run
 * on the home loop.
 */
#pragma once

#include <stddef.h>

#include "base/cleanup.h"

struct hf_loop_threads;
struct hf_loop;

int hf_loop_threads_new(struct hf_loop_threads **threadsp, size_t n);
struct hf_loop_threads *hf_loop_threads_free(
	struct hf_loop_threads
		*threads); /* after hf_loop_threads_stop(), when the objects on the loops are freed */

HF_DEFINE_CLEANUP(struct hf_loop_threads *, hf_loop_threads_free)

size_t hf_loop_threads_size(const struct hf_loop_threads *threads);
struct hf_loop *hf_loop_threads_loop(const struct hf_loop_threads *threads, size_t i);

int hf_loop_threads_start(struct hf_loop_threads *threads);
void hf_loop_threads_stop(struct hf_loop_threads *threads); /* returns when all threads have ended */
/* Runs what was posted to the loops and to @home, and what that posts in turn. */
void hf_loop_threads_drain(struct hf_loop_threads *threads, struct hf_loop *home);
