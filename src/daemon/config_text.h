/*
 * Which texts the configuration accepts. Every text is valid UTF-8 without
 * control characters, so that it can stand unchanged in a log line, in
 * showmount's output and between quotes in YAML.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The part of a message after the name of an option: "is 'x'; give ..." */
struct hf_config_why {
	char text[480];
};

/* Each returns true, or false with a reason. */
bool hf_config_check_text(const char *text, struct hf_config_why *why);
bool hf_config_check_host_name(const char *text, struct hf_config_why *why);
/* Absolute, without "." and ".." parts. */
bool hf_config_check_path(const char *text, struct hf_config_why *why);

/* Removes redundant slashes: "//srv/data/" becomes "/srv/data". */
void hf_config_trim_slashes(char *path);
