/* The command line of holdfastd. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Texts are borrowed from argv. */
struct hf_args {
	const char *config_file; /* NULL: the embedded defaults */
	const char **sets;       /* KEY=VALUE, in the given order */
	size_t n_sets;
	const char **exports; /* DIR[:NAME], in the given order */
	size_t n_exports;
	bool check;
	bool check_ports;
	bool print_config;
	bool clear_store;
	bool version;
	bool help;
};

#define HF_ARGS_EXIT_WRONG 2 /* the exit status for a wrong command line or configuration */

enum { /* answers of hf_args_init() */
	HF_ARGS_OK = 0,
	HF_ARGS_E_WRONG, /* @error says in one line what is wrong and what would be right */
};

/* Call hf_args_deinit() in every case. Arguments after --help or --version are not checked. */
int hf_args_init(struct hf_args *args, int argc, char *const argv[], char *error, size_t error_size);
void hf_args_deinit(struct hf_args *args);

void hf_args_print_help(FILE *out);
void hf_args_print_version(FILE *out);
