/*
 * What a text in the configuration may be. Every text is valid UTF-8 without
 * control characters, so that it can stand in a log line, in showmount's
 * output and between quotes in YAML as it is.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of a message, to follow the name of an option: "is 'x'; give ..." */
struct hf_config_why {
	char text[480];
};

/* Each is true, or false with a reason. */
bool hf_config_check_text(const char *text, struct hf_config_why *why);
bool hf_config_check_host_name(const char *text, struct hf_config_why *why);
bool hf_config_check_path(const char *text, struct hf_config_why *why); /* absolute, no "." and ".." parts */

/* Drops slashes that say nothing: "//srv/data/" becomes "/srv/data". */
void hf_config_trim_slashes(char *path);
