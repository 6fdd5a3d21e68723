/* What every unit test includes first: cmocka and the headers it forgets to include itself. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
