#!/usr/bin/env python3
"""How much of the core the simulation has run: lines, by folder and by file.

    coverage.py BUILD-FOLDER SCHEDULES

The folder is configured with -Db_coverage=true; gcov, of gcc, reads what the run has left there.
"""

import collections
import gzip
import json
import os
import subprocess
import sys
import tempfile

FOLDERS = ("lock", "client", "recovery", "store", "proto/nlm", "proto/nsm")


def counters(build):
    for library in ("libholdfast.a.p", "libholdfast_lock.a.p"):
        for folder, _, files in os.walk(os.path.join(build, library)):
            for name in files:
                if name.endswith(".gcda"):
                    yield os.path.join(folder, name)


def lines_of(build):
    """{source: {line: times}}"""
    found = collections.defaultdict(dict)
    build = os.path.abspath(build)
    for counter in counters(build):
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(["gcov", "--json-format", "-o", counter, counter], cwd=scratch, check=True, capture_output=True)
            for name in os.listdir(scratch):
                with gzip.open(os.path.join(scratch, name), "rt") as file:
                    add(found, json.load(file))
    return found


def add(found, report):
    for file in report["files"]:
        source = os.path.normpath(file["file"])
        if "src/" not in source or not source.endswith(".c"):
            continue
        lines = found[source[source.index("src/") + 4 :]]
        for line in file["lines"]:
            lines[line["line_number"]] = lines.get(line["line_number"], 0) + line["count"]


def is_of(source, folder):
    rest = source[len(folder) + 1 :]
    return source.startswith(folder + "/") and "/" not in rest  # the stores' backends are not simulated


def main():
    build, count = sys.argv[1:3]
    for counter in list(counters(build)):
        os.remove(counter)
    program = os.path.join(build, "sim", "holdfast-sim")
    subprocess.run([program, "--start", "1", "--count", count], check=True)
    found = lines_of(build)
    for folder in FOLDERS:
        files = sorted(source for source in found if is_of(source, folder))
        total = sum(len(found[source]) for source in files)
        run = sum(sum(times > 0 for times in found[source].values()) for source in files)
        print(f"{folder:12} {100 * run / max(total, 1):5.1f} %  {run} of {total} lines")
        for source in files:
            lines = found[source]
            n_run = sum(times > 0 for times in lines.values())
            print(f"    {os.path.basename(source):20} {100 * n_run / max(len(lines), 1):5.1f} %")


if __name__ == "__main__":
    main()
