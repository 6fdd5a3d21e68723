/* What the tests of the configuration share: load a text or a command line, and expect a result. */
#pragma once

#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/args.h"
#include "daemon/config.h"
#include "daemon/config_value.h"
#include "daemon/options.h"

static inline int load_bytes(struct hf_config **configp, const void *text, size_t len, char *error)
{
	int r = hf_config_load_text(configp, "f.yaml", text, len, 0, error, HF_CONFIG_ERROR_SIZE);

	assert_null(strpbrk(error, "\r\n\033"));
	assert_int_equal(r == 0, *error == '\0');
	return r;
}

/* The text is right; the caller frees what it gives. */
static inline struct hf_config *load_good(const char *text)
{
	char error[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config = NULL;

	if (load_bytes(&config, text, strlen(text), error))
		fail_msg("%s", error);
	return config;
}

/* The text is wrong, and this is exactly what is said of it. */
static inline void expect_wrong(const char *text, const char *message)
{
	char error[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config = NULL;

	assert_int_equal(load_bytes(&config, text, strlen(text), error), HF_CONFIG_E_WRONG);
	assert_null(config);
	assert_string_equal(error, message);
}

/* The same for one --set or --export */
static inline int load_argument(struct hf_config **configp, const char *flag, const char *argument,
				char *error)
{
	struct hf_args args = { 0 };
	int r;

	if (strcmp(flag, "--set") == 0) {
		args.sets = &argument;
		args.n_sets = 1;
	} else {
		args.exports = &argument;
		args.n_exports = 1;
	}
	*configp = NULL;
	r = hf_config_load(configp, &args, error, HF_CONFIG_ERROR_SIZE);
	assert_null(strpbrk(error, "\r\n\033"));
	return r;
}

static inline struct hf_config *set_good(const char *argument)
{
	char error[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config;

	if (load_argument(&config, "--set", argument, error))
		fail_msg("%s", error);
	return config;
}

static inline void set_wrong(const char *argument, const char *message)
{
	char error[HF_CONFIG_ERROR_SIZE], expected[HF_CONFIG_ERROR_SIZE];
	struct hf_config *config;

	assert_int_equal(load_argument(&config, "--set", argument, error), HF_CONFIG_E_WRONG);
	assert_null(config);
	snprintf(expected, sizeof(expected), "--set %s: %s", argument, message);
	assert_string_equal(error, expected);
}

/* The value of a key, as --print-config has it; the caller frees it. */
static inline char *value_text(const struct hf_config *config, const char *name)
{
	const struct hf_option *option = hf_option_find_by_name(name);
	const void *base = config;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(option);
	if (hf_option_is_per_export(option)) {
		assert_int_not_equal(config->exports.n, 0);
		base = &config->exports.items[0];
	}
	hf_config_value_print(hf_config_field_const(base, option), option, out);
	fclose(out);
	return text;
}

static inline void assert_value(const struct hf_config *config, const char *name, const char *expected)
{
	char *text = value_text(config, name);

	if (strcmp(text, expected) != 0)
		fail_msg("%s is %s, not %s", name, text, expected);
	free(text);
}

static inline char *print(const struct hf_config *config)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	hf_config_print(config, out);
	fclose(out);
	return text;
}
