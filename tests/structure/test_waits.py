#!/usr/bin/env python3
"""Tests wait for what they want, and do not sleep and hope: a test that polls, or lets time pass, does so in one place a language.

    test_waits.py TESTS
"""
import pathlib
import re
import sys

# Each says why in its own words.
MAY_SLEEP = {"net/lib/until.py", "until.h"}
SLEEP = re.compile(r"\b(?:time\.sleep|u?sleep|nanosleep|clock_nanosleep|thrd_sleep)\s*\(|\bsleep\s+[0-9.$]")
ENDINGS = {".py", ".c", ".h", ".sh", ""}


def faults(tests):
    for path in sorted(tests.rglob("*")):
        name = path.relative_to(tests)
        if not path.is_file() or path.suffix not in ENDINGS or str(name) in MAY_SLEEP or "node_modules" in name.parts:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if SLEEP.search(line):
                yield f"{path}:{number}: sleeps; wait for the thing itself, or by until(): {line.strip()}"


def main():
    found = list(faults(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "no test sleeps")
    return 1 if found else 0


sys.exit(main())
