/*
 * A YAML text as a tree of nodes that know their line. It uses libyaml's events
 * (docs/decisions/0004-yaml.md says why not libcyaml) and accepts the part of
 * YAML that a configuration needs: one document of mappings, lists and scalars,
 * with anchors and aliases. Tags are refused. An alias is a reference, never a
 * copy, so a small file stays a small tree; the limits are below.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "daemon/config_error.h"

#define HF_YAML_MAX_DEPTH   16
#define HF_YAML_MAX_NODES   50000
#define HF_YAML_MAX_ANCHORS 64

enum hf_yaml_kind {
	HF_YAML_SCALAR,
	HF_YAML_LIST,
	HF_YAML_MAP, /* its children are key, value, key, value, ... */
	HF_YAML_ALIAS,
};

struct hf_yaml_node {
	enum hf_yaml_kind kind;
	unsigned int line;  /* from 1 */
	bool is_plain;      /* a scalar without quotes */
	char *text;         /* of a scalar; the only NUL is at its end */
	unsigned int first; /* first child, or the target of an alias; index + 1, 0: none */
	unsigned int next;  /* next sibling, in the same form */
};

struct hf_yaml {
	struct hf_yaml_node *nodes;
	size_t n_nodes;
	size_t n_room;
};

/* 0, HF_CONFIG_E_WRONG with a complaint about a line of @file, or -ENOMEM. Call hf_yaml_deinit() in every
 * case. */
int hf_yaml_init(struct hf_yaml *yaml, const char *file, const void *text, size_t len,
		 struct hf_config_error *error);
void hf_yaml_deinit(struct hf_yaml *yaml);

/* Walking; NULL at the end. Aliases are followed, so no returned node is an alias. A cursor, not the node,
 * leads to the next sibling. */
struct hf_yaml_cursor {
	const struct hf_yaml *yaml;
	unsigned int at;
};

const struct hf_yaml_node *hf_yaml_root(const struct hf_yaml *yaml); /* NULL: an empty document */
struct hf_yaml_cursor hf_yaml_children(const struct hf_yaml *yaml, const struct hf_yaml_node *node);
const struct hf_yaml_node *hf_yaml_next(struct hf_yaml_cursor *cursor);

/* Is the value empty: an empty plain scalar, ~ or null? */
bool hf_yaml_is_null(const struct hf_yaml_node *node);
