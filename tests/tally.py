#!/usr/bin/env python3
"""tally.py FILE FAILURES: counts the results in FILE, a meson testlog.json or the results.json of the plays.

Prints how many passed, failed and were skipped, and appends to FAILURES the names of those that failed with the end of what each
printed: CI shows the end of a run only, and what failed may be half an hour of output away from it."""

import json
import sys

GOOD = ("OK", "EXPECTEDFAIL", "ok")
SKIPPED = ("SKIP", "skipped")
LINES = 40


def read_results(path):
    """Name, result and what it printed, of each."""
    with open(path, encoding="utf-8") as file:
        if path.endswith("testlog.json"):
            for line in file:
                run = json.loads(line)
                yield run["name"], run["result"], ((run.get("stdout") or "") + (run.get("stderr") or "")).splitlines()
        else:
            for play in json.load(file)["plays"]:
                yield play["play"], play["result"], play["says"]


def main():
    path, failures = sys.argv[1:]
    passed = failed = skipped = 0
    with open(failures, "a", encoding="utf-8") as report:
        for name, result, printed in read_results(path):
            if result in GOOD:
                passed += 1
            elif result in SKIPPED:
                skipped += 1
            else:
                failed += 1
                print(f"==> {name}: {result}", *printed[-LINES:], sep="\n", file=report)
    print(passed, failed, skipped)


main()
