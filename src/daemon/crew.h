/*
 * The further loops: one thread each, beside the home loop, which runs in main.
 * They serve programs without shared state (NFS, MOUNT); locks and recovery run
 * on the home loop.
 */
#pragma once

#include <stddef.h>

#include "base/cleanup.h"

struct hf_crew;
struct hf_loop;

int hf_crew_new(struct hf_crew **crewp, size_t n);
struct hf_crew *
hf_crew_free(struct hf_crew *crew); /* after hf_crew_stop(), when the objects on the loops are freed */

HF_DEFINE_CLEANUP(struct hf_crew *, hf_crew_free)

size_t hf_crew_size(const struct hf_crew *crew);
struct hf_loop *hf_crew_loop(const struct hf_crew *crew, size_t i);

int hf_crew_start(struct hf_crew *crew);
void hf_crew_stop(struct hf_crew *crew); /* returns when all threads have ended */
/* Runs what was posted to the loops and to @home, and what that posts in turn. */
void hf_crew_drain(struct hf_crew *crew, struct hf_loop *home);
