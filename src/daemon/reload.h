/*
 * Reading the configuration again (SIGHUP): the exports and the log level change,
 * the rest waits for the next start.
 *
 * To read it, to look at the directories that it shares and at its user may take as
 * long as a disk or a name service wants, so that is for a worker; locks go on
 * meanwhile. What comes of it is taken at home, in one go. There is one at a time:
 * whoever asks while it is under way has it done once more after, as the file may
 * have been read before he changed it.
 */
#pragma once

#include "base/cleanup.h"

struct hf_args;
struct hf_config;
struct hf_file_service;
struct hf_loop;
struct hf_reload;

struct hf_reload_options {
	struct hf_loop *loop; /* home */
	const struct hf_args *args;
	const struct hf_config *started; /* what we run with */
	struct hf_file_service *files;
	/* At home; each begins comes with one ended, be it loaded or not, unless it is stopped in between. */
	void (*begins)(void *user);
	void (*ended)(void *user);
	void *user;
};

/* All that is in @options is borrowed. */
int hf_reload_new(struct hf_reload **reloadp, const struct hf_reload_options *options);
/* Waits for one that is under way, and leaves it at that. */
struct hf_reload *hf_reload_free(struct hf_reload *reload);

HF_DEFINE_CLEANUP(struct hf_reload *, hf_reload_free)

void hf_reload_ask(struct hf_reload *reload);
/* Nothing changes any more, and nobody is told anything. NULL is fine. */
void hf_reload_stop(struct hf_reload *reload);
