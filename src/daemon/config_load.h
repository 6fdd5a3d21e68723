/*
 * A configuration while it is loaded. Beside the values it records where each
 * came from, so that a check of two values can still name a line.
 */
#pragma once

#include "daemon/config.h"
#include "daemon/config_error.h"
#include "daemon/options.h"

struct hf_config_export_source {
	struct hf_config_source whole;     /* the entry, or --export */
	unsigned int lines[HF_OPTION_MAX]; /* of its keys, by hf_option_index(); 0: not given */
};

struct hf_config_load {
	struct hf_config *config;
	struct hf_config_error error;
	struct hf_config_source sources[HF_OPTION_MAX]; /* by hf_option_index() */
	struct hf_config_export_source *exports;        /* one for each of config->exports */
};

/* The steps, in their order. Each returns 0, HF_CONFIG_E_WRONG with a complaint, or -errno. */
int hf_config_read_yaml(struct hf_config_load *load, const char *file, const void *text, size_t len);
int hf_config_read_set(struct hf_config_load *load, const char *argument);    /* KEY=VALUE */
int hf_config_read_export(struct hf_config_load *load, const char *argument); /* DIR[:NAME] */
int hf_config_check(struct hf_config_load *load);      /* checks values against each other */
int hf_config_check_host(struct hf_config_load *load); /* checks values against this host */

/* Sets the options of a configuration, or those of an export, to their defaults. */
int hf_config_set_presets(void *base, bool per_export);
/* Adds an export with the defaults of its keys. */
int hf_config_add_export(struct hf_config_load *load, const struct hf_config_source *source,
			 struct hf_config_export **exportp);
