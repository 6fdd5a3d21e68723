#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/args.h"

static char error[256];

/* parse(&args, "--check", "--set", "a=b") */
#define parse(args, ...) parse_array(args, (char *const[]){ (char[]){ "holdfastd" }, __VA_ARGS__, NULL })
#define A(text)          ((char[]){ text })

static int parse_array(struct hf_args *args, char *const argv[])
{
	int argc = 0;

	while (argv[argc])
		argc++;
	return hf_args_init(args, argc, argv, error, sizeof(error));
}

#define expect_wrong(message, ...)                                             \
	do {                                                                   \
		struct hf_args args_;                                          \
		assert_int_equal(parse(&args_, __VA_ARGS__), HF_ARGS_E_WRONG); \
		assert_string_equal(error, message);                           \
		hf_args_deinit(&args_);                                        \
	} while (0)

static void test_no_arguments(void **state)
{
	char *const argv[] = { A("holdfastd"), NULL };
	struct hf_args args;

	assert_int_equal(hf_args_init(&args, 1, argv, error, sizeof(error)), 0);
	assert_null(args.config_file);
	assert_int_equal(args.n_sets + args.n_exports, 0);
	assert_false(args.check || args.print_config || args.clear_store || args.version || args.help);
	hf_args_deinit(&args);
	hf_args_deinit(&args); /* once more does no harm */
	assert_int_equal(hf_args_init(&args, 0, argv + 1, error, sizeof(error)), 0);
	hf_args_deinit(&args);
}

static void test_all_arguments(void **state)
{
	struct hf_args args;

	assert_int_equal(parse(&args, A("--config"), A("f.yaml"), A("--set"), A("server.port=5"),
			       A("--export=/a"), A("--export"), A("/b:/c"), A("--set=x=y=z"),
			       A("--clear-store")),
			 0);
	assert_string_equal(args.config_file, "f.yaml");
	assert_int_equal(args.n_sets, 2);
	assert_string_equal(args.sets[0], "server.port=5");
	assert_string_equal(args.sets[1], "x=y=z");
	assert_int_equal(args.n_exports, 2);
	assert_string_equal(args.exports[0], "/a");
	assert_string_equal(args.exports[1], "/b:/c");
	assert_true(args.clear_store);
	assert_false(args.check || args.print_config);
	hf_args_deinit(&args);

	assert_int_equal(parse(&args, A("--check"), A("-c"), A("f")), 0);
	assert_true(args.check);
	assert_string_equal(args.config_file, "f");
	hf_args_deinit(&args);
	assert_int_equal(parse(&args, A("--print-config")), 0);
	assert_true(args.print_config);
	hf_args_deinit(&args);
}

static void test_help_and_version_end_the_line(void **state)
{
	struct hf_args args;

	assert_int_equal(parse(&args, A("--help"), A("--nonsense")), 0);
	assert_true(args.help);
	hf_args_deinit(&args);
	assert_int_equal(parse(&args, A("-h")), 0);
	assert_true(args.help);
	hf_args_deinit(&args);
	assert_int_equal(parse(&args, A("--check"), A("--version"), A("x")), 0);
	assert_true(args.version);
	hf_args_deinit(&args);
	assert_int_equal(parse(&args, A("-V")), 0);
	assert_true(args.version);
	hf_args_deinit(&args);
}

static void test_wrong_options(void **state)
{
	expect_wrong("unknown option '--confg'; did you mean --config?", A("--confg"), A("x"));
	expect_wrong("unknown option '--exports=/a'; did you mean --export?", A("--exports=/a"));
	expect_wrong("unknown option '-config'; did you mean --config?", A("-config"));
	expect_wrong("unknown option '--daemonize'; holdfastd --help lists them all", A("--daemonize"));
	expect_wrong("unknown option '-x'; holdfastd --help lists them all", A("-x"));
	expect_wrong("unknown option '--'; holdfastd --help lists them all", A("--"), A("/srv"));
	expect_wrong("unknown option '--='; holdfastd --help lists them all", A("--="));
	expect_wrong("unknown option '--\\x1b[31m\\x0a'; holdfastd --help lists them all", A("--\033[31m\n"));
	expect_wrong("unexpected argument '/srv/data'; to export a directory, write --export DIR",
		     A("/srv/data"));
	expect_wrong("unexpected argument '-'; to export a directory, write --export DIR", A("-"));
	expect_wrong("unexpected argument ''; to export a directory, write --export DIR", A(""));
}

static void test_wrong_values(void **state)
{
	expect_wrong("--config needs a value; write --config FILE", A("--config"));
	expect_wrong("--config needs a value; write --config FILE", A("--config="));
	expect_wrong("--config needs a value; write --config FILE", A("--config"), A("--check"));
	expect_wrong("--set needs a value; write --set KEY=VALUE", A("--set"));
	expect_wrong("--export needs a value; write --export DIR[:NAME]", A("--export"), A(""));
	expect_wrong("--check takes no value; write --check alone", A("--check=yes"));
	expect_wrong("--config is given twice; give one file", A("--config"), A("a"), A("--config=b"));
	expect_wrong("--check prints nothing, --print-config does; give one of them", A("--check"),
		     A("--print-config"));
	expect_wrong("--clear-store is for a start; give it without --check", A("--clear-store"),
		     A("--check"));
	expect_wrong("--clear-store is for a start; give it without --check-ports", A("--clear-store"),
		     A("--check-ports"));
	expect_wrong("--check-ports looks at ports alone; give it without --check", A("--check-ports"),
		     A("--check"));
}

static void test_help_names_everything(void **state)
{
	static const char *const words[] = { "--config FILE", "--set KEY=VALUE", "--export DIR[:NAME]",
					     "--check",       "--print-config",  "--clear-store",
					     "--version",     "--help",          "Examples:",
					     "Exit status",   "SIGHUP" };
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	hf_args_print_help(out);
	fclose(out);
	for (size_t i = 0; i < HF_ARRAY_SIZE(words); i++)
		assert_non_null(strstr(text, words[i]));
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		assert_true(strlen(line) <= 100);
	free(text);
}

static void test_version(void **state)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	hf_args_print_version(out);
	fclose(out);
	assert_string_equal(text, "holdfastd " HF_VERSION "\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_arguments),
		cmocka_unit_test(test_all_arguments),
		cmocka_unit_test(test_help_and_version_end_the_line),
		cmocka_unit_test(test_wrong_options),
		cmocka_unit_test(test_wrong_values),
		cmocka_unit_test(test_help_names_everything),
		cmocka_unit_test(test_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
