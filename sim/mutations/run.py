#!/usr/bin/env python3
"""Puts each bug of mutations.py into a copy of the source, one at a time, and has the simulation, or a test, find it.

    run.py SCRATCH-FOLDER [--count SEEDS] [--only PART-OF-A-NAME] [--plain | --continue | --forgers | --cluster | --tls | --acts | --tests]
                          [--omit WHAT-THE-WORLD-LEAVES-OUT]
    run.py --check                 only whether all of them can still be put in

Prints a table (Markdown) of the seeds that it took. Exits 1 if a bug was not found, or could not be put in any more.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)

# pylint: disable=wrong-import-position
from mutations import (ACTS_MUTATIONS, CLUSTER_MUTATIONS, CONTINUE_MUTATIONS, FORGER_MUTATIONS, MUTATIONS, TEST_MUTATIONS,
                       TESTS, TLS_MUTATIONS)

LISTS = (("plain", MUTATIONS), ("forgers", FORGER_MUTATIONS), ("continue", CONTINUE_MUTATIONS), ("cluster", CLUSTER_MUTATIONS),
         ("tls", TLS_MUTATIONS), ("acts", ACTS_MUTATIONS), ("tests", TEST_MUTATIONS))
COPIED = ("src", "sim", "standin", "cli", "man", "tools", "contrib", "tests", "meson.build", "meson_options.txt")
SIM, TEST = "-Dsim=true", "-Dtests=true"
SKIPPED = 77
MAX_ACTS = 4


def run(*command, **how):
    return subprocess.run(command, text=True, capture_output=True, check=False, **how)


def copy_tree(tree):
    """Only what differs is written, so that a second run builds little."""
    os.makedirs(tree, exist_ok=True)
    for name in COPIED:
        source = os.path.join(ROOT, name)
        folders = os.walk(source) if os.path.isdir(source) else [(ROOT, [], [name])]
        for folder, _, files in folders:
            for file in files:
                copy_file(os.path.join(folder, file), os.path.join(tree, os.path.relpath(folder, ROOT), file))


def copy_file(source, target):
    with open(source, "rb") as file:
        content = file.read()
    if os.path.exists(target):
        with open(target, "rb") as file:
            if file.read() == content:
                return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(source, target)


def build(tree, folder, option, *targets):
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        made = run("meson", "setup", folder, tree, option, "-Dbuildtype=release", "-Db_lto=false", "-Dwerror=false")
        if made.returncode:
            sys.exit(made.stdout + made.stderr)
    return run("ninja", "-C", folder, *targets)


def play(folder, args, world):
    """The first seed that fails, and what it says; (0, "") if none does."""
    program = (os.path.join(folder, "sim", "holdfast-sim"), "--quiet", *(() if world == "plain" else (f"--{world}",)),
               *(("--omit", args.omit) if args.omit else ()))
    found = run(*program, "--jobs", "1", "--start", "1", "--count", str(args.count))
    match = re.search(r"^seed (\d+) fails$", found.stdout, re.M)
    if not match:
        return 0, found.stdout[-200:] if found.returncode else ""
    again = run(*program, "--seed", match[1])
    said = re.search(r": (\w+)(?:: .*)?$", again.stdout.strip())
    return int(match[1]), said[1] if said else "CRASH"


def play_acts(folder):
    """The first sequence of at most MAX_ACTS acts that fails, and the rule."""
    for n in range(2, MAX_ACTS + 1):
        command = (os.path.join(folder, "sim", "holdfast-sim"), "--acts", str(n), "--quiet")
        with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as sim:
            match = next(filter(None, (re.match(r"([a-z]+:\S+): (\w+): ", line) for line in sim.stdout)), None)
            sim.terminate()
        if match:
            return f"`{match[1]}`", match[2]
    return 0, ""


def play_test(tree, folder, test):
    """The test, if it fails; 0 if it does not."""
    is_net = test.startswith("net/")
    command = (sys.executable, os.path.join(tree, "tests", f"{test}.py")) if is_net else (os.path.join(folder, target_of(test)),)
    how = run(*command, env={**os.environ, "HOLDFASTD": os.path.join(folder, "holdfastd")})
    return (0, "") if how.returncode in (0, SKIPPED) else (f"`{test}`", "")


def target_of(test):
    """What is built for it: unit/client/test_client is tests/unit/client/test_client_client."""
    *folders, name = test.split("/")
    if folders == ["net"]:
        return "holdfastd"
    return "/".join(("tests", *folders, f"test_{folders[-1]}_{name.removeprefix('test_')}"))


def read(tree, mutation):
    """The file, and why the bug cannot be put in, if so."""
    _, file, before, _ = mutation
    with open(os.path.join(tree, file), encoding="utf-8") as opened:
        text = opened.read()
    n = text.count(before)
    return text, "" if n == 1 else f"does not apply any more: found {n} times in {file}"


def check():
    planted = [mutation for _, planted_so in LISTS for mutation in planted_so]
    wrong = [f"{m[0]}: {why}" for m, (_, why) in ((m, read(ROOT, m)) for m in planted) if why]
    print("\n".join(wrong) or f"all {len(planted)} can be put in")
    return 1 if wrong else 0


def try_one(mutation, scratch, args, world):
    name, file, before, after = mutation
    tree = os.path.join(scratch, "tree")
    path = os.path.join(tree, file)
    original, why = read(tree, mutation)
    if why:
        return None, why
    with open(path, "w", encoding="utf-8") as opened:
        opened.write(original.replace(before, after))
    try:
        folder = os.path.join(scratch, "tests" if world == "tests" else "build")
        built = (build(tree, folder, TEST, target_of(TESTS[name])) if world == "tests"
                 else build(tree, folder, SIM, "sim/holdfast-sim"))
        if built.returncode:
            return None, "does not build:\n" + built.stdout[-2000:]
        if world == "acts":
            return play_acts(folder)
        return play_test(tree, folder, TESTS[name]) if world == "tests" else play(folder, args, world)
    finally:
        with open(path, "w", encoding="utf-8") as opened:
            opened.write(original)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", nargs="?")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--count", type=int, default=40000)
    parser.add_argument("--only", default="")
    parser.add_argument("--omit", default="")
    for world, whose in (("plain", "of the usual world"), ("continue", "of a server that goes on"),
                         ("forgers", "that a forger uses"), ("cluster", "of two nodes"),
                         ("tls", "of files that demand TLS"), ("acts", "that a sequence of acts finds"), ("tests", "that a test finds")):
        parser.add_argument(f"--{world}", dest="world", action="store_const", const=world, help=f"only the bugs {whose}")
    args = parser.parse_args()
    if args.check:
        return check()
    if not args.scratch:
        parser.error("where may it build?")
    copy_tree(os.path.join(args.scratch, "tree"))
    n_bad = 0
    print("| bug put in | file | found by seed | as |\n|---|---|---|---|")
    for mutation, world in ((mutation, world) for world, planted in LISTS for mutation in planted):
        name, file = mutation[:2]
        if args.only not in name or args.world not in (None, world):
            continue
        seed, rule = try_one(mutation, args.scratch, args, world)
        n_bad += not seed
        print(f"| {name} | `{file.removeprefix('src/')}` | {seed if seed else '**not found**'} | {rule} |", flush=True)
    print(f"\n{n_bad} not found" if n_bad else "\nall found")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
