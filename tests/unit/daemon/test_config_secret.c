/* Connection strings as --print-config shows them. */
#include "../test.h"

#include <string.h>

#include "daemon/config_secret.h"

static void expect(const char *text, const char *expected)
{
	char out[512];
	bool is_hidden = hf_config_hide_secrets(text, out, sizeof(out));

	assert_string_equal(out, expected);
	assert_int_equal(is_hidden, strcmp(text, expected) != 0);
}

static void test_pairs(void **state)
{
	expect("", "");
	expect("host=db dbname=locks", "host=db dbname=locks");
	expect("host=db password=secret dbname=locks", "host=db password=*** dbname=locks");
	expect("password = secret", "password = ***");
	expect("password='it\\'s a secret' host=db", "password=*** host=db");
	expect("password=a\\ b host=db", "password=*** host=db");
	expect("PASSWORD=x sslpassword=y passfile=/f", "PASSWORD=*** sslpassword=*** passfile=/f");
	expect("password= host=db", "password= ***"); /* as libpq reads it: the value is host=db */
	expect("password='never closed", "password=***");
	expect("application_name='password=not' host=db", "application_name='password=not' host=db");
}

static void test_uris(void **state)
{
	expect("postgresql://host/base", "postgresql://host/base");
	expect("postgres://me@host:5432/base", "postgres://me@host:5432/base");
	expect("postgres://me:secret@host:5432/base", "postgres://me:***@host:5432/base");
	expect("postgres://me:se@cr/et@host/base", "postgres://me:***@host/base");
	expect("postgres://:secret@/base", "postgres://:***@/base");
	expect("postgres://host/base?user=me&password=secret&sslmode=require",
	       "postgres://host/base?user=me&password=***&sslmode=require");
	expect("postgres://host?sslpassword=x", "postgres://host?sslpassword=***");
	expect("postgres://me:a@h?password=b", "postgres://me:***@h?password=***");
}

static void test_what_is_none_is_hidden(void **state)
{
	expect("secret", "***");
	expect("host=db password=two words", "host=db password=*** ***");
	expect("mysql://me:secret@host/base", "***");
}

static void test_little_room(void **state)
{
	char out[12];

	assert_true(hf_config_hide_secrets("host=db password=secret", out, sizeof(out)));
	assert_string_equal(out, "host=db pas");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_uris),
		cmocka_unit_test(test_what_is_none_is_hidden),
		cmocka_unit_test(test_little_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
