/*
 * The further loops: one thread each, beside the home loop that runs in main.
 * They serve what has no shared state (files, mounts); locks and recovery live
 * at home.
 */
#pragma once

#include <stddef.h>

#include "base/cleanup.h"

struct hf_crew;
struct hf_loop;

int hf_crew_new(struct hf_crew **crewp, size_t n);
struct hf_crew *
hf_crew_free(struct hf_crew *crew); /* after hf_crew_stop(); what lived on the loops is gone */

HF_DEFINE_CLEANUP(struct hf_crew *, hf_crew_free)

size_t hf_crew_size(const struct hf_crew *crew);
struct hf_loop *hf_crew_loop(const struct hf_crew *crew, size_t i);

int hf_crew_start(struct hf_crew *crew);
void hf_crew_stop(struct hf_crew *crew); /* returns when all have ended */
/* What was posted to them and to @home is still done, and what that posts to any of them. */
void hf_crew_drain(struct hf_crew *crew, struct hf_loop *home);
