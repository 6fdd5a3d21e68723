/* A file service and its reload, with a configuration in a folder of their own. */
#pragma once

#include "../turn.h"

#include <unistd.h>

#include "api/api.h"
#include "base/log.h"
#include "config_fixture.h"
#include "daemon/files.h"
#include "daemon/reload.h"
#include "export/export.h"
#include "tls/tls.h"

struct bed {
	char base[32];
	char file[64]; /* the configuration; the test's to make */
	struct hf_args args;
	struct hf_loop *loop;
	struct hf_config *started;
	struct hf_file_service *files;
	struct hf_tls *tls;
	struct hf_reload *reload;
	int n_begun, n_changed, n_ended;
	bool is_loaded; /* the last one, as the next two */
	bool is_last;
	char why[1024];
	char fixed[256];
};

static inline void bed_on_begins(void *user)
{
	((struct bed *)user)->n_begun++;
}

static inline void bed_on_changes(void *user, struct hf_config *config)
{
	((struct bed *)user)->n_changed++;
}

static inline void bed_on_ended(void *user, const struct hf_api_reload_outcome *outcome)
{
	struct bed *bed = user;

	bed->n_ended++;
	bed->is_loaded = outcome->is_loaded;
	bed->is_last = outcome->is_last;
	snprintf(bed->why, sizeof(bed->why), "%s", outcome->why);
	snprintf(bed->fixed, sizeof(bed->fixed), "%s", outcome->fixed);
}

static inline void bed_make_folder(struct bed *bed)
{
	*bed = (struct bed){ .base = "/tmp/hf-reload-XXXXXX" };
	assert_non_null(mkdtemp(bed->base));
	snprintf(bed->file, sizeof(bed->file), "%s/config", bed->base);
	bed->args.config_file = bed->file;
}

static inline int bed_start(struct bed *bed, const char *text)
{
	struct hf_reload_options options = {
		.begins = bed_on_begins, .change = bed_on_changes, .ended = bed_on_ended, .user = bed
	};

	bed->started = load_good(text);
	if (hf_loop_new(&bed->loop) < 0 ||
	    hf_file_service_new(&bed->files, bed->loop, bed->started, NULL) < 0 || hf_tls_new(&bed->tls) < 0)
		return -1;
	options.loop = bed->loop;
	options.args = &bed->args;
	options.started = bed->started;
	options.files = bed->files;
	options.tls = bed->tls;
	return hf_reload_new(&bed->reload, &options);
}

static inline int bed_end(struct bed *bed)
{
	char command[128];

	hf_reload_free(bed->reload);
	hf_file_service_wait(bed->files);
	while (hf_loop_drain(bed->loop))
		;
	hf_file_service_free(bed->files);
	hf_tls_free(bed->tls);
	hf_loop_free(bed->loop);
	hf_config_free(bed->started);
	snprintf(command, sizeof(command), "rm -r %s", bed->base);
	return system(command);
}

static inline void bed_until_ended(struct bed *bed, int n)
{
	turn_until(bed->loop, bed->n_ended >= n);
	assert_int_equal(bed->n_ended, n);
}
