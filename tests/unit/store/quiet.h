/* The events of a store to which the test does not listen. */
#pragma once

#include "store/store.h"

static void quiet_reached(void *user, enum hf_store_kind kind, uint64_t ticket)
{
}

static void quiet_failed(void *user, uint64_t first_lost)
{
}

static void quiet(void *user)
{
}

static const struct hf_store_events quiet_events = {
	.on_reached = quiet_reached,
	.on_failed = quiet_failed,
	.on_resync = quiet,
	.on_recovered = quiet,
};
